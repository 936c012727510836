//! What GPUs there are. Software devices (a CPU doing a GPU's work) are told apart, because they must never be chosen as
//! the best device.

use tallow_graph::{Error, Result};

/// A GPU that can be opened.
#[derive(Debug, Clone)]
pub struct AdapterDescription {
    /// Its place in the list: what [`super::WgpuBackend::open`] takes.
    pub index: usize,
    /// The device's own name; may be empty in a browser.
    pub name: String,
    /// Driver and version, where known.
    pub driver: String,
    /// `Vulkan`, `Metal`, `Dx12`, `BrowserWebGpu`.
    pub api: &'static str,
    /// Whether a CPU does the work.
    pub software: bool,
    /// Whether the GPU has memory of its own.
    pub discrete: bool,
}

/// Names under which CPUs pose as GPUs.
const SOFTWARE: [&str; 6] =
    ["llvmpipe", "lavapipe", "swiftshader", "microsoft basic render", "warp", "software rasterizer"];

/// Whether a name (adapter, driver, browser architecture) is that of a software device.
pub(super) fn names_software(name: &str) -> bool {
    let name = name.to_lowercase();
    SOFTWARE.iter().any(|software| match *software {
        // A word of its own: "warped" or a product name that contains it is no match.
        "warp" => name.split(|c: char| !c.is_alphanumeric()).any(|word| word == "warp"),
        software => name.contains(software),
    })
}

pub(super) fn api_name(backend: wgpu::Backend) -> &'static str {
    match backend {
        wgpu::Backend::Vulkan => "Vulkan",
        wgpu::Backend::Metal => "Metal",
        wgpu::Backend::Dx12 => "Dx12",
        wgpu::Backend::Gl => "OpenGL",
        wgpu::Backend::BrowserWebGpu => "BrowserWebGpu",
        wgpu::Backend::Noop => "noop",
    }
}

pub(super) fn driver_words(info: &wgpu::AdapterInfo) -> String {
    let words = [info.driver.as_str(), info.driver_info.as_str()];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

pub(super) fn is_software(info: &wgpu::AdapterInfo) -> bool {
    info.device_type == wgpu::DeviceType::Cpu || names_software(&info.name) || names_software(&info.driver)
}

fn describe(index: usize, info: &wgpu::AdapterInfo) -> AdapterDescription {
    AdapterDescription {
        index,
        name: info.name.clone(),
        driver: driver_words(info),
        api: api_name(info.backend),
        software: is_software(info),
        discrete: info.device_type == wgpu::DeviceType::DiscreteGpu,
    }
}

/// An instance; `strict` restricts it to what the WebGPU specification offers.
pub(super) fn instance(strict: bool) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends =
        wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12 | wgpu::Backends::BROWSER_WEBGPU;
    // No debug layers and no checks of indirect calls (there are none); WGPU_* variables can ask for them.
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    if strict {
        descriptor.flags |= wgpu::InstanceFlags::STRICT_WEBGPU_COMPLIANCE;
    }
    wgpu::Instance::new(descriptor)
}

/// All adapters that can run compute shaders, best first: software last, discrete before integrated.
pub(super) async fn list(instance: &wgpu::Instance) -> Vec<wgpu::Adapter> {
    #[cfg(not(target_arch = "wasm32"))]
    let mut found = instance.enumerate_adapters(wgpu::Backends::all()).await;
    #[cfg(target_arch = "wasm32")]
    let mut found: Vec<wgpu::Adapter> = {
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        instance.request_adapter(&options).await.into_iter().collect()
    };
    found.retain(|adapter| {
        adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
            && adapter.limits().max_storage_buffers_per_shader_stage > 0
    });
    found.sort_by_key(|adapter| {
        let info = adapter.get_info();
        let kind = match info.device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        };
        (is_software(&info), kind)
    });
    found
}

/// The GPUs of this machine (in a browser: the one that it offers), best first: software devices last.
pub async fn adapters() -> Vec<AdapterDescription> {
    let found = list(&instance(false)).await;
    found.iter().enumerate().map(|(index, adapter)| describe(index, &adapter.get_info())).collect()
}

/// [`adapters`], waiting.
#[cfg(not(target_arch = "wasm32"))]
pub fn adapters_blocking() -> Vec<AdapterDescription> {
    pollster::block_on(adapters())
}

/// The adapter of that number in the list.
pub(super) async fn nth(instance: &wgpu::Instance, index: usize) -> Result<wgpu::Adapter> {
    let mut found = list(instance).await;
    if index < found.len() {
        return Ok(found.swap_remove(index));
    }
    let names: Vec<String> = found.iter().map(|adapter| adapter.get_info().name).collect();
    Err(Error::Device(if names.is_empty() {
        "no GPU was found: WebGPU needs a driver for Vulkan, Metal or DX12, or a browser that has it switched on. \
         Device::Cpu works everywhere"
            .to_owned()
    } else {
        format!("there is no GPU number {index}; found {}: {}", names.len(), names.join(", "))
    }))
}

#[cfg(test)]
mod tests {
    use super::names_software;

    #[test]
    fn software_devices_are_recognised_and_others_are_not() {
        for name in ["llvmpipe (LLVM 15.0.6, 256 bits)", "SwiftShader Device", "Microsoft Basic Render Driver", "WARP"]
        {
            assert!(names_software(name), "{name}");
        }
        for name in ["NVIDIA GeForce RTX 4090", "Apple M3", "Warpspeed 9000", ""] {
            assert!(!names_software(name), "{name}");
        }
    }
}
