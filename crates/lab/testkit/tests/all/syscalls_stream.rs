//! A stream between two processes that poll: no system call per buffer on either side, counted from outside.

use tranship_core::admin::StatRecord;
use tranship_core::{ChannelOptions, Domain, PoolOptions, Receiver, Sender, Wait};
use tranship_testkit::syscalls::SyscallCounter;
use tranship_testkit::{Control, Watchdog, child};

const FRAME: usize = 64 << 10;
/// Buffers per look.
const WINDOW: u64 = 20_000;

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(64).wait(Wait::Spin)
}

// Both ends go on for ever; the test kills them.
child!(
    fn streams_out(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder()
            .name("out")
            .socket(socket)
            .connect()
            .unwrap();
        let pool = domain.create_pool(PoolOptions::new(32 << 20)).unwrap();
        let mut sender = domain.open_with::<Sender>("stream", options()).unwrap();
        for n in 0u64.. {
            let mut buf = pool.alloc(FRAME).unwrap();
            buf[..8].copy_from_slice(&n.to_le_bytes());
            sender.send((buf.freeze(), n)).unwrap();
        }
    }
);

child!(
    fn streams_in(ctl: Control) {
        let socket: String = ctl.recv().unwrap().unwrap();
        let domain = Domain::builder()
            .name("in")
            .socket(socket)
            .connect()
            .unwrap();
        let listener = domain.listen_with::<Receiver>("stream", options()).unwrap();
        let mut receiver = listener.accept().unwrap();
        for n in 0u64.. {
            let message = receiver.recv().unwrap();
            let word = message.word;
            let got = message.into_buffer().unwrap();
            assert_eq!((word, got.view().read::<u64>(0)), (n, Ok(n)));
        }
    }
);

/// Messages that the receiver has taken, as the manager reads it from outside.
fn taken(manager: &Domain) -> u64 {
    let stat = manager.admin().stat().expect("stat");
    let channel = stat.iter().find_map(|r| match r {
        StatRecord::Channel(c) if c.name == "stream" && c.source.is_some() => Some(c.taken),
        _ => None,
    });
    channel.unwrap_or(0)
}

#[test]
fn a_polling_stream_makes_no_system_calls() {
    let _dog = Watchdog::new();
    let manager = Domain::builder()
        .name("manager")
        .embedded()
        .expect("embedded");
    let socket = manager.socket_path().expect("socket").display().to_string();
    let reader = streams_in().start().expect("reader");
    reader.send(&socket).expect("send");
    let writer = streams_out().start().expect("writer");
    writer.send(&socket).expect("send");
    let reach = |goal: u64| {
        while taken(&manager) < goal {
            assert!(!reader.has_ended() && !writer.has_ended());
            std::thread::yield_now();
        }
        taken(&manager)
    };
    reach(WINDOW);
    let counters = [&reader, &writer].map(|p| SyscallCounter::attach(p.pid()).expect("attach"));
    let mut at = reach(taken(&manager) + WINDOW);
    let mut buffers = 0;
    let mut calls = [0u64; 2];
    // The stream is steady from the first window without a call, and in all windows in which the pool does not grow and
    // the writer does not sleep: it sleeps where the reader does not run for so long that all memory is on its way. A process that polls checks now and then, when nothing has come for millions of rounds, whether its peer still
    // lives. On a busy machine that happens (a peer that does not run sends nothing), so several windows are measured.
    let mut quiet = 0;
    let mut window = 0;
    while window < 10 {
        let marks = counters.each_ref().map(SyscallCounter::counts);
        let from = at;
        at = reach(at + WINDOW);
        let since = [counters[0].since(&marks[0]), counters[1].since(&marks[1])];
        eprintln!(
            "window {window}: {} buffers, in {:?}, out {:?}",
            at - from,
            since[0],
            since[1]
        );
        let has = |call| since[1].keys().any(|c| i64::try_from(*c) == Ok(call));
        let (grows, sleeps) = (has(libc::SYS_memfd_create), has(libc::SYS_futex));
        let sums = since.map(|s| s.values().sum::<u64>());
        quiet += u32::from(sums == [0, 0]);
        if quiet == 0 || grows || sleeps {
            continue;
        }
        buffers += at - from;
        calls = [calls[0] + sums[0], calls[1] + sums[1]];
        window += 1;
    }
    for (who, calls) in ["receiver", "sender"].iter().zip(calls) {
        assert!(
            calls * 1000 < buffers,
            "{who}: {calls} system calls for {buffers} buffers"
        );
    }
    writer.kill();
    reader.kill();
}
