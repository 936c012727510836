//! Devices: where tensors live. A [`Device`] is a handle to any backend; nothing here but the constructors knows which kinds
//! there are.

use crate::{DType, Error, Result};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use tallow_graph::{Backend, Engine, Info, Options};
#[cfg(feature = "wgpu")]
pub use tallow_wgpu::AdapterDescription;

/// A device. Clones are handles to the same one.
#[derive(Clone)]
pub struct Device(Inner);

#[derive(Clone)]
enum Inner {
    Cpu,
    Other(Arc<State>),
}

/// An engine, and the place in its stream of random numbers.
struct State {
    engine: Arc<Engine>,
    /// (seed, draws since it was set): one lock, so that a draw never mixes two seeds.
    random: Mutex<(u64, u64)>,
    /// Tables of Fourier transforms.
    tables: Mutex<crate::fft::Cache>,
}

impl State {
    fn new(backend: Arc<dyn Backend>, options: Options) -> Self {
        // Different devices start from one seed: the same program gives the same numbers anywhere.
        Self { engine: Engine::new(backend, options), random: Mutex::new((299_792_458, 0)), tables: Mutex::default() }
    }
}

/// The CPU's backend. A wrong `TALLOW_CPU_ISA` is told once and ignored: a device must always be there.
fn cpu_backend() -> Arc<dyn Backend> {
    match tallow_cpu::CpuBackend::new() {
        Ok(backend) => Arc::new(backend),
        Err(error) => {
            eprintln!("{error}; using the best instruction set instead");
            tallow_cpu::Isa::set_current(Some(tallow_cpu::Isa::best()));
            match tallow_cpu::CpuBackend::new() {
                Ok(backend) => Arc::new(backend),
                Err(_) => Arc::new(tallow_graph::reference::Reference::default()),
            }
        }
    }
}

fn cpu() -> &'static State {
    static CPU: OnceLock<State> = OnceLock::new();
    CPU.get_or_init(|| State::new(cpu_backend(), Options::default()))
}

#[expect(non_upper_case_globals, reason = "candle's name")]
impl Device {
    /// The processor that this program runs on.
    pub const Cpu: Device = Device(Inner::Cpu);
}

impl Device {
    /// A device for any backend, a third party's too.
    pub fn from_backend(backend: Arc<dyn Backend>) -> Self {
        Self::with_options(backend, Options::default())
    }

    /// A device for any backend, with switches that otherwise come from the environment.
    pub fn with_options(backend: Arc<dyn Backend>, options: Options) -> Self {
        Device(Inner::Other(Arc::new(State::new(backend, options))))
    }

    /// A GPU through WebGPU (Vulkan, Metal, DX12, the browser), by its number in [`Device::list_wgpu`]. In a browser, use
    /// [`Device::new_wgpu_async`].
    #[cfg(all(feature = "wgpu", not(target_arch = "wasm32")))]
    pub fn new_wgpu(ordinal: usize) -> Result<Self> {
        crate::block_on(Self::new_wgpu_async(ordinal))
    }

    /// A GPU through WebGPU, by its number.
    #[cfg(feature = "wgpu")]
    pub async fn new_wgpu_async(ordinal: usize) -> Result<Self> {
        let backend = tallow_wgpu::WgpuBackend::open(ordinal, tallow_wgpu::Options::default()).await?;
        Ok(Self::from_backend(Arc::new(backend)))
    }

    /// The GPUs that WebGPU reaches, software ones included (they say so).
    #[cfg(feature = "wgpu")]
    pub async fn list_wgpu() -> Vec<AdapterDescription> {
        tallow_wgpu::adapters().await
    }

    /// The best device: the first hardware GPU, else the CPU. A software GPU is never best.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn best() -> Self {
        crate::block_on(async { Ok(Self::best_async().await) }).unwrap_or(Device::Cpu)
    }

    /// The best device: the first hardware GPU, else the CPU. A software GPU is never best.
    pub async fn best_async() -> Self {
        #[cfg(feature = "wgpu")]
        {
            // A browser tells only of an open device whether it is software, so each is opened to see.
            for adapter in Self::list_wgpu().await {
                if !adapter.software
                    && let Ok(device) = Self::new_wgpu_async(adapter.index).await
                    && !device.info().software
                {
                    return device;
                }
            }
        }
        Device::Cpu
    }

    /// A CUDA device. This build has none: the error says what to use instead.
    pub fn new_cuda(ordinal: usize) -> Result<Self> {
        let message =
            format!("cuda:{ordinal}: this build has no CUDA support: use new_wgpu, which reaches NVIDIA GPUs too");
        Err(Error::Device(message))
    }

    /// A CUDA device where there is one, else the CPU. [`Device::best`] looks for GPUs of any make.
    pub fn cuda_if_available(ordinal: usize) -> Result<Self> {
        if crate::utils::cuda_is_available() { Self::new_cuda(ordinal) } else { Ok(Device::Cpu) }
    }

    fn state(&self) -> &State {
        match &self.0 {
            Inner::Cpu => cpu(),
            Inner::Other(state) => state,
        }
    }

    /// The engine that plans and runs this device's work.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.state().engine
    }

    /// Name, limits, features.
    pub fn info(&self) -> &Info {
        self.engine().backend().info()
    }

    /// Whether this is the processor that the program runs on.
    pub fn is_cpu(&self) -> bool {
        matches!(self.0, Inner::Cpu)
    }

    /// Whether this is a CUDA device.
    pub fn is_cuda(&self) -> bool {
        self.location() == "cuda"
    }

    /// Whether this is a device of candle's Metal backend: never, since Metal is reached through WebGPU.
    pub fn is_metal(&self) -> bool {
        false
    }

    /// Whether this is a GPU through WebGPU.
    pub fn is_wgpu(&self) -> bool {
        self.location() == "wgpu"
    }

    /// Whether tensors of BF16 can be made here.
    pub fn supports_bf16(&self) -> bool {
        self.engine().backend().check_dtype(DType::BF16).is_ok()
    }

    /// BF16 where the device has it, else F32.
    pub fn bf16_default_to_f32(&self) -> DType {
        if self.supports_bf16() { DType::BF16 } else { DType::F32 }
    }

    /// Where it is, in short: `cpu`, `wgpu`.
    pub fn location(&self) -> &'static str {
        self.info().backend
    }

    /// Whether both handles name one device.
    pub fn same_device(&self, other: &Device) -> bool {
        self.engine().id() == other.engine().id()
    }

    /// Starts the device's stream of random numbers anew. The same seed gives the same numbers on every device.
    pub fn set_seed(&self, seed: u64) -> Result<()> {
        *self.state().random.lock() = (seed, 0);
        Ok(())
    }

    /// The seed that the stream of random numbers started from.
    pub fn get_current_seed(&self) -> Result<u64> {
        Ok(self.state().random.lock().0)
    }

    /// The place in the random stream for the next draw, (key, counter): inside a block that autograd computes again, the one
    /// of the first time.
    pub(crate) fn draw(&self) -> (u64, u64) {
        crate::autograd::draw(self)
    }

    /// Takes the next place in the random stream.
    pub(crate) fn next_draw(&self) -> (u64, u64) {
        let mut random = self.state().random.lock();
        let now = *random;
        random.1 += 1;
        now
    }

    /// The tables of Fourier transforms that are kept.
    pub(crate) fn tables(&self) -> &Mutex<crate::fft::Cache> {
        &self.state().tables
    }

    /// Waits until all submitted work is done.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn synchronize(&self) -> Result<()> {
        crate::block_on(self.synchronize_async())
    }

    /// Done when all submitted work is done.
    pub async fn synchronize_async(&self) -> Result<()> {
        self.engine().backend().ready().await
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let info = self.info();
        write!(f, "{} ({})", info.backend, info.name)
    }
}

/// An error for a device name that means nothing.
pub(crate) fn unknown(name: &str) -> Error {
    Error::Device(format!("there is no device '{name}': use cpu, wgpu, wgpu:N (see `tallow devices`) or best"))
}

impl Device {
    /// A device by name: `best`, `cpu`, `wgpu` (the first hardware GPU, else the first), `wgpu:N`.
    pub async fn by_name(name: &str) -> Result<Self> {
        match name {
            "best" => Ok(Self::best_async().await),
            "cpu" => Ok(Device::Cpu),
            #[cfg(feature = "wgpu")]
            "wgpu" => {
                let adapters = Self::list_wgpu().await;
                if adapters.is_empty() {
                    return Err(Error::Device("no GPU can be reached through WebGPU here: use --device cpu".into()));
                }
                let at = adapters.iter().position(|info| !info.software).unwrap_or(0);
                Self::new_wgpu_async(at).await
            }
            #[cfg(feature = "wgpu")]
            other if other.starts_with("wgpu:") => match other["wgpu:".len()..].parse() {
                Ok(at) => Self::new_wgpu_async(at).await,
                Err(_) => Err(unknown(other)),
            },
            other => Err(unknown(other)),
        }
    }
}
