//! Buffers and messages: one struct, which the caller keeps.

use crate::given::{copy_out_bytes, there, wrong};
use crate::status::{Error, Status, border, quietly};
use crate::ticket::{Ticket, used_up};
use facade::{Aggregate, Body, Buffer, BufferMut, INLINE_BYTES, Inline, Message, View};
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// No content: it was sent or released, or the buf was never filled.
pub const BUF_NONE: u32 = 0;
/// A buffer with one handle, whose bytes may be written: it was allocated, or given away to this end where this end can
/// write. After a failed send, a large buffer of a pool of level TRANSHIP_TRUST_NONE can only be sent again, read and
/// released.
pub const BUF_EXCLUSIVE: u32 = 1;
/// A buffer that others may have, too: do not write its bytes. At TRANSHIP_TRUST_PRODUCER a buffer that is given away
/// arrives as one, too.
pub const BUF_SHARED: u32 = 2;
/// Up to TRANSHIP_INLINE_BYTES bytes inside the struct.
pub const BUF_INLINE: u32 = 3;
/// Pieces of several buffers, as one message.
pub const BUF_AGGREGATE: u32 = 4;

/// From tranship_recv_back: the receiver has released something (tranship_send_back_released). Its name is
/// tranship_buf_id.
pub const BUF_RELEASED: u32 = 5;

/// A buffer, or a message. The caller keeps the struct; it owns its content until the content is sent or released.
///
/// Begin with all zeros (`= {0}`), or give it uninitialised to a function that fills it. Its bytes are
/// `tranship_data(&buf)` and `buf.len`. A program may set `word` at any time, and make `len` smaller, except of an
/// aggregate. All other fields are read only.
///
/// It may be copied bitwise, but only one of the copies may be used from then on: a copy counts nothing
/// (tranship_buf_clone does). The content exists once. After it was released, sent, moved, frozen or pushed through one
/// copy, a call with another copy prints a line on standard error and ends the program by abort(3). Functions that take
/// the content leave the buf empty: a further release does nothing. Any thread may have it, one at a time.
#[repr(C)]
#[derive(Debug)]
pub struct Buf {
    /// The bytes, unless they are inline or in pieces: use `tranship_data`.
    pub ptr: *mut c_void,
    /// Number of the bytes.
    pub len: usize,
    /// A word that travels with it.
    pub word: u64,
    /// One of TRANSHIP_BUF_NONE, ..., TRANSHIP_BUF_RELEASED.
    pub kind: u32,
    /// The library's.
    pub flags: u32,
    /// For the library; inline bytes.
    pub words: [MaybeUninit<u64>; 6],
}

/// Where `flags` says how many bytes are inline, which `len` may be made less than.
const INLINE_LEN_SHIFT: u32 = 16;

/// Bytes of content that the struct has room for.
const HELD_BYTES: usize = size_of::<[u64; 6]>();
/// Place of the ticket: behind the content, unless that is plain bytes.
const TICKET_AT: usize = 4;

const _: () = assert!(size_of::<Buf>() == 80);
const _: () = assert!(INLINE_BYTES <= HELD_BYTES);
const _: () = assert!(TICKET_AT * 8 + size_of::<Ticket>() <= HELD_BYTES);
const _: () = assert!(align_of::<Ticket>() <= 8);

impl Buf {
    /// Something that goes away with its last handle.
    #[inline(always)]
    fn own<T>(&mut self, kind: u32, view: (*const u8, usize), held: T) {
        const { assert!(size_of::<T>() <= TICKET_AT * 8) };
        self.set(kind, 0, view, held);
        let ticket = self.words[TICKET_AT..].as_mut_ptr().cast::<Ticket>();
        // SAFETY: it fits, as was asserted.
        unsafe { ticket.write(Ticket::begin()) };
    }

    /// Returns the ticket of the buf's contents. Ends the program if a copy of the buf has taken them.
    ///
    /// # Safety
    /// It is of a kind that has a ticket.
    #[inline(always)]
    unsafe fn ticket(&self) -> Ticket {
        // SAFETY: `own` put it there.
        let ticket = unsafe { self.words[TICKET_AT..].as_ptr().cast::<Ticket>().read() };
        if !ticket.is_good() {
            used_up(self.says(), self.ptr, self.len);
        }
        ticket
    }

    #[inline(always)]
    fn set<T>(&mut self, kind: u32, flags: u32, view: (*const u8, usize), held: T) {
        const { assert!(size_of::<T>() <= HELD_BYTES && align_of::<T>() <= 8) };
        self.ptr = view.0.cast_mut().cast();
        self.len = view.1;
        self.kind = kind;
        self.flags = flags;
        // SAFETY: it fits, as was just asserted. What was there was taken, or never was.
        unsafe { self.words.as_mut_ptr().cast::<T>().write(held) };
    }

    #[inline(always)]
    pub(crate) fn put_exclusive(&mut self, buf: BufferMut) {
        let view = (buf.view().as_ptr(), buf.len());
        self.own(BUF_EXCLUSIVE, view, buf);
    }

    #[inline(always)]
    pub(crate) fn put_shared(&mut self, buf: Buffer) {
        let view = (buf.view().as_ptr(), buf.len());
        self.own(BUF_SHARED, view, buf);
    }

    pub(crate) fn put_aggregate(&mut self, aggregate: Box<Aggregate>) {
        let view = (std::ptr::null(), aggregate.len());
        self.own(BUF_AGGREGATE, view, aggregate);
    }

    pub(crate) fn put_inline(&mut self, inline: &[u8]) {
        let mut words = [0; INLINE_BYTES / size_of::<u64>()];
        for (word, bytes) in words.iter_mut().zip(inline.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        #[allow(clippy::cast_possible_truncation)] // INLINE_BYTES at most
        let had = (inline.len() as u32) << INLINE_LEN_SHIFT;
        self.set(BUF_INLINE, had, (std::ptr::null(), inline.len()), words);
    }

    #[inline(always)]
    pub(crate) fn put_message(&mut self, message: Message) {
        self.word = message.word;
        match message.body {
            Body::Buffer(buf) => self.put_shared(buf),
            Body::BufferMut(buf) => self.put_exclusive(buf),
            Body::Inline(inline) => self.put_inline(&inline),
            Body::Aggregate(aggregate) => self.put_aggregate(Box::new(aggregate)),
            // Shared from here on: C has one kind of aggregate.
            Body::AggregateMut(aggregate) => self.put_aggregate(Box::new(aggregate.freeze())),
            Body::Released(id) => {
                let id = id.map_or(0, |id| id.0);
                self.set(BUF_RELEASED, 0, (std::ptr::null(), 0), id);
            }
        }
    }

    /// Plain words, as a reference.
    ///
    /// # Safety
    /// It is of the kind that has a `T`.
    #[inline(always)]
    unsafe fn plain<T: Copy>(&self) -> &T {
        // SAFETY: `set` put it there.
        unsafe { &*self.words.as_ptr().cast::<T>() }
    }

    /// Returns the buf's content by reference.
    ///
    /// # Safety
    /// The buf is of the kind that has a `T`, and a ticket.
    #[inline(always)]
    unsafe fn held<T>(&self) -> &T {
        // SAFETY: as the caller says.
        unsafe { self.ticket() };
        // SAFETY: `own` put it there, and it was not taken.
        unsafe { &*self.words.as_ptr().cast::<T>() }
    }

    /// Takes the content out of the buf.
    ///
    /// # Safety
    /// The buf is of the kind that has a `T`, and a ticket.
    #[inline(always)]
    unsafe fn take_held<T>(&mut self) -> T {
        // SAFETY: as the caller says.
        unsafe { self.ticket() }.end();
        self.kind = BUF_NONE;
        // SAFETY: `set` put it there, and the kind says that nothing is there any more.
        unsafe { self.words.as_ptr().cast::<T>().read() }
    }

    #[inline(always)]
    fn check_len(&self, had: usize) -> Result<(), facade::Error> {
        if self.len > had {
            return Err(too_long(self.len, had));
        }
        Ok(())
    }

    /// The buffer, as one that can be shared.
    #[inline(always)]
    pub(crate) fn take_shared(&mut self) -> Result<Buffer, facade::Error> {
        match self.kind {
            BUF_EXCLUSIVE => Ok(self.take_exclusive()?.freeze()),
            BUF_SHARED => {
                // SAFETY: the kind says so.
                let had = unsafe { self.held::<Buffer>() }.len();
                self.check_len(had)?;
                // SAFETY: as above.
                let buf = unsafe { self.take_held::<Buffer>() };
                Ok(if self.len < had {
                    buf.slice(..self.len)
                } else {
                    buf
                })
            }
            _ => Err(self.other_kind("a buffer")),
        }
    }

    #[inline(always)]
    pub(crate) fn take_exclusive(&mut self) -> Result<BufferMut, facade::Error> {
        if self.kind != BUF_EXCLUSIVE {
            return Err(self.other_kind("a buffer that nobody else has"));
        }
        // SAFETY: the kind says so.
        self.check_len(unsafe { self.held::<BufferMut>() }.len())?;
        // SAFETY: as above.
        let mut buf = unsafe { self.take_held::<BufferMut>() };
        buf.truncate(self.len);
        Ok(buf)
    }

    pub(crate) fn aggregate_mut(&mut self) -> Result<&mut Aggregate, facade::Error> {
        if self.kind != BUF_AGGREGATE {
            return Err(self.other_kind("an aggregate"));
        }
        let len = self.len;
        // SAFETY: the kind says so.
        unsafe { self.ticket() };
        // SAFETY: as above, and `&mut self` makes it unique.
        let aggregate = unsafe { &mut *self.words.as_mut_ptr().cast::<Box<Aggregate>>() };
        if len != aggregate.len() {
            return Err(cut_aggregate(len, aggregate.len()));
        }
        Ok(aggregate)
    }

    pub(crate) fn aggregate(&self) -> Option<&Aggregate> {
        // SAFETY: the kind says so.
        (self.kind == BUF_AGGREGATE).then(|| &**unsafe { self.held::<Box<Aggregate>>() })
    }

    pub(crate) fn take_aggregate(&mut self) -> Result<Box<Aggregate>, facade::Error> {
        self.aggregate_mut()?;
        // SAFETY: the kind says so, or there was an error.
        Ok(unsafe { self.take_held() })
    }

    /// Whatever it holds.
    pub(crate) fn take_body(&mut self) -> Result<Body, facade::Error> {
        match self.kind {
            BUF_EXCLUSIVE => self.take_exclusive().map(Body::BufferMut),
            BUF_SHARED => self.take_shared().map(Body::Buffer),
            BUF_AGGREGATE => self.take_aggregate().map(|all| Body::Aggregate(*all)),
            BUF_INLINE => {
                let inline = Inline::try_from(self.inline_to_send()?);
                self.release();
                inline.map(Body::Inline)
            }
            _ => Err(self.other_kind("a message")),
        }
    }

    /// All that came, whatever `len` says.
    fn inline(&self) -> Option<&[u8]> {
        let had = (self.flags >> INLINE_LEN_SHIFT) as usize;
        // SAFETY: the kind says that all words are there.
        let bytes = || unsafe { self.plain::<[u8; INLINE_BYTES]>() };
        (self.kind == BUF_INLINE).then(|| &bytes()[..had.min(INLINE_BYTES)])
    }

    /// As many of them as `len` says.
    pub(crate) fn inline_to_send(&self) -> Result<&[u8], facade::Error> {
        let inline = self.inline().unwrap_or_default();
        self.check_len(inline.len())?;
        Ok(&inline[..self.len])
    }

    /// The bytes of a buffer, shared or not.
    fn view(&self) -> Option<View<'_>> {
        let view = match self.kind {
            // SAFETY: the kind says so.
            BUF_EXCLUSIVE => unsafe { self.held::<BufferMut>() }.view(),
            // SAFETY: as above.
            BUF_SHARED => unsafe { self.held::<Buffer>() }.view(),
            BUF_INLINE => View::from(self.inline()?),
            _ => return None,
        };
        view.sub(0..self.len.min(view.len())).ok()
    }

    /// Describes the buf's kind.
    fn says(&self) -> &'static str {
        match self.kind {
            BUF_NONE => "nothing: it was sent or released, or never filled",
            BUF_EXCLUSIVE => "a buffer that nobody else has",
            BUF_SHARED => "a shared buffer",
            BUF_INLINE => "inline bytes",
            BUF_AGGREGATE => "an aggregate",
            BUF_RELEASED => "word of a release",
            _ => "of no kind that there is (0 to 5): begin with zeros",
        }
    }

    #[cold]
    pub(crate) fn other_kind(&self, wanted: &str) -> facade::Error {
        wrong(format!(
            "the buf has to be {wanted}, and is {}",
            self.says()
        ))
    }

    #[inline(always)]
    pub(crate) fn release(&mut self) {
        match self.kind {
            // SAFETY: the kind says so, here and below.
            BUF_EXCLUSIVE => drop(unsafe { self.take_held::<BufferMut>() }),
            // SAFETY: as above.
            BUF_SHARED => drop(unsafe { self.take_held::<Buffer>() }),
            // SAFETY: as above.
            BUF_AGGREGATE => drop(unsafe { self.take_held::<Box<Aggregate>>() }),
            _ => {}
        }
        self.kind = BUF_NONE;
        self.ptr = std::ptr::null_mut();
        self.len = 0;
    }
}

#[cold]
fn too_long(len: usize, had: usize) -> facade::Error {
    wrong(format!(
        "buf.len is {len}, and the buffer has {had} bytes: it can only be made shorter"
    ))
}

#[cold]
fn cut_aggregate(len: usize, had: usize) -> facade::Error {
    wrong(format!(
        "buf.len is {len}, and the aggregate has {had} bytes: leave it, and push what is to be in it (tranship_buf_slice)"
    ))
}

/// A place of the caller's, with nothing in it so far.
#[inline(always)]
pub(crate) fn place<'a>(
    out: Option<&'a mut MaybeUninit<Buf>>,
    what: &'static str,
) -> Result<&'a mut Buf, facade::Error> {
    let out = there(out, what)?;
    let at = out.as_mut_ptr();
    // SAFETY: a place for a whole struct. The words may stay uninitialised, all other fields are written.
    unsafe {
        (&raw mut (*at).kind).write(BUF_NONE);
        (&raw mut (*at).flags).write(0);
        (&raw mut (*at).ptr).write(std::ptr::null_mut());
        (&raw mut (*at).len).write(0);
        (&raw mut (*at).word).write(0);
        Ok(&mut *at)
    }
}

/// Bytes of the longest array of bufs that there can be.
const MOST: usize = isize::MAX.unsigned_abs();

fn check_many(is_null: bool, count: usize, what: &str) -> Result<(), facade::Error> {
    if is_null && count > 0 {
        return Err(wrong(format!("{what} is NULL")));
    }
    if count > MOST / size_of::<Buf>() {
        return Err(wrong(format!(
            "count is {count}: there cannot be more than {} bufs",
            MOST / size_of::<Buf>()
        )));
    }
    Ok(())
}

/// An array of the caller's bufs.
pub(crate) fn bufs_of<'a>(bufs: *mut Buf, count: usize) -> Result<&'a mut [Buf], facade::Error> {
    check_many(bufs.is_null(), count, "bufs")?;
    Ok(match count {
        0 => &mut [],
        // SAFETY: the caller's word: so many are there, and nobody else uses them during the call.
        _ => unsafe { std::slice::from_raw_parts_mut(bufs, count) },
    })
}

/// An array of places of the caller's, with nothing in them so far.
pub(crate) fn places<'a>(
    out: *mut MaybeUninit<Buf>,
    count: usize,
) -> Result<&'a mut [Buf], facade::Error> {
    check_many(out.is_null(), count, "out")?;
    for at in 0..count {
        // SAFETY: the caller's word: so many are there, and nobody else uses them during the call.
        place(Some(unsafe { &mut *out.add(at) }), "out")?;
    }
    bufs_of(out.cast(), count)
}

/// Releases the content: the memory goes back to its pool when no domain has it any more. An empty buf and NULL are
/// fine.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_release(buf: Option<&mut Buf>) {
    if let Some(buf) = buf {
        quietly((), || buf.release());
    }
}

/// Ends writing: from here on the buffer can be shared (tranship_buf_clone), and tranship_send shares it.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_freeze(
    buf: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = there(buf, "buf")?;
        let frozen = buf.take_shared()?;
        buf.put_shared(frozen);
        Ok(())
    })
}

/// Makes a frozen buffer writable again, without copying, if it was never sent and this is its only handle. Any other
/// buffer is as before: TRANSHIP_ERR_BUFFER_STATE. A sent buffer is never written again under its name: allocate
/// another one.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_unfreeze(
    buf: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = there(buf, "buf")?;
        match buf.take_shared()?.try_into_mut() {
            Ok(exclusive) => buf.put_exclusive(exclusive),
            Err(shared) => {
                let len = shared.len();
                buf.put_shared(shared);
                let text = format!(
                    "the buffer of {len} bytes was sent, or has other handles: copy it into another one"
                );
                return Err(facade::Error::new(facade::ErrorKind::BufferState, text));
            }
        }
        Ok(())
    })
}

/// Makes one more handle of a shared buffer, in `out`, which is another struct. Release both.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_buf_clone(
    buf: *const Buf,
    out: *mut Buf,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || part(buf, None, out))
}

/// Makes a handle of a part of a shared buffer, `len` bytes from `at` on, in `out`, which is another struct. No byte is
/// copied.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_buf_slice(
    buf: *const Buf,
    at: usize,
    len: usize,
    out: *mut Buf,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || part(buf, Some((at, len)), out))
}

fn part(buf: *const Buf, part: Option<(usize, usize)>, out: *mut Buf) -> Result<(), facade::Error> {
    if !out.is_null() && std::ptr::eq(buf, out) {
        return Err(wrong(
            "buf and out are the same place, and what is in it would be lost: give it another one",
        ));
    }
    // SAFETY: the caller's word: a place, and nobody else's.
    let out = place(unsafe { out.cast::<MaybeUninit<Buf>>().as_mut() }, "out")?;
    // SAFETY: the caller's word: a buf, which is another place, as was just seen.
    let buf = there(unsafe { buf.as_ref() }, "buf")?;
    if buf.kind != BUF_SHARED {
        return Err(buf.other_kind("shared (tranship_freeze)"));
    }
    // SAFETY: the kind says so.
    let shared = unsafe { buf.held::<Buffer>() };
    let had = buf.len.min(shared.len());
    let (at, len) = part.unwrap_or((0, had));
    let end = at.checked_add(len).filter(|end| *end <= had);
    let end =
        end.ok_or_else(|| wrong(format!("{len} bytes from {at} on, of a buffer of {had}")))?;
    out.word = buf.word;
    out.put_shared(shared.slice(at..end));
    Ok(())
}

/// Returns the name of a buffer, the same in every process: pool, slot, generation. Of kind TRANSHIP_BUF_RELEASED it is
/// the name of the released buffer, if that has one. 0 of anything else. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_buf_id(buf: Option<&Buf>) -> u64 {
    quietly(0, || match buf {
        // SAFETY: the kind says so.
        Some(buf) if buf.kind == BUF_EXCLUSIVE => unsafe { buf.held::<BufferMut>() }.id().0,
        // SAFETY: as above.
        Some(buf) if buf.kind == BUF_SHARED => unsafe { buf.held::<Buffer>() }.id().0,
        // SAFETY: as above.
        Some(buf) if buf.kind == BUF_RELEASED => *unsafe { buf.plain::<u64>() },
        _ => 0,
    })
}

/// Copies `len` bytes from `at` on to `to`, out of a buffer, inline bytes, or an aggregate. Safe against a writer that
/// changes them meanwhile: check what you copied, not what you copy from. TRANSHIP_ERR_BAD_ARGUMENT if there are fewer
/// bytes: then nothing is copied.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_copy_out(
    buf: Option<&Buf>,
    at: usize,
    to: *mut c_void,
    len: usize,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = there(buf, "buf")?;
        if let Some(view) = buf.view() {
            return copy_out_bytes(&[view], at, to, len);
        }
        let Some(aggregate) = buf.aggregate() else {
            return Err(buf.other_kind("something with bytes"));
        };
        let had = aggregate.len();
        if buf.len != had {
            return Err(cut_aggregate(buf.len, had));
        }
        let views: Vec<View<'_>> = aggregate.pieces().iter().map(Buffer::view).collect();
        copy_out_bytes(&views, at, to, len)
    })
}
