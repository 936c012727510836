//! What other people's libraries read from the environment.

/// Keeps a machine without a display quiet. Mesa's device-select layer asks the Wayland display which GPU comes first, and
/// where there is none, libwayland writes an error on standard error for each list of devices. Without a display the layer
/// has nothing to say, unless the user has told it which device to take.
///
/// Call it first thing in `main`: it changes the environment.
#[cfg(target_os = "linux")]
pub fn quiet_without_display() {
    let unset = |name: &str| std::env::var_os(name).is_none();
    if ["XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "MESA_VK_DEVICE_SELECT", "DRI_PRIME"].into_iter().all(unset) {
        // SAFETY: no other thread runs yet that could read the environment meanwhile.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

/// Elsewhere there is nothing to do.
#[cfg(not(target_os = "linux"))]
pub fn quiet_without_display() {}
