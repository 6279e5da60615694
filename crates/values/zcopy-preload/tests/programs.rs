//! Programs that know nothing of it send the same bytes as always, and their large memory goes by reference.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tranship_testkit::{Watchdog, artifact, skipped};

fn library() -> PathBuf {
    artifact("tranship-zcopy-preload", "libtranship_zcopy.so")
}

fn preloaded(program: impl AsRef<Path>, library: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .env("LD_PRELOAD", library)
        .env("TRANSHIP_ZCOPY_MIN", "16KiB")
        .env("TRANSHIP_ZCOPY_SEND", "16KiB")
        .env("TRANSHIP_ZCOPY_STATS", "1");
    command
}

/// Returns the counts that it printed at exit: sends, bytes by reference, bytes copied. If several processes printed
/// some, the first.
fn said(output: &Output) -> [u64; 3] {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    let line = text
        .lines()
        .find(|line| line.starts_with("libtranship_zcopy: "));
    let line = line.unwrap_or_else(|| panic!("nothing was said: {text}"));
    let mut numbers = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok());
    [(); 3].map(|()| numbers.next().expect("a number"))
}

#[test]
fn python_sends_large_bytes_by_reference() {
    let _dog = Watchdog::new();
    if !Path::new("/usr/bin/python3").exists() {
        return skipped("no /usr/bin/python3");
    }
    let output = preloaded("/usr/bin/python3", &library())
        .args(["-c", include_str!("programs/send.py")])
        .output()
        .expect("python3");
    let [sends, referred, copied] = said(&output);
    // The amount depends on the speed of each way on this machine at this moment.
    assert!(
        sends > 0 && referred > 0,
        "{referred} bytes by reference, {copied} copied"
    );
}

/// A program in C, and its folder; none without a compiler.
fn in_c(text: &str) -> Option<(PathBuf, tempfile::TempDir)> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (
        folder.path().join("program.c"),
        folder.path().join("program"),
    );
    std::fs::write(&source, text).expect("write");
    let built = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .args([&program, &source])
        .output();
    let Ok(built) = built else {
        skipped("no C compiler");
        return None;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Some((program, folder))
}

#[test]
fn what_never_changes_goes_by_reference_wherever_it_lies() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/constants.c")) else {
        return;
    };
    for (what, refers) in [("constant", true), ("named", true), ("variable", false)] {
        let mut command = preloaded(&program, &library());
        // No other memory of its own may go by reference.
        let output = command
            .env("TRANSHIP_ZCOPY_MIN", "1GiB")
            .arg(what)
            .output()
            .expect("runs");
        assert!(
            output.status.success(),
            "{what}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        if refers {
            let [sends, referred, _] = said(&output);
            assert!(
                sends >= 100 && referred > 0,
                "{what}: {sends} sends, {referred} bytes"
            );
        } else {
            assert!(
                output.stderr.is_empty(),
                "{what}: nothing of it is the library's"
            );
        }
    }
}

/// The program closes descriptors by the library's functions, one by one, and without the library's knowledge.
#[test]
fn a_program_that_closes_what_it_does_not_know_keeps_its_memory_and_its_files() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/closes.c")) else {
        return;
    };
    for how in ["library", "each", "kernel"] {
        let mut command = preloaded(&program, &library());
        let output = command.arg(how).output().expect("runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{how}: {}: {text}", output.status);
    }
}

#[test]
fn a_c_program_is_told_what_it_is_always_told() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/contracts.c")) else {
        return;
    };
    // The program alone, and then with the library: the same checks hold.
    let plain = Command::new(&program).output().expect("runs");
    assert!(
        plain.status.success(),
        "{}",
        String::from_utf8_lossy(&plain.stderr)
    );
    let output = preloaded(&program, &library()).output().expect("runs");
    let [sends, referred, _] = said(&output);
    assert!(sends > 0 && referred > 0);
}

/// Signals, time-outs, ends that go, no room: the same program says the same.
#[test]
fn what_sends_come_to_is_the_same_with_and_without() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/same.c")) else {
        return;
    };
    let text = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let plain = text(&Command::new(&program).output().expect("runs"));
    assert!(plain.lines().count() > 40, "{plain}");
    let output = preloaded(&program, &library()).output().expect("runs");
    let [sends, referred, _] = said(&output);
    assert!(sends > 0 && referred > 0);
    let ours = text(&output);
    let differs = plain.lines().zip(ours.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None, "without it, and with it");
    assert_eq!(plain.lines().count(), ours.lines().count());
}

/// The library does not judge wrong numbers and pointers, and does not crash on them.
#[test]
fn wrong_numbers_and_pointers_are_the_kernels_to_refuse() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/wrong.c")) else {
        return;
    };
    let plain = Command::new(&program).output().expect("runs");
    assert!(plain.status.success());
    let output = preloaded(&program, &library()).output().expect("runs");
    let [sends, referred, _] = said(&output);
    assert!(sends > 0 && referred > 0);
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let (plain, ours) = (text(&plain), text(&output));
    assert!(plain.lines().count() > 100, "{plain}");
    let differs = plain.lines().zip(ours.lines()).find(|(a, b)| a != b);
    assert_eq!(differs, None, "without it, and with it");
    assert_eq!(plain.lines().count(), ours.lines().count());
}

/// Each number that there is for the calls of the ways to send; some for those that prepare them.
#[test]
fn a_sandbox_that_refuses_a_call_costs_no_connection() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/refused.c")) else {
        return;
    };
    let all = &[(1, 133)][..];
    let some = &[(1, 2), (11, 14), (22, 22), (38, 38), (95, 95)][..];
    for (call, numbers) in [
        ("vmsplice", all),
        ("splice", all),
        ("sendfile", all),
        ("tee", some),
        ("io_uring_setup", some),
        ("io_uring_enter", some),
        ("ioctl", some),
        ("pipe2", some),
        ("fcntl", some),
        ("getsockopt", some),
        ("memfd_create", some),
        ("openat", some),
    ] {
        for (first, last) in numbers {
            let mut command = preloaded(&program, &library());
            let output = command
                .env_remove("TRANSHIP_ZCOPY_STATS")
                .args([call, &first.to_string(), &last.to_string()])
                .output()
                .expect("runs");
            let text = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(77) {
                return skipped(format!("seccomp filters: {text}"));
            }
            assert!(output.status.success(), "{call}: {}: {text}", output.status);
        }
    }
}

/// A reader of all memory, as redis after a crash, debuggers, checkpoints and mlockall(2), meets only memory that was
/// handed out.
#[test]
fn what_walks_all_memory_meets_only_what_is_handed_out() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/walks.c")) else {
        return;
    };
    for how in ["walk", "lock"] {
        let mut command = preloaded(&program, &library());
        let output = command.arg(how).output().expect("runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{how}: {}: {text}", output.status);
        if text.contains("mlockall: ") {
            skipped(text);
        }
    }
}

/// Limits leave the program as it is. Strict overcommit would count private memory that can be written, and RLIMIT_DATA
/// counts it too. If there are few addresses, the program's own allocator is used.
#[test]
fn limits_of_data_and_of_addresses_leave_a_program_as_it_is() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/grows.c")) else {
        return;
    };
    for (limit, kib, refers) in [("-d", 64 << 10, true), ("-v", 1 << 20, false)] {
        let mut command = Command::new("sh");
        let script = format!("ulimit {limit} {kib} && LD_PRELOAD=\"$2\" exec \"$1\"");
        let output = command
            .args(["-c", &script, "sh"])
            .args([&program, &library()])
            .env("TRANSHIP_ZCOPY_MIN", "16KiB")
            .env("TRANSHIP_ZCOPY_SEND", "16KiB")
            .env("TRANSHIP_ZCOPY_STATS", "1")
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{limit}: {}: {text}",
            output.status
        );
        assert_eq!(text.contains("64 sends"), refers, "{limit}: {text}");
    }
}

#[test]
fn every_way_to_get_memory_gives_it_and_zeros_take_none() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/fresh.c")) else {
        return;
    };
    let output = preloaded(&program, &library()).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
}

#[test]
fn what_is_said_is_said_in_one_write() {
    let _dog = Watchdog::new();
    // Each write is a message.
    let (near, far) = UnixDatagram::pair().expect("sockets");
    let mut command = preloaded("dd", &library());
    let mut child = command
        .args([
            "if=/dev/zero",
            "of=/dev/null",
            "bs=1M",
            "count=1",
            "status=none",
        ])
        .env("TRANSHIP_ZCOPY_MIN", "many")
        .stderr(OwnedFd::from(far))
        .spawn()
        .expect("dd");
    assert!(child.wait().expect("ends").success());
    drop(command);
    near.set_nonblocking(true).expect("nonblocking");
    let mut room = [0; 512];
    let mut lines = Vec::new();
    while let Ok(len) = near.recv(&mut room) {
        lines.push(String::from_utf8_lossy(&room[..len]).into_owned());
    }
    let whole = |line: &String| line.starts_with("libtranship_zcopy: ") && line.ends_with('\n');
    assert!(lines.len() == 2 && lines.iter().all(whole), "{lines:?}");
}

#[test]
fn what_grows_beyond_the_threshold_goes_by_reference() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/grows.c")) else {
        return;
    };
    let plain = Command::new(&program).output().expect("runs");
    assert!(plain.status.success());
    let output = preloaded(&program, &library()).output().expect("runs");
    let [sends, referred, copied] = said(&output);
    // Counts of each of four values, in 16 parts.
    assert!(
        sends == 64 && referred > 0 && referred + copied == 4 << 20,
        "{sends} sends, {referred} bytes by reference, {copied} copied"
    );
    // If there is no room for the descriptors above, they stay where they are.
    let output = preloaded(&program, &library())
        .env("TRANSHIP_ZCOPY_MAX", "1MiB")
        .output()
        .expect("runs");
    assert!(output.status.success());
}

/// A program may be linked with another allocator, as varnishd is with jemalloc. Memory that is not ours is that
/// allocator's, also memory that it gave under another name.
#[test]
fn a_program_may_be_linked_with_another_allocator() {
    let _dog = Watchdog::new();
    let Some((program, folder)) = in_c(include_str!("programs/grows.c")) else {
        return;
    };
    let other = folder.path().join("libother.so");
    let source = folder.path().join("other.c");
    std::fs::write(&source, include_str!("programs/other.c")).expect("write");
    let built = Command::new("cc")
        .args(["-O1", "-fno-builtin", "-shared", "-fPIC", "-o"])
        .args([&other, &source])
        .status();
    assert!(built.expect("cc").success());
    let both = format!("{}:{}", library().display(), other.display());
    let output = preloaded(&program, Path::new(&both))
        .output()
        .expect("runs");
    let [sends, referred, copied] = said(&output);
    assert!(
        sends == 64 && referred + copied == 4 << 20,
        "{sends} sends, {referred} bytes by reference, {copied} copied"
    );
}

/// Pageblocks of each size, with each threshold of large values.
#[test]
fn how_pageblocks_are_made_can_be_said() {
    let _dog = Watchdog::new();
    let Some((program, _folder)) = in_c(include_str!("programs/grows.c")) else {
        return;
    };
    for (pages, large, usable) in [
        ("4", "4096", 24_576),
        ("16", "4KiB", 24_576),
        ("16", "32KiB", 32_768),
        ("512", "23KiB", 24_576),
        ("512", "1GiB", 32_768),
        ("0", "1GiB", 24_576),
    ] {
        let output = preloaded(&program, &library())
            .env("TRANSHIP_ZCOPY_BLOCK_PAGES", pages)
            .env("TRANSHIP_ZCOPY_LARGE", large)
            .output()
            .expect("runs");
        let [_, referred, copied] = said(&output);
        assert_eq!(referred + copied, 4 << 20, "{pages} pages, {large}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.trim(), usable.to_string(), "{pages} pages, {large}");
    }
    let output = preloaded(&program, &library())
        .env("TRANSHIP_ZCOPY_BLOCK_PAGES", "few")
        .output()
        .expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    let said = "TRANSHIP_ZCOPY_BLOCK_PAGES=few is no number";
    assert!(output.status.success() && text.contains(said), "{text}");
}

#[test]
fn shells_and_their_children_go_on() {
    let _dog = Watchdog::new();
    let script = "seq 1 200000 | sort -rn | tail -1; (echo a; echo b) | cat | wc -l; ls /proc/self > /dev/null && echo done";
    let plain = Command::new("sh")
        .args(["-c", script])
        .output()
        .expect("sh");
    let mut command = preloaded("sh", &library());
    let output = command
        .env_remove("TRANSHIP_ZCOPY_STATS")
        .args(["-c", script])
        .output()
        .expect("sh");
    assert!(output.status.success());
    assert_eq!(output.stdout, plain.stdout);
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_wish_that_cannot_be_read_is_said_and_its_limit_holds() {
    let _dog = Watchdog::new();
    let make = "b=bytearray(40 << 20); b[-1]=7; print(len(b), b[-1])";
    let mut command = preloaded("/usr/bin/python3", &library());
    if !Path::new("/usr/bin/python3").exists() {
        return skipped("no /usr/bin/python3");
    }
    // Memory above the limit comes from the C library.
    command
        .env("TRANSHIP_ZCOPY_MAX", "8MiB")
        .env("TRANSHIP_ZCOPY_MIN", "many");
    let output = command.args(["-c", make]).output().expect("python3");
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "41943040 7");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("TRANSHIP_ZCOPY_MIN=many is no size"),
        "{text}"
    );
}
