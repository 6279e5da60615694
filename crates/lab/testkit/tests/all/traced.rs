//! The life of a buffer as three processes tell it: in order, also after one of them was killed; and no more of it than
//! there is room for.

use std::collections::BTreeMap;
use tranship_core::admin::{Did, StatRecord, Trace, TraceEvent};
use tranship_core::{BufferId, Domain, Pool, PoolOptions, Receiver, Sender};
use tranship_manager::{Config, Forward};
use tranship_proto::PoolId;
use tranship_testkit::{Control, Peer, Watchdog, child};

const BYTES: usize = 5000;

fn join(name: &str, ctl: &Control) -> Domain {
    let socket: String = ctl.recv().unwrap().unwrap();
    let builder = Domain::builder().name(name).socket(&socket);
    builder.helper_thread(true).connect().expect("connect")
}

// Commands: how many buffers to send.
child!(
    fn camera(ctl: Control) {
        let domain = join("camera", &ctl);
        let pool = domain
            .create_pool(PoolOptions::new(8 << 20).name("frames"))
            .expect("pool");
        let mut sender = domain.open::<Sender>("raw").expect("sender");
        while let Some(n) = ctl.recv::<u32>().unwrap() {
            for _ in 0..n {
                let buf = pool.alloc(BYTES).expect("room");
                sender.send(buf.freeze()).expect("sent");
            }
            ctl.send(&pool.id().0).unwrap();
        }
    }
);

child!(
    fn filter(ctl: Control) {
        let domain = join("filter", &ctl);
        let raw = domain.listen::<Receiver>("raw").expect("listen");
        let mut to = domain.open::<Sender>("cooked").expect("sender");
        ctl.send(&()).unwrap();
        let mut from = raw.accept().expect("receiver");
        while let Ok(message) = from.recv() {
            let buf = message.into_buffer().expect("a buffer");
            to.send(buf).expect("forwarded");
        }
    }
);

// Says how many bytes came.
child!(
    fn display(ctl: Control) {
        let domain = join("display", &ctl);
        let cooked = domain.listen::<Receiver>("cooked").expect("listen");
        ctl.send(&()).unwrap();
        let mut from = cooked.accept().expect("receiver");
        while let Ok(message) = from.recv() {
            let buf = message.into_buffer().expect("a buffer");
            let len = buf.len();
            drop(buf);
            ctl.send(&len).unwrap();
        }
    }
);

struct Scene {
    manager: Domain,
    camera: Peer,
    filter: Peer,
    display: Peer,
    pool: PoolId,
}

impl Scene {
    fn new() -> Scene {
        let config = Config {
            forward: Forward::Readers,
            ..Config::default()
        };
        let builder = Domain::builder().name("manager").config(config);
        let manager = builder.embedded().expect("embedded");
        let socket = manager.socket_path().expect("socket").display().to_string();
        let start = |peer: Peer| {
            peer.send(&socket).expect("send");
            peer
        };
        let display = start(display().start().expect("display"));
        display.expect::<()>();
        let filter = start(filter().start().expect("filter"));
        filter.expect::<()>();
        let camera = start(camera().start().expect("camera"));
        let pool = PoolId(camera.ask(&1u32));
        assert_eq!(display.expect::<usize>(), BYTES);
        Scene {
            manager,
            camera,
            filter,
            display,
            pool,
        }
    }

    /// Passes so many messages from one end to the other.
    fn pass(&self, n: u32) {
        let _: u32 = self.camera.ask(&n);
        for _ in 0..n {
            assert_eq!(self.display.expect::<usize>(), BYTES);
        }
    }

    fn trace(&self, name: &str) -> Option<Trace> {
        let all = self.manager.admin().traces().expect("traces");
        all.into_iter().find(|t| t.name == name)
    }

    /// Returns the acts of that domain for each buffer.
    fn by_buffer(&self, name: &str) -> BTreeMap<BufferId, Vec<TraceEvent>> {
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for event in self.trace(name).into_iter().flat_map(|t| t.events) {
            found.entry(event.buffer).or_default().push(event);
        }
        found
    }

    /// Buffers pass until all three have told the whole life of one.
    fn whole_life(&self) -> [Vec<TraceEvent>; 3] {
        loop {
            self.pass(1);
            let all = ["camera", "filter", "display"].map(|name| self.by_buffer(name));
            // The last event is that the filter has dropped the buffer that it sent on.
            let whole = all[1].iter().find(|(id, events)| {
                let told = |of: &BTreeMap<_, Vec<_>>, n| of.get(*id).is_some_and(|e| e.len() == n);
                events.len() == 3 && told(&all[0], 2) && told(&all[2], 2)
            });
            if let Some((id, _)) = whole {
                return all.each_ref().map(|of| of[id].clone());
            }
        }
    }
}

fn did(events: &[TraceEvent]) -> Vec<&'static str> {
    events.iter().map(|e| e.did.name()).collect()
}

#[test]
fn a_buffers_life_is_told_in_order_and_outlives_who_tells_it() {
    let _dog = Watchdog::new();
    let scene = Scene::new();
    assert!(
        scene.manager.admin().traces().expect("traces").is_empty(),
        "off"
    );
    assert!(
        scene
            .manager
            .admin()
            .trace(scene.pool, true, false)
            .expect("on")
    );
    let [camera, filter, display] = scene.whole_life();
    assert_eq!(did(&camera), ["allocated", "sent"]);
    assert_eq!(did(&filter), ["received", "sent", "released"]);
    assert_eq!(did(&display), ["received", "released"]);
    let at = |e: &TraceEvent| e.at_ns;
    // Each after its cause.
    let order = [
        &camera[0],
        &camera[1],
        &filter[0],
        &filter[1],
        &display[0],
        &display[1],
    ];
    assert!(order.is_sorted_by_key(|e| at(e)), "{order:?}");
    assert!(at(&filter[1]) <= at(&filter[2]));
    let lengths = order.map(|e| e.length);
    assert_eq!(lengths[..5], [BYTES as u64; 5]);
    // Receiver, sender, channel.
    let (
        Did::Sent { channel, to, .. },
        Did::Received {
            channel: over,
            from,
            ..
        },
    ) = (camera[1].did, filter[0].did)
    else {
        panic!("{camera:?} {filter:?}");
    };
    let [by_camera, by_filter] = ["camera", "filter"].map(|name| scene.trace(name).expect("told"));
    assert_eq!(
        (channel, to, from),
        (over, by_filter.domain, by_camera.domain)
    );
    assert_eq!(by_filter.pid, scene.filter.pid());

    scene.filter.kill();
    while scene.trace("filter").expect("kept").alive {
        std::thread::yield_now();
    }
    let told = scene.by_buffer("filter");
    assert_eq!(told[&filter[0].buffer], filter, "as it was told");
}

#[test]
fn what_there_is_no_room_for_is_counted_and_off_is_off() {
    let _dog = Watchdog::new();
    let scene = Scene::new();
    scene
        .manager
        .admin()
        .trace(scene.pool, true, false)
        .expect("on");
    scene.whole_life();
    (0..42).for_each(|_| scene.pass(50));
    let camera = scene.trace("camera").expect("told");
    assert_eq!((camera.events.len(), camera.torn), (4096, 0));
    let last = camera
        .events
        .iter()
        .map(|e| e.number)
        .max()
        .expect("events");
    assert!(
        last >= 4200 && camera.lost == last - 4096,
        "{last} {}",
        camera.lost
    );
    assert!(
        !scene
            .manager
            .admin()
            .trace(scene.pool, false, false)
            .expect("off")
    );
    // Until the process has heard of the tracing.
    let last = |name| {
        scene
            .trace(name)
            .expect("kept")
            .events
            .iter()
            .map(|e| e.number)
            .max()
    };
    loop {
        let before = last("camera");
        scene.pass(1);
        if last("camera") == before {
            break;
        }
    }
    let all = ["camera", "filter", "display"].map(last);
    // The receiver heard before, or hears by the next message.
    loop {
        let before = ["camera", "filter", "display"].map(last);
        scene.pass(1);
        if ["camera", "filter", "display"].map(last) == before {
            assert_eq!(before[0], all[0]);
            break;
        }
    }
}

/// A follower has the pool traced as long as the follower is there.
#[test]
fn a_follower_that_goes_leaves_nothing_on() {
    let _dog = Watchdog::new();
    let manager = Domain::builder()
        .name("manager")
        .embedded()
        .expect("embedded");
    let pool: Pool = manager
        .create_pool(PoolOptions::new(1 << 20))
        .expect("pool");
    let socket = manager.socket_path().expect("socket").to_owned();
    let follower = Domain::builder().name("tool").socket(&socket).connect();
    let follower = follower.expect("connect");
    assert!(follower.admin().trace(pool.id(), true, true).expect("on"));
    let events = || {
        manager.turn().expect("turn");
        drop(pool.alloc(100).expect("room"));
        let traces = manager.admin().traces().expect("traces");
        traces.first().map_or(0, |t| t.events.len())
    };
    while events() < 4 {}
    drop(follower);
    loop {
        let before = events();
        if events() == before {
            break;
        }
    }
    // The table counts with other shared memory, and is charged to its maker.
    let tables = manager
        .admin()
        .stat()
        .expect("statistics")
        .into_iter()
        .find_map(|r| match r {
            StatRecord::Domain(d) => Some(d.table_bytes),
            _ => None,
        });
    assert!(tables >= Some(4096 * 64), "{tables:?}");
}
