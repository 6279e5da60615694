//! A camera with viewers: large frames to every viewer that looks, in bursts now and then. A viewer that does not look
//! is passed over.

use std::collections::VecDeque;
use std::time::Duration;

use tranship::error::Refusal;
use tranship::{ChannelOptions, ErrorKind, Listener, Pool, PoolOptions, Receiver, Sender};
use tranship_testkit::chaos::MANAGER;
use tranship_testkit::{Control, child, payload};

use crate::scene::Scene;
use crate::seat::{Broken, Order, ROUND, Seat, Wait};
use crate::seat::{bearable, obey, patiently, recv_over, send_over, verify};

const POOL: u64 = 24 << 20;
const FRAME: usize = 1 << 20;

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(4)
}

child!(
    fn camera(ctl: Control) -> Result<(), Broken> {
        films(ctl, false)
    }
);

child!(
    fn short_camera(ctl: Control) -> Result<(), Broken> {
        films(ctl, true)
    }
);

/// Films. With `ends` it stops now and then, in order, while viewers connect, and begins anew.
fn films(ctl: Control, ends: bool) -> Result<(), Broken> {
    let seat = Seat::take(ctl, "camera")?;
    let options_of_pool = || PoolOptions::new(POOL).name("frames");
    let pool = patiently(|| seat.domain.create_pool(options_of_pool()))?;
    let listener = patiently(|| seat.domain.listen_with::<Sender>("video", options()))?;
    let mut camera = Camera {
        seat,
        pool,
        listener,
        viewers: Vec::new(),
    };
    loop {
        match camera.seat.order(Duration::from_millis(1))? {
            None => camera.round()?,
            Some(Order::Quit) => return Ok(()),
            Some(Order::Rest) => {
                drop((camera.pool, camera.listener, camera.viewers));
                return camera.seat.rest();
            }
        }
        if ends && camera.seat.random.one_in(200) {
            camera = camera.anew()?;
        }
    }
}

struct Camera {
    seat: Seat,
    pool: Pool,
    listener: Listener<Sender>,
    viewers: Vec<Sender>,
}

impl Camera {
    fn anew(self) -> Result<Camera, Broken> {
        drop((self.listener, self.viewers));
        let domain = &self.seat.domain;
        Ok(Camera {
            listener: patiently(|| domain.listen_with::<Sender>("video", options()))?,
            seat: self.seat,
            pool: self.pool,
            viewers: Vec::new(),
        })
    }

    fn round(&mut self) -> Result<(), Broken> {
        match self.listener.accept_timeout(Duration::ZERO) {
            Ok(viewer) => self.viewers.push(viewer),
            Err(e) => bearable(&e)?,
        }
        let frames = if self.seat.random.one_in(40) { 8 } else { 1 };
        (0..frames).try_for_each(|_| self.frame())
    }

    fn frame(&mut self) -> Result<(), Broken> {
        let random = &mut self.seat.random;
        let len = payload::STAMPED + usize::try_from(random.below(FRAME as u64)).unwrap_or(0);
        let id = random.next();
        let mut frame = match self.pool.alloc_timeout(len, ROUND) {
            Ok(frame) => frame,
            // Buffers that are under way come back first.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(()),
            Err(other) => return Err(format!("alloc: {other}")),
        };
        payload::fill(&mut frame, id, payload::mix(id));
        let frame = frame.freeze();
        let mut wrong = Ok(());
        self.viewers
            .retain_mut(|viewer| match viewer.try_send((frame.clone(), id)) {
                Ok(_) => true,
                Err(e) => match send_over(&e.error) {
                    Ok(over) => !over,
                    Err(broken) => {
                        wrong = Err(broken);
                        false
                    }
                },
            });
        wrong
    }
}

child!(
    fn viewer(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "viewer")?;
        let (mut from, mut wait_for_camera) = (None::<Receiver>, Wait::BRIEF);
        let mut kept = VecDeque::new();
        loop {
            let wait = if from.is_some() {
                Duration::ZERO
            } else {
                ROUND
            };
            obey!(seat, wait, (from, kept));
            let Some(link) = &mut from else {
                let options = options().timeout(wait_for_camera.limit());
                match seat.domain.open_with::<Receiver>("video", options) {
                    Ok(link) => from = Some(link),
                    // A camera that ends is waited for: it refuses no viewer.
                    Err(e) if e.find::<Refusal>().is_some_and(Refusal::went_away) => {
                        return Err(format!("open: {e}"));
                    }
                    Err(e) => {
                        bearable(&e)?;
                        wait_for_camera.was_in_vain();
                    }
                }
                continue;
            };
            let mut idle = false;
            match link.recv_timeout(ROUND) {
                Ok(frame) => {
                    verify(&frame, "at receipt")?;
                    seat.gauge.tick(seat.number);
                    kept.push_back(frame);
                }
                Err(e) => {
                    if recv_over(&e)? {
                        from = None;
                    }
                    idle = true;
                }
            }
            // Frames are looked at once more just before they go. The camera may wait for all of them.
            let most = if idle { 0 } else { seat.random.below(4) };
            let most = usize::try_from(most).unwrap_or(0);
            while kept.len() > most {
                kept.pop_front()
                    .map_or(Ok(()), |frame| verify(&frame, "before it goes"))?;
            }
        }
    }
);

#[test]
fn a_camera_with_viewers() {
    Scene::new("a_camera_with_viewers").serves(
        ("camera", camera),
        (["viewer 1", "viewer 2"], viewer),
        ["frames to viewer 1", "frames to viewer 2"],
        2,
        &[],
    );
}

#[test]
fn cameras_that_end_in_order_while_viewers_connect() {
    // Each camera that begins anew asks the manager for its name.
    Scene::new("cameras_that_end_in_order_while_viewers_connect").serves(
        ("camera", short_camera),
        (["viewer 1", "viewer 2"], viewer),
        ["frames to viewer 1", "frames to viewer 2"],
        0,
        &[MANAGER],
    );
}
