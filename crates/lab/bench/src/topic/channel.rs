//! A channel: the time of one message there, beside a topic's.

use anyhow::{Context, Result, ensure};
use tranship_core::{BufferMut, Pool, Receiver, Sender};

use super::trip::{self, Word};
use super::what::{BUFFERS, Mode, PAYLOAD};
use crate::case::Wait;
use crate::party::Party;
use crate::stats::Measured;
use crate::systems::tranship::join;

/// The word of the last message.
const END: u64 = u64::MAX;
const NAME: &str = "out";

/// A sender, and the pool of its messages.
struct Sending(Sender, Pool);

fn make(sending: &mut Sending, number: u64) -> Result<BufferMut> {
    let mut message = sending.1.alloc(PAYLOAD)?;
    message.write(0, &number.to_le_bytes())?;
    Ok(message)
}

fn send(sending: &mut Sending, message: BufferMut, number: u64) -> Result<()> {
    sending.0.send((message.freeze(), number))?;
    Ok(())
}

pub fn sender(_: Mode, _: usize, party: &Party, budget: u64) -> Result<Vec<Measured>> {
    let domain = join::domain(0, party)?;
    let pool = domain.create_pool(join::pool_of(BUFFERS as usize, PAYLOAD))?;
    let (_, mut fds) = party.recv(1)?;
    let echo = Word::map(fds.pop().context("the receiver's page")?)?;
    let names = domain.listen_with::<Sender>(NAME, join::options(Wait::Spin))?;
    let mut sender = names.accept()?;
    join::show(&mut sender, &pool)?;
    party.barrier()?;
    let mut sending = Sending(sender, pool);
    let samples = trip::echoed(&mut sending, &echo, budget, make, send)?;
    sending.0.send((&[], END))?;
    party.barrier()?;
    Ok(samples.finish("").into_iter().collect())
}

pub fn receiver(_: Mode, _: usize, party: &Party, _: u64) -> Result<Vec<Measured>> {
    let domain = join::domain(1, party)?;
    let echo = Word::make()?;
    party.send(0, 0, &[echo.fd()])?;
    let mut receiver = domain.open_with::<Receiver>(NAME, join::options(Wait::Spin))?;
    join::look(&mut receiver)?;
    party.barrier()?;
    for number in 0u64.. {
        let message = receiver.recv()?;
        if message.word == END {
            break;
        }
        ensure!(
            message.word == number && message.len() == PAYLOAD,
            "another message"
        );
        // As a subscriber of several does.
        drop(message);
        trip::answer(&echo, number);
    }
    party.barrier()?;
    Ok(Vec::new())
}
