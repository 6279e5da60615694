//! Memory that clients have shown: held with its descriptor, and counted.

use super::extent::{For, MANAGER, Piece};
use super::model::Stage;
use super::types::FdToken;
use super::{State, format};
use tranship_proto::{ChannelId, DomainId, PoolId};

impl State {
    /// Becomes the owner of memory that a domain has made.
    pub(super) fn hold_memory(
        &mut self,
        token: FdToken,
        me: DomainId,
        of: For,
        bytes: u64,
    ) -> FdToken {
        let d = self.domains.get(&me);
        let (uid, by) = d.map_or((u32::MAX, MANAGER), |d| (d.uid, d.maker));
        self.hold(token, uid);
        self.note(token, Piece { by, of, bytes });
        token
    }

    /// The same, of memory whose maker is not here.
    pub(super) fn hold_piece(&mut self, token: FdToken, uid: u32, piece: Piece) {
        self.hold(token, uid);
        self.note(token, piece);
    }

    /// Becomes the owner of a control page, which is counted to its domain's user.
    pub(super) fn hold_control_page(&mut self, token: FdToken, uid: u32) {
        let (by, of) = (MANAGER, For::ControlPages);
        let bytes = format::control_page_bytes(self.config.pools_per_domain);
        self.hold(token, uid);
        self.note(token, Piece { by, of, bytes });
    }

    fn note(&mut self, token: FdToken, piece: Piece) {
        if let Some(held) = self.held.get_mut(&token) {
            held.memory = Some(piece);
            self.extent.add(piece);
        }
    }

    /// Closes a descriptor of memory that is mapped where it is needed, and goes on counting it. Give it to `Extent::sub` in the end.
    pub(super) fn release_but_count(&mut self, token: FdToken) -> Option<Piece> {
        // Not that of the descriptor any more.
        let memory = self.held.get_mut(&token)?.memory.take();
        self.release(token);
        memory
    }

    /// Bytes of memory that is held.
    pub(super) fn bytes_of(&self, token: FdToken) -> u64 {
        let memory = self.held.get(&token).and_then(|held| held.memory);
        memory.map_or(0, |piece| piece.bytes)
    }

    /// Bytes of a pool's slot table, and of the counters that belong to it.
    pub(super) fn table_bytes(&self, pool: PoolId) -> u64 {
        let Some(p) = self.pools.get(&pool) else {
            return 0;
        };
        let readers = p.readers.values().filter(|r| r.refs.is_some()).count() as u64;
        // Of a queue both sides' counters, of an offer the source's.
        let counts = (2 * p.queues.len() + p.offered.len()) as u64;
        format::table_bytes(p.slots)
            + readers * format::refs_bytes(p.slots)
            + counts * format::counts_bytes(p.slots)
    }

    /// Counts everything anew.
    pub(super) fn audit_extent(&self) -> Result<(), String> {
        let mut counted = self.extent.emptied();
        let held = self.held.values().filter_map(|held| held.memory);
        let kept = self.channels.values().filter_map(|c| c.source_ring);
        held.chain(kept).for_each(|piece| counted.add(piece));
        if counted != self.extent {
            return Err(format!("extent: {:?}, counted: {counted:?}", self.extent));
        }
        // The same by what there is.
        let claimed = self.claims.assigns.values().map(|a| a.facts.size);
        let refs = self.claims.readers.values();
        let refs = refs.map(|r| format::refs_bytes(r.slots));
        let tables = self.pools.keys().map(|id| self.table_bytes(*id));
        let traces = self.traces.rings.values().map(|_| format::trace_shape().1);
        let ends = self.claims.ends.values().map(|e| e.lines);
        let waiting = self.waiting.iter().map(|w| w.lines);
        let registered = self.registered.keys();
        let registered = registered.filter_map(|key| self.registered_record(*key));
        let registered = registered.map(|(record, _)| record.ring_bytes);
        let rings = self.channels.keys().map(|id| self.ring_bytes(*id));
        let rings = rings.chain(registered);
        let data = self.pools.values();
        let control_pages = format::control_page_bytes(self.config.pools_per_domain);
        let sums = [
            data.map(|p| p.chunks.len() as u64 * p.chunk_bytes).sum(),
            tables.chain(claimed).chain(refs).chain(traces).sum(),
            rings
                .chain(ends.chain(waiting).map(format::link_bytes))
                .sum(),
            self.domains.len() as u64 * control_pages,
        ];
        match sums == self.extent.all {
            true => Ok(()),
            false => Err(format!("extent: {:?}, there: {sums:?}", self.extent.all)),
        }
    }

    /// Bytes of both ends' halves, as far as there are any.
    pub(super) fn ring_bytes(&self, channel: ChannelId) -> u64 {
        let Some(c) = self.channels.get(&channel) else {
            return 0;
        };
        let halves = match c.stage {
            Stage::Incoming { half, .. } => [Some(half), None],
            Stage::Open => [c.source_half, c.sink_half],
        };
        let halves = halves.into_iter().flatten();
        let source = c.source_ring.map_or(0, |piece| piece.bytes);
        source + halves.map(|half| self.bytes_of(half)).sum::<u64>()
    }
}
