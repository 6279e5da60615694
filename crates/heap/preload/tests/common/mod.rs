//! A manager, and programs with the allocator under them.
#![allow(dead_code)] // each test file uses a part of it

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tranship_core::Domain;
use tranship_core::admin::{HeapStat, StatRecord};
use tranship_manager::{Config, Embedded, PressureConfig};
use tranship_testkit::{Launch, Watchdog, artifact};

pub const MIB: u64 = 1 << 20;

#[track_caller]
pub fn dog() -> Watchdog {
    Watchdog::new()
}

/// Returns the path of the present build of the library.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| artifact("tranship-preload", "libtranship_malloc.so"))
}

/// A manager and a domain that reads its books.
pub struct Stage {
    pub path: PathBuf,
    pub manager: Option<Embedded>,
    _dir: tempfile::TempDir,
}

impl Stage {
    pub fn new(total: u64) -> Stage {
        let dir = tranship_testkit::folder().expect("a folder");
        let path = dir.path().join("manager.sock");
        let mut stage = Stage {
            path,
            manager: None,
            _dir: dir,
        };
        stage.begin(total);
        stage
    }

    /// Starts the manager (again).
    pub fn begin(&mut self, total: u64) {
        let config = Config {
            total: Some(total),
            pressure: PressureConfig {
                watch: false,
                ..PressureConfig::default()
            },
            ..Config::default()
        };
        self.manager = Some(Embedded::start(config, Some(&self.path)).expect("manager"));
    }

    pub fn end(&mut self) {
        self.manager = None;
    }

    /// Makes a child of this test run with the allocator.
    pub fn under(&self, child: Launch) -> Launch {
        child
            .env("LD_PRELOAD", library())
            .env("TRANSHIP_SOCKET", &self.path)
    }

    /// Makes a command for any program, which runs with the allocator.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("LD_PRELOAD", library())
            .env("TRANSHIP_SOCKET", &self.path);
        command
    }

    /// Returns the heaps, and the memory granted in all.
    pub fn books(&self) -> (Vec<HeapStat>, u64) {
        let domain = Domain::builder()
            .name("looker")
            .socket(&self.path)
            .connect();
        let stat = domain.expect("connect").admin().stat().expect("stat");
        let mut granted = 0;
        let mut heaps = Vec::new();
        for record in stat {
            match record {
                StatRecord::Manager(m) => granted = m.granted_bytes,
                StatRecord::Heap(heap) => heaps.push(heap),
                _ => {}
            }
        }
        (heaps, granted)
    }

    /// Waits, under the test's watchdog, until nothing is granted to any domain.
    pub fn wait_until_empty(&self) {
        while self.books() != (Vec::new(), 0) {
            std::thread::yield_now();
        }
    }

    /// Returns the figures of the only heap.
    pub fn only_heap(&self) -> HeapStat {
        let (mut heaps, granted) = self.books();
        assert_eq!(heaps.len(), 1, "{heaps:?}");
        let heap = heaps.remove(0);
        assert_eq!(granted, heap.admitted_bytes);
        heap
    }
}

/// Returns the resident memory of the calling process, bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages = status.split(' ').nth(1).and_then(|p| p.parse::<u64>().ok());
    pages.expect("a number") * 4096
}
