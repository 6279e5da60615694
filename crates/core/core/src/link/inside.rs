//! A channel whose two ends are in one process. No manager brings it about, and the handles themselves travel,
//! uncounted. The rest is as in other channels: the ring with its lines, waiting, both ways, the end.

use super::beside;
use super::open::{other_half, own_half};
use super::shared::{Inside, LinkShared};
use super::store::Store;
use super::{Receiver, Sender};
use crate::domain::DomainCore;
use crate::error::{self, Error};
use crate::options::ChannelOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tranship_proto::{ChannelId, Levels, Role};
use tranship_sys::{eventfd, process};

/// An end that has to be made: its domain and its options.
#[derive(Clone, Copy)]
pub(super) struct Wish<'a> {
    pub(super) domain: &'a DomainCore,
    pub(super) options: &'a ChannelOptions,
}

/// Returns a number that no channel of this domain has. Managers count upward, this function downward.
fn number(domain: &DomainCore) -> ChannelId {
    static LAST: AtomicU32 = AtomicU32::new(u32::MAX);
    loop {
        let channel = ChannelId(LAST.fetch_sub(1, Ordering::Relaxed));
        if !domain.register.has_link(channel) {
            return channel;
        }
    }
}

/// Makes both ends. `carried`: the place of the true peer, if one of the ends is a carrier's.
pub(super) fn pair(
    name: &str,
    source: Wish<'_>,
    sink: Wish<'_>,
    carried: Option<&str>,
) -> Result<(Sender, Receiver), Error> {
    let wishes = [source, sink];
    let (out, back) = (
        own_half(Role::Source, source.options)?,
        own_half(Role::Sink, sink.options)?,
    );
    let theirs = (
        other_half(&out.0, Role::Source, source.options.lines)?,
        other_half(&back.0, Role::Sink, sink.options.lines)?,
    );
    let make = |role, wish: Wish<'_>, peer: Wish<'_>, own, theirs| -> Result<_, Error> {
        let shown = beside::shown_inside(peer.options.beside.as_ref())?;
        let peer = (peer.domain.id(), process::geteuid(), std::process::id());
        // Never readable: this process does not outlive itself.
        let process = eventfd::create().map_err(error::system("eventfd"))?;
        let (channel, options) = (number(wish.domain), wish.options);
        let link = LinkShared::new(
            wish.domain,
            channel,
            role,
            name,
            peer,
            process,
            own,
            theirs,
            options,
        );
        let link = link.within(Inside::of(options.snapshots));
        Ok(Arc::new(link.with_beside(shown.0, shown.1, shown.2)))
    };
    let near = make(Role::Source, source, sink, out, theirs.1)?;
    let far = make(Role::Sink, sink, source, back, theirs.0)?;
    near.join(&far);
    far.join(&near);
    // Carried memory is the receiver's own, whichever domains could write it before.
    let (levels, consent) = match carried {
        Some(_) => (Levels::ALL, None),
        None => (sink.options.levels(), sink.options.consent.clone()),
    };
    let store = Arc::new(Store::new(
        carried.is_some(),
        carried.map(str::to_owned),
        levels,
        consent,
    ));
    let links = [Arc::clone(&near), Arc::clone(&far)];
    let sender = Sender::inside(near, source.options, Arc::clone(&store))?;
    let receiver = Receiver::inside(far, sink.options, store);
    // Nothing fails from here on: a registered end leaves the register when it is dropped.
    for (wish, link) in wishes.into_iter().zip(links) {
        wish.domain.register.add_link(link.channel, link);
    }
    Ok((sender, receiver))
}
