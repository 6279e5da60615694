//! Components without work.

use crate::site::Site;
use std::time::Duration;
use tranship_testkit::{Watchdog, resource::scheduled};

/// Time in which no component may run. A quiet time has no event to wait for.
const QUIET: Duration = Duration::from_secs(1);

#[test]
fn components_without_work_do_not_wake() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let mut client = site.client();
    for target in ["/page.txt", "/dynamic?n=4096"] {
        client.ask(target);
        assert_eq!(client.reply().status, 200);
    }
    let names = [
        "front", "http", "guard", "route", "cache", "static", "dynamic", "log",
    ];
    let runs = || names.map(|name| scheduled(site.wait_pid(name)).expect("/proc").times);
    // The connection stays: it has a time, which is far away.
    loop {
        let before = runs();
        std::thread::sleep(QUIET);
        if runs() == before {
            break;
        }
    }
    client.ask("/page.txt");
    assert_eq!(client.reply().status, 200);
    site.stop();
}
