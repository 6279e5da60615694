//! Two honest domains with a channel each way.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tranship_core::{ChannelOptions, Domain, PoolOptions, Receiver, Sender, Wait};
use tranship_testkit::hostile::raw::path;
use tranship_testkit::{Control, child};

use super::cast::sum_up;

pub const PAYLOAD: usize = 4096;
/// Messages of a stream that one sample covers.
const BATCH: u32 = 64;

/// Action of the other party with a message.
const BACK: u64 = 1;
const DROP: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    RoundTrip,
    Stream,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::RoundTrip => "roundtrip",
            Kind::Stream => "stream",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Ask {
    pub kind: Kind,
    pub time: Duration,
}

fn join(name: &str) -> Domain {
    let builder = Domain::builder().name(name).socket(path());
    builder.helper_thread(true).connect().unwrap()
}

fn options() -> ChannelOptions {
    ChannelOptions::new().wait(Wait::Sleep)
}

child!(
    pub fn pong(ctl: Control) {
        let core: usize = ctl.recv().unwrap().unwrap();
        tranship_sys::process::pin_to_cpu(core).unwrap();
        let domain = join("pong");
        let out = domain.listen_with::<Receiver>("out", options()).unwrap();
        let back = domain.listen_with::<Sender>("back", options()).unwrap();
        ctl.send(&()).unwrap();
        let mut receiver = out.accept().unwrap();
        let mut sender = back.accept().unwrap();
        loop {
            let message = receiver.recv().unwrap();
            if message.word != DROP {
                sender.send((&[], message.word)).unwrap();
            }
        }
    }
);

child!(
    pub fn ping(ctl: Control) {
        let core: usize = ctl.recv().unwrap().unwrap();
        tranship_sys::process::pin_to_cpu(core).unwrap();
        let domain = join("ping");
        let mut sender = domain.open_with::<Sender>("out", options()).unwrap();
        let mut receiver = domain.open_with::<Receiver>("back", options()).unwrap();
        let pool = domain.create_pool(PoolOptions::new(1 << 20)).unwrap();
        let mut send = |word: u64| {
            let mut buf = pool.alloc(PAYLOAD).unwrap();
            buf[..8].copy_from_slice(&word.to_le_bytes());
            sender.send((buf.freeze(), word)).unwrap();
        };
        send(BACK);
        receiver.recv().unwrap();
        ctl.send(&()).unwrap();
        while let Some(Ask { kind, time }) = ctl.recv().unwrap() {
            let mut times = Vec::new();
            let end = Instant::now() + time;
            let mut begin = Instant::now();
            while begin < end {
                match kind {
                    Kind::RoundTrip => {
                        send(BACK);
                        receiver.recv().unwrap();
                    }
                    Kind::Stream => (0..BATCH).for_each(|_| send(DROP)),
                }
                let now = Instant::now();
                let many = if kind == Kind::Stream { BATCH } else { 1 };
                let time = u64::try_from((now - begin).as_nanos()).unwrap();
                times.push(time / u64::from(many));
                begin = now;
            }
            // All has come before the next begins.
            send(BACK);
            receiver.recv().unwrap();
            ctl.send(&sum_up(times)).unwrap();
        }
    }
);

child!(
    /// Keeps a core busy, and speaks to nobody.
    pub fn spinner(ctl: Control) {
        let core: usize = ctl.recv().unwrap().unwrap();
        tranship_sys::process::pin_to_cpu(core).unwrap();
        ctl.send(&()).unwrap();
        loop {
            std::hint::spin_loop();
        }
    }
);
