//! A pool of which each buffer is a memfd of its own: how large buffers go between domains that do not trust each other.
//!
//! ```text
//!            written by us alone          nobody writes it ever again; what we write is ours alone
//! nothing ───► draft (mapped shared) ───► sealed (mapped privately)
//!              ▲        sent: sealed         │ sent again untouched: as it is
//!              └──────── overwritten ────────┘ sent again touched: a copy of it, sealed
//! ```
//!
//! Pieces lie in their places in the pool's one range of addresses. A buffer that was moved away keeps its memfd here,
//! out of reach: it costs nothing while the receiver has it, and is memory at hand when the buffer is passed back.

use super::Memory;
use crate::account::Charge;
use crate::{Access, Error, Kind};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tranship_region::{Draft, Guarded, Sealing, verify_as};
use tranship_sys::map;

/// How a memfd shows in `/proc/PID/maps`.
const NAME: &str = "tranship-bulk-piece";

/// The memory behind each buffer.
#[derive(Debug)]
pub(crate) struct Pieces {
    all: Vec<Piece>,
    /// The pool is this domain's own: it pays for what its buffers lie in, whoever made that last.
    creator: bool,
}

#[derive(Debug, Default)]
struct Piece {
    backing: Backing,
    /// What is in it is not specified, and nobody has looked: it may become something else.
    loose: bool,
    /// What was admitted for the buffer with its pool pays for the backing; else for what is written over it.
    paid: bool,
    /// And this for what is written over a backing that is paid for.
    over: Option<Charge>,
}

#[derive(Debug, Default)]
enum Backing {
    /// Addresses alone.
    #[default]
    Nothing,
    /// Nobody else has seen it.
    Draft(Draft),
    /// Seen privately; shared with whoever it was sent to or came from.
    Sealed(Arc<OwnedFd>),
}

/// What sending a buffer took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// Its draft was sealed.
    Sealed,
    /// It went on as it came.
    AsItWas,
    /// It had been written since it came: copied.
    Touched,
    /// The kernel refused the seal: copied.
    Refused,
}

impl Pieces {
    /// Nothing behind any buffer.
    pub(crate) fn new(buffers: u32, creator: bool) -> Pieces {
        Pieces {
            all: (0..buffers).map(|_| Piece::default()).collect(),
            creator,
        }
    }

    /// Makes what is mapped in one piece into pieces, for its one owner. What `keeps` says keeps its bytes.
    pub(crate) fn split(
        memory: &Memory,
        buffers: u32,
        keeps: impl Fn(u32) -> bool,
    ) -> Result<Pieces, Error> {
        memory.begin_to_split();
        let mut pieces = Pieces::new(buffers, true);
        for index in 0..buffers {
            let draft = match keeps(index) {
                true => {
                    let view = memory.view(index)?;
                    Draft::copy_of(NAME, view)
                }
                false => Draft::make(NAME, memory.buffer_bytes()),
            };
            let draft = draft.map_err(Error::of(Kind::OutOfMemory))?;
            pieces.place(memory, index, draft)?;
            memory.forget(index);
        }
        Ok(pieces)
    }

    fn piece(&mut self, index: u32) -> &mut Piece {
        &mut self.all[index as usize]
    }

    fn place(&mut self, memory: &Memory, index: u32, draft: Draft) -> Result<(), Error> {
        let placed = memory.map.place_draft(memory.offset(index), &draft);
        placed.map_err(refused)?;
        *self.piece(index) = Piece {
            backing: Backing::Draft(draft),
            loose: false,
            paid: true,
            over: None,
        };
        Ok(())
    }

    /// New memory, all zeros, to be read and written.
    fn renew(&mut self, memory: &Memory, index: u32) -> Result<(), Error> {
        let draft =
            Draft::make(NAME, memory.buffer_bytes()).map_err(Error::of(Kind::OutOfMemory))?;
        let placed = self.place(memory, index, draft);
        if placed.is_err() {
            self.place_again(memory, index);
        }
        placed
    }

    /// Puts back what was to be replaced, by what there was no memory for.
    fn place_again(&mut self, memory: &Memory, index: u32) {
        let (offset, len) = (memory.offset(index), memory.buffer_bytes());
        // Where even that is refused the buffer can be touched and holds zeros, as it might.
        let _ = match &self.piece(index).backing {
            Backing::Sealed(fd) => {
                let write = map::Access::ReadWrite;
                memory.map.place_private(offset, len, &**fd, write)
            }
            Backing::Draft(_) => Ok(()),
            Backing::Nothing => memory.map.clear(offset, len),
        };
    }

    /// Protects a buffer against its own domain; one that has nothing behind it gets memory.
    pub(crate) fn protect(
        &mut self,
        memory: &Memory,
        index: u32,
        access: Access,
    ) -> Result<(), Error> {
        let nothing = matches!(self.piece(index).backing, Backing::Nothing);
        match (nothing, access) {
            (true, Access::None) => return Ok(()),
            (true, _) => {
                self.renew(memory, index)?;
                self.piece(index).loose = true;
            }
            (false, _) => {}
        }
        memory.protect(index, access)
    }

    /// A buffer's memfd as it is now, never to change: for the other end. Unless it went on as it was, it can only be read here
    /// afterwards.
    ///
    /// Blocks for up to 160 ms where the kernel holds pages of it and so refuses the seal.
    pub(crate) fn hand_over(
        &mut self,
        memory: &Memory,
        index: u32,
    ) -> Result<(Arc<OwnedFd>, Sent), Error> {
        let piece = &mut self.all[index as usize];
        let (offset, len) = (memory.offset(index), memory.buffer_bytes());
        let map = &memory.map;
        let (fd, sent) = match std::mem::take(&mut piece.backing) {
            Backing::Nothing => return Err(Kind::BufferInvalid.into()),
            Backing::Sealed(fd) => {
                // Whoever cannot ask copies.
                if !map.is_touched(offset, len).unwrap_or(true) {
                    piece.backing = Backing::Sealed(Arc::clone(&fd));
                    piece.over = None;
                    return Ok((fd, Sent::AsItWas));
                }
                let copied = copy(memory, index);
                if copied.is_err() {
                    piece.backing = Backing::Sealed(fd);
                }
                (copied?, Sent::Touched)
            }
            Backing::Draft(draft) => {
                // The only mapping that could write it goes.
                if let Err(error) = map.place_private(offset, len, &draft, map::Access::Read) {
                    piece.backing = Backing::Draft(draft);
                    return Err(refused(error));
                }
                match draft.seal() {
                    Ok(fd) => (Arc::new(fd), Sent::Sealed),
                    Err((draft, _)) => {
                        let copied = copy(memory, index);
                        if copied.is_err() {
                            let placed = map.place_draft(offset, &draft);
                            piece.backing = Backing::Draft(draft);
                            placed.map_err(refused)?;
                        }
                        (copied?, Sent::Refused)
                    }
                }
            }
        };
        // Whatever happens now, these are the bytes.
        piece.backing = Backing::Sealed(Arc::clone(&fd));
        if sent != Sent::Sealed {
            let shown = map.place_private(offset, len, &*fd, map::Access::Read);
            shown.map_err(refused)?;
        }
        // What was written over the old one went with it.
        (piece.paid, piece.over) = (true, None);
        Ok((fd, sent))
    }

    /// Puts what the other end sent into its place, to be read, after looking whether it can never change:
    /// [`Kind::PeerViolation`] if it can.
    pub(crate) fn take(
        &mut self,
        memory: &Memory,
        index: u32,
        fd: &Arc<OwnedFd>,
    ) -> Result<(), Error> {
        let (offset, len) = (memory.offset(index), memory.buffer_bytes());
        verify_as(&**fd, len, Sealing::Nobody).map_err(Error::of(Kind::PeerViolation))?;
        let access = map::Access::Read;
        let placed = memory.map.place_private(offset, len, &**fd, access);
        placed.map_err(refused)?;
        *self.piece(index) = Piece {
            backing: Backing::Sealed(Arc::clone(fd)),
            loose: false,
            paid: self.creator,
            over: None,
        };
        Ok(())
    }

    /// What is in the buffer is not specified from now on.
    pub(crate) fn loosen(&mut self, index: u32) {
        self.piece(index).loose = true;
    }

    /// Somebody has looked at what is in the buffer: it stays.
    pub(crate) fn settle(&mut self, index: u32) {
        self.piece(index).loose = false;
    }

    /// The buffer is about to be written, `whole`, or by somebody who cannot count on what is in it: new memory then is
    /// cheaper than a private copy of each page. Says whether it did that. Else such copies are charged for, all at once, if
    /// nothing that was admitted pays for them: [`Kind::Quota`].
    pub(crate) fn before_write(
        &mut self,
        memory: &Memory,
        index: u32,
        whole: bool,
    ) -> Result<bool, Error> {
        let piece = self.piece(index);
        let sealed = !matches!(piece.backing, Backing::Draft(_));
        let anew = sealed && (whole || piece.loose);
        if anew {
            self.renew(memory, index)?;
        } else if sealed && piece.paid && piece.over.is_none() {
            // Each page that is written is copied.
            piece.over = memory.charge_more()?;
        }
        self.piece(index).loose = false;
        Ok(anew)
    }

    /// What this domain owns lies in memory that it alone has seen again, so that it can be shown beside its place. The
    /// bytes stay.
    pub(crate) fn unseal(
        &mut self,
        memory: &Memory,
        index: u32,
        access: Access,
    ) -> Result<(), Error> {
        if !matches!(self.piece(index).backing, Backing::Sealed(_)) {
            return Ok(());
        }
        let draft =
            Draft::copy_of(NAME, memory.view(index)?).map_err(Error::of(Kind::OutOfMemory))?;
        self.place(memory, index, draft)?;
        memory.protect(index, access)
    }

    /// Shows a part of a buffer at a place of another range, for reading.
    pub(crate) fn show_in(
        &mut self,
        index: u32,
        (window, at): (&Guarded, usize),
        (begin, len): (u64, usize),
    ) -> Result<(), Error> {
        let read = map::Access::Read;
        let placed = match &self.piece(index).backing {
            Backing::Nothing => return Err(Kind::BufferInvalid.into()),
            Backing::Draft(draft) => window.place_shared(at, draft, read, len, begin),
            // Older kernels refuse to share what is sealed; nobody writes it, so it is the same.
            Backing::Sealed(fd) => window.place_private_part(at, &**fd, read, len, begin),
        };
        placed.map_err(refused)
    }

    /// Gives the buffer's memory back; nothing is behind it.
    pub(crate) fn clear(&mut self, memory: &Memory, index: u32) {
        // If the kernel has no memory for that, the memfd stays mapped, as inaccessible as before, until the pool ends.
        if memory
            .map
            .clear(memory.offset(index), memory.buffer_bytes())
            .is_ok()
        {
            *self.piece(index) = Piece::default();
        }
    }
}

fn copy(memory: &Memory, index: u32) -> Result<Arc<OwnedFd>, Error> {
    let copy = Draft::copy_of(NAME, memory.view(index)?).map_err(Error::of(Kind::OutOfMemory))?;
    // Nobody has ever mapped it; the kernel itself may hold pages of it for a moment.
    let sealed = copy
        .seal()
        .map_err(|(_, error)| Error::system("sealing a copy")(error))?;
    Ok(Arc::new(sealed))
}

fn refused(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::OutOfMemory => Kind::OutOfMemory,
        _ => Kind::BufferMap,
    };
    Error::of(kind)(error)
}
