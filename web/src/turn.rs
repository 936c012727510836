//! Giving the event loop its turn, so that a worker hears `stop` while it generates.

use std::{cell::RefCell, rc::Rc};
use wasm_bindgen::prelude::*;
use web_sys::{MessageChannel, MessagePort};

use crate::errors::Result;

/// A message channel to itself. An awaited message is a task of the event loop's, unlike a promise that is already
/// settled; and unlike a timer it comes at once.
pub(crate) struct Turn {
    near: MessagePort,
    far: MessagePort,
    resolve: Rc<RefCell<Option<js_sys::Function>>>,
    _listener: Closure<dyn FnMut()>,
}

impl Turn {
    pub fn new() -> Result<Self> {
        let channel = MessageChannel::new()?;
        let resolve: Rc<RefCell<Option<js_sys::Function>>> = Rc::default();
        let waiting = Rc::clone(&resolve);
        let listener = Closure::<dyn FnMut()>::new(move || {
            if let Some(resolve) = waiting.borrow_mut().take() {
                // A promise's own resolve function does not throw.
                let _ = resolve.call0(&JsValue::NULL);
            }
        });
        let near = channel.port1();
        near.set_onmessage(Some(listener.as_ref().unchecked_ref()));
        Ok(Self { near, far: channel.port2(), resolve, _listener: listener })
    }

    /// Done once all messages that came before have been handled.
    pub async fn pass(&self) -> Result<()> {
        let promise = js_sys::Promise::new(&mut |resolve, _| {
            self.resolve.replace(Some(resolve));
        });
        self.far.post_message(&JsValue::NULL)?;
        wasm_bindgen_futures::JsFuture::from(promise).await?;
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.near.set_onmessage(None);
        self.near.close();
    }
}
