//! What the manager has to say about bulk channels: who may use a name, and how much memory there is.

use std::time::Duration;
use tranship_bulk::{Channel, Code, Direction, Domain, EndOptions, Event, Trust};
use tranship_core::{Domain as Member, StatRecord};
use tranship_manager::Config;
use tranship_testkit::{Control, Exit, Watchdog, child};

fn manager(config: &str) -> Member {
    let config = Config::parse(config).expect("a configuration");
    Member::builder()
        .config(config)
        .embedded()
        .expect("embedded")
}

fn bulk(member: &Member) -> Domain {
    Domain::over(member).expect("a member")
}

fn create(domain: &Domain, name: &str) -> Result<Channel, Code> {
    domain.create(name, Direction::Source, EndOptions::new(Trust::Full))
}

fn bind(domain: &Domain, name: &str) -> Result<Channel, Code> {
    let (channel, _) = domain.bind(name, EndOptions::new(Trust::Full))?;
    Ok(channel)
}

#[test]
fn rules_say_who_may_create_and_bind() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    let member = manager(
        "[[export]]\nname = \"private*\"\nallow = false\n[[export]]\n\
         [[bind]]\nname = \"closed\"\nallow = false\n[[bind]]\n",
    );
    let domain = bulk(&member);
    assert_eq!(
        create(&domain, "shm:private-1").map(drop),
        Err(Code::Access)
    );
    assert_eq!(
        bind(&domain, "shm:open").map(drop),
        Err(Code::InvalidEndpoint)
    );
    let open = create(&domain, "shm:open").expect("create");
    assert_eq!(
        create(&domain, "shm:open").map(drop),
        Err(Code::InvalidEndpoint)
    );
    bind(&domain, "shm:open").expect("bind");
    let _closed = create(&domain, "shm:closed").expect("create");
    assert_eq!(bind(&domain, "shm:closed").map(drop), Err(Code::Access));
    // A name is for one channel, and free again when that is bound.
    while open.turn().expect("turn") {}
    let _next = create(&domain, "shm:open").expect("create again");
}

fn charged(member: &Member) -> u64 {
    let records = member.stat().expect("stat");
    let heaps = records.iter().filter_map(|record| match record {
        StatRecord::Heap(heap) => Some(heap.admitted_bytes),
        _ => None,
    });
    heaps.sum()
}

fn until<T>(channels: [&Channel; 2], wanted: impl Fn(&Event) -> Option<T>) -> T {
    loop {
        channels[1].turn().expect("turn");
        while let Some(event) = channels[0].poll_event().expect("event") {
            if let Some(found) = wanted(&event) {
                return found;
            }
        }
    }
}

#[test]
fn each_end_pays_for_what_it_makes() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    let member = manager("total = \"16MiB\"\n");
    for (trust, copies) in [(Trust::Producer, 1), (Trust::None, 2)] {
        let (a, b) = (bulk(&member), bulk(&member));
        let options = || EndOptions::new(trust);
        let source = a
            .create("shm:paid", Direction::Source, options())
            .expect("create");
        let (sink, _) = b.bind("shm:paid", options()).expect("bind");
        until([&source, &sink], |e| {
            matches!(e, Event::Bound(Ok(_))).then_some(())
        });
        let pool = a.pool(256, 4096, false).expect("1 MiB");
        assert_eq!(charged(&member), 1 << 20);
        let asked = source.assign(pool.info().id).expect("assign");
        until([&sink, &source], |e| {
            matches!(e, Event::PoolAssigned(_)).then_some(())
        });
        while asked.result().is_none() {
            source.turn().expect("turn");
        }
        assert_eq!(charged(&member), copies << 20, "{trust:?}");
        assert_eq!(a.pool(16, 1 << 20, false).map(drop), Err(Code::Quota));
        // With numbers.
        let why = tranship_bulk::last_detail().expect("why");
        assert!(why.contains("16777216"), "{why}");
        drop((a, b, source, sink, pool, asked));
        assert_eq!(charged(&member), 0, "{trust:?}");
    }
}

child!(
    fn lonely(ctl: Control) {
        let domain = Domain::new();
        // Without a manager there is everything but its names.
        domain.pool(4, 4096, false).expect("a pool");
        create(&domain, "local:here").expect("create");
        assert_eq!(create(&domain, "shm:here").map(drop), Err(Code::NoManager));
        assert_eq!(bind(&domain, "shm:here").map(drop), Err(Code::NoManager));
        let _ = ctl.send(&"done");
    }
);

#[test]
fn without_a_manager_there_are_no_names() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    let nowhere = tempfile::tempdir().expect("a folder").path().join("m.sock");
    let peer = lonely().env("TRANSHIP_SOCKET", nowhere).start();
    let peer = peer.expect("start");
    assert_eq!(peer.expect::<String>(), "done");
    assert_eq!(peer.wait(), Exit::Code(0));
}
