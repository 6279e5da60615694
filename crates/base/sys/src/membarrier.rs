//! A full fence on every running thread, of this process or of all.

use std::sync::OnceLock;

const GLOBAL: libc::c_int = 1;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Makes every running thread of the process pass a full fence; `false` if the kernel cannot.
pub fn private_expedited() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED))
        && membarrier(PRIVATE_EXPEDITED)
}

/// Makes every running thread of the machine pass a full fence, which takes milliseconds. Returns `false` if the kernel
/// cannot (for example one whose processors may run without a clock, `nohz_full`).
pub fn global() -> bool {
    membarrier(GLOBAL)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_can() {
        assert!(
            super::global() || std::fs::exists("/sys/devices/system/cpu/nohz_full").unwrap_or(true)
        );
        assert!(super::private_expedited());
        assert!(super::private_expedited());
    }
}
