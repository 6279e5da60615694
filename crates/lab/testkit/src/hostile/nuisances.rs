//! Through the manager's socket: wrong requests, wrong descriptors, floods, silence.

use std::os::fd::{AsFd, BorrowedFd};

use tranship_proto::{ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Req, Request, encode};
use tranship_region::layout::TableRw;
use tranship_ring::{HalfRw, Side};
use tranship_sys::socket;

use super::raw::{CHUNK, Raw, SLOTS, path};
use super::requests::{bestiary, create, thefts, wild, with_descriptors};
use crate::Random;

/// Connections that one user may have where [`NUISANCES`] are tried: `flood` wants to see the limit.
pub const CONNECTIONS: u32 = 48;

/// One way of being a nuisance.
#[derive(Debug)]
pub struct Nuisance {
    pub name: &'static str,
    /// Text that the last message of the manager must contain; empty: it need not say anything.
    pub reason: &'static str,
    /// Function that does it; returns the outcome.
    pub act: fn(&mut Random) -> String,
}

macro_rules! nuisances {
    ($($name:ident: $reason:expr, |$random:ident| $act:expr;)*) => {
        /// All of them.
        pub const NUISANCES: &[Nuisance] = &[$(Nuisance {
            name: stringify!($name),
            reason: $reason,
            act: { fn act($random: &mut Random) -> String { $act } act },
        }),*];
    };
}

fn last_word(raw: &mut Raw) -> String {
    raw.expelled()
        .map_or_else(|| "hung up".to_owned(), |refusal| format!("{refusal:?}"))
}

fn hello(version: u16) -> Request {
    Request::Hello {
        version,
        name: "pest".into(),
        resume: None,
        dumpable: true,
    }
}

// Seen failing: without the limit of connections `flood` never ends.
nuisances! {
    garbage: "BadArgument", |random| {
        let mut raw = Raw::join("garbage");
        for _ in 0..2000 {
            let len = 1 + random.below(2000);
            let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8 | 0x40).collect();
            if socket::sendmsg(&raw.fd, &bytes, &[], false).is_err() {
                break;
            }
        }
        last_word(&mut raw)
    };
    garbage_instead_of_hello: "BadArgument", |_random| {
        let mut raw = Raw::silent();
        let _ = socket::sendmsg(&raw.fd, &[0xff; 100], &[], false);
        last_word(&mut raw)
    };
    longer_than_any_message: "BadArgument", |_random| {
        let mut raw = Raw::join("long");
        let _ = socket::sendmsg(&raw.fd, &[0; 60_000], &[], false);
        last_word(&mut raw)
    };
    an_empty_message: "", |_random| {
        let mut raw = Raw::join("empty");
        let _ = socket::sendmsg(&raw.fd, &[], &[], false);
        last_word(&mut raw)
    };
    wrong_version: "Version", |_random| {
        let mut raw = Raw::silent();
        raw.send(&hello(PROTOCOL_VERSION + 7), &[]);
        last_word(&mut raw)
    };
    hello_twice: "State", |_random| {
        let mut raw = Raw::join("twice");
        raw.send(&hello(PROTOCOL_VERSION), &[]);
        last_word(&mut raw)
    };
    no_hello: "State", |_random| {
        let mut raw = Raw::silent();
        raw.send(&Request::Stat { req: Req(1) }, &[]);
        last_word(&mut raw)
    };
    surplus_of_one: "BadDescriptor", |_random| {
        let mut raw = Raw::join("surplus");
        let (a, _b) = socket::pair().unwrap();
        raw.send(&Request::Stat { req: Req(1) }, &[a.as_fd()]);
        last_word(&mut raw)
    };
    surplus_of_many: "BadDescriptor", |_random| {
        let mut raw = Raw::join("surplus");
        let (a, _b) = socket::pair().unwrap();
        let many = vec![a.as_fd(); 16];
        raw.send(&Request::Ungrant { pool: PoolId(1), chunks: 1 }, &many);
        last_word(&mut raw)
    };
    surplus_beyond_the_buffer: "BadDescriptor", |_random| {
        let mut raw = Raw::join("surplus");
        send_many(&raw, &Request::Stat { req: Req(1) }, 253);
        last_word(&mut raw)
    };
    too_few: "BadDescriptor", |_random| {
        let mut raw = Raw::join("few");
        raw.send(&create(Req(1)), &[]);
        last_word(&mut raw)
    };
    descriptors_before_hello: "", |_random| {
        let mut raw = Raw::silent();
        // Before the hello the manager's socket takes no descriptors, on kernels that can refuse them.
        if !send_many(&raw, &hello(PROTOCOL_VERSION), 200) {
            return "the kernel refused".to_owned();
        }
        last_word(&mut raw)
    };
    sockets_full_of_sockets: "", |_random| {
        let mut raw = Raw::join("nested");
        let (mut a, _keep) = socket::pair().unwrap();
        for _ in 0..30 {
            let (b, c) = socket::pair().unwrap();
            if socket::sendmsg(&b, b"x", &[a.as_fd(), c.as_fd()], true).is_err() {
                break;
            }
            a = c;
        }
        let _ = raw.try_send(&Request::WakeFd { req: Req(1), channel: ChannelId(77) }, &[a.as_fd()]);
        let _ = raw.try_send(&Request::Stat { req: Req(1) }, &[a.as_fd()]);
        last_word(&mut raw)
    };
    wrong_descriptors: "all refused", |_random| {
        for (name, fd) in bestiary() {
            for request in with_descriptors() {
                let mut raw = Raw::again("wrong");
                let fds: Vec<BorrowedFd<'_>> = (0..request.fds()).map(|_| fd.as_fd()).collect();
                let _ = raw.try_send(&request, &fds);
                let _ = raw.try_send(&Request::Stat { req: Req(1000) }, &[]);
                if let Some(got) = first_good_news(&mut raw) {
                    return format!("{name} with {request:?}: {got:?}");
                }
            }
        }
        "all refused".to_owned()
    };
    wild_ids: "never without a word", |random| {
        let mut raw = Raw::again("wild");
        let (half, _map) = HalfRw::create(Side::Sink, 16).unwrap();
        let (table, _map2) = TableRw::create(SLOTS, 4 * CHUNK, CHUNK).unwrap();
        for _ in 0..4000 {
            let request = wild(random);
            let fd = if random.one_in(2) { half.as_fd() } else { table.as_fd() };
            let fds = vec![fd; request.fds()];
            let sent = raw.try_send(&request, &fds).is_ok();
            while sent && ready(&raw) {
                match raw.recv() {
                    Some((Event::Expelled { .. }, _)) => {
                        raw = Raw::again("wild");
                        break;
                    }
                    Some(_) => {}
                    None if matches!(request, Request::Goodbye) => {
                        raw = Raw::again("wild");
                        break;
                    }
                    None => return format!("cut off without a word after {request:?}"),
                }
            }
            if !sent {
                let Some(_) = raw.expelled() else {
                    return format!("cut off without a word before {request:?}");
                };
                raw = Raw::again("wild");
            }
        }
        "never without a word".to_owned()
    };
    others_pools_and_channels: "nothing granted", |_random| {
        // Every process may see the objects that exist; ids are no secret.
        let mut raw = Raw::again("thief");
        let (mut ids, mut domains) = (std::collections::BTreeSet::new(), std::collections::BTreeMap::new());
        raw.send(&Request::Stat { req: Req(1) }, &[]);
        loop {
            let Some((event, _)) = raw.recv() else { return "cut off".to_owned() };
            match event {
                Event::Stat { record: tranship_proto::StatRecord::Pool(pool), .. } => drop(ids.insert(pool.pool.0)),
                Event::Stat { record: tranship_proto::StatRecord::Channel(c), .. } => drop(ids.insert(c.channel.0)),
                Event::Stat { record: tranship_proto::StatRecord::Domain(d), .. } => {
                    ids.insert(d.domain.0);
                    if d.pid != std::process::id() {
                        domains.insert(d.domain.0, d.pid);
                    }
                }
                Event::StatEnd { .. } => break,
                _ => {}
            }
        }
        if ids.len() < 5 {
            return format!("only {ids:?} to be seen");
        }
        for id in ids {
            for request in thefts(id) {
                let mut raw = Raw::again("thief");
                let (fd, _map) = TableRw::create(SLOTS, 4 * CHUNK, CHUNK).unwrap();
                let fds = vec![fd.as_fd(); request.fds()];
                let _ = raw.try_send(&request, &fds);
                let _ = raw.try_send(&Request::Stat { req: Req(1000) }, &[]);
                if let Some(got) = first_good_news(&mut raw) {
                    return format!("{request:?}: {got:?}");
                }
            }
        }
        for (id, pid) in domains {
            let mut raw = Raw::silent();
            let resume = Some(DomainId(id));
            raw.send(&Request::Hello { version: PROTOCOL_VERSION, name: "x".into(), resume, dumpable: true }, &[]);
            // The id of a process that has just ended is free.
            let lives = || std::path::Path::new(&format!("/proc/{pid}")).exists();
            if let Some((Event::Welcome { resumed: true, .. }, _)) = raw.recv()
                && lives()
            {
                return format!("domain {id} was given away");
            }
        }
        "nothing granted".to_owned()
    };
    never_reads: "", |_random| {
        let raw = Raw::join("deaf");
        let mut sent = 0;
        while sent < 20_000 && socket::sendmsg(&raw.fd, &encode(&Request::Stat { req: Req(1) }), &[], true)
            .map_or_else(|e| e.kind() == std::io::ErrorKind::WouldBlock, |()| true)
        {
            sent += 1;
        }
        format!("{sent} requests")
    };
    flood: "Limit", |_random| {
        let mut all = Vec::new();
        loop {
            match Raw::try_join("flood") {
                Ok(raw) => all.push(raw),
                Err(Some(refusal)) => return format!("{refusal:?} after {}", all.len()),
                Err(None) => return format!("cut off without a word after {}", all.len()),
            }
            if all.len() > CONNECTIONS as usize {
                return "no limit".to_owned();
            }
        }
    };
    silent_flood: "", |_random| {
        let all: Vec<_> = (0..4 * CONNECTIONS).filter_map(|_| socket::connect(&path()).ok()).collect();
        format!("{} connections", all.len())
    };
}

fn ready(raw: &Raw) -> bool {
    tranship_sys::epoll::wait_readable(&raw.fd, Some(std::time::Duration::ZERO)).unwrap_or(false)
}

/// Returns the first answer that grants something, until the end of the connection or of an answer to `Stat`. (A
/// channel that does not exist is claimed and gone at once.)
fn first_good_news(raw: &mut Raw) -> Option<Event> {
    let mut claimed = None;
    loop {
        match (raw.recv()?.0, claimed.take()) {
            (Event::PeerGone { .. }, Some(_)) => {}
            (_, Some(good)) => return Some(good),
            (Event::StatEnd { .. }, _) => return None,
            (Event::Stat { .. } | Event::Refused { .. } | Event::Expelled { .. }, _) => {}
            // A client that gives up a channel that it never read is told that the channel is over.
            (Event::PoolGone { .. }, _) => {}
            (event @ Event::Claimed { .. }, _) => claimed = Some(event),
            (good, _) => return Some(good),
        }
    }
}

/// Sends more descriptors than the library would send.
fn send_many(raw: &Raw, request: &Request, n: usize) -> bool {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let (a, _b) = socket::pair().unwrap();
    let fds = vec![a.as_fd(); n];
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = encode(request);
    sendmsg(
        &raw.fd,
        &[std::io::IoSlice::new(&bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
    .is_ok()
}
