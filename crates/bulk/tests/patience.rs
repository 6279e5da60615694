//! What waits: bytes that come slowly, copies that nobody looks at, pools without end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tranship_bulk::raw::{Event, Raw};
use tranship_bulk::{ChannelState, Constraints, Direction, Error, Kind, Role, Trust, Wish};
use tranship_transport::{
    Backend, Bytes, Copying, Frame, Listener, Local, Place, RecvError, Transport, Wait,
};

const PAGE: usize = 4096;

/// `copy:`, of which no bytes come while `holds` is set.
struct Slow {
    inner: Arc<dyn Backend>,
    holds: Arc<AtomicBool>,
}

struct End {
    inner: Box<dyn Transport>,
    holds: Arc<AtomicBool>,
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Slow")
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "End")
    }
}

impl Backend for Slow {
    fn listen(&self, name: &str) -> Result<Box<dyn Listener>, Error> {
        self.inner.listen(name)
    }

    fn connect(&self, name: &str) -> Result<Box<dyn Transport>, Error> {
        Ok(Box::new(End {
            inner: self.inner.connect(name)?,
            holds: Arc::clone(&self.holds),
        }))
    }

    fn bytes(&self) -> Bytes {
        self.inner.bytes()
    }
}

impl Transport for End {
    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        self.inner.send(frame)
    }

    fn recv(&mut self) -> Result<Option<Frame>, RecvError> {
        self.inner.recv()
    }

    fn brings(&self) -> usize {
        self.inner.brings()
    }

    fn fill(&mut self, place: &Place) -> Result<bool, RecvError> {
        match self.holds.load(Ordering::Relaxed) {
            true => Ok(false),
            false => self.inner.fill(place),
        }
    }

    fn done(&mut self, numbers: &mut Vec<u64>) {
        self.inner.done(numbers);
    }

    fn waiter(&self) -> Arc<dyn Wait> {
        self.inner.waiter()
    }
}

fn wish(role: Role, trust: Trust) -> Wish {
    Wish {
        role,
        trust,
        constraints: Constraints::default(),
    }
}

/// While a buffer's bytes are on their way in over one channel, no other brings them too: what is here must not change any more.
#[test]
fn bytes_of_a_buffer_come_by_one_way_at_a_time() {
    let holds = Arc::new(AtomicBool::new(false));
    let (a, b) = (Raw::new(), Raw::new());
    let slow = Slow {
        inner: Arc::new(Copying),
        holds: Arc::clone(&holds),
    };
    a.add_backend("slow", Arc::new(Copying));
    b.add_backend("slow", Arc::new(slow));
    let connect = |scheme: &str| {
        let address = format!("{scheme}:twice-{}", std::process::id());
        let generic = wish(Role::Generic, Trust::None);
        let source = a.create(&address, Direction::Source, generic, 0, None);
        let source = source.expect("create");
        let (sink, bound) = b.bind(&address, generic, None).expect("bind");
        while bound.result().is_none() {
            let _ = (a.turn(source), b.turn(sink));
        }
        (source, sink)
    };
    let (slow, fast) = (connect("slow"), connect("copy"));
    let pool = a.new_pool(1, PAGE as u64, false).expect("pool");
    for (source, sink) in [slow, fast] {
        let asked = a.assign(source, pool).expect("assign");
        while asked.result().is_none() {
            let _ = (a.turn(source), b.turn(sink));
        }
        assert_eq!(asked.result(), Some(Ok(())));
    }
    let own = (pool, a.alloc(pool).expect("alloc"));
    a.write(own, 0, &[3; PAGE]).expect("write");
    let told = |sink| {
        let _ = (a.turn(slow.0), a.turn(fast.0));
        while b.turn(sink).expect("turn") {}
        let events = std::iter::from_fn(|| b.poll_event(sink));
        events
            .filter(|event| matches!(event, Event::Copied(..)))
            .count()
    };
    holds.store(true, Ordering::Relaxed);
    for (source, _) in [slow, fast] {
        a.copy(source, own, &[]).expect("copy");
    }
    // The first has begun; the second waits for it.
    assert_eq!((told(slow.1), told(fast.1)), (0, 0));
    assert_eq!(told(fast.1), 0);
    holds.store(false, Ordering::Relaxed);
    assert_eq!((told(slow.1), told(fast.1)), (1, 1));
    let mut bytes = [0; PAGE];
    b.read(own, 0, &mut bytes).expect("read");
    assert_eq!(bytes, [3; PAGE]);
    for (_, sink) in [slow, fast] {
        b.release(sink, own).expect("release");
    }
    // If the first way ends, the second goes on.
    holds.store(true, Ordering::Relaxed);
    for (source, sink) in [slow, fast] {
        while a.turn(source).expect("turn") {}
        a.copy(source, own, &[]).expect("copy");
        assert_eq!(told(sink), 0);
    }
    b.forget(slow.1).expect_err("it is open");
    drop_end(&a, &b, slow, &holds);
    assert_eq!(told(fast.1), 1);
}

/// The source of a channel ends while its bytes are held back.
fn drop_end(a: &Raw, b: &Raw, (source, sink): (u64, u64), holds: &AtomicBool) {
    a.abandon(source);
    holds.store(false, Ordering::Relaxed);
    while b.channel_state(sink) != Some(ChannelState::Closed) {
        b.turn(sink).expect("turn");
    }
}

/// Copies that nobody looks at stay with who sends them, from some number on.
#[test]
fn what_nobody_takes_waits_with_its_sender() {
    let (a, b) = (Raw::new(), Raw::new());
    for raw in [&a, &b] {
        raw.add_backend("test", Arc::new(Local));
    }
    let generic = wish(Role::Generic, Trust::Full);
    let source = a.create("test:flood", Direction::Source, generic, 0, None);
    let source = source.expect("create");
    let (sink, _) = b.bind("test:flood", generic, None).expect("bind");
    let settle = || {
        for _ in 0..16 {
            let _ = (a.turn(source), b.turn(sink));
        }
    };
    settle();
    let pool = a.new_pool(1, PAGE as u64, false).expect("pool");
    let asked = a.assign(source, pool).expect("assign");
    settle();
    assert_eq!(asked.result(), Some(Ok(())));
    let own = (pool, a.alloc(pool).expect("alloc"));
    let mut sent = 0;
    while a.copy(source, own, &[]).is_ok() {
        sent += 1;
        b.turn(sink).expect("turn");
        a.turn(source).expect("turn");
        assert!(sent < 1 << 18, "it takes them all");
    }
    assert_eq!(b.turn(sink), Ok(false));
    // Nothing is lost.
    let copies = || {
        let events = std::iter::from_fn(|| b.poll_event(sink));
        events
            .filter(|event| matches!(event, Event::Copied(..)))
            .count()
    };
    let mut got = 0;
    loop {
        let now = copies();
        got += now;
        let mut turned = false;
        while b.turn(sink).expect("turn") {
            turned = true;
        }
        if now == 0 && !turned {
            break;
        }
    }
    assert_eq!(got, sent);
}

#[test]
fn a_channel_has_so_many_pools_at_most() {
    let (a, b) = (Raw::new(), Raw::new());
    for raw in [&a, &b] {
        raw.add_backend("test", Arc::new(Local));
    }
    let generic = wish(Role::Generic, Trust::Full);
    let source = a.create("test:pools", Direction::Source, generic, 0, None);
    let source = source.expect("create");
    let (sink, _) = b.bind("test:pools", generic, None).expect("bind");
    let _ = (a.turn(source), b.turn(sink));
    for number in 0..=1024 {
        let pool = a.new_pool(1, PAGE as u64, false).expect("pool");
        let asked = a.assign(source, pool);
        match number {
            0..1024 => drop(asked.expect("assign")),
            _ => assert_eq!(asked.map(drop), Err(Kind::Limit.into())),
        }
        while a.turn(source).expect("turn") || b.turn(sink).expect("turn") {}
    }
}
