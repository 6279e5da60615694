//! Forked children.
//!
//! A child must find its parent's values as it would in ordinary memory: neither sees later writes of the other. So
//! before a fork every block that is still shared becomes private, in both; it is sent by copying from then on. While a
//! child lives that has not called `exec`, the parent gives no page away that the child's mappings show. Otherwise the
//! child would see the page's next content. Each child holds a pipe open, which the kernel closes when it ends or calls
//! `exec`.
//!
//! A child can read and send inherited values; it allocates in an arena of its own.

use super::block::State;
use super::children::End;
use super::inner::{Inner, Room, lock};
use crate::kernel::pipe;
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use tranship_sys::fork;

impl Room {
    /// Puts an empty run of blocks aside while children live.
    pub(super) fn keep_for_children(&mut self, first: u32, blocks: u32, bytes: u64) -> bool {
        let keep = self.children.any();
        if keep {
            self.children.kept.push((first, blocks, bytes));
        }
        keep
    }
}

impl Inner {
    /// Returns the room, after giving back the memory that no child sees any more.
    pub(super) fn room_after_children(&self) -> MutexGuard<'_, Room> {
        let mut room = lock(&self.room);
        if room.children.kept.is_empty() || room.children.any() {
            return room;
        }
        let kept = std::mem::take(&mut room.children.kept);
        drop(room);
        for &(first, blocks, _) in &kept {
            // If the kernel refuses, the place stays as it is until it is taken again. SAFETY: they were empty when
            // they were put aside, and nobody has them.
            let _ = unsafe { self.renew(first, blocks) };
        }
        let mut room = lock(&self.room);
        for (first, blocks, bytes) in kept {
            self.give(&mut room, first, blocks, bytes);
        }
        room
    }

    /// Prepares a fork, with `exchange` held: no memory that both would write stays shared.
    fn part(&self) -> io::Result<()> {
        let taken = self.frontier();
        let is_shared = |block: &u32| self.states.get(*block) == State::Shared;
        // A block that cannot be touched stays as it is.
        let shared = |block: &u32| is_shared(block) && self.opened.has(*block);
        // A child may send these too, whatever becomes of the others.
        for block in (0..taken).filter(|block| !is_shared(block)) {
            self.states.lend(block);
        }
        let (mut first, mut done) = (0, Ok(()));
        while first < taken {
            let count = (first..taken).take_while(shared).count();
            let count = u32::try_from(count).expect("fewer than 2^32");
            if count == 0 {
                first += 1;
                continue;
            }
            let (offset, len) = self.span(first, count);
            match self.view.freeze(offset, len) {
                Ok(()) => {
                    for block in first..first + count {
                        self.states.set(block, State::Private);
                    }
                }
                Err(error) => done = Err(error),
            }
            first += count;
        }
        done
    }
}

/// A fork under way: the arena, its lock, and the pipe that its children will hold.
struct Under {
    // Dropped before the arena that it belongs to.
    exchange: MutexGuard<'static, ()>,
    arena: Arc<Inner>,
    ends: Option<(OwnedFd, OwnedFd)>,
}

thread_local!(static UNDER: RefCell<Vec<Under>> = const { RefCell::new(Vec::new()) });

fn register() -> &'static Mutex<Vec<Weak<Inner>>> {
    static ARENAS: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());
    &ARENAS
}

/// Makes every fork of this process from now on regard the arena.
pub(super) fn enlist(arena: &Arc<Inner>) -> io::Result<()> {
    static HANDLERS: OnceLock<Option<i32>> = OnceLock::new();
    let failed = HANDLERS.get_or_init(|| {
        let given = fork::at_fork(before, in_parent, in_child);
        given.err().map(|error| error.raw_os_error().unwrap_or(0))
    });
    if let Some(code) = failed {
        return Err(io::Error::from_raw_os_error(*code));
    }
    let mut arenas = lock(register());
    arenas.retain(|arena| arena.strong_count() > 0);
    arenas.push(Arc::downgrade(arena));
    Ok(())
}

extern "C" fn before() {
    let arenas: Vec<_> = lock(register()).iter().filter_map(Weak::upgrade).collect();
    for arena in arenas {
        let exchange = lock(&arena.exchange);
        // SAFETY: `Under` drops the guard before the arena that it borrows from.
        let exchange =
            unsafe { std::mem::transmute::<MutexGuard<'_, ()>, MutexGuard<'static, ()>>(exchange) };
        // Without a mapping or a pipe the fork goes on all the same: a child then may see its parent's next writes.
        // Nothing could tell the caller of `fork`.
        let _ = arena.part();
        let ends = pipe::new().ok();
        UNDER.with(|under| {
            under.borrow_mut().push(Under {
                exchange,
                arena,
                ends,
            });
        });
    }
}

extern "C" fn in_parent() {
    for under in UNDER.with(RefCell::take) {
        if let Some((read, write)) = under.ends {
            drop(write);
            lock(&under.arena.room).children.alive.push(End::new(read));
        }
        drop(under.exchange);
    }
}

extern "C" fn in_child() {
    for under in UNDER.with(RefCell::take) {
        // Held open until this child ends or calls `exec`, and so by its own children.
        std::mem::forget(under.ends.map(|(read, write)| {
            drop(read);
            write
        }));
        drop(under.exchange);
        // The tables are the parent's: other threads of the parent may have had their locks.
        std::mem::forget(under.arena);
    }
}
