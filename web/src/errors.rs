//! Errors and panics as JavaScript sees them.

use std::cell::RefCell;
use wasm_bindgen::prelude::*;

/// What functions of this crate return to JavaScript.
pub(crate) type Result<T> = std::result::Result<T, JsValue>;

/// A JavaScript `Error` with Rust's message.
pub(crate) fn js_error(error: impl std::fmt::Display) -> JsValue {
    js_sys::Error::new(&error.to_string()).into()
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Writes a panic to the console and keeps its message. WebAssembly itself would only say `unreachable`, and a promise
/// whose code panicked is never settled: a worker should listen for errors, and then ask for the message.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let message = info.to_string();
        web_sys::console::error_1(&message.as_str().into());
        PANIC.with(|cell| {
            if let Ok(mut place) = cell.try_borrow_mut() {
                place.get_or_insert(message);
            }
        });
    }));
}

/// The message of the first panic, if there was one.
#[wasm_bindgen(js_name = panicMessage)]
pub fn panic_message() -> Option<String> {
    PANIC.with(|cell| cell.try_borrow().ok().and_then(|message| message.clone()))
}
