//! The product through its C face: the functions of `libtranship.so`, called as a C program calls them. All else is as in `tranship`.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

use anyhow::{Context, Result, bail, ensure};

use super::tranship::{shape_of, socket};
use crate::alloc::{self, Preload};
use crate::case::{Case, Touch, Wait};
use crate::party::Party;
use crate::peer::{Peer, Role};

const LIBRARY: Preload = Preload {
    file: "libtranship.so",
    get: "cargo build --release -p tranship-capi",
};

/// Says so if it is not.
pub fn is_there() -> bool {
    alloc::library(C::NAME, Some(LIBRARY)).is_some()
}

/// `tranship_buf`.
#[repr(C)]
struct Buf {
    ptr: *mut c_void,
    len: usize,
    word: u64,
    kind: u32,
    flags: u32,
    words: [MaybeUninit<u64>; 6],
}

/// `tranship_domain_options`.
#[repr(C)]
struct DomainOptions {
    size: usize,
    name: *const c_char,
    socket: *const c_char,
    config: *const c_char,
    flags: u32,
    reserved: u32,
}

/// `tranship_pool_options`.
#[repr(C)]
struct PoolOptions {
    size: usize,
    name: *const c_char,
    chunk_bytes: u64,
    keep_bytes: u64,
    preallocate_bytes: u64,
    slots: u32,
    trust: u32,
    flags: u32,
    reserved: u32,
}

/// `tranship_link_options`.
#[repr(C)]
struct ChannelOptions {
    size: usize,
    lines: u32,
    wait: u32,
    spins: u32,
    accept_trust: u32,
    snapshots: *const c_void,
}

type Handle = *mut c_void;
type Errors = *mut *mut c_void;

macro_rules! functions {
    ($($name:ident($($arg:ty),*) -> $result:ty;)+) => {
        /// The library's functions.
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($arg),*) -> $result,)+
        }

        impl Functions {
            fn of(library: *mut c_void) -> Result<Functions> {
                Ok(Functions {
                    $($name: {
                        let name = concat!("tranship_", stringify!($name), "\0");
                        // SAFETY: an open library, and a name with a 0 at its end.
                        let at = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        ensure!(!at.is_null(), "{name} is not there");
                        // SAFETY: `tranship.h` declares it so.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(at) }
                    },)+
                })
            }
        }
    };
}

functions! {
    embedded(*const DomainOptions, *mut Handle, Errors) -> i32;
    connect(*const DomainOptions, *mut Handle, Errors) -> i32;
    pool_create(Handle, u64, *const PoolOptions, *mut Handle, Errors) -> i32;
    listen(Handle, *const c_char, u32, *const ChannelOptions, *mut Handle, Errors) -> i32;
    accept_sender(Handle, i64, *mut Handle, Errors) -> i32;
    accept_receiver(Handle, i64, *mut Handle, Errors) -> i32;
    open_sender(Handle, *const c_char, *const ChannelOptions, i64, *mut Handle, Errors) -> i32;
    open_receiver(Handle, *const c_char, *const ChannelOptions, i64, *mut Handle, Errors) -> i32;
    assign(Handle, Handle, i64, Errors) -> i32;
    alloc(Handle, usize, i64, *mut Buf, Errors) -> i32;
    send(Handle, *mut Buf, i64, Errors) -> i32;
    send_inline(Handle, *const c_void, usize, u64, i64, Errors) -> i32;
    recv(Handle, i64, *mut Buf, Errors) -> i32;
    release(*mut Buf) -> ();
    error_message(Handle) -> *const c_char;
}

const FOREVER: i64 = -1;
const SOURCE: u32 = 1;
const SINK: u32 = 2;
const HELPER_THREAD: u32 = 1;
const WAIT_SPIN: u32 = 2;
const WAIT_SLEEP: u32 = 3;

pub struct C {
    c: Functions,
    sender: Handle,
    receiver: Handle,
    pool: Handle,
    /// As a program in C has it: for the error of the last call, and looked at after each.
    error: *mut c_void,
    touch: Touch,
    payload: usize,
}

impl C {
    #[inline(always)]
    fn good(&self, status: i32) -> Result<()> {
        match status {
            0 => Ok(()),
            _ => self.failed(status),
        }
    }

    #[cold]
    fn failed(&self, status: i32) -> Result<()> {
        // SAFETY: the error of the call before, which has a text.
        let text = unsafe { CStr::from_ptr((self.c.error_message)(self.error)) };
        bail!("status {status}: {}", text.to_string_lossy())
    }

    fn domain(&mut self, me: usize, party: &Party) -> Result<Handle> {
        let path = CString::new(socket(party.run).as_os_str().as_bytes())?;
        let options = DomainOptions {
            size: size_of::<DomainOptions>(),
            name: null(),
            socket: path.as_ptr(),
            config: null(),
            flags: HELPER_THREAD,
            reserved: 0,
        };
        let mut domain = null_mut();
        if me > 0 {
            party.barrier()?;
        }
        let join = if me == 0 {
            self.c.embedded
        } else {
            self.c.connect
        };
        // SAFETY: as `tranship.h` says.
        let status = unsafe { join(&options, &mut domain, &mut self.error) };
        self.good(status)?;
        if me == 0 {
            party.barrier()?;
        }
        Ok(domain)
    }

    fn links(&mut self, domain: Handle, case: &Case, role: Role) -> Result<()> {
        let options = ChannelOptions {
            size: size_of::<ChannelOptions>(),
            lines: 0,
            wait: match case.wait {
                Wait::Spin => WAIT_SPIN,
                Wait::Block => WAIT_SLEEP,
            },
            spins: 0,
            accept_trust: 0,
            snapshots: null(),
        };
        let (out, back) = (c"out".as_ptr(), c"back".as_ptr());
        let (mut sends, mut receives) = (null_mut(), null_mut());
        let (c, error) = (&self.c, &raw mut self.error);
        // SAFETY: as `tranship.h` says.
        let all = unsafe {
            match role {
                Role::Ping => [
                    (c.listen)(domain, out, SOURCE, &options, &mut sends, error),
                    (c.listen)(domain, back, SINK, &options, &mut receives, error),
                    (c.accept_sender)(sends, FOREVER, &mut self.sender, error),
                    (c.accept_receiver)(receives, FOREVER, &mut self.receiver, error),
                ],
                _ => [
                    (c.open_receiver)(domain, out, &options, FOREVER, &mut self.receiver, error),
                    (c.open_sender)(domain, back, &options, FOREVER, &mut self.sender, error),
                    0,
                    0,
                ],
            }
        };
        all.into_iter().try_for_each(|status| self.good(status))
    }

    fn show(&mut self) -> Result<()> {
        // SAFETY: as `tranship.h` says.
        let status = unsafe { (self.c.assign)(self.sender, self.pool, FOREVER, &mut self.error) };
        self.good(status)?;
        // SAFETY: as above.
        let status =
            unsafe { (self.c.send_inline)(self.sender, null(), 0, 0, FOREVER, &mut self.error) };
        self.good(status)
    }

    fn look(&mut self) -> Result<()> {
        let buf = self.received()?;
        ensure!(buf.len == 0, "{} bytes to begin with", buf.len);
        Ok(())
    }

    #[inline(always)]
    fn received(&mut self) -> Result<Buf> {
        let mut buf = MaybeUninit::<Buf>::uninit();
        // SAFETY: as `tranship.h` says.
        let status =
            unsafe { (self.c.recv)(self.receiver, FOREVER, buf.as_mut_ptr(), &mut self.error) };
        self.good(status)?;
        // SAFETY: filled.
        Ok(unsafe { buf.assume_init() })
    }

    fn grow(&mut self, case: &Case) -> Result<()> {
        let mut all = Vec::new();
        for _ in 0..case.buffers {
            all.push(self.allocated()?);
        }
        for mut buf in all {
            // SAFETY: as `tranship.h` says.
            unsafe { (self.c.release)(&mut buf) };
        }
        Ok(())
    }

    #[inline(always)]
    fn allocated(&mut self) -> Result<Buf> {
        let mut buf = MaybeUninit::<Buf>::uninit();
        // SAFETY: as `tranship.h` says.
        let status = unsafe {
            (self.c.alloc)(
                self.pool,
                self.payload,
                FOREVER,
                buf.as_mut_ptr(),
                &mut self.error,
            )
        };
        self.good(status)?;
        // SAFETY: filled.
        Ok(unsafe { buf.assume_init() })
    }
}

impl Peer for C {
    const NAME: &'static str = "tranship-c";

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let file: PathBuf = alloc::library(Self::NAME, Some(LIBRARY))
            .flatten()
            .context("gone")?;
        let file = CString::new(file.as_os_str().as_bytes())?;
        // SAFETY: a name with a 0 at its end; its initialisers are Rust's.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        ensure!(!library.is_null(), "{file:?} cannot be loaded");
        let mut this = C {
            c: Functions::of(library)?,
            sender: null_mut(),
            receiver: null_mut(),
            pool: null_mut(),
            error: null_mut(),
            touch: case.touch,
            payload: case.payload,
        };
        let domain = this.domain(role.index(), party)?;
        let (bytes, chunk_bytes, slots) = shape_of(case.buffers, case.payload);
        let options = PoolOptions {
            size: size_of::<PoolOptions>(),
            name: null(),
            chunk_bytes,
            keep_bytes: 0,
            preallocate_bytes: 0,
            slots,
            trust: 0,
            flags: 0,
            reserved: 0,
        };
        // SAFETY: as `tranship.h` says.
        let status = unsafe {
            (this.c.pool_create)(domain, bytes, &options, &mut this.pool, &mut this.error)
        };
        this.good(status)?;
        this.links(domain, case, role)?;
        if role == Role::Ping {
            this.show()?;
            this.look()?;
        } else {
            this.look()?;
            this.show()?;
        }
        this.grow(case)?;
        Ok(this)
    }

    #[inline(always)]
    fn send(&mut self, stamp: u64) -> Result<()> {
        ensure!(
            self.touch == Touch::Word,
            "measured with the first word only"
        );
        let mut buf = self.allocated()?;
        // SAFETY: ours alone, and at least 8 bytes.
        unsafe { buf.ptr.cast::<u64>().write_unaligned(stamp) };
        buf.word = stamp;
        // SAFETY: as `tranship.h` says.
        let status = unsafe { (self.c.send)(self.sender, &mut buf, FOREVER, &mut self.error) };
        self.good(status)
    }

    #[inline(always)]
    fn recv(&mut self) -> Result<u64> {
        let mut buf = self.received()?;
        ensure!(buf.len == self.payload, "{} bytes", buf.len);
        // SAFETY: at least 8 bytes, mapped until they are released; their writer is this program, and leaves them alone.
        let stamp = unsafe { buf.ptr.cast::<u64>().read_volatile() };
        // SAFETY: as `tranship.h` says.
        unsafe { (self.c.release)(&mut buf) };
        Ok(stamp)
    }
}
