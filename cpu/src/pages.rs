//! Large pages for large blocks of memory, so that fewer address translations miss.

/// Asks the system to back `len` bytes at `at` by large pages, where it can. Of use before they are first touched.
pub(crate) fn prefer_large(at: *mut u8, len: usize) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 2 << 20;
        let start = (at as usize).next_multiple_of(PAGE);
        let end = (at as usize).saturating_add(len) & !(PAGE - 1);
        if end > start {
            // SAFETY: advice about whole pages inside memory that the caller owns; it changes no contents. Where the system
            // refuses it, nothing is lost.
            unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (at, len);
}
