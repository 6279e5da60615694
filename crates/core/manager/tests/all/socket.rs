//! The manager over its real socket, in this process.

use crate::common::*;
use std::os::fd::AsFd;
use std::time::Duration;
use tranship_manager::{Config, Embedded};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, RefusalCode, Req, Request,
    Role, StatRecord, encode,
};
use tranship_region::layout::RefsRw;
use tranship_ring::{HalfRw, Side};
use tranship_sys::socket;

/// A manager, and the watchdog of the test.
struct Watched {
    manager: Embedded,
    _dog: Watchdog,
}

impl std::ops::Deref for Watched {
    type Target = Embedded;
    fn deref(&self) -> &Embedded {
        &self.manager
    }
}

fn manager(total_chunks: u64) -> Watched {
    let dog = watchdog();
    let config = Config {
        total: Some(total_chunks * CHUNK),
        ..Config::default()
    };
    Watched {
        manager: Embedded::start(config, None).expect("manager"),
        _dog: dog,
    }
}

#[test]
fn surplus_descriptors_garbage_and_truncation_end_the_connection() {
    let m = manager(8);
    let mut good = Client::join(m.path(), "good");
    let spare = RefsRw::create(SLOTS).unwrap().0;

    let mut c = Client::join(m.path(), "surplus");
    let req = c.req();
    c.send(&Request::Stat { req }, &[spare.as_fd()]);
    assert_eq!(c.expelled(), Some(RefusalCode::BadDescriptor));

    let mut c = Client::join(m.path(), "missing");
    let req = c.req();
    let (channel, pool) = (ChannelId(1), PoolId(1));
    c.send(&Request::Assign { req, channel, pool }, &[]);
    assert_eq!(c.expelled(), Some(RefusalCode::BadDescriptor));

    let mut c = Client::join(m.path(), "garbage");
    socket::sendmsg(&c.fd, &[0xff; 100], &[], false).unwrap();
    assert_eq!(c.expelled(), Some(RefusalCode::BadArgument));

    let mut c = Client::join(m.path(), "long");
    socket::sendmsg(&c.fd, &[0; 20000], &[], false).unwrap();
    assert_eq!(c.expelled(), Some(RefusalCode::BadArgument));

    let mut c = Client::raw(m.path());
    c.send(&hello(PROTOCOL_VERSION + 1, "v", None), &[]);
    assert_eq!(c.expelled(), Some(RefusalCode::Version));

    let mut c = Client::raw(m.path());
    c.send(&Request::Goodbye, &[]);
    assert_eq!(c.expelled(), Some(RefusalCode::State));

    // Sixteen descriptors are the most that fit the manager's buffer.
    let mut c = Client::join(m.path(), "many");
    let fds = vec![spare.as_fd(); 16];
    socket::sendmsg(&c.fd, &encode(&Request::Goodbye), &fds, false).unwrap();
    assert_eq!(c.expelled(), Some(RefusalCode::BadDescriptor));

    // Wrong objects are refused, the connection stays.
    let pipe = std::fs::File::open("/proc/self/status").unwrap();
    for table in [spare.as_fd(), pipe.as_fd()] {
        let req = good.ask_pool(tranship_proto::Trust::Producer, 1, table);
        assert_eq!(good.refused(req), RefusalCode::BadDescriptor);
    }
    good.sync();
}

#[test]
fn who_does_not_read_is_not_heard_until_it_does() {
    let m = manager(8);
    let mut good = Client::join(m.path(), "good");
    let mut deaf = Client::join(m.path(), "deaf");
    let pool = deaf.create_pool(4);
    deaf.grant(pool.id, 1).unwrap();
    // Answers that it does not read, until neither the manager nor its socket takes further questions.
    let mut asked = Vec::new();
    loop {
        let req = deaf.req();
        let request = Request::AllowForward {
            req,
            pool: pool.id,
            domain: good.domain,
        };
        match socket::sendmsg(&deaf.fd, &encode(&request), &[], true) {
            Ok(()) => asked.push(req),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                // Its queue is full for the moment, or for good: others are served, and then it is.
                good.sync();
                good.sync();
                let room = tranship_sys::epoll::wait_writable(&deaf.fd, Some(Duration::ZERO));
                if !room.unwrap() {
                    break;
                }
            }
            Err(e) => panic!("{e}"),
        }
        assert!(asked.len() < 1_000_000, "heard without end");
        if asked.len().is_multiple_of(64) {
            good.sync();
        }
    }
    for wanted in asked {
        deaf.wait(|e| {
            matches!(e, Event::ForwardAllowed { req, .. } if *req == wanted).then_some(())
        });
    }
    // It hangs up. Its process lives, so its domain stays.
    let (before, instance) = (deaf.domain, deaf.instance);
    drop(deaf);
    let away =
        |r: &StatRecord| matches!(r, StatRecord::Domain(d) if d.domain == before && !d.connected);
    while !good.sync().iter().any(away) {}
    // The process is back, with its objects.
    let mut back = Client::join_as(m.path(), "deaf", Some(before));
    assert!(back.resumed && back.instance == instance);
    back.claim_pool(&pool);
    back.wait(|e| matches!(e, Event::PoolCreated { pool: p, .. } if *p == pool.id).then_some(()));
    back.claim_done();
    assert_eq!(back.grant(pool.id, 1), Ok(1));
}

#[test]
fn a_second_manager_is_refused_and_a_stale_socket_replaced() {
    let _dog = watchdog();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("m.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let m = Embedded::start(Config::default(), Some(&path)).unwrap();
    assert!(Embedded::start(Config::default(), Some(&path)).is_err());
    Client::join(&path, "x").sync();
    drop(m);
    assert!(!path.exists());
}

/// A reader that was allowed to take once stays on the reader set: a source that assigns anew could make it hold
/// buffers that the writer does not see.
#[test]
fn a_reader_stays_while_its_pool_is_assigned_anew() {
    let m = manager(8);
    let mut a = Client::join(m.path(), "a");
    let mut b = Client::join(m.path(), "b");
    let pool = a.create_pool(4);
    let chan = open_channel(&mut a, &mut b, "n");
    assign(&mut a, &mut b, chan.id, pool.id);
    let again = Counts::new();
    let request = Request::Assign {
        req: a.req(),
        channel: chan.id,
        pool: pool.id,
    };
    a.send(&request, &[again.sent.0.as_fd()]);
    let offered = |e: &Event| match e {
        Event::PoolOffer { known, .. } => Some(*known),
        _ => None,
    };
    assert!(b.wait(offered).0);
    a.wait(|e| matches!(e, Event::QueueLeft { .. }).then_some(()));
    a.sync();
    let left = |(e, _): &(Event, _)| matches!(e, Event::ReaderLeft { .. });
    assert!(!a.inbox.iter().any(left));
}

/// A process that is made to write into another's connection does not become a client: it would pass for the other.
#[test]
fn who_says_hello_has_connected_itself() {
    let m = manager(1);
    let mut client = Client::raw(m.path());
    let hello = hello(PROTOCOL_VERSION, "somebody", None);
    let dir = tranship_testkit::folder().unwrap();
    let file = dir.path().join("hello");
    std::fs::write(&file, encode(&hello)).unwrap();
    let socket = client.fd.try_clone().unwrap();
    let mut victim = std::process::Command::new("cat");
    let wrote = victim.arg(&file).stdout(socket).status().unwrap();
    assert!(wrote.success());
    assert_eq!(client.expelled(), Some(RefusalCode::Access));
}

/// Settings that a connection inherits from the listener hold before and after it is accepted.
#[test]
fn nothing_can_be_sent_along_before_the_welcome() {
    let m = manager(1);
    let mut client = Client::raw(m.path());
    let (near, _far) = socket::pair().unwrap();
    if !socket::pass_rights(&near, false).unwrap() {
        return tranship_testkit::skipped("the kernel cannot refuse descriptors");
    }
    let hello = hello(PROTOCOL_VERSION, "client", None);
    let send = |fds: &[_]| socket::sendmsg(&client.fd, &encode(&hello), fds, true);
    let refused = |sent: std::io::Result<()>| sent.unwrap_err().kind();
    let denied = std::io::ErrorKind::PermissionDenied;
    assert_eq!(refused(send(&[near.as_fd()])), denied);
    // A later client is accepted later.
    Client::join(m.path(), "other").sync();
    assert_eq!(refused(send(&[near.as_fd()])), denied);
    send(&[]).unwrap();
    let (event, _) = client.recv().unwrap();
    assert!(matches!(event, Event::Welcome { .. }), "{event:?}");
}

const GIVEN: &str = "[[given]]\nname = \"n\"\nline = 12\nexport = [\"from\"]\nbind = [\"to\"]\n";

fn show(client: &Client, key: &str) {
    let key = key.to_owned();
    client.send(&Request::ShowKey { key }, &[]);
}

/// With `[[given]]` rules, quotas and other domains' traces are the operator's.
#[test]
fn a_component_has_no_right_of_the_operator() {
    let _dog = watchdog();
    let rules = format!("operator_key = \"operator\"\n{GIVEN}");
    let config = Config::parse(&rules).expect("rules");
    let m = Embedded::start(config, None).expect("a manager");
    let mut victim = Client::join(m.path(), "victim");
    let pool = victim.create_pool(64).id;
    for its in [Some("from"), None, Some("operator")] {
        let mut client = Client::join(m.path(), "client");
        its.into_iter().for_each(|its| show(&client, its));
        let wanted = match its {
            Some("operator") => None,
            _ => Some((RefusalCode::Access, 0, 9)),
        };
        let requests: [fn(Req, PoolId) -> Request; 3] = [
            |req, pool| Request::SetQuota {
                req,
                pool,
                quota_bytes: 0,
            },
            |req, pool| Request::Trace {
                req,
                pool,
                on: true,
                while_here: false,
            },
            |req, _| Request::Steer { req, take: true },
        ];
        for request in requests {
            let req = client.req();
            let request = request(req, pool);
            client.send(&request, &[]);
            let refused = client.wait(|e| match e {
                Event::Refused { req: r, refusal } if *r == req => {
                    Some(Some((refusal.code, refusal.asked, refusal.available)))
                }
                Event::QuotaSet { req: r, .. }
                | Event::Tracing { req: r, .. }
                | Event::Steering { req: r, .. }
                    if *r == req =>
                {
                    Some(None)
                }
                _ => None,
            });
            assert_eq!(refused.0, wanted, "{its:?}: {request:?}");
        }
    }
}

/// After a restart of the manager, a component claims only channels that the file gives it.
#[test]
fn a_component_claims_no_channel_of_others() {
    let _dog = watchdog();
    let config = Config::parse(GIVEN).expect("rules");
    let m = Embedded::start(config, None).expect("a manager");
    for (n, its, refused) in [(0, "other", true), (10, "from", false), (20, "to", false)] {
        let id = DomainId(4_000_000_000 + n);
        let mut back = Client::join_as(m.path(), "back", Some(id));
        assert!(back.resumed);
        show(&back, its);
        let (half, _) = HalfRw::create(Side::Sink, 16).expect("a half");
        let req = back.req();
        let claim = ChannelClaim {
            channel: ChannelId(id.0 + 1),
            name: "n".to_owned(),
            role: Role::Sink,
            peer: DomainId(id.0 + 2),
            lines: 16,
            peer_inode: 1,
        };
        back.send(&Request::ClaimChannel { req, claim }, &[half.as_fd()]);
        // A good claim waits for that of the other end, and so for the end of this one's claims.
        let done = back.req();
        back.send(&Request::ClaimDone { req: done }, &[]);
        let given = (RefusalCode::Access, 12, 7);
        let answer = back.wait(|e| match e {
            Event::Refused { req: r, refusal } if *r == req => {
                Some(Some((refusal.code, refusal.asked, refusal.available)))
            }
            Event::Claimed { req: r } if *r == done => Some(None),
            _ => None,
        });
        assert_eq!(answer.0, refused.then_some(given), "{its}");
        back.send(&Request::Goodbye, &[]);
        assert_eq!(back.expelled(), None);
    }
}

/// With `[[given]]` rules, a name opens to the keys that its rule has, in their directions, and to no other domain.
#[test]
fn a_name_that_is_given_opens_to_its_keys_alone() {
    let _dog = watchdog();
    let config = Config::parse(GIVEN).expect("rules");
    let m = Embedded::start(config, None).expect("a manager");
    let mut clients = [Some("from"), Some("to"), Some("guessed"), None].map(|key| {
        let client = Client::join(m.path(), "client");
        if let Some(key) = key {
            show(&client, key);
        }
        client
    });
    let given = (RefusalCode::Access, 12, 7);
    let not_given = (RefusalCode::Access, 0, 8);
    let no_one = (RefusalCode::NoSuchName, 0, 0);
    let offers = [None, Some(given), Some(given), Some(given)];
    let asks = [given, no_one, given, given];
    for (name, offers, asks) in [
        ("other", [Some(not_given); 4], [not_given; 4]),
        ("nn", [Some(not_given); 4], [not_given; 4]),
        ("n", offers, asks),
        ("n/replies/1", offers, asks),
    ] {
        let (half, _) = HalfRw::create(Side::Sink, 16).expect("a half");
        for (client, wanted) in clients.iter_mut().zip(asks) {
            let req = client.ask_connect(name, false, &half);
            assert_eq!(client.refused_with(req), Some(wanted), "{name}");
        }
        for (client, wanted) in clients.iter_mut().zip(offers) {
            let req = client.ask_export(name, Role::Source);
            assert_eq!(client.refused_with(req), wanted, "{name}");
        }
    }
}
