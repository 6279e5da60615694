//! The page in a real browser: it draws, it shows names as text, it asks nobody else for anything.

use super::browser::open;
use super::kit::{Manager, start_saying};
use crate::kit::{MIB, pool};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tranship::{Domain, Pool, Receiver, Sender};
use tranship_testkit::{Port, Watchdog, has, tranship};

const KIB: u64 = 1 << 10;
/// Shown as it is, or it would be a picture of its own.
const SCRIPT: &str = "<img src=x onerror=document.title=1>";

/// Names in the pools' table, its words about trouble, and whether anything was made out of a name.
const LOOK: &str = "({ pools: [...document.querySelectorAll('#pools tbody tr')].map(r => r.cells[0].textContent), \
channels: [...document.querySelectorAll('#channels tbody tr')].map(r => r.cells[0].textContent), \
legend: [...document.querySelectorAll('#legend-messages .name')].map(n => n.textContent), \
curves: document.querySelectorAll('#plot-memory .curve').length, trouble: document.getElementById('trouble').hidden ? '' : document.getElementById('trouble').textContent, \
empty: !document.getElementById('no-pools').hidden, images: document.images.length, title: document.title, \
wide: document.documentElement.scrollWidth > innerWidth })";

struct Page {
    manager: Manager,
    url: String,
    _port: Port,
}

fn page(more: &[&str]) -> Page {
    let port = Port::reserve().expect("a port");
    let port_ = port.number().to_string();
    let manager = Manager::start(&[&["--web", &port_], more].concat());
    Page {
        manager,
        url: format!("http://127.0.0.1:{port_}/"),
        _port: port,
    }
}

impl Page {
    fn shot(&self, name: &str) -> PathBuf {
        // The pictures are kept in TRANSHIP_SHOTS=DIR, to be looked at.
        let keep = std::env::var_os("TRANSHIP_SHOTS").map(PathBuf::from);
        keep.unwrap_or_else(|| self.manager.dir.path().to_owned())
            .join(name)
    }

    /// Returns what the page shows once `until` holds, in a picture that is not blank.
    fn look(&self, until: &str, name: &str, dark: bool, size: [u32; 2]) -> Option<Value> {
        let shot = self.shot(name);
        let wanted = json!({ "until": until, "ask": LOOK, "dark": dark, "width": size[0], "height": size[1], "shot": shot });
        let said = open(&self.url, self.manager.dir.path(), &wanted)?;
        assert_eq!(said["errors"], json!([]), "{said}");
        let urls = said["urls"].as_array().expect("what it asked for");
        let ours = |u: &Value| {
            u.as_str()
                .is_some_and(|u| u.starts_with(&self.url) || u == "data:,")
        };
        assert!(urls.len() > 4 && urls.iter().all(ours), "{urls:?}");
        assert!(!is_blank(&shot), "a blank picture: {}", shot.display());
        let asked = said["asked"].clone();
        assert_eq!(
            (&asked["images"], &asked["title"]),
            (&json!(0), &json!("tranship")),
            "{asked}"
        );
        assert_eq!(
            asked["wide"],
            json!(false),
            "wider than the window: {asked}"
        );
        Some(asked)
    }

    fn domain(&self, name: &str) -> Domain {
        let builder = Domain::builder().name(name).socket(&self.manager.socket);
        builder.connect().expect("joining")
    }
}

/// A picture of one colour packs into a few kilobytes, and hardly more with a headline on it.
fn is_blank(picture: &Path) -> bool {
    let bytes = std::fs::read(picture).expect("a picture");
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n"));
    bytes.len() < 20_000
}

fn lists(list: &Value, name: &str) -> bool {
    list.as_array().expect("a list").iter().any(|n| n == name)
}

/// Wants so much of a pool for a while, and then so much.
fn work(pool: &Pool, domain: &Domain, over: &AtomicBool, needs: [usize; 2]) {
    let begun = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let phase = (begun.elapsed().as_secs() / 7 % 2) as usize;
        let one = || pool.alloc_timeout(64 << 10, Duration::from_millis(40)).ok();
        let some: Vec<_> = (0..needs[phase]).filter_map(|_| one()).collect();
        std::thread::sleep(Duration::from_millis(15));
        drop(some);
        domain.turn().expect("turning");
    }
}

#[test]
fn it_lives_while_programs_work() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let file = dir.path().join("manager.toml");
    std::fs::write(&file, "total = \"6MiB\"\npolicy = \"throughput\"\n").expect("writing");
    let page = page(&["--config", file.to_str().expect("a path")]);
    let (camera, viewer) = (page.domain("camera"), page.domain("viewer"));
    let frames = pool(&camera, "frames", 4 * MIB, 64 * KIB);
    let thumbs = pool(&viewer, "thumbnails", 4 * MIB, 64 * KIB);
    let sent = pool(&camera, "sent", MIB, 64 * KIB);
    let listener = camera.listen::<Sender>("video").expect("a name");
    let (mut sender, mut receiver) = std::thread::scope(|s| {
        let sender = s.spawn(|| listener.accept().expect("a receiver"));
        let receiver = viewer.open::<Receiver>("video").expect("a sender");
        (sender.join().expect("no panic"), receiver)
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| while receiver.recv().is_ok() {});
        s.spawn(|| work(&frames, &camera, &over, [56, 24]));
        s.spawn(|| work(&thumbs, &viewer, &over, [16, 60]));
        s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(b) = sent.alloc_timeout(64 << 10, Duration::from_millis(50)) {
                    let _ = sender.send(b.freeze());
                }
                std::thread::sleep(Duration::from_millis(3));
            }
            drop(sender);
        });
        // Curves, not points; longer ones for a picture that is kept.
        let points = if std::env::var_os("TRANSHIP_SHOTS").is_some() {
            45
        } else {
            10
        };
        let until = format!(
            "document.querySelectorAll('#pools tbody tr').length == 3 && document.querySelector('#plot-messages .curve') && \
             document.querySelector('#plot-memory .curve:not(.dashed)').getAttribute('d').split('L').length > {points}"
        );
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            [("page.png", false), ("page-dark.png", true)]
                .map(|(name, dark)| page.look(&until, name, dark, [1280, 1180]))
        }));
        over.store(true, Ordering::Relaxed);
        for looked in looked.expect("it was looked at").into_iter().flatten() {
            for name in ["frames", "thumbnails", "sent"] {
                assert!(lists(&looked["pools"], name), "{looked}");
            }
            assert!(lists(&looked["channels"], "video"), "{looked}");
            // Several channels may have one name: the number and the two domains tell them apart.
            let legend = looked["legend"][0].as_str().expect("a channel");
            assert!(
                legend.starts_with("video#") && legend.ends_with("camera \u{2192} viewer"),
                "{looked}"
            );
            assert!(
                looked["curves"].as_u64().is_some_and(|n| n >= 6),
                "{looked}"
            );
            assert_eq!(looked["trouble"], "");
        }
    });
}

#[test]
fn it_works_with_no_pool_and_with_five_hundred() {
    let _dog = Watchdog::new();
    let page = page(&[]);
    let until = "!document.getElementById('all').hidden";
    let Some(none) = page.look(until, "page-empty.png", false, [1280, 900]) else {
        return;
    };
    assert_eq!(
        (&none["empty"], &none["pools"]),
        (&json!(true), &json!(["none"])),
        "{none}"
    );
    let domains: Vec<_> = (0..4)
        .map(|d| page.domain(&format!("writer-{d}")))
        .collect();
    let name = |n: usize| {
        if n == 250 {
            SCRIPT.to_owned()
        } else {
            format!("pool-{n:03}")
        }
    };
    let pools: Vec<_> = (0..500)
        .map(|n| pool(&domains[n % 4], &name(n), MIB, 64 * KIB))
        .collect();
    let until = "document.querySelectorAll('#pools tbody tr').length == 500";
    let many = page
        .look(until, "page-500.png", false, [800, 900])
        .expect("there was a browser");
    for n in [0, 250, 499] {
        assert!(lists(&many["pools"], &name(n)), "{n}");
    }
    drop(pools);
}

#[test]
fn it_says_when_the_manager_is_gone() {
    let _dog = Watchdog::new();
    let page = page(&[]);
    let dir = page.manager.dir.path();
    let mut command = tranship(&["metrics", "--web", "0", "--socket"]);
    command.arg(dir.join("nobody.sock"));
    let (_server, line) = start_saying(command, "page at http://");
    let url = line
        .split("http://")
        .nth(1)
        .expect("an address")
        .trim()
        .to_owned();
    let shot = page.shot("page-gone.png");
    let ask = "document.getElementById('trouble').textContent";
    let until = "!document.getElementById('trouble').hidden";
    let wanted = json!({ "until": until, "ask": ask, "width": 800, "height": 600, "shot": shot });
    let Some(said) = open(&format!("http://{url}"), dir, &wanted) else {
        return;
    };
    let text = said["asked"].as_str().expect("text");
    has(text, &["does not answer", "nobody.sock"]);
}
