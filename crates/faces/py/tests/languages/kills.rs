//! The programs of `examples/python` and the C library's examples are killed (SIGKILL) at random, at either end of a topic, a queue and a
//! service. The Rust program at the other end goes on, and nothing is left of them.

use super::{C, Killed, Language, Python, World, said};
use crate::kills::{kills, strange, wait_until_none};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tranship::queue::Queues as _;
use tranship::service::Services as _;
use tranship::topic::{TopicOptions, Topics as _};
use tranship::{Domain, Error, ErrorKind};
use tranship_testkit::Random;

/// Scenes among which the kills are shared.
const SCENES: u64 = 6;
/// More messages than a program sends or takes before it is killed.
const MANY: &str = "100000000";

struct Scene {
    world: World,
    /// A domain at the other end of what this process's own domain offers.
    there: Domain,
    random: Random,
}

impl Scene {
    fn new(name: &str) -> Option<Scene> {
        let world = World::new()?;
        let there = Domain::builder().name("there").socket(&world.socket);
        Some(Scene {
            there: there.helper_thread(true).connect().expect("a domain"),
            random: Random::printed(name),
            world,
        })
    }

    fn language(&mut self) -> Language {
        if self.random.one_in(2) { C } else { Python }
    }

    /// Runs so many victims, of which each is killed after `work`. Says to it whether the victim is to be at work by then; else it is killed as it
    /// starts. `told` has what `work` gave, when the victim is dead. `looks` is called until the manager has forgotten the victim: the other end may
    /// just have begun to connect to it.
    fn victims<R>(
        &mut self,
        name: &str,
        arguments: &[&str],
        mut work: impl FnMut(&mut Random, bool) -> R,
        told: impl Fn(R),
        looks: impl Fn(),
    ) {
        for number in 0..kills().div_ceil(SCENES) {
            let language = self.language();
            let victim = Killed(self.world.start(language, name, arguments));
            let is_at_work = !self.random.one_in(4);
            if !is_at_work {
                self.random.instant(Duration::from_millis(300));
            }
            let given = work(&mut self.random, is_at_work);
            drop(victim);
            told(given);
            // The manager knows nothing of it any more.
            let known = [self.there.id().0];
            wait_until_none(&self.world.dog, || {
                looks();
                strange(&self.world.domain, &known)
            });
            self.world
                .dog
                .step(format!("killed {number}: {name} {arguments:?}"));
        }
    }
}

fn is_over(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerGone)
}

#[test]
fn viewers_of_a_topic_are_killed() {
    let Some(mut scene) = Scene::new("viewers") else {
        return;
    };
    let options = TopicOptions::new().history(4);
    let mut publisher = scene
        .world
        .domain
        .publish_with("camera", options)
        .expect("a topic");
    let mut number = 0u64;
    let mut show = |publisher: &mut tranship::topic::Publisher| {
        let mut frame = publisher.alloc(4096).expect("memory");
        frame.fill(number.to_le_bytes()[0]);
        publisher.send((frame, number)).expect("published");
        number += 1;
    };
    let work = |random: &mut Random, is_at_work: bool| {
        while is_at_work && publisher.subscribers() == 0 {
            show(&mut publisher);
        }
        let until = Instant::now() + Duration::from_millis(random.below(20));
        while Instant::now() < until {
            show(&mut publisher);
        }
    };
    scene.victims("topic", &["view", "camera"], work, drop, || ());
    // A viewer that was killed counts until its end is known.
    while publisher.subscribers() > 0 {
        publisher.tend().expect("tended");
    }
    let viewers =
        [C, Python].map(|language| scene.world.start(language, "topic", &["view", "camera"]));
    while publisher.subscribers() < 2 {
        publisher.tend().expect("tended");
    }
    show(&mut publisher);
    drop(publisher);
    for viewer in viewers {
        let said = said(viewer);
        let last = format!("frame {} of 4096 bytes: ", number - 1);
        assert!(said.contains(&last), "{said}");
    }
}

#[test]
fn publishers_of_a_topic_are_killed() {
    let Some(mut scene) = Scene::new("publishers") else {
        return;
    };
    let video = scene.there.subscribe("camera");
    let video = RefCell::new(video.expect("a subscription"));
    let look = || match video.borrow_mut().try_recv() {
        Ok(Some(frame)) => {
            let byte = frame.word.to_le_bytes()[0];
            assert_eq!(frame.to_vec(), [byte; 4096], "frame {}", frame.word);
            true
        }
        Ok(None) => false,
        Err(error) => {
            assert_eq!(error, ErrorKind::PeerDied);
            false
        }
    };
    let work = |random: &mut Random, is_at_work: bool| {
        let mut frames = if is_at_work { 1 + random.below(200) } else { 0 };
        while frames > 0 {
            frames -= u64::from(look());
        }
    };
    scene.victims("topic", &["publish", "camera", MANY], work, drop, || {
        while look() || !video.borrow().status().publishers.is_empty() {}
    });
}

#[test]
fn consumers_of_a_queue_are_killed() {
    let Some(mut scene) = Scene::new("consumers") else {
        return;
    };
    let mut producer = scene.world.domain.produce("jobs").expect("a producer");
    let mut sent = 0;
    let work = |random: &mut Random, is_at_work: bool| {
        while is_at_work && producer.consumers() == 0 {
            producer.tend().expect("tended");
        }
        let until = Instant::now() + Duration::from_millis(random.below(20));
        while Instant::now() < until {
            match producer.try_send((b"a job", sent)) {
                Ok(()) => sent += 1,
                Err(failed) => assert_eq!(failed.error, ErrorKind::Full),
            }
        }
    };
    scene.victims("queue", &["consume", "jobs", MANY], work, drop, || ());
    // What the dead had, and what nobody has taken, is done by another one.
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut consumer = scene.there.consume("jobs").expect("a consumer");
            while !is_done.load(Ordering::Relaxed) {
                match consumer.recv_timeout(Duration::from_millis(10)) {
                    Ok(item) => drop(item.ack()),
                    Err(error) => assert_eq!(error, ErrorKind::TimedOut),
                }
            }
        });
        producer.wait_done(None).expect("done");
        is_done.store(true, Ordering::Relaxed); // only ends the loop
    });
    let status = producer.status();
    assert_eq!(
        (status.sent, status.waiting, status.open, status.lost),
        (sent, 0, 0, 0)
    );
}

#[test]
fn producers_of_a_queue_are_killed() {
    let Some(mut scene) = Scene::new("producers") else {
        return;
    };
    let consumer = scene.there.consume("jobs");
    let consumer = RefCell::new(consumer.expect("a consumer"));
    let look = || match consumer.borrow_mut().try_recv().expect("no rule is broken") {
        Some(item) => {
            assert_eq!(item.to_vec(), [item.word.to_le_bytes()[0]; 1000]);
            drop(item.ack()); // its producer may be dead
            true
        }
        None => false,
    };
    let work = |random: &mut Random, is_at_work: bool| {
        let mut items = if is_at_work { 1 + random.below(200) } else { 0 };
        while items > 0 {
            items -= u64::from(look());
        }
    };
    scene.victims("queue", &["produce", "jobs", MANY], work, drop, || {
        while look() || !consumer.borrow().status().producers.is_empty() {}
    });
}

#[test]
fn servers_are_killed() {
    let Some(mut scene) = Scene::new("servers") else {
        return;
    };
    let there = scene.there.clone();
    let work = |random: &mut Random, is_at_work: bool| {
        let client = is_at_work.then(|| there.client("sum").expect("a client"))?;
        for _ in 0..1 + random.below(200) {
            let answer = client.call(&[1, 2, 39]).expect("an answer");
            assert_eq!(answer.to_vec(), 42u64.to_ne_bytes());
        }
        Some(client)
    };
    scene.victims(
        "service",
        &["serve", "sum", MANY],
        work,
        |client| {
            if let Some(client) = client {
                let error = Error::from(client.call(&[1]).expect_err("its service is dead"));
                assert!(is_over(&error), "{error}");
            }
        },
        || (),
    );
}

#[test]
fn clients_are_killed() {
    let Some(mut scene) = Scene::new("clients") else {
        return;
    };
    let service = scene.world.domain.serve("len").expect("a service");
    let worker = thread::spawn(move || {
        loop {
            let request = service.recv().expect("a request");
            let len = request.len() as u64;
            match request.reply(&len.to_ne_bytes()) {
                Ok(()) if len == 0 => return,
                // The client of this request is dead.
                Err(failed) => assert!(is_over(&failed.error), "{}", failed.error),
                Ok(()) => {}
            }
        }
    });
    let work = |random: &mut Random, _: bool| {
        random.instant(Duration::from_millis(100));
    };
    scene.victims("service", &["call", "len", "seven"], work, drop, || ());
    for language in [C, Python] {
        let called = scene
            .world
            .start(language, "service", &["call", "len", "seven"]);
        assert_eq!(said(called), "5\n");
    }
    let client = scene.there.client("len").expect("a client");
    client.call(b"").expect("the last answer");
    worker.join().expect("the worker");
}
