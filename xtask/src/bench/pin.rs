//! Which cores a process may use, and stopping it between its turns. Linux does both; elsewhere processes run wherever the
//! system puts them.

use std::process::{Child, Command};

#[cfg(target_os = "linux")]
mod system {
    use super::*;
    use std::os::unix::process::CommandExt;

    /// Up to `count` of the cores that this process may use, the last ones first: the first serves most interrupts.
    pub fn cpus(count: usize) -> Vec<usize> {
        // SAFETY: an all-zero set is a valid empty one, and the call writes no more than its size into it.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
                return vec![0];
            }
            set
        };
        // SAFETY: the number is below the set's size.
        let allowed = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
        let mut cpus: Vec<usize> = allowed.collect();
        cpus.reverse();
        cpus.truncate(count);
        cpus
    }

    /// Lets a command that is about to start run on these cores only, and end when this process ends.
    pub fn pin(command: &mut Command, cpus: &[usize]) {
        // SAFETY: an all-zero set is a valid empty one.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
            // SAFETY: the number is below the set's size.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        let before = move || {
            // SAFETY: both are plain system calls on values that outlive them.
            let done = unsafe {
                libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) == 0
                    && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
            };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: the closure makes two system calls between fork and exec, and touches no lock and no heap.
        unsafe { command.pre_exec(before) };
    }

    fn signal(child: &Child, signal: libc::c_int) {
        if let Ok(id) = libc::pid_t::try_from(child.id()) {
            // SAFETY: a plain system call; the child was not waited for, so its id is still its own.
            unsafe { libc::kill(id, signal) };
        }
    }

    /// Stops all threads of a process.
    pub fn pause(child: &Child) {
        signal(child, libc::SIGSTOP);
    }

    /// Lets them go on.
    pub fn resume(child: &Child) {
        signal(child, libc::SIGCONT);
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    /// As many numbers as threads are wanted and there are.
    pub fn cpus(count: usize) -> Vec<usize> {
        let there = std::thread::available_parallelism().map_or(1, |there| there.get());
        (0..count.min(there)).collect()
    }

    /// Nothing.
    pub fn pin(_: &mut Command, _: &[usize]) {}

    /// Nothing.
    pub fn pause(_: &Child) {}

    /// Nothing.
    pub fn resume(_: &Child) {}
}

pub use system::{cpus, pause, pin, resume};
