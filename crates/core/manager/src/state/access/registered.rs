//! Channels within a process, or from it to elsewhere. No manager connects their ends: the process reports them. They
//! serve `stat` only, and end with the connection that reported them.

use crate::state::ancillary::Ancillary;
use crate::state::books::descriptors::Descriptors;
use crate::state::context::Context;
use crate::state::model::RegisteredKey;
use crate::state::pools::pool::Pools;
use crate::state::refuse::{check_lines, no_such, refusal};
use crate::state::types::{Done, FdToken};
use std::collections::BTreeMap;
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, Limited, LocalChannel, MAX_ADDRESS_BYTES, PoolId,
    RefusalCode, Role, check_text,
};
use tranship_region::layout::Kind;

/// Most channels of one domain; further ones are not shown.
const MOST: usize = 256;

/// A channel within a process, or to elsewhere, by its domain's word.
#[derive(Debug)]
pub(crate) struct Registered {
    channel: LocalChannel,
    /// The source's, and the sink's.
    halves: [FdToken; 2],
}

#[derive(Debug, Default)]
pub(crate) struct Registrations {
    all: BTreeMap<RegisteredKey, Registered>,
}

impl Registrations {
    /// Registers a channel. There is no request to answer: a channel without room is not shown.
    pub fn register(
        &mut self,
        cx: &mut Context,
        pools: &Pools,
        me: DomainId,
        channel: LocalChannel,
        fds: &mut Ancillary,
    ) -> Done {
        let key = (me, channel.channel);
        let texts = [Some(&channel.address), channel.place.as_ref()];
        for text in texts.into_iter().flatten() {
            if !check_text(text, MAX_ADDRESS_BYTES) {
                let (has, most) = (text.len() as u64, MAX_ADDRESS_BYTES as u64);
                return Err(refusal(RefusalCode::BadName, has, most).into());
            }
        }
        let all = self.of(me).count();
        if all >= MOST || self.all.contains_key(&key) {
            return Err(Limited::Registered
                .refuse(all as u64 + 1, MOST as u64)
                .into());
        }
        // An invented peer is ignored.
        let process = |id: &DomainId| cx.domains.get(id).map(|d| (d.process, d.uid));
        let written = |pool: &PoolId| pools.get(pool).is_some_and(|p| p.writer == me);
        let channel = LocalChannel {
            peer: channel.peer.filter(|peer| process(peer) == process(&me)),
            pool: channel.pool.filter(written),
            ..channel
        };
        let [ours, theirs] = channel.lines;
        check_lines(ours)?;
        check_lines(theirs)?;
        let source = fds.take(Kind::LinkSource, ours)?;
        let sink = fds.take(Kind::LinkSink, theirs)?;
        let halves = [
            cx.hold_object(source.token, me, Kind::LinkSource, ours),
            cx.hold_object(sink.token, me, Kind::LinkSink, theirs),
        ];
        self.all.insert(key, Registered { channel, halves });
        Ok(())
    }

    pub fn unregister(&mut self, cx: &mut Context, me: DomainId, channel: ChannelId) -> Done {
        let record = self.all.remove(&(me, channel));
        let record = record.ok_or(no_such(channel.0))?;
        record.halves.into_iter().for_each(|half| cx.release(half));
        Ok(())
    }

    /// Drops all channels of a domain whose connection ends.
    pub fn drop_of(&mut self, cx: &mut Context, me: DomainId) {
        for channel in self.of(me).collect::<Vec<_>>() {
            // The channel exists.
            let _ = self.unregister(cx, me, channel);
        }
    }

    fn of(&self, me: DomainId) -> impl Iterator<Item = ChannelId> + '_ {
        let of = (me, ChannelId(0))..=(me, ChannelId(u32::MAX));
        self.all.range(of).map(|((_, channel), _)| *channel)
    }

    /// Returns a channel's record without its cursors, and both halves.
    pub fn record(
        &self,
        key: RegisteredKey,
        descriptors: &Descriptors,
    ) -> Option<(ChannelStat, [FdToken; 2])> {
        let Registered { channel, halves } = self.all.get(&key)?;
        let ends = [Some(key.0), channel.peer];
        let [source, sink] = match channel.role {
            Role::Source => ends,
            Role::Sink => [ends[1], ends[0]],
        };
        let record = ChannelStat {
            channel: key.1,
            name: channel.address.clone(),
            source,
            sink,
            pools: channel.pool.into_iter().collect(),
            lines: channel.lines[0],
            ring_bytes: halves.iter().map(|half| descriptors.bytes_of(*half)).sum(),
            place: channel.place.clone(),
            ..ChannelStat::default()
        };
        Some((record, *halves))
    }

    /// Returns the channel after one.
    pub fn after(&self, last: Option<RegisteredKey>) -> Option<RegisteredKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = last.map_or(Unbounded, Excluded);
        self.all
            .range((from, Unbounded))
            .next()
            .map(|(key, _)| *key)
    }
}

#[cfg(feature = "audit")]
mod audit {
    use super::*;

    impl Registrations {
        /// Returns both halves of each channel.
        pub fn halves(&self) -> impl Iterator<Item = FdToken> + '_ {
            let all = self.all.values();
            all.flat_map(|r| r.halves)
        }

        /// Checks that every channel's domain has a connection.
        pub fn audit(&self, cx: &Context) -> Result<(), String> {
            let mut all = self.all.iter();
            match all.find(|(key, _)| cx.client_of(key.0).is_none()) {
                None => Ok(()),
                Some((key, r)) => Err(format!("{key:?}: {r:?} of nobody who is there")),
            }
        }
    }
}
