//! Level `none` with each buffer in a sealed memfd of its own: what goes on uncopied, what is copied, and that nobody sees
//! what another writes.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tranship_bulk::Shm;
use tranship_bulk::raw::{Buffer, Raw};
use tranship_bulk::{Access, BufferState, Constraints, Direction, Kind, Role, Trust, Wish};
use tranship_sys::{limits, process};
use tranship_transport::{Backend, Copying, Local};

#[path = "conform/probe.rs"]
mod probe;

/// More than one page, so that a part can be touched.
const BYTES: usize = 4 * 4096;

fn wish(trust: Trust) -> Wish {
    Wish {
        role: Role::Generic,
        trust,
        constraints: Constraints::default(),
    }
}

/// Domains in a row, each connected to the next.
struct Row {
    domains: Vec<Raw>,
    /// Of each but the last: its way out, and the next one's way in.
    links: Vec<(u64, u64)>,
}

impl Row {
    fn new(backend: &Arc<dyn Backend>, domains: usize, trust: Trust) -> Row {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let domain = |_| {
            let raw = Raw::new();
            raw.add_backend("test", Arc::clone(backend));
            raw.seal_from(0);
            raw
        };
        let domains: Vec<Raw> = (0..domains).map(domain).collect();
        let mut links = Vec::new();
        for pair in domains.windows(2) {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let address = format!("test:sealed-{}-{count}", std::process::id());
            let out = pair[0]
                .create(&address, Direction::Source, wish(trust), 8, None)
                .expect("create");
            let (inward, bound) = pair[1].bind(&address, wish(trust), None).expect("bind");
            while bound.result().is_none() {
                let _ = (pair[0].turn(out), pair[1].turn(inward));
            }
            links.push((out, inward));
        }
        Row { domains, links }
    }

    fn settle(&self) {
        for _ in 0..64 {
            for (at, (out, inward)) in self.links.iter().enumerate() {
                let _ = self.domains[at].turn(*out);
                let _ = self.domains[at + 1].turn(*inward);
            }
        }
    }

    /// A pool of the first domain, on all links.
    fn pool(&self, buffers: u32, bytes: usize) -> u64 {
        let pool = self.domains[0]
            .new_pool(buffers, bytes as u64, true)
            .expect("pool");
        for (at, (out, _)) in self.links.iter().enumerate() {
            let asked = self.domains[at].assign(*out, pool).expect("assign");
            self.settle();
            assert_eq!(asked.result(), Some(Ok(())));
        }
        pool
    }

    fn own(&self, pool: u64) -> Buffer {
        (pool, self.domains[0].alloc(pool).expect("alloc"))
    }

    /// From the domain at that place to the next one.
    fn send(&self, at: usize, buffer: Buffer) {
        self.domains[at]
            .move_(self.links[at].0, buffer, &[])
            .expect("move");
        self.settle();
        let state = self.domains[at + 1].buffer_state(buffer);
        assert_eq!(state, Some(BufferState::ReadWrite));
    }

    /// Back to the domain at that place.
    fn pass(&self, at: usize, buffer: Buffer) {
        self.domains[at + 1]
            .pass(self.links[at].1, buffer, &[])
            .expect("pass");
        self.settle();
        let state = self.domains[at].buffer_state(buffer);
        assert_eq!(state, Some(BufferState::ReadWrite));
    }

    fn read(&self, at: usize, buffer: Buffer) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.domains[at].read(buffer, 0, &mut bytes).expect("read");
        bytes
    }

    /// Which file is mapped at a buffer, by inode.
    fn file(&self, at: usize, buffer: Buffer) -> u64 {
        let address = self.domains[at].address(buffer).expect("its pool is here");
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let inode = |line: &str| {
            let mut words = line.split_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let hex = |text| usize::from_str_radix(text, 16).ok();
            let inside = (hex(from)?..hex(to)?).contains(&address);
            words.nth(3)?.parse().ok().filter(|_| inside)
        };
        maps.lines().find_map(inode).expect("mapped")
    }
}

/// Each backend that shows memory, and one that carries bytes.
fn everywhere(test: impl Fn(&Arc<dyn Backend>, bool)) {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    let shm = Shm::over(&manager).expect("joined");
    let all: [Arc<dyn Backend>; 3] = [Arc::new(Local), Arc::new(shm), Arc::new(Copying)];
    for (backend, shown) in all.iter().zip([true, true, false]) {
        test(backend, shown);
    }
}

#[test]
fn an_untouched_buffer_goes_on_as_it_came() {
    everywhere(|backend, shown| {
        let row = Row::new(backend, 4, Trust::None);
        let pool = row.pool(2, BYTES);
        let own = row.own(pool);
        row.domains[0].write(own, 0, &[7; BYTES]).expect("write");
        for at in 0..3 {
            row.send(at, own);
        }
        assert_eq!(row.read(3, own), [7; BYTES]);
        let of = |at: usize| row.domains[at].statistics();
        if shown {
            assert_eq!((of(0).sealed, of(0).sealed_copies), (1, 0));
            assert_eq!((of(1).sent_as_they_came, of(1).sealed_copies), (1, 0));
            assert_eq!((of(2).sent_as_they_came, of(2).sealed_copies), (1, 0));
            let file = row.file(3, own);
            assert!((0..4).all(|at| row.file(at, own) == file));
            for at in (0..3).rev() {
                row.pass(at, own);
            }
            // Nobody touched it, all the way there and back.
            assert_eq!(row.file(0, own), file);
            row.send(0, own);
            assert_eq!((of(0).sent_as_they_came, row.file(1, own)), (1, file));
        }
        let snapshots = (0..4).map(|at| of(at).snapshots).sum::<u64>();
        assert_eq!(snapshots, 0);
    });
}

#[test]
fn what_a_receiver_writes_is_its_own_and_goes_on_as_a_copy() {
    everywhere(|backend, shown| {
        let row = Row::new(backend, 3, Trust::None);
        let pool = row.pool(1, BYTES);
        let own = row.own(pool);
        row.domains[0].write(own, 0, &[1; BYTES]).expect("write");
        row.send(0, own);
        let kept = row.file(0, own);
        row.domains[1].write(own, BYTES - 1, &[2]).expect("write");
        row.send(1, own);
        let mut expected = [1; BYTES];
        expected[BYTES - 1] = 2;
        assert_eq!(row.read(2, own), expected);
        if shown {
            assert_eq!(row.domains[1].statistics().sealed_copies, 1);
            assert_ne!(row.file(2, own), kept);
        }
        // What the next one writes nobody sees, whoever gets the buffer back.
        row.domains[2].write(own, 0, &[3; BYTES]).expect("write");
        row.pass(1, own);
        row.pass(0, own);
        if shown {
            assert_eq!(row.read(0, own), [1; BYTES]);
        }
    });
}

#[test]
fn who_writes_again_after_a_release_writes_what_others_do_not_see() {
    everywhere(|backend, shown| {
        let row = Row::new(backend, 2, Trust::None);
        let (a, b) = (&row.domains[0], &row.domains[1]);
        let probe = probe::Probe::new();
        let pool = row.pool(1, BYTES);
        let own = row.own(pool);
        let touch = |raw: &Raw| probe.touch(raw.address(own).expect("mapped"));
        for round in 1..4u8 {
            a.write(own, 0, &[round; BYTES / 2]).expect("write");
            a.copy(row.links[0].0, own, &[]).expect("copy");
            assert_eq!(touch(a), Access::Read);
            row.settle();
            assert_eq!(touch(b), Access::Read);
            let mut expected = vec![0; BYTES];
            expected[..BYTES / 2].fill(round);
            assert_eq!(
                (row.read(0, own), row.read(1, own)),
                (expected.clone(), expected)
            );
            b.release(row.links[0].1, own).expect("release");
            row.settle();
            assert_eq!((touch(a), touch(b)), (Access::ReadWrite, Access::None));
        }
        let counted = a.statistics();
        if shown {
            assert_eq!((counted.sealed, counted.sealed_copies), (1, 2));
        }
    });
}

/// What is in a buffer that comes back is not specified, but whoever has looked may count on it.
#[test]
fn what_was_looked_at_stays() {
    everywhere(|backend, shown| {
        let row = Row::new(backend, 2, Trust::None);
        let pool = row.pool(1, BYTES);
        let own = row.own(pool);
        let a = &row.domains[0];
        a.write(own, 0, &[9; BYTES]).expect("write");
        for looks in [true, false] {
            row.send(0, own);
            row.pass(0, own);
            let before = looks.then(|| row.read(0, own));
            let file = row.file(0, own);
            a.write(own, 0, &[5]).expect("write");
            if let Some(mut before) = before {
                before[0] = 5;
                assert_eq!(row.read(0, own), before);
                assert_eq!(row.file(0, own), file);
            } else if shown {
                // New memory, instead of a private copy of each page.
                assert_ne!(row.file(0, own), file);
            }
        }
    });
}

/// Pages that wait in a pipe may still be read by who empties it: the seal is refused, and a copy goes instead.
#[test]
fn a_refused_seal_is_a_copy_and_is_counted() {
    let row = Row::new(&(Arc::new(Local) as Arc<dyn Backend>), 2, Trust::None);
    let pool = row.pool(1, BYTES);
    let own = row.own(pool);
    let a = &row.domains[0];
    a.write(own, 0, &[4; BYTES]).expect("write");
    let (from, to) = std::io::pipe().expect("pipe");
    let at = std::ptr::with_exposed_provenance_mut(a.address(own).expect("mapped"));
    let piece = libc::iovec {
        iov_base: at,
        iov_len: BYTES,
    };
    // SAFETY: the pages of a buffer that is ours; the pipe holds them, by reference, until it is read.
    let queued = unsafe { libc::vmsplice(to.as_raw_fd(), &raw const piece, 1, 0) };
    assert_eq!(queued, BYTES as isize);
    row.send(0, own);
    let counted = a.statistics();
    assert_eq!((counted.seals_refused, counted.sealed), (1, 0));
    assert_eq!(row.read(1, own), [4; BYTES]);
    row.domains[1].write(own, 0, &[8; BYTES]).expect("write");
    let mut queued = vec![0; BYTES];
    std::io::Read::read_exact(&mut &from, &mut queued).expect("read");
    assert_eq!(queued, [4; BYTES]);
    // With nothing queued the next one is sealed.
    row.pass(0, own);
    a.write(own, 0, &[6; BYTES]).expect("write");
    row.send(0, own);
    assert_eq!(
        (a.statistics().sealed, row.read(1, own)),
        (1, vec![6; BYTES])
    );
}

/// Each buffer that is protected by itself is a mapping: a pool that would need more than there are is refused before its
/// first buffer travels. Where only descriptors are short, it is copied from.
#[test]
fn a_pool_beyond_the_limits_is_refused_or_copied_from() {
    let local: Arc<dyn Backend> = Arc::new(Local);
    let most = u32::try_from(limits::max_mappings() / 4 * 3 + 1).unwrap_or(u32::MAX);
    if most > 100_000 {
        return tranship_testkit::skipped(format!("a process may have {most} mappings"));
    }
    {
        let trust = Trust::Half;
        let row = Row::new(&local, 2, trust);
        let a = &row.domains[0];
        let pool = a.new_pool(most, 4096, false).expect("pool");
        let refused = a.assign(row.links[0].0, pool).map(|_| ());
        assert_eq!(refused, Err(Kind::Limit.into()));
        // The level is open as before: at another it can still be used.
        let there = Raw::new();
        there.add_backend("test", Arc::clone(&local));
        let address = format!("test:sealed-open-{}-{trust:?}", std::process::id());
        let end = a
            .create(&address, Direction::Source, wish(Trust::Full), 8, None)
            .expect("create");
        let (other, bound) = there.bind(&address, wish(Trust::Full), None).expect("bind");
        while bound.result().is_none() {
            let _ = (a.turn(end), there.turn(other));
        }
        let asked = a.assign(end, pool).expect("assign");
        while asked.result().is_none() {
            let _ = (a.turn(end), there.turn(other));
        }
        assert_eq!(asked.result(), Some(Ok(())));
    }
    let descriptors = u32::try_from(process::nofile_soft()).unwrap_or(u32::MAX);
    if descriptors > 30_000 {
        return tranship_testkit::skipped(format!("a process may have {descriptors} descriptors"));
    }
    let row = Row::new(&local, 2, Trust::None);
    let pool = row.pool(descriptors / 2 + 1, 4096);
    let own = row.own(pool);
    row.send(0, own);
    let (a, b) = (row.domains[0].statistics(), row.domains[1].statistics());
    assert_eq!((a.sealed, b.snapshots), (0, 1));
}
