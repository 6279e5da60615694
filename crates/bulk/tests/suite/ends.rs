//! Each operation's end, by looking, by callback and by awaiting: on every backend.

use crate::cases::{Pair, address, copied, domain, event, moved, pair, settle};
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tranship_bulk::{
    Aggregate, Buffer, Completion, Direction, EndOptions, Error, Event, Kind, Pool, Trust,
};
use tranship_transport::Backend;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// All three say the same, each once; who asks afterwards hears it at once.
#[track_caller]
fn three_ways(what: &str, done: Completion, wanted: Result<(), Kind>, turn: impl Fn()) {
    let (called, woken) = (Arc::new(AtomicUsize::new(0)), Arc::new(Count::default()));
    let asks = |done: &Completion| {
        let called = Arc::clone(&called);
        done.on_done(move |result| {
            assert_eq!(result.map_err(|error| error.kind()), wanted);
            called.fetch_add(1, Ordering::Relaxed);
        });
    };
    asks(&done);
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut ended = pin!(done.clone().into_future());
    let early = ended.as_mut().poll(&mut context);
    while done.result().is_none() {
        turn();
    }
    let wanted = wanted.map_err(Error::from);
    assert_eq!(done.result(), Some(wanted.clone()), "{what}");
    assert_eq!(called.load(Ordering::Relaxed), 1, "{what}");
    if early.is_pending() {
        assert_eq!(woken.0.load(Ordering::Relaxed), 1, "{what}");
    }
    assert_eq!(
        ended.as_mut().poll(&mut context),
        Poll::Ready(wanted),
        "{what}"
    );
    asks(&done);
    assert_eq!(called.load(Ordering::Relaxed), 2, "{what}");
}

fn alloc(pool: &Pool) -> Buffer {
    pool.alloc().expect("alloc")
}

pub fn of_every_operation(backend: &Arc<dyn Backend>, trust: Trust) {
    let (a, b) = (domain(backend), domain(backend));
    let (address, options) = (address(), || EndOptions::new(trust).meta_bytes(64));
    let source = a.create(&address, Direction::Source, options());
    let source = source.expect("create");
    let (sink, bound) = b.bind(&address, options()).expect("bind");
    three_ways("bind", bound, Ok(()), || settle(&[&source, &sink]));
    drop((source, sink));
    let p = pair(backend, trust);
    let both = || p.settle();
    let pool = p.a.pool(6, 4096, false).expect("pool");
    let asked = p.source.assign(pool.info().id).expect("assign");
    three_ways("assign", asked, Ok(()), both);
    let done = p.source.move_(alloc(&pool), &[1]).expect("move");
    three_ways("move", done, Ok(()), both);
    let (taken, _) = moved(&p.sink);
    let done = p.sink.pass(taken, &[2]).expect("pass");
    three_ways("pass", done, Ok(()), both);
    let (own, _) = moved(&p.source);
    let done = p.source.copy(&own, &[3]).expect("copy");
    three_ways("copy", done, Ok(()), both);
    let (copy, _) = copied(&p.sink);
    let done = p.sink.release_with(copy, &[9]).expect("release");
    three_ways("release", done, Ok(()), both);
    let Event::Released(of, 0.., said) = event(&p.source) else {
        panic!("not released");
    };
    assert_eq!((of, &said[..]), (own.pool(), &[9][..]));
    let done = p.source.full_copy(&own, alloc(&pool), &[4]);
    three_ways("full copy", done.expect("full copy"), Ok(()), both);
    let mut whole = Aggregate::new();
    whole.push(own).expect("push");
    whole.push(alloc(&pool)).expect("push");
    let done = p.source.copy_aggregate(&whole, &[5]).expect("copy all");
    three_ways("copy of an aggregate", done, Ok(()), both);
    while let Some(event) = p.sink.poll_event().expect("event") {
        drop(event);
    }
    p.settle();
    let done = p.source.move_aggregate(whole, &[6]).expect("move all");
    three_ways("move of an aggregate", done, Ok(()), both);
    let refused = p.source.remove(pool.info().id).expect("remove");
    three_ways("refused removal", refused, Err(Kind::PoolInUse), both);
    while let Some(event) = p.sink.poll_event().expect("event") {
        drop(event);
    }
    p.settle();
    while let Some(event) = p.source.poll_event().expect("event") {
        drop(event);
    }
    let asked = p.source.remove(pool.info().id).expect("remove");
    three_ways("remove", asked, Ok(()), both);
    let asked = p.source.assign(pool.info().id).expect("assign");
    p.settle();
    assert_eq!(asked.result(), Some(Ok(())));
    let Pair { a, b, source, sink } = p;
    let last = source.move_(alloc(&pool), &[]).expect("move");
    let asked = source.close().expect("close");
    three_ways("close", asked, Ok(()), || {
        settle(&[&source, &sink]);
        while sink.poll_event().expect("event").is_some() {}
    });
    assert_eq!(last.result(), Some(Ok(())));
    drop((a, b));
}
