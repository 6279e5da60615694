//! The honest processes: a manager daemon, a writer, a third domain.
//!
//! The writer sends stamped frames out of the pool `frames` to the third domain over `honest`. It serves `feed` (more
//! frames, to every client) and `still` (one buffer of a pool in which nothing moves). The third domain serves `sink`,
//! where any client may send. The reason of a channel's end is reported.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Queue, Sender as Report, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tranship_core::{
    Buffer, ChannelOptions, Domain, ErrorKind, Listener, Pool, PoolOptions, Receiver, Sender, Wait,
};
use tranship_manager::{Config, Forward, Limits, Shutdown};
use tranship_testkit::hostile::CONNECTIONS;
use tranship_testkit::{Control, child, payload};

use crate::shared::{self, Written};
use crate::stage::SOCKET;

/// Order of the test to a victim.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Honest frames that arrived whole, or the error of one.
    Arrived,
    /// A question to the manager.
    Stat,
    /// The next end of a channel, waiting for it.
    End,
    /// The objects that this victim writes.
    Written,
    /// Sums over those of its objects that have these inodes.
    Sums(Vec<u64>),
    /// Descriptors open, apart from chunks, which honest pools get and give back all the time.
    Fds,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Ready,
    Arrived(Result<u64, String>),
    Stat(Result<usize, String>),
    End(String),
    Written(Vec<Written>),
    Sums(Vec<(u64, u64)>),
    Fds(usize),
}

/// Facts that the threads of a victim report to its control thread.
struct Facts {
    arrived: AtomicU64,
    wrong: Mutex<Option<String>>,
    ends: Mutex<Queue<String>>,
    domain: Option<Arc<Domain>>,
}

impl Facts {
    fn new(domain: Option<Arc<Domain>>) -> (Arc<Self>, Report<String>) {
        let (report, ends) = channel();
        let facts = Self {
            arrived: AtomicU64::new(0),
            wrong: Mutex::new(None),
            ends: Mutex::new(ends),
            domain,
        };
        (Arc::new(facts), report)
    }

    fn wrong(&self, what: String) {
        eprintln!("{what}");
        self.wrong.lock().unwrap().get_or_insert(what);
    }

    fn answer(&self, ask: Ask) -> Answer {
        match ask {
            Ask::Arrived => Answer::Arrived(match &*self.wrong.lock().unwrap() {
                None => Ok(self.arrived.load(Ordering::Relaxed)),
                Some(wrong) => Err(wrong.clone()),
            }),
            Ask::Stat => Answer::Stat(match &self.domain {
                Some(domain) => domain
                    .admin()
                    .stat()
                    .map(|s| s.len())
                    .map_err(|e| e.to_string()),
                None => Ok(0),
            }),
            Ask::End => Answer::End(
                self.ends
                    .lock()
                    .unwrap()
                    .recv()
                    .unwrap_or_else(|e| e.to_string()),
            ),
            Ask::Written => Answer::Written(shared::written()),
            Ask::Sums(inodes) => Answer::Sums(shared::sums(&shared::written(), &inodes)),
            Ask::Fds => Answer::Fds(shared::descriptors_without("tranship-chunk")),
        }
    }

    fn serve(&self, ctl: &Control) {
        while let Some(ask) = ctl.recv().unwrap() {
            ctl.send(&self.answer(ask)).unwrap();
        }
    }
}

fn socket() -> std::path::PathBuf {
    std::env::var_os(SOCKET).unwrap().into()
}

child!(
    pub fn manager(ctl: Control) {
        let config = Config {
            total: Some(64 << 20),
            forward: Forward::Readers,
            limits: Limits {
                connections: CONNECTIONS,
                ..Limits::default()
            },
            ..Config::default()
        };
        let listener = tranship_manager::Listener::bind(&socket(), 0o666).unwrap();
        ctl.send(&Answer::Ready).unwrap();
        let (facts, _report) = Facts::new(None);
        std::thread::spawn(move || {
            facts.serve(&ctl);
            std::process::exit(0);
        });
        tranship_manager::run(config, listener, &Shutdown::new().unwrap(), true).unwrap();
    }
);

fn join(name: &str) -> Arc<Domain> {
    let builder = Domain::builder()
        .name(name)
        .socket(socket())
        .helper_thread(true);
    // In the scene with another user the victim stays dumpable.
    let builder = if is_dumpable() {
        builder
    } else {
        builder.non_dumpable()
    };
    Arc::new(builder.connect().unwrap())
}

fn is_dumpable() -> bool {
    tranship_sys::process::is_dumpable().unwrap()
}

/// Frames are 64 bytes to 8 KiB.
fn frame(pool: &Pool, id: u64) -> Buffer {
    let len = 64 + usize::try_from(payload::mix(id) % 8128).unwrap();
    let mut buf = pool.alloc(len).unwrap();
    payload::fill(&mut buf, id, 7);
    buf.freeze()
}

child!(
    pub fn writer(ctl: Control) {
        let domain = join("writer");
        let (facts, report) = Facts::new(Some(domain.clone()));
        let frames = Arc::new(
            domain
                .create_pool(PoolOptions::new(4 << 20).name("frames"))
                .unwrap(),
        );
        let sleeps = ChannelOptions::new().wait(Wait::Sleep);
        let honest = domain.listen_with::<Sender>("honest", sleeps).unwrap();
        let (f, pool) = (facts.clone(), frames.clone());
        std::thread::spawn(move || {
            let mut sender = honest.accept().unwrap();
            for id in 0u64.. {
                if let Err(error) = sender.send((frame(&pool, id), id)) {
                    return f.wrong(format!("frame {id} could not be sent: {error}"));
                }
            }
        });
        let lines = ChannelOptions::new().lines(16);
        let feed = domain.listen_with::<Sender>("feed", lines.clone()).unwrap();
        std::thread::spawn(move || {
            for_each_sender(&feed, &report, |sender, report| {
                feed_one(sender, &frames, report)
            });
        });
        let still = domain.listen_with::<Sender>("still", lines).unwrap();
        let quiet = domain
            .create_pool(PoolOptions::new(128 << 10).name("still"))
            .unwrap();
        std::thread::spawn(move || {
            let buf = frame(&quiet, 1 << 40);
            let kept = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                while let Ok(mut sender) = still.accept() {
                    let (kept, buf) = (&kept, buf.clone());
                    // Waits as long as the agreement to the pool takes; an untrusted peer may never agree.
                    scope.spawn(move || {
                        let _ = sender.send(buf);
                        kept.lock().unwrap().push(sender);
                    });
                }
            });
        });
        ctl.send(&Answer::Ready).unwrap();
        facts.serve(&ctl);
    }
);

fn for_each_sender(
    listener: &Listener<Sender>,
    report: &Report<String>,
    f: impl Fn(&mut Sender, &Report<String>) + Sync,
) {
    std::thread::scope(|scope| {
        loop {
            match listener.accept() {
                Ok(mut sender) => {
                    let (report, f) = (report.clone(), &f);
                    scope.spawn(move || f(&mut sender, &report));
                }
                Err(error) => report.send(format!("accept: {error}")).unwrap(),
            }
        }
    });
}

/// Frames to somebody unknown until the channel ends, and why it did.
fn feed_one(sender: &mut Sender, pool: &Pool, report: &Report<String>) {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 50);
    let end = loop {
        match sender.try_send(frame(pool, NEXT.fetch_add(1, Ordering::Relaxed))) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::PoolPending) => {
                std::thread::yield_now();
            }
            Err(error) => break error.error.to_string(),
        }
        if let Err(violation) = sender.try_recv_back() {
            break format!("control: {violation}");
        }
    };
    let _ = report.send(end);
}

child!(
    pub fn third(ctl: Control) {
        let domain = join("third");
        let (facts, report) = Facts::new(Some(domain.clone()));
        let mut honest = domain
            .open_with::<Receiver>("honest", ChannelOptions::new().wait(Wait::Sleep))
            .unwrap();
        let first = honest.recv().unwrap().into_buffer().unwrap();
        let frames = first.id().pool();
        drop(first);
        let f = facts.clone();
        std::thread::spawn(move || {
            if let Err(wrong) = receive_honestly(&mut honest, &f) {
                f.wrong(wrong);
            }
        });
        let sink = domain
            .listen_with::<Receiver>("sink", ChannelOptions::new().lines(16).wait(Wait::Sleep))
            .unwrap();
        let f = facts.clone();
        std::thread::spawn(move || {
            loop {
                match sink.accept() {
                    Ok(mut receiver) => {
                        let (report, f) = (report.clone(), f.clone());
                        std::thread::spawn(move || {
                            let end = drink(&mut receiver, frames, &f);
                            // The channel is closed before its end is told.
                            drop(receiver);
                            let _ = report.send(end);
                        });
                    }
                    Err(error) => report.send(format!("accept: {error}")).unwrap(),
                }
            }
        });
        ctl.send(&Answer::Ready).unwrap();
        facts.serve(&ctl);
    }
);

/// Number of buffers that are held before they are checked again and released.
const HELD: usize = 8;

fn receive_honestly(honest: &mut Receiver, facts: &Facts) -> Result<(), String> {
    let mut held: VecDeque<(u64, Buffer)> = VecDeque::new();
    loop {
        let message = honest.recv().map_err(|e| format!("honest link: {e}"))?;
        let id = message.word;
        let buf = message
            .into_buffer()
            .ok_or("an honest frame that is no buffer")?;
        payload::verify_seed(&buf.to_vec(), id, 7)
            .map_err(|e| format!("frame {id} at arrival: {e}"))?;
        held.push_back((id, buf));
        if held.len() > HELD
            && let Some((id, buf)) = held.pop_front()
        {
            payload::verify_seed(&buf.to_vec(), id, 7)
                .map_err(|e| format!("frame {id} while held: {e}"))?;
            facts.arrived.fetch_add(1, Ordering::Relaxed);
        }
        // A pace that leaves the processors to the attacker.
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Takes whatever somebody unknown sends, and says why the channel ended. Frames of the writer that come by this
/// way must be whole, as long as they are held.
fn drink(receiver: &mut Receiver, frames: tranship_core::PoolId, facts: &Facts) -> String {
    let mut held: VecDeque<(Vec<u8>, Buffer)> = VecDeque::new();
    let check = |bytes: &[u8], buf: &Buffer| {
        if buf.id().pool() != frames {
            return;
        }
        let stamped = bytes.first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
        if let Err(torn) = payload::verify_seed(bytes, stamped, 7) {
            facts.wrong(format!("{} came by way of the attacker: {torn}", buf.id()));
        }
    };
    loop {
        let message = match receiver.recv_timeout(Duration::from_secs(1)) {
            Ok(message) => message,
            Err(error) if error == ErrorKind::TimedOut => continue,
            Err(error) => return error.to_string(),
        };
        if let tranship_core::Body::Aggregate(pieces) = &message.body {
            let sum: usize = pieces.pieces().iter().map(|p| p.to_vec().len()).sum();
            if sum != message.len() {
                facts.wrong(format!(
                    "an aggregate of {} bytes says {}",
                    sum,
                    message.len()
                ));
            }
        }
        let buf = match message.body {
            tranship_core::Body::Buffer(buf) => Some(buf),
            tranship_core::Body::BufferMut(mut buf) => {
                // A buffer of a pool that all write may be written; nothing must come of that.
                let _ = buf.write(0, b"x");
                if buf.id().pool() == frames {
                    facts.wrong(format!("{} can be written", buf.id()));
                }
                Some(buf.freeze())
            }
            _ => None,
        };
        if let Some(buf) = buf {
            let bytes = buf.to_vec();
            check(&bytes, &buf);
            held.push_back((bytes, buf));
        }
        if held.len() > HELD
            && let Some((bytes, buf)) = held.pop_front()
            && buf.id().pool() == frames
            && bytes != buf.to_vec()
        {
            facts.wrong(format!("{} changed while it was held", buf.id()));
        }
        // An error ends the channel here, so that no test waits for another end of it.
        if let Some(wrong) = &*facts.wrong.lock().unwrap() {
            return format!("wrong: {wrong}");
        }
        if let Err(error) = receiver.send_back(b"taken")
            && error.kind() == ErrorKind::PeerViolation
        {
            return format!("control: {error}");
        }
    }
}
