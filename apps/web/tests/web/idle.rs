//! Components without work.

use crate::site::Site;
use std::fs;
use std::time::{Duration, Instant};
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

/// Returns how often a thread of a process began to run.
fn runs_of(pid: u32, thread: &str) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("/proc");
    let mut tasks = tasks.map(|task| task.expect("a thread").path());
    let is = |path: &std::path::PathBuf| {
        let name = fs::read_to_string(path.join("comm"));
        name.is_ok_and(|name| name.trim() == thread)
    };
    let path = tasks.find(is).expect("the thread").join("schedstat");
    let text = fs::read_to_string(path).expect("/proc");
    let times = text.split_whitespace().nth(2).expect("a number");
    times.parse().expect("a number")
}

/// The thread that looks whether a handler hangs has a processor now and then, and not for each call.
#[test]
fn calls_of_a_handler_wake_no_thread() {
    const CALLS: u64 = 500;
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let mut client = site.client();
    let mut ask = || {
        client.ask("/dynamic?n=1");
        assert_eq!(client.reply().status, 200);
    };
    ask();
    let pid = site.wait_pid("dynamic");
    let (before, begun) = (runs_of(pid, "handler-limit"), Instant::now());
    (0..CALLS).for_each(|_| ask());
    let runs = runs_of(pid, "handler-limit") - before;
    let most = CALLS / 10 + begun.elapsed().as_secs();
    assert!(runs < most, "{runs} times for {CALLS} calls");
    site.stop();
}
