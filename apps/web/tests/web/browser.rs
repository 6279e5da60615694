//! The page to look at, in a browser.

use crate::site::Site;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::{Watchdog, skipped};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/site/index.html");
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "chromium-headless-shell",
];

#[test]
fn the_page_shows_requests_path_components_and_memory() {
    let _watchdog = Watchdog::new();
    let quiet = |program: &str| {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let there = |program: &&str| {
        let version = quiet(program).arg("--version").output();
        version.is_ok_and(|said| said.status.success())
    };
    let Some(browser) = BROWSERS.into_iter().find(there) else {
        return skipped("no Chromium here (scripts/deps.sh more)");
    };
    let site = Site::start(&[]);
    std::fs::copy(PAGE, site.dir.path().join("site/index.html")).expect("the page");
    drop(site.client());
    let port = by_tcp(&site.dir.path().join("web.sock"));
    let mut command = quiet(browser);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
        // The page's own clock: it asks several times.
        .arg("--virtual-time-budget=5000")
        .arg(format!(
            "--user-data-dir={}",
            site.dir.path().join("profile").display()
        ))
        .arg(format!("http://127.0.0.1:{port}/"))
        // The browser makes files at home otherwise.
        .env("HOME", site.dir.path())
        .env("XDG_RUNTIME_DIR", site.dir.path());
    // A browser that crashes says nothing about the page.
    let mut runs = (0..3).map(|_| command.output().expect("a browser"));
    let said = runs.find(|said| said.status.success());
    let said = said.expect("the browser ends well in one of three runs");
    let page = String::from_utf8(said.stdout).expect("text");
    let text = |id: &str| {
        let (_, rest) = page
            .split_once(&format!("id=\"{id}\""))
            .expect("an element");
        let text = rest
            .split_once('>')
            .and_then(|(_, rest)| rest.split_once('<'));
        text.expect("its text").0.to_owned()
    };
    // The browser's clock runs ahead of the figures, so a rate may be 0.
    assert!(text("rate").parse::<u64>().is_ok(), "{page}");
    assert!(text("memory").ends_with("MiB"), "{page}");
    for name in [
        "front", "http", "guard", "route", "cache", "static", "dynamic", "log",
    ] {
        assert!(page.contains(&format!("<td>{name}</td>")), "{name}: {page}");
    }
    for name in ["front", "http", "guard", "route", "cache", "dynamic"] {
        assert!(
            page.contains(&format!("<span>{name}</span>")),
            "{name}: {page}"
        );
    }
    site.stop();
}

/// Passes connections to a port on to a Unix socket, and returns the port.
fn by_tcp(to: &Path) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let to = to.to_owned();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // The server may have been stopped.
            let Ok(far) = UnixStream::connect(&to) else {
                return;
            };
            let (mut near_in, mut far_out) = (
                near.try_clone().expect("another"),
                far.try_clone().expect("another"),
            );
            let (mut near_out, mut far_in) = (near, far);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut near_in, &mut far_out);
                let _ = far_out.shutdown(std::net::Shutdown::Write);
            });
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut far_in, &mut near_out);
                let _ = near_out.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    port
}
