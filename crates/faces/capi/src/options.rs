//! Structs that can grow: each begins with its size as its user knows it, and zeros are defaults.

use crate::given::{patience, text_if_any, wrong};
use facade::manager::Config;
use facade::{DomainBuilder, Error, PoolOptions as Create, Trust};
use std::ffi::c_char;
use std::time::Duration;

/// In `flags` of tranship_domain_options: a thread takes the manager's news, for programs that may not call into the library for long.
/// All its signals are blocked.
pub const DOMAIN_HELPER_THREAD: u32 = 1;
/// In `flags` of tranship_domain_options: the process becomes non-dumpable, so that others of the same user cannot reach into it.
pub const DOMAIN_NON_DUMPABLE: u32 = 2;
/// In `flags` of tranship_domain_options: no manager is started when none is found.
pub const DOMAIN_NO_AUTOSTART: u32 = 4;

/// Options for joining a manager. Set `size` to `sizeof(tranship_domain_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DomainOptions {
    /// sizeof(tranship_domain_options)
    pub size: usize,
    /// Name that `tranship ls` shows. NULL: the program's name.
    pub name: *const c_char,
    /// The manager's socket: this one and no other. NULL: the one in TRANSHIP_SOCKET, else the system's, else the user's.
    pub socket: *const c_char,
    /// Configuration of an embedded manager, as text in TOML (`tranship manager default-config` prints one). NULL: defaults.
    pub config: *const c_char,
    /// TRANSHIP_DOMAIN_HELPER_THREAD and others, or 0.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Time to wait for a manager that does not answer: for its welcome, and in each call that only asks it something.
    /// Such a call is TRANSHIP_ERR_TIMED_OUT then. 0: 10 s; TRANSHIP_FOREVER: without end.
    pub manager_timeout_ns: i64,
}

/// In `flags` of tranship_pool_options: ask the kernel for huge pages (`tranship doctor` shows the setting that this needs).
pub const POOL_HUGE_PAGES: u32 = 1;
/// In `flags` of tranship_pool_options: every domain that receives buffers of the pool may forward them
/// (tranship_pool_allow_forward gives the right to one domain).
pub const POOL_ALLOW_FORWARD: u32 = 2;

/// As `trust`: no domain is trusted: the receiver copies before it looks.
pub const TRUST_NONE: u32 = 1;
/// As `trust`, and the default: only the pool's writer can write it, ever. The kernel enforces this.
pub const TRUST_PRODUCER: u32 = 2;
/// As `trust`: every domain that has the pool could write, but protects its own mapping as buffers change hands.
pub const TRUST_HALF: u32 = 3;
/// As `trust`: every domain that has the pool can write.
pub const TRUST_FULL: u32 = 4;

/// Options of a new pool. Set `size` to `sizeof(tranship_pool_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// sizeof(tranship_pool_options)
    pub size: usize,
    /// Name that `tranship ls` shows, 1 to 64 bytes. NULL: "pool".
    pub name: *const c_char,
    /// The unit in which memory is granted and given back: a power of two from 64 KiB to 64 MiB. 0: maximum / 256 within those limits.
    pub chunk_bytes: u64,
    /// Bytes that the pool does not give back by itself.
    pub keep_bytes: u64,
    /// Bytes that the pool begins with and keeps. Without them it is not made.
    pub preallocate_bytes: u64,
    /// How many buffers may exist at once, up to 1,048,576. 0: maximum / 4 KiB, at least 1024.
    pub slots: u32,
    /// TRANSHIP_TRUST_NONE, ..., TRANSHIP_TRUST_FULL: which other domains can write the pool's bytes. 0: none (`producer`).
    /// At HALF and FULL every domain that has the pool can punch holes into its memory: a reader that touches a hole pays for the page.
    pub trust: u32,
    /// TRANSHIP_POOL_HUGE_PAGES, TRANSHIP_POOL_ALLOW_FORWARD, both, or 0.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
    /// Alignment of all buffers, bytes: a power of two up to the chunk size. 0: at least 64.
    pub align_bytes: u64,
    /// Address below which all of the pool is mapped in this process. 0: anywhere.
    pub below: u64,
    /// At level TRANSHIP_TRUST_NONE: size from which on receivers do not copy buffers. Once such a buffer is sent no
    /// process can write its memory, this one included: a write is a fault. 0: 4 MiB where the kernel gives shared
    /// memory huge pages, else none; UINT64_MAX: none.
    pub seal_from: u64,
}

/// # Safety
/// A struct of only integers and pointers, so that zeros are a value. It begins with its size, a `usize`.
pub(crate) unsafe trait Grows: Copy {
    const NAME: &str;
}

// SAFETY: so they are.
unsafe impl Grows for DomainOptions {
    const NAME: &str = "tranship_domain_options";
}
// SAFETY: as above.
unsafe impl Grows for PoolOptions {
    const NAME: &str = "tranship_pool_options";
}
/// Larger than any struct of options will be: a struct with a larger size was not initialised.
const MAX_SIZE: usize = 4096;

/// Copies a struct of options from a program that may know an older version of the struct, or a newer one. NULL: all
/// zeros.
pub(crate) fn grown<T: Grows>(given: *const T) -> Result<T, Error> {
    let (name, here) = (T::NAME, size_of::<T>());
    // SAFETY: zeros are a value, says the trait.
    let mut options: T = unsafe { std::mem::zeroed() };
    if given.is_null() {
        return Ok(options);
    }
    let from = given.cast::<u8>();
    // SAFETY: the caller promises a struct of options of some version. All of them begin with their size.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    check_size::<T>(size)?;
    let known = size.min(here);
    // SAFETY: the caller promises that `known` bytes are there, and `options` has room for them.
    unsafe { std::ptr::copy_nonoverlapping(from, (&raw mut options).cast(), known) };
    // SAFETY: as above.
    let new = unsafe { std::slice::from_raw_parts(from.add(known), size - known) };
    if let Some(at) = new.iter().position(|byte| *byte != 0) {
        let at = known + at;
        return Err(wrong(format!(
            "{name} says something at byte {at}, and this library knows {here}: the program was made for a newer one"
        )));
    }
    Ok(options)
}

fn check_size<T: Grows>(size: usize) -> Result<(), Error> {
    if (size_of::<usize>()..=MAX_SIZE).contains(&size) {
        return Ok(());
    }
    let (name, here) = (T::NAME, size_of::<T>());
    Err(wrong(format!(
        "size of {name} is {size}: set it to sizeof({name}), {here} here"
    )))
}

/// Fills a struct of results in, whose user may know an older version of it, or a newer one.
pub(crate) fn filled<T: Grows>(out: *mut T, made: impl FnOnce(usize) -> T) -> Result<(), Error> {
    if out.is_null() {
        return Err(wrong("out is NULL"));
    }
    // SAFETY: the caller promises: one of these, of whatever version, and all begin with their size.
    let size = unsafe { out.cast::<usize>().read_unaligned() };
    check_size::<T>(size)?;
    let filled = made(size);
    let (to, known) = (out.cast::<u8>(), size.min(size_of::<T>()));
    // SAFETY: as above: there are `size` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const filled).cast(), to, known);
        to.add(known).write_bytes(0, size - known);
    }
    Ok(())
}

pub(crate) fn no_more(what: &str, given: u32, known: u32) -> Result<(), Error> {
    match given & !known {
        0 => Ok(()),
        rest => Err(wrong(format!(
            "{what} has bits {rest:#x} that this library does not know: 0 will do"
        ))),
    }
}

/// Sets an option, unless it is given as 0.
pub(crate) fn set<O, N: Default + PartialEq>(options: O, given: N, set: fn(O, N) -> O) -> O {
    if given == N::default() {
        options
    } else {
        set(options, given)
    }
}

/// Sets the type of an end's messages, unless it is NULL.
pub(crate) fn typed<O>(
    options: O,
    message_type: *const c_char,
    set: fn(O, &str) -> O,
) -> Result<O, Error> {
    Ok(match text_if_any(message_type, "message_type")? {
        Some(text) => set(options, text),
        None => options,
    })
}

/// Sets an option if its flag is there.
pub(crate) fn flag<O>(options: O, given: bool, set: fn(O) -> O) -> O {
    if given { set(options) } else { options }
}

/// The shape of a topic's own pool, or of a producer's.
pub(crate) fn own_pool(name: &str, max_bytes: u64, slots: u32) -> Create {
    let max_bytes = if max_bytes == 0 { 1 << 30 } else { max_bytes };
    let slots = if slots == 0 { 1024 } else { slots };
    Create::new(max_bytes).slots(slots).name(name)
}

impl DomainOptions {
    pub(crate) fn builder(self) -> Result<DomainBuilder, Error> {
        let known = DOMAIN_HELPER_THREAD | DOMAIN_NON_DUMPABLE | DOMAIN_NO_AUTOSTART;
        no_more("flags", self.flags, known)?;
        no_more("reserved", self.reserved, 0)?;
        let has = |flag| self.flags & flag != 0;
        let mut builder = facade::Domain::builder()
            .helper_thread(has(DOMAIN_HELPER_THREAD))
            .autostart(!has(DOMAIN_NO_AUTOSTART));
        if has(DOMAIN_NON_DUMPABLE) {
            builder = builder.non_dumpable();
        }
        builder = match self.manager_timeout_ns {
            0 => builder,
            limit => builder.manager_timeout(patience(limit).unwrap_or(Duration::MAX)),
        };
        if let Some(name) = text_if_any(self.name, "name")? {
            builder = builder.name(name);
        }
        if let Some(socket) = text_if_any(self.socket, "socket")? {
            builder = builder.socket(socket);
        }
        if let Some(config) = text_if_any(self.config, "config")? {
            let config = Config::parse(config).map_err(|e| wrong(format!("config: {e}")))?;
            builder = builder.config(config);
        }
        Ok(builder)
    }
}

pub(crate) fn trust(level: u32) -> Result<Trust, Error> {
    match level {
        TRUST_NONE => Ok(Trust::None),
        0 | TRUST_PRODUCER => Ok(Trust::Producer),
        TRUST_HALF => Ok(Trust::Half),
        TRUST_FULL => Ok(Trust::Full),
        _ => Err(wrong(format!(
            "trust is {level}: 1 (none) to 4 (full), or 0"
        ))),
    }
}

impl PoolOptions {
    pub(crate) fn create(self, max_bytes: u64) -> Result<Create, Error> {
        no_more("flags", self.flags, POOL_HUGE_PAGES | POOL_ALLOW_FORWARD)?;
        no_more("reserved", self.reserved, 0)?;
        let mut create = Create::new(max_bytes)
            .trust(trust(self.trust)?)
            .huge_pages(self.flags & POOL_HUGE_PAGES != 0)
            .allow_forward(self.flags & POOL_ALLOW_FORWARD != 0)
            .keep(self.keep_bytes)
            .preallocate(self.preallocate_bytes);
        if let Some(name) = text_if_any(self.name, "name")? {
            create = create.name(name);
        }
        create = set(create, self.chunk_bytes, Create::chunk_bytes);
        create = set(create, self.slots, Create::slots);
        create = set(create, self.align_bytes, Create::align);
        create = set(create, self.seal_from, Create::seal_from);
        if self.below != 0 {
            create = create.address_range(0..usize::try_from(self.below).unwrap_or(usize::MAX));
        }
        Ok(create)
    }
}
