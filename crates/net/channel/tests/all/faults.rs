//! Access between processes: one that the level of trust does not allow faults, by the signal. The accesses are the
//! report's five, and that of a reader at `producer`.

use crate::kit::*;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tranship_core::{Body, ChannelOptions, Domain, PoolOptions, Receiver, Sender, Trust};
use tranship_testkit::{Control, Exit, Launch, Peer, child};

const BYTES: usize = 64 << 10;
/// The level after those of `Trust::ALL`: `none`, with buffers that the kernel lets no process write once they are sent.
const SEALED: usize = Trust::ALL.len();

/// Process that touches memory that it must not touch.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
enum Breaks {
    Nothing,
    SourceReadsWhatItMoved,
    SourceWritesWhatItShares,
    SinkReadsWhatItPassedBack,
    SinkWritesACopy,
    SinkReadsWhatItReleased,
}

type Start = (PathBuf, String, usize, Breaks);

fn joins(socket: PathBuf) -> Domain {
    let builder = Domain::builder().name("agent").socket(socket);
    builder.helper_thread(true).connect().expect("connect")
}

/// Touches a byte for real.
fn touch(at: *const u8, write: bool) {
    // SAFETY: it is to fault; where it does not, it is a byte of a buffer that nobody looks at any more.
    unsafe {
        match write {
            true => at.cast_mut().write_volatile(1),
            false => drop(at.read_volatile()),
        }
    }
}

// Moves a buffer, has it back, and shares another one.
child!(
    fn source(ctl: Control) {
        let (socket, name, level, breaks): Start = ctl.recv().expect("control").expect("start");
        let domain = joins(socket);
        let listener = domain.listen::<Sender>(&name).expect("listen");
        ctl.send(&"listening").expect("control");
        let mut to = listener.accept().expect("accept");
        let pool = match level {
            SEALED => {
                let options = PoolOptions::new(1 << 20).trust(Trust::None).seal_from(1);
                domain.create_pool(options).expect("pool")
            }
            level => pool_of(&domain, 1 << 20, Trust::ALL[level]),
        };
        let mut buf = pool.alloc(BYTES).expect("alloc");
        buf.write(0, b"text").expect("inside");
        let at = buf.view().as_ptr();
        to.send(buf).expect("move");
        if breaks == Breaks::SourceReadsWhatItMoved {
            touch(at, false);
        }
        let back = loop {
            match to.try_recv_back().expect("no lie") {
                Some(message) => break message.into_buffer().expect("a buffer"),
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(&back.to_vec()[..4], b"text");
        drop(back);
        let mut buf = pool.alloc(BYTES).expect("alloc");
        buf.write(0, b"copy").expect("inside");
        let shared = buf.freeze();
        to.send(shared.clone()).expect("send");
        if breaks == Breaks::SourceWritesWhatItShares {
            touch(shared.view().as_ptr(), true);
        }
        ctl.send(&"done").expect("control");
        let _ = ctl.recv::<String>();
    }
);

child!(
    fn sink(ctl: Control) {
        let (socket, name, _, breaks): Start = ctl.recv().expect("control").expect("start");
        let domain = joins(socket);
        // At `none` a receiver needs room for copies.
        let options = ChannelOptions::new().arrivals(PoolOptions::new(1 << 20));
        let from = domain.open_with::<Receiver>(&name, options);
        let mut from = from.expect("open");
        let message = from.recv().expect("recv");
        assert_eq!(&message.to_vec()[..4], b"text");
        let at = match &message.body {
            Body::BufferMut(buf) => buf.view().as_ptr(),
            Body::Buffer(buf) => buf.view().as_ptr(),
            other => panic!("not moved: {other:?}"),
        };
        match message.into_buffer_mut() {
            Ok(buf) => from.send_back(buf).expect("pass"),
            Err(message) => {
                let buf = message.into_buffer().expect("a buffer");
                from.send_back(buf).expect("pass");
            }
        }
        if breaks == Breaks::SinkReadsWhatItPassedBack {
            touch(at, false);
        }
        let copy = from.recv().expect("recv").into_buffer().expect("shared");
        assert_eq!(&copy.to_vec()[..4], b"copy");
        let at = copy.view().as_ptr();
        if breaks == Breaks::SinkWritesACopy {
            touch(at, true);
        }
        drop(copy);
        if breaks == Breaks::SinkReadsWhatItReleased {
            touch(at, false);
        }
        ctl.send(&"done").expect("control");
        let _ = ctl.recv::<String>();
    }
);

/// Returns the number of a level.
fn number(trust: Trust) -> usize {
    Trust::ALL.iter().position(|t| *t == trust).expect("known")
}

/// Returns both ends, by the rule that they break.
fn agents(manager: &Domain, level: usize, breaks: Breaks) -> (Peer, Peer) {
    let name = format!("agents-{level}-{breaks:?}");
    let socket = manager.socket_path().expect("socket");
    let start: Start = (socket, name, level, breaks);
    let begin = |launch: Launch| {
        let peer = launch.quiet().start().expect("start");
        peer.send(&start).expect("send");
        peer
    };
    let one = begin(source());
    assert_eq!(one.expect::<String>(), "listening");
    (one, begin(sink()))
}

#[test]
fn data_arrives_at_every_level_where_memory_is_shared() {
    let _dog = dog();
    let manager = Domain::embedded().expect("embedded");
    let shared = [Trust::Producer, Trust::Half, Trust::Full].map(number);
    for level in shared.into_iter().chain([SEALED]) {
        let (one, two) = agents(&manager, level, Breaks::Nothing);
        assert_eq!(two.expect::<String>(), "done");
        assert_eq!(one.expect::<String>(), "done");
    }
}

#[test]
fn what_is_not_allowed_faults() {
    use Breaks::{
        SinkReadsWhatItPassedBack, SinkReadsWhatItReleased, SinkWritesACopy,
        SourceReadsWhatItMoved, SourceWritesWhatItShares,
    };
    let _dog = dog();
    let manager = Domain::embedded().expect("embedded");
    let by_the_source = [SourceReadsWhatItMoved, SourceWritesWhatItShares];
    for (level, breaks) in [
        (Trust::Half, SourceReadsWhatItMoved),
        (Trust::Half, SourceWritesWhatItShares),
        (Trust::Half, SinkReadsWhatItPassedBack),
        (Trust::Half, SinkWritesACopy),
        (Trust::Half, SinkReadsWhatItReleased),
        // The kernel keeps a reader from it, whatever its library does.
        (Trust::Producer, SinkWritesACopy),
    ]
    .map(|(trust, breaks)| (number(trust), breaks))
    .into_iter()
    .chain([SourceWritesWhatItShares, SinkWritesACopy].map(|breaks| (SEALED, breaks)))
    {
        let (one, two) = agents(&manager, level, breaks);
        let breaker = match by_the_source.contains(&breaks) {
            true => one,
            false => two,
        };
        let exit = breaker.wait();
        assert_eq!(
            exit,
            Exit::Signal(libc::SIGSEGV),
            "{breaks:?} at level {level}"
        );
    }
}
