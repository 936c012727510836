//! Opening a device: which features and limits are asked for, and what the kernel library is told about it.

use super::{
    adapters::{api_name, driver_words, instance, is_software, names_software, nth},
    backend::WgpuBackend,
    errors::{Errors, Failure},
    pool::{Counts, Gpu, Pool},
};
use crate::library::{self, Coop, Cut, Room, Shader, Target, Vendor};
use smallvec::SmallVec;
use std::sync::Arc;
use tallow_graph::{Error, Implementation, Info, Kernel, Result, Scalar};

/// What kernels may use, each tier with all below it. A lower one than the device has serves tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Tier {
    /// Core WebGPU with f32.
    T0,
    /// f16 arithmetic.
    T1,
    /// Subgroup operations.
    T2,
    /// Packed 8-bit integer dot products.
    T3,
    /// Cooperative matrices, natively: wgpu calls them experimental.
    #[default]
    T4,
}

impl Tier {
    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "T0" | "t0" | "0" => Some(Tier::T0),
            "T1" | "t1" | "1" => Some(Tier::T1),
            "T2" | "t2" | "2" => Some(Tier::T2),
            "T3" | "t3" | "3" => Some(Tier::T3),
            "T4" | "t4" | "4" => Some(Tier::T4),
            _ => None,
        }
    }

    /// The tier that `TALLOW_WGPU_TIER` allows, if it is set.
    fn from_env() -> Result<Option<Self>> {
        match std::env::var("TALLOW_WGPU_TIER") {
            Ok(text) => Tier::parse(&text)
                .map(Some)
                .ok_or_else(|| Error::Device(format!("TALLOW_WGPU_TIER={text}: expected T0, T1, T2, T3 or T4"))),
            Err(_) => Ok(None),
        }
    }
}

/// Whether to measure which way to run a kernel is fastest, natively. Choices are kept on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tune {
    /// Estimates choose.
    Never,
    /// On devices that are no software.
    #[default]
    Hardware,
    /// On any device.
    Always,
}

impl Tune {
    /// What `TALLOW_TUNE` says, if it is set.
    fn from_env() -> Result<Option<Self>> {
        match std::env::var("TALLOW_TUNE").as_deref().map(str::trim) {
            Err(_) => Ok(None),
            Ok("0") => Ok(Some(Tune::Never)),
            Ok("1") => Ok(Some(Tune::Always)),
            Ok(text) => Err(Error::Device(format!("TALLOW_TUNE={text}: expected 0 (never) or 1 (always)"))),
        }
    }
}

/// The folder of measured choices: `tune` in `TALLOW_CACHE`, else `tallow/tune` in the user's cache folder.
#[cfg(not(target_arch = "wasm32"))]
fn cache_folder() -> Option<std::path::PathBuf> {
    match std::env::var_os("TALLOW_CACHE").filter(|folder| !folder.is_empty()) {
        Some(folder) => Some(std::path::PathBuf::from(folder).join("tune")),
        None => dirs::cache_dir().map(|folder| folder.join("tallow").join("tune")),
    }
}

/// The functions of a kernel library. [`Default`] is this crate's own; tests bring a small one.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "each is documented where it is defined: crate::library")]
#[allow(clippy::type_complexity, reason = "they are signatures")]
pub struct Library {
    pub implementations: fn(&Kernel, &[i64], &Target) -> SmallVec<[Implementation; 2]>,
    pub shader: fn(&Kernel, u32, &Target) -> Result<Shader>,
    pub params: fn(&Kernel, &[i64], &[Scalar], &mut Vec<u32>) -> Result<()>,
    pub grids: fn(&Kernel, u32, &[i64], &Target) -> SmallVec<[[u32; 3]; 2]>,
    pub split: fn(&Kernel, &[i64], usize, &Room) -> Result<Cut>,
}

impl Default for Library {
    fn default() -> Self {
        Self {
            implementations: library::implementations,
            shader: library::shader,
            params: library::params,
            grids: library::grids,
            split: library::split,
        }
    }
}

/// How to open a device.
#[derive(Clone)]
pub struct Options {
    /// The highest tier to use, where the device has it. The environment's `TALLOW_WGPU_TIER` can lower it further.
    pub tier: Tier,
    /// Only what the WebGPU specification offers: keeps native tests honest.
    pub strict: bool,
    /// Whether shaders check bounds and loops. Without (natively; browsers always check), kernels run faster, and a
    /// wrong kernel may do anything.
    pub checks: bool,
    /// The most bytes of device memory to use at once; `None`: what there is.
    pub memory_limit: Option<u64>,
    /// The most bytes that one binding may show, below what the device allows: tests run tensors that are larger than a
    /// binding on small data. The environment's `TALLOW_WGPU_MAX_BINDING` can lower it further.
    pub max_binding: Option<u64>,
    /// Whether kernels are measured. The environment's `TALLOW_TUNE` overrules it.
    pub tune: Tune,
    /// Where measured choices are kept; `None`: in the user's cache folder.
    pub tune_folder: Option<std::path::PathBuf>,
    /// The kernel library.
    pub library: Library,
}

/// The least that `max_binding` may be: below it, a few columns of the smallest model's weights would be too much.
const LEAST_BINDING: u64 = 4096;

/// The bytes that `TALLOW_WGPU_MAX_BINDING` and the options allow one binding, if they say.
fn max_binding(options: &Options) -> Result<Option<u64>> {
    let most = match std::env::var("TALLOW_WGPU_MAX_BINDING") {
        Ok(text) => {
            let bytes = text
                .trim()
                .parse::<u64>()
                .map_err(|_| Error::Device(format!("TALLOW_WGPU_MAX_BINDING={text}: expected a number of bytes")))?;
            Some(options.max_binding.map_or(bytes, |most| most.min(bytes)))
        }
        Err(_) => options.max_binding,
    };
    match most {
        Some(bytes) if bytes < LEAST_BINDING => {
            Err(Error::Device(format!("a binding of at most {bytes} bytes: kernels need {LEAST_BINDING} at least")))
        }
        most => Ok(most),
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tier: Tier::default(),
            strict: false,
            checks: true,
            memory_limit: None,
            max_binding: None,
            tune: Tune::default(),
            tune_folder: None,
            library: Library::default(),
        }
    }
}

/// The features that are of use where they exist.
fn wanted_features() -> wgpu::Features {
    wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY
}

/// Sizes of subgroups, where kernels may use them. A browser needs a line in the shader and a feature of the device
/// that wgpu cannot ask for there.
fn subgroups(features: wgpu::Features, info: &wgpu::AdapterInfo) -> Option<(u32, u32)> {
    let usable = !cfg!(target_arch = "wasm32") && features.contains(wgpu::Features::SUBGROUP);
    (usable && info.subgroup_min_size > 0).then_some((info.subgroup_min_size, info.subgroup_max_size))
}

/// The cooperative matrices that kernels may use: square ones, whose sums are f32 and do not saturate. Wide or flat ones
/// (Intel's 8 x 16) have no name in WGSL yet.
fn cooperative(adapter: &wgpu::Adapter, tier: Tier, options: &Options) -> Coop {
    use wgpu::CooperativeScalarType::{F16, F32};
    let features = adapter.features();
    let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SUBGROUP;
    if tier < Tier::T4 || options.strict || cfg!(target_arch = "wasm32") || !features.contains(needed) {
        return Coop::default();
    }
    let all = adapter.cooperative_matrix_properties();
    let side = |operands| {
        let square = |p: &&wgpu::CooperativeMatrixProperties| {
            let side = p.m_size;
            (p.n_size, p.k_size) == (side, side) && matches!(side, 8 | 16) && p.ab_type == operands && p.cr_type == F32
        };
        // A larger one reads memory less often for each product.
        all.iter().filter(square).map(|p| p.m_size).max().unwrap_or(0)
    };
    let half = features.contains(wgpu::Features::SHADER_F16);
    Coop { f16: if half { side(F16) } else { 0 }, f32: side(F32) }
}

/// What a browser tells about a device beyond wgpu's words: vendor and architecture, which name software devices.
#[cfg(target_arch = "wasm32")]
fn browser_words(device: &wgpu::Device) -> Vec<String> {
    use std::ops::Deref;
    let Some(device) = device.as_webgpu() else { return Vec::new() };
    let get = |object: &js_sys::wasm_bindgen::JsValue, key: &str| js_sys::Reflect::get(object, &key.into()).ok();
    let Some(info) = get(device.deref(), "adapterInfo") else { return Vec::new() };
    ["vendor", "architecture", "device", "description"]
        .into_iter()
        .filter_map(|key| get(&info, key)?.as_string().filter(|word| !word.is_empty()))
        .collect()
}

#[cfg(not(target_arch = "wasm32"))]
fn browser_words(_: &wgpu::Device) -> Vec<String> {
    Vec::new()
}

impl WgpuBackend {
    /// Opens the GPU of that number in [`super::adapters`].
    ///
    /// # Errors
    /// Where there is no such GPU, or its driver refuses.
    pub async fn open(index: usize, options: Options) -> Result<Self> {
        let tier = Tier::from_env()?.map_or(options.tier, |forced| forced.min(options.tier));
        let instance = instance(options.strict);
        let adapter = nth(&instance, index).await?;
        let info = adapter.get_info();
        let mut limits = adapter.limits();
        if let Some(most) = max_binding(&options)?
            && most < limits.max_storage_buffer_binding_size
        {
            // Asked for as such, so that wgpu itself refuses what is larger; with the coarsest alignment that there is.
            limits.max_storage_buffer_binding_size = most & !15;
            limits.min_storage_buffer_offset_alignment = limits.min_storage_buffer_offset_alignment.max(256);
        }
        let coop = cooperative(&adapter, tier, &options);
        let mut required_features = adapter.features() & wanted_features();
        let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
        if coop.any() {
            required_features |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
            // SAFETY: the one experimental feature asked for is used by one kernel (library/coop.rs), in uniform control
            // flow, with every address inside its workgroup memory. Users' kernels cannot enable it.
            experimental_features = unsafe { wgpu::ExperimentalFeatures::enabled() };
        }
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("tallow"),
            required_features,
            required_limits: limits.clone(),
            experimental_features,
            ..Default::default()
        };
        let (device, queue) = adapter
            .request_device(&descriptor)
            .await
            .map_err(|error| Error::Device(format!("{} cannot be opened: {error}", info.name)))?;

        let errors = Arc::new(Errors::default());
        let sink = Arc::clone(&errors);
        device.on_uncaptured_error(Arc::new(move |error| sink.report(Failure::from_wgpu(&error))));
        let sink = Arc::clone(&errors);
        device.set_device_lost_callback(move |_, message| sink.report(Failure::Lost(message)));

        let features = device.features();
        let words = browser_words(&device);
        let software = is_software(&info) || words.iter().any(|word| names_software(word));
        let packed_dot =
            instance.wgsl_language_features().contains(wgpu::WgslLanguageFeatures::Packed4x8IntegerDotProduct);
        let target = Target {
            f16: tier >= Tier::T1 && features.contains(wgpu::Features::SHADER_F16),
            subgroups: subgroups(features, &info).filter(|_| tier >= Tier::T2),
            packed_dot: tier >= Tier::T3 && packed_dot,
            coop,
            naga: !cfg!(target_arch = "wasm32"),
            max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_storage: limits.max_compute_workgroup_storage_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_dispatch: limits.max_compute_workgroups_per_dimension,
            software,
            vendor: Vendor::of(info.vendor, &format!("{} {}", info.name, words.join(" "))),
        };
        let name = match (info.name.is_empty(), words.is_empty()) {
            (false, _) => info.name.clone(),
            (true, false) => words.join(" "),
            (true, true) => "the browser's GPU".to_owned(),
        };
        let driver = [api_name(info.backend).to_owned(), driver_words(&info)].join(" ").trim().to_owned();
        let about = Info {
            name: name.clone(),
            backend: "wgpu",
            driver,
            software,
            features: feature_names(&target, features),
            limits: vec![
                ("max_buffer_size", limits.max_buffer_size),
                ("max_storage_buffer_binding_size", limits.max_storage_buffer_binding_size),
                ("max_storage_buffers_per_shader_stage", u64::from(limits.max_storage_buffers_per_shader_stage)),
                ("max_compute_invocations_per_workgroup", u64::from(limits.max_compute_invocations_per_workgroup)),
                ("max_compute_workgroup_storage_size", u64::from(limits.max_compute_workgroup_storage_size)),
                ("max_compute_workgroups_per_dimension", u64::from(limits.max_compute_workgroups_per_dimension)),
            ],
            memory: options.memory_limit,
            // One binding is the fault word's.
            max_bindings: limits.max_storage_buffers_per_shader_stage.saturating_sub(1) as usize,
            max_words: MAX_WORDS,
            can_block: !cfg!(target_arch = "wasm32"),
        };
        let gpu = Arc::new(Gpu { device, queue, name, limits, errors, counts: Counts::default() });
        let pool = Pool::new(gpu, options.memory_limit);
        let tune = Tune::from_env()?.unwrap_or(options.tune);
        #[cfg(not(target_arch = "wasm32"))]
        let tuner = super::tune::Tuner::new(tune, options.tune_folder.or_else(cache_folder).as_deref(), &about);
        #[cfg(target_arch = "wasm32")]
        let _ = tune;
        WgpuBackend::new(
            pool,
            about,
            target,
            options.library,
            options.checks,
            #[cfg(not(target_arch = "wasm32"))]
            tuner,
        )
    }

    /// [`WgpuBackend::open`], waiting.
    ///
    /// # Errors
    /// As [`WgpuBackend::open`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open_blocking(index: usize, options: Options) -> Result<Self> {
        pollster::block_on(Self::open(index, options))
    }
}

/// Words that a map may need: 2 KiB of uniform memory, a small share of the least limit (16 KiB).
const MAX_WORDS: usize = 512;

/// The features in use, by the names of the WebGPU specification.
fn feature_names(target: &Target, features: wgpu::Features) -> Vec<&'static str> {
    [
        ("shader-f16", target.f16),
        ("subgroups", target.subgroups.is_some()),
        ("packed_4x8_integer_dot_product", target.packed_dot),
        ("cooperative-matrix", target.coop.any()),
        ("timestamp-query", features.contains(wgpu::Features::TIMESTAMP_QUERY)),
    ]
    .into_iter()
    .filter_map(|(name, there)| there.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_ordered_and_read_from_words() {
        for (text, tier) in [("T0", Tier::T0), (" t1 ", Tier::T1), ("2", Tier::T2), ("T3", Tier::T3), ("t4", Tier::T4)]
        {
            assert_eq!(Tier::parse(text), Some(tier), "{text}");
        }
        assert_eq!(Tier::parse("T5"), None);
        assert!(Tier::T0 < Tier::T1 && Tier::T2 < Tier::T3 && Tier::T3 < Tier::T4);
    }
}
