//! Two survivors: whatever happens to others, each message is acknowledged.

use std::time::Duration;

use tranship_core::{ChannelOptions, Message, PoolOptions, Receiver, Sender};
use tranship_testkit::{Control, child};

use crate::flow::{fill, verify};
use crate::seat::{Broken, Order, ROUND, Seat, bearable, options, recv_over, send_over};
use crate::stage::{CHUNK, PAIR_POOL};
use crate::writer::patiently;

/// Nobody is killed while these two meet, and they meet once.
fn patient() -> ChannelOptions {
    options().timeout(Duration::from_secs(300))
}

child!(
    pub fn source(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "source", 0)?;
        let pool = patiently(|| {
            seat.domain
                .create_pool(PoolOptions::new(PAIR_POOL).chunk_bytes(CHUNK).name("pair"))
        })?;
        let listener = patiently(|| seat.domain.listen_with::<Sender>("pair", patient()))?;
        let mut sender = patiently(|| listener.accept())?;
        let mut id = 0;
        loop {
            match seat.round()? {
                None => seat.idle(),
                // Allocates as many at once as the pool holds.
                Some(Order::Quota) => {
                    let mut all = Vec::new();
                    while (all.len() as u64) < PAIR_POOL / 4096 {
                        id += 1;
                        let mut buf = pool.alloc(4096).map_err(|e| e.to_string())?;
                        fill(&mut buf, id);
                        all.push((buf.freeze(), id));
                    }
                    for (buf, id) in all {
                        let mut unsent = Some(buf);
                        while let Some(buf) = unsent.take() {
                            if let Err(e) = sender.send_timeout((buf, id), ROUND) {
                                if send_over(&e.error)? {
                                    return Err(format!("pair: {e}"));
                                }
                                unsent = Some(e.unsent.0);
                            }
                        }
                        loop {
                            match sender.try_recv_back().map_err(|e| e.to_string())? {
                                Some(control) if control.word == id => break,
                                Some(Message { word, .. }) => {
                                    return Err(format!("{word} acknowledged instead of {id}"));
                                }
                                None => std::thread::yield_now(),
                            }
                            if let Err(e) = seat.domain.turn() {
                                bearable(&e)?;
                            }
                        }
                    }
                    seat.done()?;
                }
                Some(Order::Quit) => return Ok(()),
                Some(other) => return Err(format!("source: {other:?}")),
            }
        }
    }
);

child!(
    pub fn sink(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "sink", 0)?;
        let mut receiver = patiently(|| seat.domain.open_with::<Receiver>("pair", patient()))?;
        loop {
            match seat.round()? {
                None => {}
                Some(Order::Quit) => return Ok(()),
                Some(other) => return Err(format!("sink: {other:?}")),
            }
            match receiver.recv_timeout(ROUND) {
                Ok(message) => {
                    verify(&message, "at receipt")?;
                    let id = message.word;
                    drop(message);
                    receiver.send_back((&[], id)).map_err(|e| e.to_string())?;
                }
                // The source ends first.
                Err(e) if recv_over(&e)? => {
                    drop(receiver);
                    return seat.until_quit();
                }
                Err(_) => {}
            }
        }
    }
);
