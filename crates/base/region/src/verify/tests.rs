use super::*;
use crate::{Opts, RwMapping, make};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

const LEN: usize = 16 * 4096;

/// Makes a memfd step by step, so that a step can be left out.
fn by_hand(flags: MemfdFlags, mode: u32, fill: u64, size: u64, seals: Seals) -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", flags | MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::fchmod(&fd, Mode::from_bits_truncate(mode)).expect("chmod");
    if fill > 0 {
        memfd::fallocate(&fd, fill).expect("fallocate");
    }
    memfd::set_len(&fd, size).expect("size");
    if !seals.is_empty() {
        memfd::add_seals(&fd, seals).expect("seals");
    }
    fd
}

const GOOD: MemfdFlags = MemfdFlags::NOEXEC_SEAL;

#[test]
fn by_hand_and_whole_passes() {
    let seals = Sealing::OneWriter.added();
    let fd = by_hand(GOOD, 0, LEN as u64, LEN as u64, seals);
    verify(&fd, LEN).expect("good");
    let seals = Sealing::Shared.added();
    let fd = by_hand(GOOD, 0, LEN as u64, LEN as u64, seals);
    verify_as(&fd, LEN, Sealing::Shared).expect("good");
    assert!(matches!(verify(&fd, LEN), Err(VerifyError::Seals { .. })));
}

#[test]
fn every_seal_is_needed_and_none_more() {
    let all = Sealing::OneWriter.added();
    let len = LEN as u64;
    for missing in [Seals::SHRINK, Seals::GROW, Seals::FUTURE_WRITE, Seals::SEAL] {
        let fd = by_hand(GOOD, 0, len, len, all - missing);
        let error = verify(&fd, LEN).expect_err("a seal is missing");
        let expected = all | Seals::EXEC;
        match error {
            VerifyError::Seals {
                found,
                expected: wanted,
            } => {
                assert_eq!(found, (expected - missing).bits());
                assert_eq!(wanted, expected.bits());
            }
            other => panic!("{missing:?}: {other}"),
        }
    }
    // WRITE instead of, or besides, FUTURE_WRITE.
    let fd = by_hand(GOOD, 0, len, len, all | Seals::WRITE);
    assert!(matches!(verify(&fd, LEN), Err(VerifyError::Seals { .. })));
    // Without NOEXEC_SEAL there is no EXEC seal.
    let fd = by_hand(MemfdFlags::ALLOW_SEALING, 0, len, len, all);
    assert!(matches!(verify(&fd, LEN), Err(VerifyError::Seals { .. })));
    // No seals allowed at all.
    let fd = by_hand(MemfdFlags::empty(), 0, len, len, Seals::empty());
    assert!(matches!(verify(&fd, LEN), Err(VerifyError::Seals { .. })));
}

#[test]
fn an_execute_bit_is_found() {
    // EXEC sealed on an executable mode: the kernel then adds further seals, WRITE among them.
    let all = Sealing::OneWriter.added();
    let len = LEN as u64;
    let fd = by_hand(
        MemfdFlags::ALLOW_SEALING,
        0o100,
        len,
        len,
        all | Seals::EXEC,
    );
    match verify(&fd, LEN).expect_err("executable") {
        VerifyError::Executable { mode } => assert_eq!(mode, 0o100),
        VerifyError::Seals { found, .. } => {
            assert!(Seals::from_bits_retain(found).contains(Seals::WRITE));
        }
        other => panic!("{other}"),
    }
    // A kernel that did not add them: the bit itself is checked.
    let (fd, _map) = make("test", LEN, Opts::default()).expect("make");
    let mut facts = memfd::facts(&fd).expect("facts");
    for bit in [0o100, 0o010, 0o001] {
        facts.mode = bit;
        let error = check_size(facts, LEN).expect_err("executable");
        assert!(matches!(error, VerifyError::Executable { mode } if mode == bit));
    }
}

#[test]
fn a_wrong_size_is_found() {
    let seals = Sealing::OneWriter.added();
    for size in [LEN - 4096, LEN + 4096, LEN - 1] {
        let fd = by_hand(GOOD, 0, size as u64, size as u64, seals);
        let error = verify(&fd, LEN).expect_err("size");
        assert!(
            matches!(error, VerifyError::Size { found_bytes, expected_bytes }
                if found_bytes == size as u64 && expected_bytes == LEN as u64)
        );
    }
}

#[test]
fn missing_memory_is_found() {
    let seals = Sealing::OneWriter.added();
    for filled in [0, LEN - 4096] {
        let fd = by_hand(GOOD, 0, filled as u64, LEN as u64, seals);
        let error = verify(&fd, LEN).expect_err("sparse");
        assert!(
            matches!(error, VerifyError::Sparse { backed_bytes, size_bytes }
                if backed_bytes == filled as u64 && size_bytes == LEN as u64)
        );
    }
}

/// Memory beyond the end counts as the file's, but only memory inside is useful.
#[test]
fn memory_beyond_the_end_does_not_count() {
    for sealing in [Sealing::OneWriter, Sealing::Shared, Sealing::Nobody] {
        let len = LEN as u64;
        let fd = by_hand(GOOD, 0, 0, len, Seals::empty());
        rustix::fs::fallocate(&fd, FallocateFlags::KEEP_SIZE, len, len).expect("fallocate");
        memfd::add_seals(&fd, sealing.added()).expect("seals");
        let facts = memfd::facts(&fd).expect("facts");
        assert_eq!((facts.size, facts.blocks * 512), (len, len));
        let error = verify_as(&fd, LEN, sealing).expect_err("sparse");
        assert!(
            matches!(error, VerifyError::Sparse { backed_bytes: 0, size_bytes } if size_bytes == len)
        );
    }
}

/// A read-only descriptor can be read, and the check finds the same facts through it.
#[test]
fn a_descriptor_that_is_only_for_reading_is_looked_at_like_any_other() {
    let again = |fd: &OwnedFd| {
        rustix::fs::fchmod(fd, Mode::from_bits_truncate(0o400)).expect("chmod");
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let read = rustix::fs::OFlags::RDONLY;
        rustix::fs::open(path.as_str(), read, Mode::empty()).expect("open")
    };
    let (whole, _map) = make("test", LEN, Opts::default()).expect("make");
    verify(again(&whole), LEN).expect("whole");
    let all = Sealing::OneWriter.added();
    let sparse = by_hand(GOOD, 0, 0, LEN as u64, all);
    let error = verify(again(&sparse), LEN).expect_err("sparse");
    assert!(matches!(error, VerifyError::Sparse { .. }));
}

#[test]
fn other_files_are_found() {
    let (pipe, _other) = rustix::pipe::pipe().expect("pipe");
    let proc = std::fs::File::open("/proc/self/maps").expect("open");
    for fd in [pipe.as_fd(), proc.as_fd()] {
        assert!(matches!(verify(fd, LEN), Err(VerifyError::NotMemfd)));
    }
    // hugetlbfs, if the kernel has it: making the file needs no huge pages, filling it would.
    let flags = MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("huge", flags) {
        Ok(fd) => assert!(matches!(
            verify(&fd, LEN),
            Err(VerifyError::NotTmpfs { fs_type }) if fs_type == memfd::HUGETLBFS_MAGIC
        )),
        Err(error) => eprintln!("no hugetlbfs here: {error}"),
    }
}

#[test]
fn a_descriptor_that_tells_nothing_is_an_error() {
    // O_PATH on a regular file of tmpfs: fstat works, asking for seals does not.
    let (fd, _map) = make("test", LEN, Opts::default()).expect("make");
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = rustix::fs::open(path.as_str(), rustix::fs::OFlags::PATH, Mode::empty());
    let path = path.expect("our own descriptor");
    assert!(matches!(
        verify(&path, LEN),
        Err(VerifyError::Io { .. } | VerifyError::Seals { .. })
    ));
}

/// The base of the whole project: a process that holds a sealed descriptor, even the writer's own, can change nothing.
#[test]
fn who_holds_the_descriptor_can_change_nothing() {
    let (fd, writer) = make("test", LEN, Opts::default()).expect("make");
    // SAFETY: our own mapping, in bounds, no reference to it.
    unsafe { writer.base().write_volatile(77) };

    assert!(RwMapping::map(&fd, LEN).is_err(), "mapped for writing");
    refused_by_protection(&fd);
    assert!(rustix::io::write(&fd, b"x").is_err(), "write");
    assert!(rustix::io::pwrite(&fd, b"x", 0).is_err(), "pwrite");
    for len in [0, LEN as u64 / 2, LEN as u64 * 2] {
        assert!(rustix::fs::ftruncate(&fd, len).is_err(), "ftruncate {len}");
    }
    let modes = [
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE,
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::UNSHARE_RANGE,
    ];
    for mode in modes {
        assert!(
            rustix::fs::fallocate(&fd, mode, 0, 4096).is_err(),
            "fallocate {mode:?}"
        );
    }
    let beyond = rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, 2 * LEN as u64);
    assert!(beyond.is_err(), "grown by fallocate");
    assert!(memfd::add_seals(&fd, Seals::WRITE).is_err(), "sealed more");
    refused_after_reopening(&fd);

    let facts = memfd::facts(&fd).expect("facts");
    assert_eq!(facts.size, LEN as u64);
    verify(&fd, LEN).expect("still good");
    let view = writer.view();
    assert_eq!(view.read::<u8>(0), Ok(77));
    assert!(view.to_vec()[1..].iter().all(|byte| *byte == 0));
}

fn refused_by_protection(fd: &OwnedFd) {
    let null = std::ptr::null_mut();
    // SAFETY: a new mapping that only this function knows, unmapped at its end.
    unsafe {
        let read = rustix::mm::mmap(null, LEN, ProtFlags::READ, MapFlags::SHARED, fd, 0)
            .expect("a read-only mapping is what readers get");
        let write = MprotectFlags::READ | MprotectFlags::WRITE;
        assert!(rustix::mm::mprotect(read, LEN, write).is_err(), "mprotect");
        let remove = rustix::mm::Advice::LinuxRemove;
        assert!(
            rustix::mm::madvise(read, LEN, remove).is_err(),
            "MADV_REMOVE"
        );
        rustix::mm::munmap(read, LEN).expect("unmap");
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let private = rustix::mm::mmap(null, LEN, both, MapFlags::PRIVATE, fd, 0).expect("private");
        // Writing a private mapping changes a copy.
        private.cast::<u8>().write_volatile(1);
        rustix::mm::munmap(private, LEN).expect("unmap");
    }
}

fn refused_after_reopening(fd: &OwnedFd) {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    // The file can be opened for writing as root (mode 0 stops others), and even then the seals hold.
    let mut options = std::fs::OpenOptions::new();
    if let Ok(mut again) = options.read(true).write(true).open(&path) {
        assert!(again.write(b"x").is_err(), "written after reopening");
        assert!(
            RwMapping::map(&again, LEN).is_err(),
            "mapped after reopening"
        );
        assert!(again.set_len(0).is_err(), "truncated after reopening");
    }
    // O_TRUNC may be accepted as an open flag, but must not empty the file.
    let _ = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path);
    let _ = rustix::fs::fchmod(fd, Mode::from_bits_truncate(0o777));
    let facts = memfd::facts(fd).expect("facts");
    assert_eq!(facts.mode & 0o111, 0, "made executable");
}

/// userfaultfd(2) makes a system call of its user wait in the middle, for any time. In a `write` to a memfd that
/// several may write, the call keeps the lock of the inode.
mod userfault {
    use super::*;

    const REGISTER: libc::c_ulong = 0xc020_aa00;
    const API: libc::c_ulong = 0xc018_aa3f;
    const ZEROPAGE: libc::c_ulong = 0xc020_aa04;

    fn ioctl(fd: i32, request: libc::c_ulong, words: &mut [u64]) -> std::io::Result<()> {
        // SAFETY: as many words as the request has, in a local.
        match unsafe { libc::ioctl(fd, request, words.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }

    /// Makes a page that is missing until a thread fills it. The kernel waits for that page too.
    fn trap() -> std::io::Result<(i32, usize)> {
        // SAFETY: no argument points anywhere.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        ioctl(fd, API, &mut [0xaa, 0, 0])?;
        // SAFETY: a new mapping.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        let at = at.expose_provenance();
        ioctl(fd, REGISTER, &mut [at as u64, 4096, 1, 0])?;
        Ok((fd, at))
    }

    #[test]
    fn nobody_waits_for_a_writer_that_waits_for_its_own_page() {
        let _dog = tranship_testkit::Watchdog::new();
        let (uffd, at) = match trap() {
            Ok(trap) => trap,
            Err(error) => {
                return tranship_testkit::skipped(format!(
                    "userfaultfd of the kernel's faults: {error}"
                ));
            }
        };
        let fd = by_hand(GOOD, 0, LEN as u64, LEN as u64, Sealing::Shared.added());
        let target = fd.as_raw_fd();
        std::thread::scope(|s| {
            let writer = s.spawn(move || {
                let bytes = std::ptr::with_exposed_provenance::<libc::c_void>(at);
                // SAFETY: mapped; the kernel reads the page when it is there.
                unsafe { libc::pwrite(target, bytes, 4096, 0) }
            });
            // The kernel reports that the writer waits for the page: the writer is in the middle of its call.
            let mut fault = [0u8; 32];
            // SAFETY: writes a local.
            let read = unsafe { libc::read(uffd, fault.as_mut_ptr().cast(), fault.len()) };
            assert_eq!(read, 32, "{}", std::io::Error::last_os_error());
            assert!(!writer.is_finished());
            verify_as(&fd, LEN, Sealing::Shared).expect("good");
            backed(&fd).expect("good");
            assert_eq!(memfd::glance(target).expect("a memfd").size, LEN as u64);
            let map = RwMapping::map(&fd, LEN).expect("a mapping");
            assert_eq!(map.view().read::<u32>(0).ok(), Some(0));
            assert!(
                !writer.is_finished(),
                "it was let go too early to show anything"
            );
            ioctl(uffd, ZEROPAGE, &mut [at as u64, 4096, 0, 0]).expect("a page");
            assert_eq!(writer.join().expect("no panic"), 4096);
        });
        // SAFETY: our own descriptor and mapping.
        unsafe {
            libc::close(uffd);
            libc::munmap(std::ptr::with_exposed_provenance_mut(at), 4096);
        }
    }

    /// A writer that traps its own mapping of a page, or removes it: that does not affect a reader's mapping of the
    /// memory.
    #[test]
    fn a_reader_waits_for_no_page_that_its_writer_traps() {
        let _dog = tranship_testkit::Watchdog::new();
        let (uffd, at) = match trap() {
            Ok(trap) => trap,
            Err(error) => {
                return tranship_testkit::skipped(format!(
                    "userfaultfd of the kernel's faults: {error}"
                ));
            }
        };
        let (fd, writer) = make("test", LEN, Opts::default()).expect("memory");
        let reader = crate::RoMapping::map(&fd, LEN).expect("a mapping");
        // Missing pages. The seals are the reason that there are none: a process that may not punch holes has no fault
        // to trap.
        let range = writer.base().expose_provenance() as u64;
        ioctl(uffd, REGISTER, &mut [range, LEN as u64, 1, 0]).expect("registered");
        // SAFETY: this test's own mapping; nothing else reads it.
        unsafe { libc::madvise(writer.base().cast(), LEN, libc::MADV_DONTNEED) };
        for word in (0..LEN).step_by(4096) {
            assert_eq!(reader.view().read::<u32>(word).ok(), Some(0));
        }
        // The memory is there, so the writer itself is not trapped either.
        assert_eq!(writer.view().read::<u32>(0).ok(), Some(0));
        // SAFETY: our own descriptor and mapping.
        unsafe {
            libc::close(uffd);
            libc::munmap(std::ptr::with_exposed_provenance_mut(at), 4096);
        }
    }
}
