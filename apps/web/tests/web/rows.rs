//! Rows: each replica of a component works with those of its own row.

use crate::client::Client;
use crate::site::{PATIENT, Site};
use tranship_testkit::Watchdog;

const ROWS: [&str; 6] = ["http", "guard", "route", "cache", "static", "dynamic"];

#[test]
fn connections_are_spread_over_rows_and_one_row_does_not_stop_another() {
    let watchdog = Watchdog::new();
    let names = ROWS.map(|name| format!("[component.{name}]\n"));
    let twice = names.each_ref().map(|name| format!("{name}replicas = 2\n"));
    let pairs = names.iter().zip(&twice);
    let mut changes: Vec<(&str, &str)> = pairs.map(|(a, b)| (&a[..], &b[..])).collect();
    // A handler that hangs is let be.
    let patient = [
        ("\"dynamic\"]", "\"dynamic\", \"--answer\", \"100000000\"]"),
        PATIENT,
    ];
    changes.extend(patient);
    let site = Site::start(&changes);
    let mut clients: Vec<Client> = (0..6).map(|_| site.client()).collect();
    let mut ask_all = |what: &str| {
        for client in &mut clients {
            for target in ["/page.txt", "/dynamic?n=5000&keep=60"] {
                client.ask(target);
                assert_eq!(client.reply().status, 200, "{what}: {target}");
            }
        }
    };
    ask_all("at first");
    let (_, pools) = site.get("/dynamic/status");
    let pools = String::from_utf8(pools).expect("text");
    for component in ROWS {
        let its = format!("{{\"name\":\"{component}\",");
        assert_eq!(pools.matches(&its).count(), 2, "{component}: {pools}");
    }
    for component in ["http", "dynamic", "route"] {
        watchdog.step(component);
        site.kill(component);
        ask_all(component);
    }
    watchdog.step("a handler that hangs");
    // Neighbours are in different rows: with one row the next ones would wait for ever.
    clients[0].ask("/dynamic?hang");
    for at in [1, 3, 5] {
        for _ in 0..3 {
            clients[at].ask("/dynamic?n=10");
            assert_eq!(clients[at].reply().status, 200);
        }
    }
    site.stop();
}
