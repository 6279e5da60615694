//! The consumer's side: joins before its lock-down, then works on frames where they lie.
#![allow(unsafe_code)] // trusting the producer, see below

use crate::args::demo::ConsumerArgs;
use crate::demo::consumers::Work;
use anyhow::{Context, Result};
use tranship::{Body, ChannelOptions, Domain, ErrorKind, Receiver, Wait};

/// A consumer that has its link.
pub(crate) struct Joined {
    receiver: Receiver,
    // Dropped last.
    _domain: Domain,
}

/// Opens everything that needs names: the manager's socket, the link.
pub(crate) fn join(args: &ConsumerArgs) -> Result<Joined> {
    let socket = args.connect.socket.as_ref().context("--socket")?;
    let name = args.name.as_ref().context("--name")?;
    let domain = Domain::builder()
        .name(args.role.name())
        .socket(socket)
        .autostart(false)
        .connect()?;
    let wait = if args.counted {
        Wait::Spin
    } else {
        Wait::default()
    };
    let mut receiver = domain.open_with::<Receiver>(name, ChannelOptions::new().wait(wait))?;
    // SAFETY: the writer of the only pool on this link is the demonstration's producer, the program that started this
    // one. It freezes a frame before it sends it, and has no way to write it after that. The library keeps the frame
    // mapped and unused while its message is held.
    unsafe { receiver.trust_writer() };
    Ok(Joined {
        receiver,
        _domain: domain,
    })
}

/// Allows any process of this user to count this one's system calls.
pub(crate) fn may_be_counted() {
    // Fails where the kernel knows no such restriction.
    let _ = rustix::process::set_ptracer(rustix::process::PTracer::Any);
}

/// Hands every frame to the work until the producer is gone. `after_each` hears the frame's length and how many
/// bytes of it were copied on the way here.
pub(crate) fn consume(
    mut from: Joined,
    work: &mut dyn Work,
    mut after_each: impl FnMut(usize, usize) -> Result<()>,
) -> Result<()> {
    loop {
        let message = match from.receiver.recv() {
            Ok(message) => message,
            Err(error) if error == ErrorKind::PeerGone => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (offset, len) = (message.word, message.len());
        let copied = match &message.body {
            Body::Buffer(frame) => {
                work.frame(
                    offset,
                    frame.bytes().context("a frame of a trusted writer")?,
                )?;
                0
            }
            Body::Inline(bytes) => {
                work.frame(offset, bytes)?;
                len
            }
            Body::Aggregate(_) | Body::BufferMut(_) | Body::AggregateMut(_) | Body::Released(_) => {
                work.frame(offset, &message.to_vec())?;
                len
            }
        };
        drop(message);
        after_each(len, copied)?;
    }
}
