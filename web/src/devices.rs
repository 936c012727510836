//! Devices: what there is, and opening one.

use crate::{
    errors::{Result, js_error},
    object::{number, object},
};
use js_sys::Array;
use wasm_bindgen::prelude::*;

#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"
/** A device that can be opened by its `id`. */
export interface DeviceDescription {
  /** What `openDevice` takes: "cpu", "webgpu:0". */
  id: string;
  kind: "cpu" | "webgpu";
  /** The device's own name; empty where the browser does not tell. */
  name: string;
}

/** An opened device. */
export interface DeviceInfo {
  kind: "cpu" | "webgpu";
  name: string;
  /** More words: the driver, the API. */
  driver: string;
  /** Whether a CPU does a GPU's work. Such a device is never "best". */
  software: boolean;
  features: string[];
  /** Limits by name. */
  limits: Record<string, number>;
}

/** What a device has done since it was opened. */
export interface DeviceCounters {
  /** Kernels launched. */
  dispatches: number;
  /** Command submissions. */
  submits: number;
  /** Pipelines compiled. */
  pipelines: number;
  /** Bind groups created. */
  bindGroups: number;
  /** Buffers created. */
  buffers: number;
  /** Uploads: parameters of runs, and writes of buffers. */
  writes: number;
  /** Their bytes. */
  written: number;
  /** Bytes in live buffers. */
  bytes: number;
  /** The most that `bytes` has been. */
  peakBytes: number;
}
"#;

/// The name of a way to compute, as JavaScript knows it.
fn kind(location: &str) -> &str {
    match location {
        "wgpu" => "webgpu",
        other => other,
    }
}

/// Where a model computes.
#[wasm_bindgen]
pub struct Device {
    pub(crate) inner: tallow::Device,
}

#[wasm_bindgen]
impl Device {
    /// Name, features, limits.
    #[wasm_bindgen(unchecked_return_type = "DeviceInfo")]
    pub fn info(&self) -> Result<JsValue> {
        let info = self.inner.info();
        let features: Array = info.features.iter().map(|feature| JsValue::from_str(feature)).collect();
        let limits: Vec<(&str, JsValue)> = info.limits.iter().map(|(name, value)| (*name, number(*value))).collect();
        object(&[
            ("kind", kind(self.inner.location()).into()),
            ("name", info.name.as_str().into()),
            ("driver", info.driver.as_str().into()),
            ("software", info.software.into()),
            ("features", features.into()),
            ("limits", object(&limits)?),
        ])
    }

    /// What it has done since it was opened.
    #[wasm_bindgen(unchecked_return_type = "DeviceCounters")]
    pub fn counters(&self) -> Result<JsValue> {
        let counters = self.inner.engine().backend().counters();
        object(&[
            ("dispatches", number(counters.dispatches)),
            ("submits", number(counters.submits)),
            ("pipelines", number(counters.pipelines)),
            ("bindGroups", number(counters.bind_groups)),
            ("buffers", number(counters.buffers)),
            ("writes", number(counters.writes)),
            ("written", number(counters.written)),
            ("bytes", number(counters.bytes)),
            ("peakBytes", number(counters.peak_bytes)),
        ])
    }
}

/// The devices that can be opened: GPUs that WebGPU reaches, then the CPU. Whether a GPU is a real one is only known once
/// it is open.
#[wasm_bindgen(unchecked_return_type = "DeviceDescription[]")]
pub async fn devices() -> Result<JsValue> {
    let list = Array::new();
    for adapter in tallow::Device::list_wgpu().await {
        let id = format!("webgpu:{}", adapter.index);
        list.push(&object(&[("id", id.into()), ("kind", "webgpu".into()), ("name", adapter.name.into())])?);
    }
    let name = tallow::Device::Cpu.info().name.as_str();
    list.push(&object(&[("id", "cpu".into()), ("kind", "cpu".into()), ("name", name.into())])?);
    Ok(list.into())
}

/// Opens a device: `"best"` (a real GPU, else the CPU), `"webgpu"` (any GPU, one in software too), `"webgpu:N"` or
/// `"cpu"`.
#[wasm_bindgen(js_name = openDevice)]
pub async fn open_device(name: Option<String>) -> Result<Device> {
    let name = name.as_deref().unwrap_or("best");
    let inner = match name {
        "best" => tallow::Device::best_async().await,
        name => match name.strip_prefix("webgpu") {
            Some(rest) => tallow::Device::by_name(&format!("wgpu{rest}")).await.map_err(js_error)?,
            None => tallow::Device::by_name(name).await.map_err(js_error)?,
        },
    };
    Ok(Device { inner })
}
