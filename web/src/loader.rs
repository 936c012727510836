//! A model that is built while its file arrives.

use crate::{
    Device, Model,
    errors::{Result, js_error},
    options::load_options,
};
use std::cell::RefCell;
use tallow_models::{LanguageModel, Streaming};
use wasm_bindgen::prelude::*;

/// After so many bytes the device is given time to take what was queued: uploads must not pile up in memory.
const BYTES_IN_FLIGHT: usize = 16 << 20;

/// Takes the bytes of a GGUF file, in order and in chunks of any size. Each tensor goes to the device when its last byte
/// is there, so that the file is never whole in memory.
#[wasm_bindgen]
pub struct ModelLoader {
    device: tallow::Device,
    state: RefCell<State>,
}

struct State {
    /// `None` while a call is under way, and after an error or the end.
    stream: Option<Streaming>,
    /// Bytes since the device was last waited for.
    queued: usize,
}

#[wasm_bindgen]
impl ModelLoader {
    /// A loader for a model on `device`. `size` is the file's size in bytes, where it is known: a header that lies is then
    /// found out earlier.
    #[wasm_bindgen(constructor)]
    pub fn new(
        device: &Device,
        size: Option<f64>,
        #[wasm_bindgen(unchecked_optional_param_type = "LoadOptions")] options: JsValue,
    ) -> Result<ModelLoader> {
        let size = size.filter(|size| size.is_finite() && *size > 0.0).map(|size| size as u64);
        let stream = LanguageModel::stream(size, &device.inner, load_options(&options)?);
        Ok(Self { device: device.inner.clone(), state: RefCell::new(State { stream: Some(stream), queued: 0 }) })
    }

    /// Takes the next bytes. Await it before the next call.
    pub async fn push(&self, bytes: Vec<u8>) -> Result<()> {
        let mut stream = self.take()?;
        stream.push(&bytes).map_err(js_error)?;
        let wait = {
            let mut state = self.state.borrow_mut();
            state.queued += bytes.len();
            let wait = state.queued >= BYTES_IN_FLIGHT;
            if wait {
                state.queued = 0;
            }
            wait
        };
        drop(bytes);
        if wait {
            self.device.synchronize_async().await.map_err(js_error)?;
        }
        self.state.borrow_mut().stream = Some(stream);
        Ok(())
    }

    /// The model, once all bytes have been pushed. The loader is of no more use then.
    pub async fn finish(&self) -> Result<Model> {
        let model = self.take()?.finish().map_err(js_error)?;
        self.device.synchronize_async().await.map_err(js_error)?;
        Ok(Model::new(model))
    }

    fn take(&self) -> Result<Streaming> {
        let message = "this loader is busy (await each push), has failed, or has finished: make a new one";
        self.state.borrow_mut().stream.take().ok_or_else(|| js_error(message))
    }
}
