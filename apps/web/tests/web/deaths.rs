//! A component that dies or hangs.

use crate::site::{PATIENT, Site};
use rustix::process::Signal;
use tranship_testkit::{Watchdog, until};

/// The components behind the front on the path of a dynamic request.
const PATH: [&str; 5] = ["http", "guard", "route", "cache", "dynamic"];

#[test]
fn a_handler_that_dies_costs_its_request_and_no_other() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[PATIENT]);
    let mut victim = site.client();
    let mut other = site.client();
    other.ask("/page.txt");
    other.reply();
    victim.ask("/dynamic?crash");
    // These come behind it: the next process answers them.
    let mut behind: Vec<_> = (0..5).map(|_| site.client()).collect();
    for client in &mut behind {
        client.ask("/dynamic?n=9");
    }
    assert_eq!(victim.reply().status, 502);
    victim.ends();
    for client in &mut behind {
        let reply = client.reply();
        assert!(
            matches!((reply.status, reply.body.len()), (200, 9) | (502, _)),
            "{reply:?}"
        );
    }
    other.ask("/page.txt");
    assert_eq!(other.reply().status, 200);
    site.stop();
}

#[test]
fn a_handler_that_hangs_costs_its_request_and_no_other() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[
        ("\"front\"]", "\"front\", \"--answer\", \"1500\"]"),
        ("\"dynamic\"]", "\"dynamic\", \"--answer\", \"500\"]"),
    ]);
    let mut victim = site.client();
    victim.ask("/dynamic?hang");
    let status = victim.reply().status;
    assert!(matches!(status, 502 | 504), "{status}");
    loop {
        let (status, body) = site.get("/dynamic?n=4");
        if status == 200 {
            assert_eq!(body.len(), 4);
            break;
        }
        assert!(matches!(status, 502..=504), "{status}");
    }
    site.stop();
}

#[test]
fn each_component_may_die_and_the_service_goes_on() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[PATIENT]);
    assert_eq!(site.get("/dynamic?n=1").0, 200);
    let names = [
        "http", "guard", "route", "cache", "static", "dynamic", "log", "front",
    ];
    for name in names {
        let others: Vec<_> = names
            .iter()
            .filter(|other| **other != name)
            .map(|other| site.wait_pid(other))
            .collect();
        site.kill(name);
        loop {
            // No connection is refused, and the answer is right or says that it is none.
            let mut client = site.client();
            client.ask("/dynamic?n=77");
            let Some(reply) = client.reply_or_end(true) else {
                assert_eq!(name, "front");
                continue;
            };
            match reply.status {
                200 => {
                    assert_eq!(reply.body.len(), 77);
                    break;
                }
                status => assert!(matches!(status, 502..=504), "{name}: {status}"),
            }
        }
        let after: Vec<_> = names
            .iter()
            .filter(|other| **other != name)
            .map(|other| site.wait_pid(other))
            .collect();
        assert_eq!(others, after, "{name}");
    }
    assert_eq!(site.get("/page.txt").0, 200);
    site.stop();
}

#[test]
fn a_request_that_a_dead_component_had_not_taken_goes_to_its_next_process() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[PATIENT]);
    let mut client = site.client();
    for name in PATH {
        // A connection lives on, and has had requests before.
        client.ask("/dynamic?n=5");
        assert_eq!(client.reply().body.len(), 5);
        site.signal(name, Signal::STOP);
        client.ask("/dynamic?n=77");
        site.kill(name);
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.len()), (200, 77), "{name}");
    }
    site.stop();
}

#[test]
fn a_death_does_not_touch_a_request_that_another_component_has() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[PATIENT]);
    let (mut slow, mut other) = (site.client(), site.client());
    for name in ["http", "guard", "route", "cache", "static", "log"] {
        // The handler agrees to the memory of a component that has come.
        slow.ask("/dynamic?n=5");
        assert_eq!(slow.reply().body.len(), 5);
        // A reply that the cache has passes all components but the handler.
        const KEPT: &str = "/dynamic?n=5000&keep=1000";
        let mut is_kept = || {
            other.ask(KEPT);
            other.reply().header("age").is_some()
        };
        until(&mut is_kept);
        site.signal("dynamic", Signal::STOP);
        slow.ask("/dynamic?n=77");
        // A component sends answers before requests. Where it has answered the second of these, it has also sent what it
        // had with the first one: the slow request is with the handler, or waits for it.
        assert!(is_kept() && is_kept());
        site.kill(name);
        other.ask("/page.txt");
        assert_eq!(other.reply().status, 200);
        site.signal("dynamic", Signal::CONT);
        let reply = slow.reply();
        assert_eq!((reply.status, reply.body.len()), (200, 77), "{name}");
        // A program that is stopped before it has seen a death ends with it.
        site.wait_pid(name);
    }
    site.stop();
}

#[test]
fn half_a_request_dies_with_the_component_that_read_it() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[PATIENT]);
    let mut client = site.client();
    client.ask("/page.txt");
    client.reply();
    client.send(
        "POST /dynamic HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 33\r\n\r\n",
    );
    assert_eq!(client.reply_or_end(false).expect("a reply").status, 100);
    site.kill("http");
    // To a parser that had not seen the head this would be a request.
    client.send("GET /page.txt HTTP/1.1\r\nHost: x\r\n");
    assert_eq!(client.reply().status, 502);
    client.ends();
    site.stop();
}
