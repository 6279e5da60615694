//! A camera, a relay and a viewer: frames go on by reference, and the viewer's message that it is done with a frame
//! comes back. Whichever process is struck, the relay goes on with the next one that comes.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tranship::{
    Body, Buffer, ChannelOptions, ErrorKind, Message, PollItem, Pool, PoolOptions, Receiver,
    Released, Sender, poll,
};
use tranship_testkit::chaos::Flow;
use tranship_testkit::{Control, child, payload};

use crate::scene::Scene;
use crate::seat::{Broken, ROUND, Seat, Wait};
use crate::seat::{bearable, obey, patiently, recv_over, send_over, verify};

const POOL: u64 = 8 << 20;
const FRAME: u64 = 256 << 10;
const LINES: u32 = 8;

/// Numbers of the parties, and of their counters in the gauge.
const CAMERA: usize = 0;
const RELAY: usize = 1;
const VIEWER: usize = 2;

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(LINES)
}

child!(
    fn source(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "camera")?;
        let pool = patiently(|| {
            let options = PoolOptions::new(POOL).name("frames");
            seat.domain.create_pool(options)
        })?;
        let (mut to, mut wait) = (None::<Sender>, Wait::BRIEF);
        // Sent, and not yet said to be done with.
        let mut out = HashSet::new();
        loop {
            obey!(seat, Duration::ZERO, (to, pool));
            let Some(relay) = &mut to else {
                let options = options().timeout(wait.limit());
                match seat.domain.open_with::<Sender>("raw", options) {
                    Ok(relay) => {
                        // Another process may be behind the name now.
                        patiently(|| pool.allow_forward(relay.status().peer))?;
                        out.clear();
                        to = Some(relay);
                    }
                    Err(error) => {
                        bearable(&error)?;
                        wait.was_in_vain();
                    }
                }
                continue;
            };
            let over = film(&mut seat, &pool, relay, &mut out)? || hear(&seat, relay, &mut out)?;
            if over {
                to = None;
            }
        }
    }
);

/// One frame; whether the relay is gone.
fn film(
    seat: &mut Seat,
    pool: &Pool,
    to: &mut Sender,
    out: &mut HashSet<u64>,
) -> Result<bool, Broken> {
    let id = seat.random.next();
    let len = payload::STAMPED + usize::try_from(payload::mix(id) % FRAME).unwrap_or(0);
    let mut frame = match pool.alloc_timeout(len, ROUND) {
        Ok(frame) => frame,
        Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(false),
        Err(other) => return Err(format!("alloc: {other}")),
    };
    payload::fill(&mut frame, id, payload::mix(id));
    match to.send_timeout((frame.freeze(), id), ROUND) {
        Ok(_) => {
            out.insert(id);
            Ok(false)
        }
        Err(failed) => send_over(&failed.error),
    }
}

/// Takes the messages that came back. The relay may still have messages for the previous camera.
fn hear(seat: &Seat, to: &mut Sender, out: &mut HashSet<u64>) -> Result<bool, Broken> {
    loop {
        match to.try_recv_back() {
            Ok(None) => return Ok(to.status().peer_gone),
            Ok(Some(said)) => match said.body {
                Body::Released(_) if out.remove(&said.word) => seat.gauge.tick(CAMERA),
                Body::Released(_) => {}
                other => return Err(format!("{other:?} came back, and nobody says such")),
            },
            Err(error) => return recv_over(&error),
        }
    }
}

/// The relay's channels, and the frames that the viewer has not released, oldest first.
#[derive(Default)]
struct Between {
    from: Option<Receiver>,
    to: Option<Sender>,
    held: VecDeque<(Buffer, u64)>,
}

child!(
    fn relay(ctl: Control) -> Result<(), Broken> {
        let seat = Seat::take(ctl, "relay")?;
        let raw = patiently(|| seat.domain.listen_with::<Receiver>("raw", options()))?;
        let shown = patiently(|| seat.domain.listen_with::<Sender>("shown", options()))?;
        let mut between = Between::default();
        loop {
            obey!(seat, Duration::ZERO, (between, raw, shown));
            if between.from.is_none() {
                match raw.accept_timeout(ROUND) {
                    Ok(next) => between.from = Some(next),
                    Err(error) => bearable(&error)?,
                }
            }
            if between.to.is_none() {
                match shown.accept_timeout(ROUND) {
                    Ok(next) => between.to = Some(next),
                    Err(error) => bearable(&error)?,
                }
            }
            between.turn()?;
        }
    }
);

impl Between {
    /// Hands on at most one frame, and back all that was released; waits for a round if there is nothing to do. Without
    /// a viewer, its frames are dropped; without a camera, they are released to no one.
    fn turn(&mut self) -> Result<(), Broken> {
        let (Some(from), Some(to)) = (&mut self.from, &mut self.to) else {
            return Ok(());
        };
        let mut sink_is_over = false;
        let mut idle = true;
        loop {
            match to.try_recv_back() {
                Ok(None) => break,
                Ok(Some(said)) => {
                    idle = false;
                    let of = |(_, word): &(Buffer, u64)| *word == said.word;
                    let at = self.held.iter().position(of);
                    if let Some((frame, word)) = at.and_then(|at| self.held.remove(at))
                        && let Err(failed) = from.send_back((Released(frame), word))
                        // The frame is of a camera before this one: it is released all the same.
                        && failed.kind() != ErrorKind::PoolNotAssigned
                    {
                        send_over(&failed.error)?;
                    }
                }
                Err(error) => {
                    sink_is_over = recv_over(&error)?;
                    break;
                }
            }
        }
        if sink_is_over || to.status().peer_gone {
            self.held.clear();
            self.to = None;
            return Ok(());
        }
        if self.held.len() >= LINES as usize {
            poll(&mut [PollItem::control(to)], Some(ROUND)).map_err(|e| e.to_string())?;
            return Ok(());
        }
        match from.try_recv() {
            Ok(None) if idle => {
                let mut items = [PollItem::receiver(from), PollItem::control(to)];
                if let Err(error) = poll(&mut items, Some(ROUND)) {
                    bearable(&error)?;
                }
            }
            Ok(None) => {}
            Ok(Some(message)) => {
                let word = message.word;
                let frame = message.into_buffer().ok_or("not a frame")?;
                match to.send_timeout((frame.clone(), word), ROUND) {
                    Ok(_) => self.held.push_back((frame, word)),
                    // The viewer is gone; or the frame's camera is, or the manager that knew of the right to forward.
                    Err(failed) => drop(send_over(&failed.error)?),
                }
            }
            Err(error) => {
                if recv_over(&error)? {
                    self.from = None;
                }
            }
        }
        Ok(())
    }
}

child!(
    fn viewer(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "viewer")?;
        let (mut from, mut wait) = (None::<Receiver>, Wait::BRIEF);
        let mut kept = VecDeque::new();
        loop {
            let idle = if from.is_some() {
                Duration::ZERO
            } else {
                ROUND
            };
            obey!(seat, idle, (from, kept));
            let Some(link) = &mut from else {
                let options = options().timeout(wait.limit());
                match seat.domain.open_with::<Receiver>("shown", options) {
                    Ok(link) => from = Some(link),
                    Err(error) => {
                        bearable(&error)?;
                        wait.was_in_vain();
                    }
                }
                continue;
            };
            let mut is_over = false;
            let mut most = usize::try_from(seat.random.below(4)).unwrap_or(0);
            match link.recv_timeout(ROUND) {
                Ok(frame) => {
                    verify(&frame, "at receipt")?;
                    seat.gauge.tick(VIEWER);
                    kept.push_back(frame);
                }
                Err(error) => {
                    is_over = recv_over(&error)?;
                    most = 0; // the camera may wait for all of them
                }
            }
            while kept.len() > most {
                let Some(frame) = kept.pop_front() else { break };
                verify(&frame, "before it goes")?;
                tell(link, frame)?;
            }
            if is_over {
                from = None;
            }
        }
    }
);

/// Releases a frame; it is released also if no camera is there to hear of it.
fn tell(from: &mut Receiver, frame: Message) -> Result<(), Broken> {
    match from.send_back((Released(frame.body), frame.word)) {
        Ok(()) => Ok(()),
        Err(failed) => send_over(&failed.error).map(drop),
    }
}

#[test]
fn a_relay() {
    let mut scene = Scene::new("a_relay");
    let parties = vec![
        scene.manager(),
        scene.party("camera", source, CAMERA),
        scene.party("relay", relay, RELAY),
        scene.party("viewer", viewer, VIEWER),
    ];
    let flow = |name, counts| Flow {
        name,
        counts,
        needs: vec![1, 2, 3],
    };
    let flows = vec![
        flow("frames to the viewer", VIEWER),
        flow("words back to the camera", CAMERA),
    ];
    scene.plays(parties, flows, (&[1, 2, 3], 2), 12);
}
