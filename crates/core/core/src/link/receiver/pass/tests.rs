use super::*;
use crate::buffer::Reference;
use crate::{BufferId, ChannelOptions, Domain, PoolId, PoolOptions, Sender};
use tranship_testkit::Watchdog;

const CHUNK: usize = 64 << 10;

/// A pool of one buffer, a link to another domain, and a buffer that was moved there.
fn moved() -> (crate::Pool, Sender, Receiver, Buffer) {
    let domain = |name| Domain::builder().name(name).helper_thread(true);
    let a = domain("a").embedded().expect("a domain");
    let path = a.socket_path().expect("a socket");
    let b = domain("b").socket(path).connect().expect("a domain");
    let options = PoolOptions::new(CHUNK as u64).chunk_bytes(CHUNK as u64);
    let pool = a.create_pool(options).expect("a pool");
    let listener = a.listen_with::<Sender>("x", ChannelOptions::new());
    let listener = listener.expect("a listener");
    std::thread::scope(|s| {
        let receiver = s.spawn(|| b.open::<Receiver>("x").expect("a receiver"));
        let mut sender = listener.accept().expect("a sender");
        let mut receiver = receiver.join().expect("no panic");
        let buf = pool.copy(&[7; CHUNK]).expect("a buffer");
        sender.send(buf).expect("move");
        let message = receiver.recv().expect("recv");
        let buf = message.into_buffer().expect("a moved buffer");
        (pool, sender, receiver, buf)
    })
}

fn push(receiver: &mut Receiver, line: [u64; 8]) {
    let lines = receiver.control_lines;
    let _ = receiver.control.push(lines, Publish::SeqCst, line);
}

/// A lie is told as one, costs nothing, and what comes after it comes.
#[test]
fn what_cannot_have_been_passed_is_a_violation() {
    let _dog = Watchdog::new();
    let (pool, mut sender, mut receiver, buf) = moved();
    let good = buf.handle().reference();
    let id = |slot, generation| BufferId::new(good.id.pool(), slot, generation);
    let (slot, generation) = (good.id.slot(), good.id.generation());
    let named = |id| Reference { id, ..good };
    let other_pool = BufferId::new(PoolId(0), slot, generation);
    let moved = |reference| descriptor::reference_line(reference, Carries::Moved, 0);
    let past = Reference {
        length: good.length + 1,
        ..good
    };
    let wild = Reference {
        offset: u64::MAX,
        ..good
    };
    let lies = [
        (
            descriptor::reference_line(good, Carries::Buffer, 0),
            "operation",
        ),
        (
            descriptor::reference_line(good, Carries::Aggregate, 0),
            "operation",
        ),
        ([9 << 32; 8], "operation 9"),
        (moved(named(other_pool)), "is not assigned"),
        (descriptor::removed_line(PoolId::MAX), "is not assigned"),
        (moved(named(id(1 << 19, generation))), "slot 524288 of"),
        (moved(named(id(slot, generation + 1))), "is not alive"),
        (moved(named(id(slot, generation + 2))), "is not alive"),
        (moved(named(id(slot + 1, generation))), "is not alive"),
        (moved(past), "are outside"),
        (moved(wild), "are outside"),
    ];
    for (line, reason) in lies {
        push(&mut receiver, line);
        let error = sender.try_recv_back().expect_err(reason);
        assert!(error.find::<Violation>().is_some(), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
        assert!(pool.try_alloc(1).is_err(), "b has it");
    }
    receiver.send_back(buf).expect("pass");
    let reply = sender.try_recv_back().expect("no lie");
    assert_eq!(reply.expect("it is back").to_vec(), [7; CHUNK]);
    drop(pool.alloc(CHUNK).expect("nobody has it"));
}

/// A domain that passes a buffer twice keeps it from being reused as long as its counters count, and no longer.
#[test]
fn what_is_passed_twice_is_reused_when_its_receiver_is_gone() {
    let _dog = Watchdog::new();
    let (pool, mut sender, mut receiver, buf) = moved();
    let twice = descriptor::reference_line(buf.handle().reference(), Carries::Moved, 0);
    receiver.send_back(buf).expect("pass");
    push(&mut receiver, twice);
    let take = |sender: &mut Sender| {
        let reply = sender.try_recv_back().expect("a living buffer");
        reply.expect("one more").into_buffer().expect("a buffer")
    };
    let (one, other) = (take(&mut sender), take(&mut sender));
    drop(one);
    assert_eq!(other.to_vec(), [7; CHUNK]);
    assert!(pool.try_alloc(1).is_err(), "it is held");
    drop(other);
    assert!(pool.try_alloc(1).is_err(), "the counters do not fit");
    drop(receiver);
    drop(pool.alloc(CHUNK).expect("nobody has it"));
}
