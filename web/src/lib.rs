//! Tallow for JavaScript: language models in a page, a worker, Node or Deno.
//!
//! ```js
//! import init, { openDevice, ModelLoader } from "./tallow_web.js";
//!
//! await init();
//! const device = await openDevice("best");
//! const response = await fetch(url);
//! const loader = new ModelLoader(device, Number(response.headers.get("content-length")));
//! for await (const chunk of response.body) await loader.push(chunk);
//! const model = await loader.finish();
//! await model.generate("The capital of France is", { maxTokens: 20 }, (text) => console.log(text));
//! ```
//!
//! Nothing blocks for longer than one step of the model takes on a CPU; still, use it in a worker. Every failure is a
//! JavaScript `Error` with Rust's message. After a panic (a bug in Tallow) the module must not be used again, and
//! [`panic_message`] has the words.

mod devices;
mod errors;
mod loader;
mod model;
mod object;
mod options;
mod turn;

pub use devices::{Device, devices, open_device};
pub use errors::panic_message;
pub use loader::ModelLoader;
pub use model::Model;

/// Runs once when the module is instantiated.
#[wasm_bindgen::prelude::wasm_bindgen(start)]
pub fn start() {
    errors::install_panic_hook();
}
