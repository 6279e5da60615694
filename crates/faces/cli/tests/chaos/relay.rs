//! A camera, a relay and a viewer: frames go on by reference, and the viewer's message that it is done with a frame
//! comes back. Whichever process is struck, the relay goes on with the next one that comes.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use tranship::{
    Body, ChannelOptions, ErrorKind, Message, Pool, PoolOptions, Receiver, Relay, RelayEnd,
    RelayStop, Released, Sender, poll,
};
use tranship_testkit::chaos::Flow;
use tranship_testkit::{Control, child, payload};

use crate::scene::Scene;
use crate::seat::{Broken, Order, ROUND, Seat, Wait, bearable, patiently, recv_over, send_over};

const POOL: u64 = 8 << 20;
const FRAME: u64 = 256 << 10;

/// Numbers of the parties, and of their counters in the gauge.
const CAMERA: usize = 0;
const RELAY: usize = 1;
const VIEWER: usize = 2;

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(8)
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
            match seat.order(Duration::ZERO)? {
                None => {}
                Some(Order::Quit) => return Ok(()),
                Some(Order::Rest) => {
                    drop((to, pool));
                    return seat.rest();
                }
            }
            let Some(relay) = &mut to else {
                let options = options().timeout(wait.limit());
                match seat.domain.open_with::<Sender>("raw", options) {
                    Ok(relay) => {
                        // Another process may be behind the name now.
                        patiently(|| pool.allow_forward(relay.peer()))?;
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
    match to.send_timeout((frame, id), ROUND) {
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
            Ok(None) => return Ok(to.is_peer_gone()),
            Ok(Some(said)) => match said.body {
                Body::Released(_) if out.remove(&said.word) => seat.gauge.tick(CAMERA),
                Body::Released(_) => {}
                other => return Err(format!("{other:?} came back, and nobody says such")),
            },
            Err(error) => return recv_over(&error),
        }
    }
}

child!(
    fn relay(ctl: Control) -> Result<(), Broken> {
        let seat = Seat::take(ctl, "relay")?;
        let raw = patiently(|| seat.domain.listen_with::<Receiver>("raw", options()))?;
        let shown = patiently(|| seat.domain.listen_with::<Sender>("shown", options()))?;
        let (mut from, mut to) = (None::<Receiver>, None::<Sender>);
        let mut between = None::<Relay>;
        // The sides at which the relay waits for a program.
        let (mut wants_source, mut wants_sink) = (true, true);
        loop {
            match seat.order(Duration::ZERO)? {
                None => {}
                Some(Order::Quit) => return Ok(()),
                Some(Order::Rest) => {
                    drop((between, from, to, raw, shown));
                    return seat.rest();
                }
            }
            if wants_source {
                match raw.accept_timeout(ROUND) {
                    Ok(next) => (from, wants_source) = (Some(next), false),
                    Err(error) => bearable(&error)?,
                }
            }
            if wants_sink {
                match shown.accept_timeout(ROUND) {
                    Ok(next) => (to, wants_sink) = (Some(next), false),
                    Err(error) => bearable(&error)?,
                }
            }
            match &mut between {
                None => {
                    if let (Some(_), Some(_)) = (&from, &to)
                        && let (Some(from), Some(to)) = (from.take(), to.take())
                    {
                        between = Some(Relay::new(from, to).map_err(|e| e.to_string())?);
                    }
                }
                Some(relay) => {
                    if let Some(next) = from.take() {
                        let before = relay.replace_source(next);
                        drop(before.map_err(|failed| failed.error.to_string())?);
                    }
                    if let Some(next) = to.take() {
                        let before = relay.replace_sink(next);
                        drop(before.map_err(|failed| failed.error.to_string())?);
                    }
                    if !wants_source && !wants_sink {
                        let stopped = carry(relay)?;
                        wants_source = stopped == Some(RelayEnd::Source);
                        wants_sink = stopped == Some(RelayEnd::Sink);
                    }
                }
            }
        }
    }
);

/// Does some of the relay's work; returns the side at which another program is needed then.
fn carry(relay: &mut Relay) -> Result<Option<RelayEnd>, Broken> {
    match relay.turn() {
        Ok(0) => match poll(&mut relay.poll_items(), Some(ROUND)) {
            Ok(_) => Ok(None),
            Err(error) => bearable(&error).map(|()| None),
        },
        Ok(_) => Ok(None),
        Err(RelayStop { end, error }) => {
            match end {
                RelayEnd::Source => drop(recv_over(&error)?),
                RelayEnd::Sink => drop(send_over(&error)?),
                // The message's camera is gone, or the manager that knew that it may be handed on.
                RelayEnd::Message => {
                    send_over(&error)?;
                    drop(relay.take_unsent());
                    return Ok(None);
                }
            }
            Ok(Some(end))
        }
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
            match seat.order(idle)? {
                None => {}
                Some(Order::Quit) => return Ok(()),
                Some(Order::Rest) => {
                    drop((from, kept));
                    return seat.rest();
                }
            }
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

fn verify(frame: &Message, when: &str) -> Result<(), Broken> {
    let id = frame.word;
    payload::verify_seed(&frame.to_vec(), id, payload::mix(id))
        .map_err(|torn| format!("{when}: frame {id:#x}: {torn}"))
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
    scene.plays(parties, flows, (&[1, 2, 3], 2), 18);
}
