//! Blocking signals around the start of a thread.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A thread's signal mask.
#[derive(Clone, Copy)]
pub struct Mask(libc::sigset_t);

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mask")
    }
}

/// Blocks all signals for this thread (and threads that it starts); returns the former mask.
pub fn block_all() -> io::Result<Mask> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both point to locals of the right type; sigfillset initialises the first, pthread_sigmask the second.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let error = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(Mask(before.assume_init()))
    }
}

/// Waits for a signal, and returns its number. All signals must be blocked.
pub fn wait() -> io::Result<i32> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut number = 0;
    // SAFETY: both point to locals of the right type; sigfillset initialises the first, sigwait the second.
    let error = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigwait(all.as_ptr(), &raw mut number)
    };
    match error {
        0 => Ok(number),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Starts a thread that no signal disturbs, with a stack of that many bytes.
pub fn thread(
    name: &str,
    stack_bytes: usize,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    let mask = block_all()?;
    let thread = std::thread::Builder::new().name(name.to_owned());
    let started = thread.stack_size(stack_bytes).spawn(run);
    restore(&mask);
    started
}

/// Starts a thread that no signal disturbs, without the standard library: an allocator may call it.
pub fn bare_thread(
    stack_bytes: usize,
    run: extern "C" fn(*mut c_void) -> *mut c_void,
) -> io::Result<()> {
    let mask = block_all()?;
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: both point to locals of the right type. The attributes are initialised before they are changed, used and
    // destroyed. The thread is detached, so its number is not needed.
    let error = unsafe {
        match libc::pthread_attr_init(attributes) {
            0 => {
                libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
                libc::pthread_attr_setstacksize(attributes, stack_bytes);
                let error =
                    libc::pthread_create(thread.as_mut_ptr(), attributes, run, ptr::null_mut());
                libc::pthread_attr_destroy(attributes);
                error
            }
            error => error,
        }
    };
    restore(&mask);
    match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Says whether the program ignores SIGPIPE.
pub fn ignores_sigpipe() -> bool {
    // SAFETY: all-zero is a valid action, which the kernel fills in; the second pointer may be null.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Runs code that may raise SIGPIPE in this thread, without the signal. Costs one system call if the program ignores
/// the signal anyway.
pub fn without_sigpipe<T>(work: impl FnOnce() -> T) -> T {
    if ignores_sigpipe() {
        return work();
    }
    let mut only = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: locals of the right type, each filled by the first call that has it.
    let waited = unsafe {
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, only.as_ptr(), before.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1
    };
    let done = work();
    let none = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: as above, and they are filled now.
    unsafe {
        // A signal that was pending before belongs to other code.
        if !waited {
            libc::sigtimedwait(only.as_ptr(), std::ptr::null_mut(), &raw const none);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    done
}

/// Raises SIGPIPE in this thread.
pub fn raise_sigpipe() {
    // SAFETY: no precondition.
    unsafe { libc::raise(libc::SIGPIPE) };
}

/// Restores a mask.
pub fn restore(mask: &Mask) {
    // SAFETY: the mask was filled by the kernel.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask.0, std::ptr::null_mut()) };
}
