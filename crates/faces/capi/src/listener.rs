//! Names, and the connections to them.

use crate::domain::{self, Domain};
use crate::given::{patience, text, there, wrong};
use crate::link::ChannelOptions;
use crate::open::closed;
use crate::options::grown;
use crate::receiver::Receiver;
use crate::sender::Sender;
use crate::status::{Error, Status, making, quietly};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A name to which other domains connect. Any thread may use it, all at the same time; see tranship_listener_close for
/// its end.
#[derive(Debug)]
pub struct Listener(pub(crate) Arc<Either>);

/// By the end that it gives.
#[derive(Debug)]
pub(crate) enum Either {
    Sender(facade::Listener<facade::Sender>),
    Receiver(facade::Listener<facade::Receiver>),
}

/// As `end`: this side sends.
pub const SENDER: u32 = 1;
/// As `end`: this side receives.
pub const RECEIVER: u32 = 2;

/// Listens at a name. Other domains open channels there, of which this side has the `end` TRANSHIP_SENDER or
/// TRANSHIP_RECEIVER. `options` hold for each channel, and may be NULL.
///
/// `name` is a name of this manager's, or an address: "local:NAME" is inside this process, "tcp:HOST:PORT/NAME" reaches other machines, with
/// TLS (docs/c.md).
///
/// Close it with tranship_listener_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_listen(
    domain: Option<&Domain>,
    name: *const c_char,
    end: u32,
    options: *const ChannelOptions,
    out: Option<&mut MaybeUninit<Option<Box<Listener>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = || grown(options)?.link();
        let listener = match end {
            SENDER => Either::Sender(domain.listen_with(name, options()?)?),
            RECEIVER => Either::Receiver(domain.listen_with(name, options()?)?),
            _ => return Err(wrong(format!("end is {end}: 1 (sender) or 2 (receiver)"))),
        };
        Ok(Listener(Arc::new(listener)))
    })
}

/// Withdraws the name. Channels that were accepted go on. NULL is nothing.
///
/// Call it when no other call with this handle is under way or will begin; a thread that is to stop waits in turns, or by tranship_poll.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_listener_close(listener: Option<Box<Listener>>) {
    quietly((), || drop(closed(listener, "tranship_listener_close")));
}

/// Accepts the next connection of a listener with TRANSHIP_SENDER: gives its sending end. Waits for `timeout_ns`, as
/// tranship_alloc does. TRANSHIP_ERR_TIMED_OUT: no domain connected in time.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_accept_sender(
    listener: Option<&Listener>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Sender>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || match &*held(listener)? {
        Either::Sender(listener) => {
            let sender = listener.accept_timeout(patience(timeout_ns))?;
            Ok(Sender(sender))
        }
        Either::Receiver(_) => Err(other_end("receivers", "tranship_accept_receiver")),
    })
}

/// Accepts the next connection of a listener with TRANSHIP_RECEIVER: gives its receiving end. Waits for `timeout_ns`,
/// as tranship_alloc does. TRANSHIP_ERR_TIMED_OUT: no domain connected in time.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_accept_receiver(
    listener: Option<&Listener>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Receiver>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || match &*held(listener)? {
        Either::Receiver(listener) => {
            let receiver = listener.accept_timeout(patience(timeout_ns))?;
            Ok(Receiver(receiver))
        }
        Either::Sender(_) => Err(other_end("senders", "tranship_accept_sender")),
    })
}

/// Opens the sending end of a channel to the domain that listens at `name`, a name or an address as of tranship_listen. Waits until a domain listens there, for
/// `timeout_ns` as tranship_alloc does.
/// `options` may be NULL.
///
/// Close it with tranship_sender_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_open_sender(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const ChannelOptions,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Sender>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = opening(options, timeout_ns)?;
        Ok(Sender(domain.open_with::<facade::Sender>(name, options)?))
    })
}

/// Opens the receiving end of a channel to the domain that listens at `name`, a name or an address as of tranship_listen. Waits until a domain listens there, for
/// `timeout_ns` as tranship_alloc does.
/// `options` may be NULL.
///
/// Close it with tranship_receiver_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_open_receiver(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const ChannelOptions,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Receiver>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = opening(options, timeout_ns)?;
        Ok(Receiver(
            domain.open_with::<facade::Receiver>(name, options)?,
        ))
    })
}

/// It, for as long as the call takes: another thread may close the handle meanwhile.
fn held(listener: Option<&Listener>) -> Result<Arc<Either>, facade::Error> {
    Ok(Arc::clone(&there(listener, "listener")?.0))
}

fn other_end(gives: &str, call: &str) -> facade::Error {
    let text = format!("this listener gives {gives}: use {call}");
    facade::Error::new(facade::ErrorKind::ChannelDirection, text)
}

fn opening(
    options: *const ChannelOptions,
    timeout_ns: i64,
) -> Result<facade::ChannelOptions, facade::Error> {
    let options = grown(options)?.link()?;
    Ok(match patience(timeout_ns) {
        None => options,
        Some(limit) => options.timeout(limit),
    })
}
