//! Publishing to a spinning peer under total store order, with store buffers and the fence on all threads: every
//! interleaving of the product's own functions. Nothing replaces the fence that the publisher leaves out. A lost
//! wake-up is a sleep without end.
//!
//! Seen failing, besides the cases kept as tests: without the fence on all threads; without the publisher's second
//! look; a plain store although no end says that it spins; without the fence after the second look; awake again without
//! a fence.

use tranship_ring::{Consumer, Producer, Publish, Push, Ring, Slept, TIMED, Waker, sleep};
use tranship_sync::atomic::{AtomicU32, Ordering};
use tranship_tso::{self as tso, Model};

struct Ways {
    source: Ring,
    sink: Ring,
    /// The sink's descriptor: how often it was made readable.
    bell: AtomicU32,
}

impl Ways {
    /// Makes both ends, with a sink that says that it spins.
    fn new() -> Ways {
        let (source, sink) = Ring::pair(2);
        sink.spin();
        let bell = AtomicU32::new(0);
        Ways { source, sink, bell }
    }

    fn press(&self) -> bool {
        self.bell.fetch_add(1, Ordering::Relaxed);
        tso::wake_all(&self.bell)
    }

    fn push(&self, producer: &mut Producer, how: Publish) {
        let pushed = producer.push(self.source.own_lines(), how, [1 << 32; 8]);
        assert_eq!(pushed, Push::Done);
    }

    /// Publishes `lines` lines, as a sender does.
    fn send(&self, lines: u32) {
        let mut producer = Producer::new();
        for _ in 0..lines {
            let how = self.source.how_to_publish();
            self.push(&mut producer, how);
            self.source.notify_of(how, || self.press());
        }
    }

    /// Takes a line; sleeps until there is one.
    fn take(&self, consumer: &mut Consumer) {
        let ready = || consumer.try_pop(self.sink.their_lines());
        let mut points = [self.sink.point()];
        let slept = sleep(&TIMED, &mut points, Waker::Fences, None, ready);
        assert!(matches!(slept, Ok(Slept::Ready(_))), "{slept:?}");
    }

    /// Polls the ring; sleeps on its descriptor.
    fn poll(&self, consumer: &mut Consumer) {
        self.sink.arm();
        while consumer.try_pop(self.sink.their_lines()).is_none() {
            tso::sleep_on([(&self.bell, 0)].into_iter());
            self.sink.arm();
        }
        self.sink.disarm();
    }
}

fn model(lines: u32, sink: fn(&Ways, &mut Consumer)) -> Model<Ways> {
    Model::new(Ways::new)
        .thread("source", move |ways| ways.send(lines))
        .thread("sink", move |ways| sink(ways, &mut Consumer::new()))
}

#[test]
fn who_spun_is_woken() {
    let once = model(1, |ways, consumer| ways.take(consumer));
    once.holds("who spun sleeps");
    let twice = model(2, |ways, consumer| {
        ways.take(consumer);
        ways.take(consumer);
    });
    twice.holds("who spun sleeps twice");
}

#[test]
fn who_spun_sleeps_and_spins_again_is_woken() {
    let again = model(2, |ways, consumer| {
        ways.take(consumer);
        ways.sink.spin();
        ways.take(consumer);
    });
    again.holds("who spun sleeps, spins and sleeps");
}

#[test]
fn who_spun_and_was_ready_before_it_slept_is_woken() {
    // A poll loop that finds a line says that it is awake.
    let ready = model(1, |ways, consumer| {
        ways.sink.disarm();
        ways.take(consumer);
    });
    ready.holds("who spun does not sleep, and then sleeps");
}

#[test]
fn who_spun_is_woken_by_its_descriptor() {
    let bell = model(1, |ways, consumer| ways.poll(consumer));
    bell.holds("who spun sleeps on its descriptor");
}

/// Two threads of a sink's process: neither knows of the other's words.
#[test]
fn who_is_said_to_spin_while_it_goes_to_sleep_is_woken() {
    let spins = model(1, |ways, consumer| ways.take(consumer));
    let spins = spins.thread("sink, another thread", |ways| ways.sink.spin());
    spins.holds("who goes to sleep while another thread says that it spins");
}

fn careless(spins: bool, publish: fn(&Ways, &mut Producer)) -> Model<Ways> {
    let awake = || {
        let ways = Ways::new();
        let (source, sink) = Ring::pair(2);
        Ways {
            source,
            sink,
            ..ways
        }
    };
    Model::new(if spins { Ways::new } else { awake })
        .thread("source", move |ways| publish(ways, &mut Producer::new()))
        .thread("sink", |ways| ways.take(&mut Consumer::new()))
}

#[test]
fn a_publisher_that_does_not_look_a_second_time() {
    let wrong = careless(true, |ways, producer| {
        let how = ways.source.how_to_publish();
        ways.push(producer, how);
        if how == Publish::SeqCst {
            ways.source.notify(|| ways.press());
        }
    });
    wrong.breaks("no second look");
}

#[test]
fn a_publisher_that_looks_before_it_publishes_alone() {
    let wrong = careless(true, |ways, producer| {
        ways.source.notify_of(Publish::Release, || ways.press());
        ways.push(producer, Publish::Release);
    });
    wrong.breaks("the second look first");
}

#[test]
fn a_plain_store_to_one_that_does_not_say_that_it_spins() {
    let wrong = careless(false, |ways, producer| {
        ways.push(producer, Publish::Release);
        ways.source.notify(|| ways.press());
    });
    wrong.breaks("a plain store and no fence");
}
