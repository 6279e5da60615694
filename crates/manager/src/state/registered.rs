//! Channels within a process, or that it has to elsewhere: no manager brings their ends together, their process says that there is one. For `stat`
//! alone; gone with the connection by which it was said.

use super::extent::For;
use super::model::{Registered, RegisteredKey};
use super::refuse::check_lines;
use super::types::{Done, FdToken};
use super::{Ancillary, State, format, no_such, refusal};
use tranship_proto::{
    ChannelId, ChannelStat, DomainId, LocalChannel, MAX_ADDRESS_BYTES, PoolId, RefusalCode, Role,
    check_text,
};

/// Of one domain. More are not shown.
const MOST: usize = 256;

impl State {
    /// There is nobody to answer to: what cannot be taken is not shown.
    pub(super) fn register_channel(
        &mut self,
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
        let all = self.registered_by(me).count();
        if all >= MOST || self.registered.contains_key(&key) {
            return Err(refusal(RefusalCode::Limit, all as u64 + 1, MOST as u64).into());
        }
        // One that is made up is nobody's.
        let process = |id: &DomainId| self.cx.domains.get(id).map(|d| (d.process, d.uid));
        let peer = channel.peer.filter(|peer| process(peer) == process(&me));
        let written = |pool: &PoolId| self.pools.get(pool).is_some_and(|p| p.writer == me);
        let pool = channel.pool.filter(written);
        let [ours, theirs] = channel.lines;
        check_lines(ours)?;
        check_lines(theirs)?;
        let source = fds.take(format::LINK_SOURCE, ours, format::link_bytes(ours))?;
        let sink = match fds.take(format::LINK_SINK, theirs, format::link_bytes(theirs)) {
            Ok(sink) => sink.token,
            Err(wrong) => {
                fds.fds.push_front(source);
                return Err(wrong);
            }
        };
        self.cx
            .hold_memory(source.token, me, For::Rings, format::link_bytes(ours));
        self.cx
            .hold_memory(sink, me, For::Rings, format::link_bytes(theirs));
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
        self.registered.insert(key, record);
        Ok(())
    }

    pub(super) fn unregister_channel(&mut self, me: DomainId, channel: ChannelId) -> Done {
        let record = self.registered.remove(&(me, channel));
        let record = record.ok_or(no_such(channel.0))?;
        self.cx.release(record.source_half);
        self.cx.release(record.sink_half);
        Ok(())
    }

    /// All of a domain whose connection ends.
    pub(super) fn drop_registered(&mut self, me: DomainId) {
        for channel in self.registered_by(me).collect::<Vec<_>>() {
            // It is there.
            let _ = self.unregister_channel(me, channel);
        }
    }

    fn registered_by(&self, me: DomainId) -> impl Iterator<Item = ChannelId> + '_ {
        let of = (me, ChannelId(0))..=(me, ChannelId(u32::MAX));
        self.registered.range(of).map(|((_, channel), _)| *channel)
    }

    /// Its record, but for what is in its sink's half; that.
    pub(super) fn registered_record(&self, key: RegisteredKey) -> Option<(ChannelStat, FdToken)> {
        let r = self.registered.get(&key)?;
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
            exported_as: None,
            waiting_as: None,
            pools: r.pool.into_iter().collect(),
            taken: 0,
            lines: r.lines,
            ring_bytes: self.cx.descriptors.bytes_of(r.source_half)
                + self.cx.descriptors.bytes_of(r.sink_half),
            place: r.place.clone(),
        };
        Some((record, r.sink_half))
    }
}
