//! Every attack against objects that are not protected (it must bite: the checks have been seen failing), and against a
//! memfd made and sealed as docs/format.md says (it must not).

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, SealFlags, fallocate, fchmod, fcntl_add_seals,
    fcntl_get_seals, fstat,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use serde::{Deserialize, Serialize};
use tranship_region::{Opts, RoMapping, RwMapping, verify};
use tranship_testkit::attack::{self, Attack, Attempt, Bite, Outcome, Target};
use tranship_testkit::{Control, Peer, Privilege, Watchdog, child, payload, skipped};

const LEN: usize = 64 << 10;

/// A memfd with its writer's mapping.
struct Object {
    fd: OwnedFd,
    at: *mut u8,
    /// Mapping that this test unmaps, if it was not made here.
    region: Option<RwMapping>,
    seals: SealFlags,
}

impl Object {
    fn new(sealed: bool) -> Self {
        let flags = if sealed {
            MemfdFlags::NOEXEC_SEAL
        } else {
            MemfdFlags::ALLOW_SEALING
        };
        let fd = rustix::fs::memfd_create("victim", MemfdFlags::CLOEXEC | flags).unwrap();
        fchmod(&fd, Mode::empty()).unwrap();
        fallocate(&fd, FallocateFlags::empty(), 0, LEN as u64).unwrap();
        let at = map(&fd, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: fresh memory that nobody else has yet.
        payload::fill(unsafe { std::slice::from_raw_parts_mut(at, LEN) }, 1, 2);
        if sealed {
            let all =
                SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
            fcntl_add_seals(&fd, all).unwrap();
        }
        let seals = fcntl_get_seals(&fd).unwrap();
        Self {
            fd,
            at,
            region: None,
            seals,
        }
    }

    /// Returns a target as the product makes it.
    fn of_region() -> Self {
        let (fd, region) = tranship_region::make("victim", LEN, Opts::default()).unwrap();
        let at = region.base();
        // SAFETY: fresh memory that nobody else has yet.
        payload::fill(unsafe { std::slice::from_raw_parts_mut(at, LEN) }, 1, 2);
        let seals = fcntl_get_seals(&fd).unwrap();
        Self {
            fd,
            at,
            region: Some(region),
            seals,
        }
    }

    /// Whole, as its writer sees it.
    fn check(&self) -> Result<(), String> {
        let stat = fstat(&self.fd).map_err(|e| e.to_string())?;
        let (size, blocks) = (stat.st_size, stat.st_blocks);
        if size != i64::try_from(LEN).unwrap() {
            return Err(format!("size {size}, was {LEN}"));
        }
        if blocks * 512 != size {
            return Err(format!("{blocks} blocks for {size} bytes"));
        }
        let seals = fcntl_get_seals(&self.fd).map_err(|e| e.to_string())?;
        if seals != self.seals {
            return Err(format!("seals {seals:?}, were {:?}", self.seals));
        }
        let mut copy = vec![0u8; LEN];
        // SAFETY: the size was just checked, so no read faults; bytes may change while they are copied.
        unsafe { std::ptr::copy_nonoverlapping(self.at, copy.as_mut_ptr(), LEN) };
        payload::verify_seed(&copy, 1, 2).map_err(|e| e.to_string())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.region.is_some() {
            return;
        }
        // SAFETY: mapped by `new`.
        let _ = unsafe { munmap(self.at.cast(), LEN) };
    }
}

fn map(fd: impl AsFd, prot: ProtFlags) -> *mut u8 {
    // SAFETY: a fresh mapping.
    unsafe { mmap(std::ptr::null_mut(), LEN, prot, MapFlags::SHARED, fd, 0) }
        .unwrap()
        .cast()
}

fn dog() -> Watchdog {
    Watchdog::new()
}

/// The victim: makes the object, shows it, and says whenever asked whether it is whole.
#[derive(Serialize, Deserialize)]
struct Shown {
    at: usize,
    fd: i32,
}

child!(
    fn victim(ctl: Control) {
        serve(&ctl, &Object::new(true));
    }
);

child!(
    fn region_victim(ctl: Control) {
        serve(&ctl, &Object::of_region());
    }
);

fn serve(ctl: &Control, object: &Object) {
    let shown = Shown {
        at: object.at.expose_provenance(),
        fd: object.fd.as_raw_fd(),
    };
    ctl.send_fds(&shown, &[object.fd.as_fd()]).unwrap();
    while let Some(()) = ctl.recv().unwrap() {
        ctl.send(&object.check()).unwrap();
    }
}

/// The attacker: maps the object that it is given read-only, and tries everything.
#[derive(Serialize, Deserialize)]
struct Order {
    attack: usize,
    with_fd: bool,
    pid: Option<u32>,
    at: usize,
    fd: i32,
}

child!(
    fn attacker(ctl: Control) {
        let all = attack::all();
        let Some(((), fds)) = ctl.recv_fds().unwrap() else {
            return;
        };
        let at = map(&fds[0], ProtFlags::READ);
        // Mapped as a library does that keeps descriptors and mappings from being inherited. SAFETY: advice about our
        // own mapping.
        unsafe { libc::madvise(at.cast(), LEN, libc::MADV_DONTFORK) };
        while let Some(order) = ctl.recv::<Order>().unwrap() {
            let target = Target {
                fd: order.with_fd.then(|| fds[0].as_raw_fd()),
                map: Some((at.expose_provenance(), LEN)),
                pid: order.pid,
                victim_map: Some(order.at),
                victim_fd: Some(order.fd),
            };
            let attempt = attack::run(&all[order.attack], &target, &mut || Ok(()));
            ctl.send(&attempt.outcome).unwrap();
        }
    }
);

/// All attacks of `attacker` on `victim`; panics when anything got through.
fn siege(victim: &Peer, attacker: &Peer, with_fd: bool, with_pid: bool) -> Vec<Attempt> {
    let (shown, fds): (Shown, _) = victim.recv_fds().unwrap();
    attacker.send_fds(&(), &[fds[0].as_fd()]).unwrap();
    let mut attempts = Vec::new();
    for (index, attack) in attack::all().into_iter().enumerate() {
        let pid = with_pid.then(|| victim.pid());
        let order = Order {
            attack: index,
            with_fd,
            pid,
            at: shown.at,
            fd: shown.fd,
        };
        let outcome: Outcome = attacker.ask(&order);
        let whole: Result<(), String> = victim.ask(&());
        attempts.push(Attempt {
            attack,
            outcome,
            harm: whole.err(),
        });
    }
    let table = attack::table(&attempts);
    eprintln!("{table}");
    let broke = attempts.iter().filter(|a| !a.held()).count();
    assert_eq!(broke, 0, "{broke} attacks got through\n{table}");
    attempts
}

fn fresh(attack: &Attack, prot: ProtFlags) -> Attempt {
    let object = Object::new(false);
    object.check().unwrap();
    let at = map(&object.fd, prot);
    let map = Some((at.expose_provenance(), LEN));
    let target = Target {
        fd: Some(object.fd.as_raw_fd()),
        map,
        ..Target::default()
    };
    let attempt = attack::run(attack, &target, &mut || object.check());
    // SAFETY: mapped above.
    unsafe { munmap(at.cast(), LEN) }.unwrap();
    attempt
}

#[test]
fn unsealed_memfds_are_bitten() {
    let _dog = dog();
    let mut toothless = Vec::new();
    let mut impossible = Vec::new();
    let mut all = Vec::new();
    for attack in attack::all() {
        let attempt = match attack.bite {
            Bite::Unsealed => fresh(&attack, ProtFlags::READ),
            Bite::Writable => fresh(&attack, ProtFlags::READ | ProtFlags::WRITE),
            Bite::Harmless => {
                let attempt = fresh(&attack, ProtFlags::READ);
                assert_eq!(
                    attempt.harm, None,
                    "{attack:?} is not harmless: {:?}",
                    attempt.outcome
                );
                continue;
            }
            // The first is seen by `a_reader_can_take_sleepers_away`.
            Bite::Sleepers | Bite::Dumpable => continue,
        };
        // Some attacks need root to bite; without root the kernel refuses them for that reason first.
        let weak = !tranship_testkit::is_root()
            && matches!(attempt.outcome, Outcome::Errno(libc::EPERM | libc::EACCES));
        if attempt.harm.is_none() && (weak || matches!(attempt.outcome, Outcome::Unavailable(_))) {
            impossible.push(attempt.attack.name);
        } else if attempt.harm.is_none() {
            toothless.push(attempt.clone());
        }
        all.push(attempt);
    }
    eprintln!("{}", attack::table(&all));
    assert!(
        toothless.is_empty(),
        "attacks without effect on an unsealed memfd:\n{}",
        attack::table(&toothless)
    );
    if !impossible.is_empty() {
        skipped(format!(
            "attacks that cannot bite here: {}",
            impossible.join(", ")
        ));
    }
}

#[test]
fn the_same_user_gets_at_a_dumpable_victim() {
    let _dog = dog();
    if let Some(reason) = Privilege::nobody().impossible() {
        return skipped(reason);
    }
    for attack in attack::all()
        .into_iter()
        .enumerate()
        .filter(|(_, a)| a.bite == Bite::Dumpable)
    {
        let victim = victim().privilege(Privilege::nobody()).start().unwrap();
        let attacker = attacker().privilege(Privilege::nobody()).start().unwrap();
        let (shown, fds): (Shown, _) = victim.recv_fds().unwrap();
        attacker.send_fds(&(), &[fds[0].as_fd()]).unwrap();
        let order = Order {
            attack: attack.0,
            with_fd: false,
            pid: Some(victim.pid()),
            at: shown.at,
            fd: shown.fd,
        };
        let outcome: Outcome = attacker.ask(&order);
        let whole: Result<(), String> = victim.ask(&());
        assert!(
            outcome == Outcome::Succeeded || whole.is_err(),
            "{:?} did not bite: {outcome:?}",
            attack.1
        );
    }
}

#[test]
fn sealed_against_another_user() {
    let _dog = dog();
    if let Some(reason) = Privilege::nobody().impossible() {
        return skipped(reason);
    }
    if !tranship_testkit::is_root() {
        return skipped("two users need root to start them");
    }
    let victim = victim().start().unwrap();
    siege(
        &victim,
        &attacker().privilege(Privilege::nobody()).start().unwrap(),
        true,
        true,
    );
}

#[test]
fn sealed_against_the_same_user() {
    let _dog = dog();
    if let Some(reason) = Privilege::nobody().impossible() {
        return skipped(reason);
    }
    for with_fd in [true, false] {
        let victim = victim()
            .privilege(Privilege::nobody())
            .undumpable()
            .start()
            .unwrap();
        siege(
            &victim,
            &attacker().privilege(Privilege::nobody()).start().unwrap(),
            with_fd,
            true,
        );
    }
}

#[test]
fn sealed_against_root_of_files() {
    let _dog = dog();
    if let Some(reason) = Privilege::root_of_files().impossible() {
        return skipped(reason);
    }
    for (victim, with_fd) in [
        (victim(), true),
        (victim(), false),
        (region_victim(), true),
        (region_victim(), false),
    ] {
        let victim = victim.undumpable().start().unwrap();
        siege(
            &victim,
            &attacker()
                .privilege(Privilege::root_of_files())
                .start()
                .unwrap(),
            with_fd,
            true,
        );
    }
}

#[test]
fn sealed_against_who_runs_the_tests() {
    let _dog = dog();
    let victim = victim().start().unwrap();
    // With all capabilities a process is open to root: only descriptor and mapping are given.
    siege(&victim, &attacker().start().unwrap(), true, false);
}

child!(
    fn finds_what_it_holds(ctl: Control) {
        let Some(((), fds)) = ctl.recv_fds().unwrap() else {
            return;
        };
        verify(&fds[0], LEN).unwrap();
        let kept = RoMapping::map(&fds[0], LEN).unwrap();
        drop(fds);
        let found = attack::mappings("victim");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].map, Some((kept.base().expose_provenance(), LEN)));
        assert_eq!(attack::memfds("victim").len(), 0);
        let attempts = attack::run_all(&attack::all(), &found[0], &mut || Ok(()));
        let broke = attempts.iter().filter(|a| !a.held());
        ctl.send(&broke.map(|a| a.attack.name.to_owned()).collect::<Vec<_>>())
            .unwrap();
    }
);

/// A peer that has closed the descriptor, as the library does, has only its mapping, not inherited by forks.
#[test]
fn a_mapping_alone_gives_nothing() {
    let _dog = dog();
    let victim = region_victim().start().unwrap();
    let (_, fds): (Shown, _) = victim.recv_fds().unwrap();
    let hostile = finds_what_it_holds()
        .privilege(if tranship_testkit::is_root() {
            Privilege::nobody()
        } else {
            Privilege::Inherit
        })
        .start()
        .unwrap();
    hostile.send_fds(&(), &[fds[0].as_fd()]).unwrap();
    assert_eq!(hostile.expect::<Vec<String>>(), Vec::<String>::new());
    let whole: Result<(), String> = victim.ask(&());
    assert_eq!(whole, Ok(()));
}

child!(
    fn sleeps_on_a_word(ctl: Control) {
        let object = Object::new(true);
        ctl.send_fds(&(), &[object.fd.as_fd()]).unwrap();
        // SAFETY: the first word of our own mapping.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(object.at.cast()) };
        let value = word.load(std::sync::atomic::Ordering::SeqCst);
        let bound = libc::timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        // SAFETY: the word and the bound outlive the call.
        let r = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                value,
                &raw const bound,
            )
        };
        let timed_out =
            r < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT);
        ctl.send(&timed_out).unwrap();
    }
);

/// Why words to sleep on live only in pages of the two parties, and every wait is bounded.
#[test]
fn a_reader_can_take_sleepers_away() {
    let _dog = dog();
    let sleeper = sleeps_on_a_word().start().unwrap();
    let ((), fds) = sleeper.recv_fds().unwrap();
    let at = map(&fds[0], ProtFlags::READ);
    let own = [0u32];
    let ask = |op: i32, n: usize, to: *const u32| {
        // SAFETY: both words are mapped for the call; nothing is written.
        unsafe { libc::syscall(libc::SYS_futex, at, op, 0, n, to, 0) }
    };
    // Until it sleeps: a requeue counts the sleepers that it moved.
    while ask(libc::FUTEX_REQUEUE, 1, own.as_ptr()) == 0 {
        assert!(!sleeper.control().is_ready(), "it was never asleep");
        std::thread::yield_now();
    }
    assert_eq!(
        ask(libc::FUTEX_WAKE, 0, std::ptr::null()),
        0,
        "nobody is there any more"
    );
    assert!(sleeper.expect::<bool>(), "only its bound woke it");
    // SAFETY: mapped above.
    unsafe { munmap(at.cast(), LEN) }.unwrap();
}
