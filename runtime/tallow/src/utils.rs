//! What this build and this machine have.

/// Threads of the CPU backend: `TALLOW_THREADS`, else one a core.
pub fn get_num_threads() -> usize {
    tallow_cpu::Pool::global().threads()
}

/// The instruction set that CPU kernels use: `avx2`, `neon`, `scalar`, ... An error where `TALLOW_CPU_ISA` names one
/// that this processor lacks.
pub fn cpu_isa() -> crate::Result<&'static str> {
    Ok(tallow_cpu::Isa::current()?.name())
}

/// Whether [`Device::new_cuda`](crate::Device::new_cuda) can open a device: not in this build.
pub const fn cuda_is_available() -> bool {
    false
}

/// Whether there is a Metal backend beside WebGPU: never. WebGPU runs on Metal.
pub const fn metal_is_available() -> bool {
    false
}

/// Whether this build can reach GPUs through WebGPU. Whether there are any, [`Device::best`](crate::Device::best) tells.
pub const fn wgpu_is_available() -> bool {
    cfg!(feature = "wgpu")
}

/// Whether CPU products use Intel's MKL: not in this build.
pub const fn has_mkl() -> bool {
    false
}

/// Whether CPU products use Apple's Accelerate: not in this build.
pub const fn has_accelerate() -> bool {
    false
}
