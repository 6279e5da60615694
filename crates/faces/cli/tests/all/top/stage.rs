//! A manager, and two domains of which one sends more than the other takes.

use std::path::{Path, PathBuf};
use std::process::Command;
use tranship::{Buffer, ChannelOptions, Domain, Pool, PoolOptions, Receiver, Sender};
use tranship_testkit::{Peer, start_manager};

pub const TRANSHIP: &str = env!("CARGO_BIN_EXE_tranship");
const CHUNK: u64 = 64 << 10;

pub struct Stage {
    pub manager: Peer,
    _domains: [Domain; 2],
    pub pool: Pool,
    pub sender: Sender,
    pub receiver: Receiver,
    /// Buffer that the viewer has taken and not given back.
    _held: Option<Buffer>,
    dir: tempfile::TempDir,
}

impl Stage {
    /// Three buffers were sent, and one of them was taken.
    pub fn new() -> Stage {
        let dir = tranship_testkit::folder().expect("a folder");
        let socket = dir.path().join("m.sock");
        let manager = start_manager(&socket, "");
        let join = |name: &str| {
            let builder = Domain::builder().name(name).socket(&socket);
            builder.helper_thread(true).connect().expect("connect")
        };
        let (camera, viewer) = (join("camera"), join("viewer"));
        let options = PoolOptions::new(8 * CHUNK)
            .chunk_bytes(CHUNK)
            .name("frames");
        let pool = camera.create_pool(options).expect("a pool");
        let (mut sender, mut receiver) = std::thread::scope(|s| {
            let receiver = s.spawn(|| {
                let options = ChannelOptions::new().lines(16);
                viewer
                    .open_with::<Receiver>("video", options)
                    .expect("receiver")
            });
            let options = ChannelOptions::new().lines(16);
            let listener = camera.listen_with::<Sender>("video", options);
            let sender = listener.expect("listen").accept().expect("sender");
            (sender, receiver.join().expect("the receiver"))
        });
        let held = std::thread::scope(|s| {
            let taken = s.spawn(|| receiver.recv().expect("recv").into_buffer());
            for _ in 0..3 {
                let buf = pool.alloc(4096).expect("alloc").freeze();
                sender.send(buf).expect("send");
            }
            taken.join().expect("the viewer")
        });
        Stage {
            manager,
            _domains: [camera, viewer],
            pool,
            sender,
            receiver,
            _held: held,
            dir,
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("m.sock")
    }

    /// Returns the command `tranship top` with these arguments.
    pub fn top(&self, more: &[&str]) -> Command {
        top_at(&self.socket(), more)
    }
}

pub fn top_at(socket: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(TRANSHIP);
    command.arg("top").args(more).arg("--socket").arg(socket);
    command.env_remove("RUST_LOG");
    command
}
