//! A request and reply pair: each request gets its own answer, and is asked again when no program answers any more.

use std::time::Duration;

use tranship::{
    BufferMut, ChannelOptions, Domain, ErrorKind, Listener, Message, Pool, PoolOptions, Receiver,
    Sender,
};
use tranship_testkit::{Control, child, payload};

use crate::scene::Scene;
use crate::seat::{Broken, Order, ROUND, Seat, Wait, bearable, patiently, recv_over, send_over};

const POOL: u64 = 8 << 20;
/// Size of a chunk. Every message fits into one, also when two clients hold as much as they can: without a manager
/// there may be no second chunk.
const CHUNK: u64 = 4 << 20;
const LONGEST: u64 = 256 << 10;

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(4)
}

/// Returns the question under a number, or the answer to it.
fn filled(pool: &Pool, id: u64, answer: bool) -> Result<Option<BufferMut>, Broken> {
    let seed = payload::mix(id ^ u64::from(answer));
    let len = payload::STAMPED + usize::try_from(seed % LONGEST).unwrap_or(0);
    match pool.alloc_timeout(len, ROUND) {
        Ok(mut buffer) => {
            payload::fill(&mut buffer, id, seed);
            Ok(Some(buffer))
        }
        Err(error) if error.kind() == ErrorKind::OutOfMemory => Ok(None),
        Err(other) => Err(format!("alloc: {other}")),
    }
}

fn verify(message: &Message, answer: bool) -> Result<(), Broken> {
    let id = message.word;
    let seed = payload::mix(id ^ u64::from(answer));
    payload::verify_seed(&message.to_vec(), id, seed).map_err(|torn| format!("{id:#x}: {torn}"))
}

fn pool(domain: &Domain) -> Result<Pool, Broken> {
    patiently(|| domain.create_pool(PoolOptions::new(POOL).chunk_bytes(CHUNK)))
}

child!(
    fn server(ctl: Control) -> Result<(), Broken> {
        let seat = Seat::take(ctl, "server")?;
        let mut server = Server {
            pool: pool(&seat.domain)?,
            asks: patiently(|| seat.domain.listen_with("ask", options()))?,
            answers: patiently(|| seat.domain.listen_with("answer", options()))?,
            from: Vec::new(),
            to: Vec::new(),
        };
        loop {
            let wait = if server.from.is_empty() {
                ROUND
            } else {
                Duration::ZERO
            };
            match seat.order(wait)? {
                None => server.round()?,
                Some(Order::Quit) => return Ok(()),
                Some(Order::Rest) => {
                    drop(server);
                    return seat.rest();
                }
            }
        }
    }
);

struct Server {
    pool: Pool,
    asks: Listener<Receiver>,
    answers: Listener<Sender>,
    from: Vec<Receiver>,
    to: Vec<Sender>,
}

impl Server {
    fn round(&mut self) -> Result<(), Broken> {
        let now = Duration::ZERO;
        match self.asks.accept_timeout(now) {
            Ok(link) => self.from.push(link),
            Err(e) => bearable(&e)?,
        }
        match self.answers.accept_timeout(now) {
            Ok(link) => self.to.push(link),
            Err(e) => bearable(&e)?,
        }
        self.to.retain_mut(|link| !link.status().peer_gone);
        for at in (0..self.from.len()).rev() {
            match self.from[at].recv_timeout(ROUND) {
                Ok(request) => self.answer(at, &request)?,
                Err(e) if recv_over(&e)? => drop(self.from.swap_remove(at)),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Answers on one channel the request of the other.
    fn answer(&mut self, at: usize, request: &Message) -> Result<(), Broken> {
        verify(request, false)?;
        let asker = self.from[at].status().peer;
        let Some(to) = self.to.iter_mut().find(|link| link.status().peer == asker) else {
            return Ok(()); // it has not opened it yet, or it is gone: it will ask again
        };
        let Some(buffer) = filled(&self.pool, request.word, true)? else {
            return Ok(());
        };
        to.send_timeout((buffer, request.word), ROUND)
            .map(drop)
            .or_else(|e| send_over(&e.error).map(drop))
    }
}

child!(
    fn client(ctl: Control) -> Result<(), Broken> {
        let mut seat = Seat::take(ctl, "client")?;
        let pool = pool(&seat.domain)?;
        let mut links: Option<(Sender, Receiver)> = None;
        let mut wait_for_server = Wait::BRIEF;
        let mut id = seat.random.next();
        loop {
            let wait = if links.is_some() {
                Duration::ZERO
            } else {
                ROUND
            };
            match seat.order(wait)? {
                None => {}
                Some(Order::Quit) => return Ok(()),
                Some(Order::Rest) => {
                    drop((links, pool));
                    return seat.rest();
                }
            }
            let Some((to, from)) = &mut links else {
                links = open(&seat.domain, wait_for_server)?;
                if links.is_none() {
                    wait_for_server.was_in_vain();
                }
                continue;
            };
            let (answered, over) = ask(&pool, to, from, id)?;
            if answered {
                seat.gauge.tick(seat.number);
                id = seat.random.next();
            }
            if over {
                links = None;
            }
        }
    }
);

fn open(domain: &Domain, wait: Wait) -> Result<Option<(Sender, Receiver)>, Broken> {
    let options = || options().timeout(wait.limit());
    let to = match domain.open_with::<Sender>("ask", options()) {
        Ok(to) => to,
        Err(e) => return bearable(&e).map(|()| None),
    };
    match domain.open_with::<Receiver>("answer", options()) {
        Ok(from) => Ok(Some((to, from))),
        Err(e) => bearable(&e).map(|()| None),
    }
}

/// One question; whether it was answered, and whether a channel is over.
fn ask(pool: &Pool, to: &mut Sender, from: &mut Receiver, id: u64) -> Result<(bool, bool), Broken> {
    let Some(buffer) = filled(pool, id, false)? else {
        return Ok((false, false));
    };
    if let Err(e) = to.send_timeout((buffer, id), ROUND) {
        return send_over(&e.error).map(|over| (false, over));
    }
    // Asked again after a while: an answer to the first question counts as well, any other is old.
    for _ in 0..20 {
        match from.recv_timeout(ROUND) {
            Ok(answer) => {
                verify(&answer, true)?;
                if answer.word == id {
                    return Ok((true, false));
                }
            }
            Err(e) if recv_over(&e)? => return Ok((false, true)),
            Err(_) => {}
        }
    }
    Ok((false, to.status().peer_gone))
}

#[test]
fn requests_and_replies() {
    Scene::new("requests_and_replies").serves_two(
        ("server", server),
        (["client 1", "client 2"], client),
        ["answers to client 1", "answers to client 2"],
        4,
    );
}
