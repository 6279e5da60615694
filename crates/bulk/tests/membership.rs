//! What the manager has to say about bulk channels: who may use a name, and how much memory there is.
use tranship_bulk::{Channel, Direction, Domain, EndOptions, Error, Event, Kind, Trust};
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

fn create(domain: &Domain, name: &str) -> Result<Channel, Error> {
    domain.create(name, Direction::Source, EndOptions::new(Trust::Full))
}

fn bind(domain: &Domain, name: &str) -> Result<Channel, Error> {
    let (channel, _) = domain.bind(name, EndOptions::new(Trust::Full))?;
    Ok(channel)
}

#[test]
fn rules_say_who_may_create_and_bind() {
    let _dog = Watchdog::new();
    let member = manager(
        "[[export]]\nname = \"private*\"\nallow = false\n[[export]]\n\
         [[bind]]\nname = \"closed\"\nallow = false\n[[bind]]\n",
    );
    let domain = bulk(&member);
    assert_eq!(
        create(&domain, "shm:private-1").map(drop),
        Err(Kind::Access.into())
    );
    assert_eq!(
        bind(&domain, "shm:open").map(drop),
        Err(Kind::InvalidEndpoint.into())
    );
    let open = create(&domain, "shm:open").expect("create");
    assert_eq!(
        create(&domain, "shm:open").map(drop),
        Err(Kind::InvalidEndpoint.into())
    );
    bind(&domain, "shm:open").expect("bind");
    let _closed = create(&domain, "shm:closed").expect("create");
    assert_eq!(
        bind(&domain, "shm:closed").map(drop),
        Err(Kind::Access.into())
    );
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
    let _dog = Watchdog::new();
    let member = manager("total = \"16MiB\"\n");
    // At `none`: the pool, what the sink is shown of it, and the sink's own.
    for (trust, copies) in [(Trust::Producer, 1), (Trust::None, 3)] {
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
        let error = a.pool(16, 1 << 20, false).expect_err("too much");
        assert_eq!(error, Kind::Quota);
        // With numbers.
        let why = error.to_string();
        assert!(why.contains("16777216"), "{why}");
        drop((a, b, source, sink, pool, asked));
        assert_eq!(charged(&member), 0, "{trust:?}");
    }
}

/// What is written over a sealed buffer is memory of whoever writes it, until it goes on.
#[test]
fn who_writes_over_a_sealed_buffer_pays_for_that() {
    const MIB: u64 = 1 << 20;
    let _dog = Watchdog::new();
    let member = manager("total = \"9MiB\"\n");
    let (a, b) = (bulk(&member), bulk(&member));
    for domain in [&a, &b] {
        domain.seal_from(0);
    }
    let options = || EndOptions::new(Trust::None);
    let source = a.create("shm:over", Direction::Source, options());
    let source = source.expect("create");
    let (sink, _) = b.bind("shm:over", options()).expect("bind");
    let settle = || {
        for _ in 0..64 {
            let _ = (source.turn().expect("turn"), sink.turn().expect("turn"));
        }
    };
    settle();
    let pool = a.pool(4, MIB, false).expect("pool");
    let asked = source.assign(pool.info().id).expect("assign");
    settle();
    assert_eq!(asked.result(), Some(Ok(())));
    assert_eq!(charged(&member), 8 * MIB);
    // Two buffers whose copies have come back.
    let mut both = [0; 2].map(|_| {
        let mut buffer = pool.alloc().expect("alloc");
        buffer.write(0, b"first").expect("write");
        let _ = source.copy(&buffer, &[]).expect("copy");
        let copy = until([&sink, &source], |event| match event {
            Event::Copied(copy, _) => Some(copy.index()),
            _ => None,
        });
        assert_eq!(copy, buffer.index());
        settle();
        buffer
    });
    assert_eq!(charged(&member), 8 * MIB);
    both[0].write(0, b"over").expect("write");
    both[0].write(9, b"once more").expect("write");
    assert_eq!(charged(&member), 9 * MIB);
    // There is no more; nothing is written, and what is there can be read and sent.
    assert_eq!(both[1].write(0, b"over"), Err(Kind::Quota.into()));
    assert_eq!(both[1].bytes_mut().map(|_| ()), Err(Kind::Quota.into()));
    assert_eq!(&both[1].bytes().expect("bytes")[..5], b"first");
    let [first, second] = both;
    // With the private pages goes what they cost: what is sent lies in new memory, in the place of the old.
    let _ = source.move_(first, &[]).expect("move");
    assert_eq!(charged(&member), 8 * MIB);
    let _ = source.move_(second, &[]).expect("move");
    let first = |event: &Event| match event {
        Event::Moved(buffer, _) => buffer.bytes().ok().map(|bytes| bytes[..5].to_vec()),
        _ => None,
    };
    assert_eq!(until([&sink, &source], first), b"overt");
    assert_eq!(until([&sink, &source], first), b"first");
    assert_eq!(charged(&member), 8 * MIB);
}

child!(
    fn lonely(ctl: Control) {
        let domain = Domain::new();
        // Without a manager there is everything but its names.
        domain.pool(4, 4096, false).expect("a pool");
        create(&domain, "local:here").expect("create");
        assert_eq!(
            create(&domain, "shm:here").map(drop),
            Err(Kind::NoManager.into())
        );
        assert_eq!(
            bind(&domain, "shm:here").map(drop),
            Err(Kind::NoManager.into())
        );
        let _ = ctl.send(&"done");
    }
);

#[test]
fn without_a_manager_there_are_no_names() {
    let _dog = Watchdog::new();
    let nowhere = tranship_testkit::folder()
        .expect("a folder")
        .path()
        .join("m.sock");
    let peer = lonely().env("TRANSHIP_SOCKET", nowhere).start();
    let peer = peer.expect("start");
    assert_eq!(peer.expect::<String>(), "done");
    assert_eq!(peer.wait(), Exit::Code(0));
}
