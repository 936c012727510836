//! The most memory that this process has had in RAM so far, as the system counts it.

/// Bytes; `None` where the system does not tell.
#[cfg(target_os = "linux")]
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes; `None` where the system does not tell.
#[cfg(all(unix, not(target_os = "linux")))]
pub fn peak_bytes() -> Option<u64> {
    // SAFETY: all-zero bytes are a valid `rusage`, which holds only numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a valid place for the answer, and lives as long as the call.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) } != 0 {
        return None;
    }
    // Apple counts bytes, the other systems KiB.
    let unit = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    u64::try_from(usage.ru_maxrss).ok()?.checked_mul(unit)
}

/// Bytes; `None` where the system does not tell.
#[cfg(windows)]
pub fn peak_bytes() -> Option<u64> {
    use std::ffi::c_void;

    /// `PROCESS_MEMORY_COUNTERS` of psapi.h.
    #[repr(C)]
    #[derive(Default)]
    struct Counters {
        size: u32,
        page_faults: u32,
        peak_working_set: usize,
        working_set: usize,
        pools: [usize; 4],
        pagefile: usize,
        peak_pagefile: usize,
    }

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GetCurrentProcess() -> *mut c_void;
        fn K32GetProcessMemoryInfo(process: *mut c_void, counters: *mut Counters, size: u32) -> i32;
    }

    let size = size_of::<Counters>() as u32;
    let mut counters = Counters { size, ..Counters::default() };
    // SAFETY: the handle of the own process needs no closing, and `counters` has the layout and the size that it states.
    let done = unsafe { K32GetProcessMemoryInfo(GetCurrentProcess(), &mut counters, size) };
    (done != 0).then_some(counters.peak_working_set as u64)
}

/// Bytes; `None` where the system does not tell.
#[cfg(not(any(unix, windows)))]
pub fn peak_bytes() -> Option<u64> {
    None
}

#[cfg(all(test, any(unix, windows)))]
mod tests {
    #[test]
    fn memory_that_was_touched_is_counted() {
        let before = super::peak_bytes().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = super::peak_bytes().unwrap();
        assert!(after >= touched.len() as u64, "{before} {after}");
        drop(touched);
        // Linux counts in batches for each core: the peak may be off by some hundred KB.
        let peak = super::peak_bytes().unwrap();
        assert!(peak + (4 << 20) > after, "a peak does not fall: {peak} {after}");
    }
}
