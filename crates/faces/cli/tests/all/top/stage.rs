//! A manager, and two domains of which one sends more than the other takes.

use crate::kit::{joined, pool};
use std::path::{Path, PathBuf};
use std::process::Command;
use tranship::{Buffer, ChannelOptions, Domain, Pool, Receiver, Sender};
use tranship_testkit::{Home, tranship};

const CHUNK: u64 = 64 << 10;

pub struct Stage {
    pub home: Home,
    _domains: [Domain; 2],
    pub pool: Pool,
    pub sender: Sender,
    pub receiver: Receiver,
    /// Buffer that the viewer has taken and not given back.
    _held: Option<Buffer>,
}

impl Stage {
    /// Three buffers were sent, and one of them was taken.
    pub fn new() -> Stage {
        let home = Home::new("");
        let [camera, viewer] = ["camera", "viewer"].map(|name| joined(name, &home.socket()));
        let pool = pool(&camera, "frames", 8 * CHUNK, CHUNK);
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
            home,
            _domains: [camera, viewer],
            pool,
            sender,
            receiver,
            _held: held,
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.home.socket()
    }

    /// Returns the command `tranship top` with these arguments.
    pub fn top(&self, more: &[&str]) -> Command {
        top_at(&self.socket(), more)
    }
}

pub fn top_at(socket: &Path, more: &[&str]) -> Command {
    let mut command = tranship(&["top"]);
    command.args(more).arg("--socket").arg(socket);
    command
}
