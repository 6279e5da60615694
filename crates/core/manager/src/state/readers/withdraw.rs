//! Offers that end without a queue.

use crate::state::{State, refusal};
use tranship_proto::{ChannelId, DomainId, Event, PoolId, Refusal, RefusalCode};

impl State {
    /// Cancels an offer that will not be answered: the source is told, and a later answer of the sink is ignored.
    pub(crate) fn cancel_offer(&mut self, key: (ChannelId, PoolId)) {
        self.refuse_offer(key, refusal(RefusalCode::PeerGone, u64::from(key.1.0), 0));
    }

    pub(crate) fn refuse_offer(&mut self, key: (ChannelId, PoolId), refusal: Refusal) {
        let Some((offer, said)) = self.offers.remove(key) else {
            return;
        };
        self.cx.release(offer.sent);
        self.cx.tell(
            offer.source,
            Event::Refused {
                req: offer.req,
                refusal,
            },
            &[],
        );
        if said {
            self.offer_over(key.1, offer.sink);
        }
    }

    /// Ends one offer of a pool to a reader, whatever its outcome.
    fn offer_over(&mut self, pool: PoolId, sink: DomainId) {
        if let Some(r) = self.pools.reader_mut(pool, sink) {
            r.offers = r.offers.saturating_sub(1);
        }
        self.reader_may_leave(pool, sink);
    }
}
