//! C programs, by themselves, with each other and with Rust, and under what finds mistakes in memory.

mod common;

use common::{SANITIZED, c, compiled, good, has, runs, start, with_manager};
use facade::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tranship_testkit::{Said, Watchdog, artifact, skipped};

/// A manager, and where it is.
fn manager() -> (Domain, PathBuf) {
    let domain = Domain::builder()
        .name("test")
        .embedded()
        .expect("a manager");
    let socket = domain.socket_path().expect("a socket");
    (domain, socket)
}

/// As tests do that need the same program at the same time.
#[test]
fn who_asks_for_a_program_gets_one_that_runs() {
    let _dog = Watchdog::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let program = compiled("cc", "examples/send.c", &["-std=c99"]);
                Said::of(&mut with_manager(&program, Path::new("/nowhere/at/all"))).ends(1, &[]);
            });
        }
    });
}

#[test]
fn the_headers_promises_are_kept() {
    let _dog = Watchdog::new();
    assert_eq!(runs(&c("tests/programs/contracts.c")), "all as promised\n");
}

#[test]
fn many_messages_go_and_come_by_one_call() {
    let _dog = Watchdog::new();
    assert_eq!(runs(&c("tests/programs/many.c")), "all as it should\n");
}

/// What `twice.c` does, each by itself.
const TWICE: &[&str] = &[
    "release exclusive",
    "release after its memory is another's",
    "release shared",
    "release one of two handles twice",
    "release a part twice",
    "release aggregate",
    "release received",
    "release moved",
    "release sent",
    "release frozen",
    "send",
    "send aggregate",
    "move",
    "pass",
    "release_with",
    "freeze",
    "unfreeze",
    "clone",
    "slice",
    "push a piece",
    "push onto",
    "count",
    "piece",
    "copy_out",
    "copy_out aggregate",
    "id",
    "close pool",
    "close domain",
    "close listener",
    "close sender",
    "abandon sender",
    "close receiver",
    "free error",
    "free mbuf",
    "free packet",
    "use mbuf",
    "close mbufs",
    "destroy zone",
];

#[test]
fn what_is_given_back_twice_ends_the_program_and_says_why() {
    let dog = Watchdog::new();
    let program = c("tests/programs/twice.c");
    let mut wrong = Vec::new();
    for scene in TWICE {
        dog.step(scene);
        let said = Command::new(&program).arg(scene).output();
        let said = said.expect("it runs");
        let text = String::from_utf8_lossy(&said.stderr);
        if said.status.signal() != Some(6) || !text.starts_with("tranship: ") {
            wrong.push(format!("{scene}: {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_buffer_moves_and_comes_back() {
    let _dog = Watchdog::new();
    assert_eq!(
        runs(&c("examples/move.c")),
        "back: 4096 bytes of 2, word 42\n"
    );
}

#[test]
fn whose_peer_never_opens_does_not_wait_for_ever() {
    let _dog = Watchdog::new();
    Said::of(&mut Command::new(c("tests/programs/unopened.c"))).ends(1, &[]);
}

#[test]
fn what_a_call_uses_stays_until_it_is_over() {
    let _dog = Watchdog::new();
    let mut program = Command::new(c("tests/programs/closed.c"));
    let said = good(program.env("MALLOC_PERTURB_", "165"));
    assert_eq!(said, "what was in use stayed\n");
}

#[test]
fn the_papers_names_do_what_the_papers_say() {
    let _dog = Watchdog::new();
    assert_eq!(runs(&c("tests/programs/papers.c")), "as in the papers\n");
}

/// Channels with a transmit master and with a receive master, over memory, over copies and over a connection.
#[test]
fn the_bulk_reports_names_do_what_the_report_says() {
    let _dog = Watchdog::new();
    assert_eq!(runs(&c("tests/programs/bulk.c")), "as in the report\n");
}

/// What programs over FreeBSD's names say at their end. The first two use no shared memory.
const FREEBSD: [(&str, &str); 3] = [
    ("tests/programs/mbufs.c", "as in mbuf(9)\n"),
    ("tests/programs/zones.c", "as in uma(9)\n"),
    ("tests/programs/packets.c", "packets cross\n"),
];

#[test]
fn freebsds_names_do_what_freebsd_says() {
    let _dog = Watchdog::new();
    for (path, end) in FREEBSD {
        assert_eq!(runs(&c(path)), end);
    }
    if has("c++", "g++") {
        for (path, end) in &FREEBSD[..2] {
            assert_eq!(runs(&compiled("c++", path, &["-std=c++11"])), *end);
        }
    }
}

/// How to compile with OpenCV, where it is.
fn opencv() -> Option<[&'static str; 5]> {
    let flags = [
        "-std=c++11",
        "-isystem",
        "/usr/include/opencv4",
        "-Wl,--no-as-needed",
        "-lopencv_core",
    ];
    if !has("c++", "g++") {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("probe.cpp");
    let text = "#include <opencv2/core.hpp>\nint main() { return cv::Mat().rows; }\n";
    std::fs::write(&file, text).expect("write");
    let probe = Command::new("c++")
        .args(flags)
        .arg(&file)
        .arg("-o")
        .arg(folder.path().join("probe"))
        .output();
    if !probe.expect("c++").status.success() {
        skipped("no OpenCV 4 (Debian: libopencv-core-dev)");
        return None;
    }
    Some(flags)
}

#[test]
fn an_image_is_received_where_it_was_born() {
    let _dog = Watchdog::new();
    let Some(flags) = opencv() else { return };
    let mut sanitized = flags.to_vec();
    sanitized.extend(&SANITIZED[1..]);
    for flags in [&flags[..], &sanitized] {
        let program = compiled("c++", "tests/programs/images.cpp", flags);
        let (_domain, socket) = manager();
        let sends = start(with_manager(&program, &socket).arg("send"));
        let receives = start(with_manager(&program, &socket).arg("receive"));
        let (received, sent) = (receives.said().well(), sends.said().well());
        let (mut here, mut there) = (sent.lines(), received.lines());
        for line in &mut here {
            let other = there.next().expect("as many lines");
            // What was copied lies elsewhere, and is the same.
            let apart = |line: &str| {
                let mut words = line.splitn(3, ' ').map(str::to_owned);
                [(); 3].map(|()| words.next().expect("a word"))
            };
            let ([what, place, is], [_, other_place, other_is]) = (apart(line), apart(other));
            assert_eq!(is, other_is, "{what}");
            assert_eq!(place == other_place, what != "copy", "{line}, {other}");
        }
        assert_eq!(sent.lines().count(), 9, "{sent}");
        assert!(there.next().is_some_and(|line| line.starts_with("row ")));
    }
}

#[test]
fn the_images_of_the_example_arrive() {
    let _dog = Watchdog::new();
    let Some(flags) = opencv() else { return };
    let program = compiled("c++", "examples/image.cpp", &flags);
    let (_domain, socket) = manager();
    let sends = start(with_manager(&program, &socket).arg("send"));
    let receives = start(with_manager(&program, &socket).arg("receive"));
    assert_eq!(receives.said().well(), "1920 x 1080, word 7: 10 20 30\n");
    sends.said().well();
}

#[test]
fn a_value_of_zc_malloc_arrives_as_it_was_when_it_was_sent() {
    let _dog = Watchdog::new();
    let library = artifact("tranship-zcopy-preload", "libtranship_zcopy.so");
    let folder = library.parent().expect("a folder").display();
    let (here, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let program = compiled(
        "cc",
        "tests/programs/values.c",
        &[
            "-std=c11",
            &here,
            &path,
            "-Wl,--no-as-needed",
            "-ltranship_zcopy",
        ],
    );
    let said = good(Command::new(program).env("TRANSHIP_ZCOPY_STATS", "1"));
    assert_eq!(said, "what was sent arrived\n");
}

fn c_to_c(send: &Path, receive: &Path) {
    let (_domain, socket) = manager();
    let sends = start(&mut with_manager(send, &socket));
    let receives = start(&mut with_manager(receive, &socket));
    assert_eq!(receives.said().well(), "8388608 bytes, word 7: hello\n");
    assert_eq!(sends.said().well(), "");
}

#[test]
fn c_talks_with_c() {
    let _dog = Watchdog::new();
    c_to_c(&c("examples/send.c"), &c("examples/receive.c"));
}

#[test]
fn c_sends_to_rust() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let sends = start(&mut with_manager(&c("examples/send.c"), &socket));
    let mut receiver = domain.open::<Receiver>("video").expect("open");
    let message = receiver.recv().expect("recv");
    assert_eq!((message.word, message.len()), (7, 8 << 20));
    assert_eq!(message.to_vec()[..5], *b"hello");
    drop(message);
    assert_eq!(
        receiver.recv().expect_err("the end").kind(),
        ErrorKind::PeerGone
    );
    sends.said().well();
}

#[test]
fn rust_sends_to_c() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let listener = domain.listen::<Sender>("video").expect("listen");
    let receives = start(&mut with_manager(&c("examples/receive.c"), &socket));
    let mut sender = listener.accept().expect("accept");
    let pool = domain.create_pool(PoolOptions::new(1 << 20)).expect("pool");
    for word in 0..3 {
        let frame = pool.copy(b"from Rust").expect("alloc");
        sender.send((frame.freeze(), word)).expect("send");
    }
    sender.send((b"inline", 3)).expect("send");
    drop(sender);
    let said = receives.said().well();
    let line = |len, word, text| format!("{len} bytes, word {word}: {text}\n");
    let frames: String = (0..3).map(|word| line(9, word, "from ")).collect();
    assert_eq!(said, frames + &line(6, 3, "inlin"));
}

#[test]
fn a_sender_that_gives_up_is_not_taken_for_one_that_is_done() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let listener = domain.listen::<Sender>("video").expect("listen");
    let receives = start(&mut with_manager(&c("examples/receive.c"), &socket));
    let mut sender = listener.accept().expect("accept");
    let pool = domain.create_pool(PoolOptions::new(1 << 20)).expect("pool");
    // No 0 is behind what is shown.
    let mut frame = pool.copy(b"xyzzy").expect("alloc");
    frame.truncate(3);
    sender.send(frame.freeze()).expect("send");
    sender.wait_taken(None).expect("taken");
    sender.abandon();
    let said = receives.said();
    said.ends(1, &["what came may not be all"]);
    assert_eq!(said.out, "3 bytes, word 0: xyz\n");
}

#[test]
fn a_poll_loop_leaves_those_outside_for_whom_it_has_no_place() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let mut polls = start(with_manager(&c("examples/poll.c"), &socket).stdin(Stdio::piped()));
    let open = || domain.open::<Sender>("events").expect("open");
    let mut senders: Vec<_> = (0..16).map(|_| open()).collect();
    std::thread::scope(|scope| {
        let late = scope.spawn(open);
        for sender in &mut senders {
            sender.send(&[1]).expect("send");
            sender.wait_taken(None).expect("taken");
        }
        // A place for the late one.
        senders.pop();
        let mut late = late.join().expect("the late one");
        late.send(&[1]).expect("send");
        late.wait_taken(None).expect("taken");
    });
    drop(polls.0.stdin.take());
    senders.clear();
    let said = polls.said().well();
    assert_eq!(said.matches("one has ended: ").count(), 17, "{said}");
    assert!(said.ends_with("17 messages\n"), "{said}");
}

#[test]
fn a_poll_loop_serves_many_and_its_input() {
    let _dog = Watchdog::new();
    let (domain, socket) = manager();
    let mut polls = start(with_manager(&c("examples/poll.c"), &socket).stdin(Stdio::piped()));
    let mut senders: Vec<_> = (0..3)
        .map(|_| domain.open::<Sender>("events").expect("open"))
        .collect();
    for word in 0..100 {
        for sender in &mut senders {
            sender.send((&[1], word)).expect("send");
        }
    }
    // The input ends: no newcomers. Then the senders do, one of them not in order.
    drop(polls.0.stdin.take());
    senders.pop().expect("three").abandon();
    drop(senders);
    let said = polls.said().well();
    assert_eq!(said.matches("one has ended: ").count(), 3, "{said}");
    assert_eq!(
        said.matches(ErrorKind::PeerDied.meaning()).count(),
        1,
        "{said}"
    );
    assert!(said.ends_with("300 messages\n"), "{said}");
}

#[test]
fn address_sanitizer_finds_nothing() {
    let _dog = Watchdog::new();
    let mut probe = Command::new("cc");
    probe.args([
        "-fsanitize=address,undefined",
        "-x",
        "c",
        "-o",
        "/dev/null",
        "-",
    ]);
    let said = Said::of(probe.stdin(Stdio::null()));
    // Without an input it complains of `main`, not of the library.
    if said.err.contains("cannot find -lasan") {
        return skipped("no AddressSanitizer for cc (Debian: libgcc-dev)");
    }
    for path in [
        "tests/programs/contracts.c",
        "tests/programs/papers.c",
        "tests/programs/bulk.c",
        "tests/programs/mbufs.c",
        "tests/programs/zones.c",
        "tests/programs/packets.c",
        "examples/move.c",
    ] {
        runs(&compiled("cc", path, SANITIZED));
    }
    let send = compiled("cc", "examples/send.c", SANITIZED);
    c_to_c(&send, &compiled("cc", "examples/receive.c", SANITIZED));
}

#[test]
fn clang_compiles_and_runs_them_too() {
    let _dog = Watchdog::new();
    if !has("clang", "clang") {
        return;
    }
    let by_clang = |path| compiled("clang", path, &["-std=c11"]);
    let contracts = [
        "tests/programs/contracts.c",
        "tests/programs/papers.c",
        "tests/programs/bulk.c",
    ];
    for path in contracts.iter().chain(FREEBSD.iter().map(|(path, _)| path)) {
        runs(&by_clang(path));
    }
    c_to_c(
        &by_clang("examples/send.c"),
        &by_clang("examples/receive.c"),
    );
}

#[test]
fn valgrind_finds_nothing() {
    let _dog = Watchdog::new();
    if !has("valgrind", "valgrind") {
        return;
    }
    let run = |program: &Path| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--error-exitcode=99", "--leak-check=full"]);
        valgrind.arg("--errors-for-leak-kinds=definite");
        Said::of(valgrind.arg(program))
    };
    for (path, _) in &FREEBSD[..2] {
        run(&c(path)).well();
    }
    let said = run(&c("examples/move.c"));
    if said.err.contains("unhandled amd64-linux syscall: 451") {
        return skipped(
            "programs with shared memory under valgrind: this one does not know cachestat(2), without which no memory is accepted",
        );
    }
    said.well();
    run(&c("tests/programs/contracts.c")).well();
}
