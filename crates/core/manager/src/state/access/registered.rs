//! Channels within a process, or from it to elsewhere. No manager connects their ends: the process reports them. They
//! serve `stat` only, and end with the connection that reported them.

use crate::state::ancillary::{Ancillary, bytes_of};
use crate::state::books::descriptors::Descriptors;
use crate::state::books::extent::For;
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
    pub address: String,
    pub role: Role,
    /// The other end's domain, in the same process.
    pub peer: Option<DomainId>,
    /// The address of a channel to elsewhere.
    pub place: Option<String>,
    /// The pool for messages that are carried here.
    pub pool: Option<PoolId>,
    /// Lines of the source's half.
    pub lines: u32,
    pub source_half: FdToken,
    pub sink_half: FdToken,
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
        let peer = channel.peer.filter(|peer| process(peer) == process(&me));
        let written = |pool: &PoolId| pools.get(pool).is_some_and(|p| p.writer == me);
        let pool = channel.pool.filter(written);
        let [ours, theirs] = channel.lines;
        check_lines(ours)?;
        check_lines(theirs)?;
        let source = fds.take(Kind::LinkSource, ours)?;
        let sink = match fds.take(Kind::LinkSink, theirs) {
            Ok(sink) => sink.token,
            Err(wrong) => {
                fds.fds.push_front(source);
                return Err(wrong);
            }
        };
        for (half, kind, lines) in [
            (source.token, Kind::LinkSource, ours),
            (sink, Kind::LinkSink, theirs),
        ] {
            cx.hold_memory(half, me, For::Rings, bytes_of(kind, lines));
        }
        let record = Registered {
            address: channel.address,
            role: channel.role,
            peer,
            place: channel.place,
            pool,
            lines: ours,
            source_half: source.token,
            sink_half: sink,
        };
        self.all.insert(key, record);
        Ok(())
    }

    pub fn unregister(&mut self, cx: &mut Context, me: DomainId, channel: ChannelId) -> Done {
        let record = self.all.remove(&(me, channel));
        let record = record.ok_or(no_such(channel.0))?;
        cx.release(record.source_half);
        cx.release(record.sink_half);
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

    /// Returns a channel's record without the figures of its sink's half, and that half.
    pub fn record(
        &self,
        key: RegisteredKey,
        descriptors: &Descriptors,
    ) -> Option<(ChannelStat, FdToken)> {
        let r = self.all.get(&key)?;
        let (here, there) = (Some(key.0), r.peer);
        let [source, sink] = match r.role {
            Role::Source => [here, there],
            Role::Sink => [there, here],
        };
        let record = ChannelStat {
            channel: key.1,
            name: r.address.clone(),
            source,
            sink,
            pools: r.pool.into_iter().collect(),
            lines: r.lines,
            ring_bytes: descriptors.bytes_of(r.source_half) + descriptors.bytes_of(r.sink_half),
            place: r.place.clone(),
            ..ChannelStat::default()
        };
        Some((record, r.sink_half))
    }

    pub fn get(&self, key: RegisteredKey) -> Option<&Registered> {
        self.all.get(&key)
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

    /// Returns both halves of each channel.
    pub fn halves(&self) -> impl Iterator<Item = FdToken> + '_ {
        let all = self.all.values();
        all.flat_map(|r| [r.source_half, r.sink_half])
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
