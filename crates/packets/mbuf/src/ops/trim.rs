//! Taking bytes away.

use crate::chain::Chain;
use crate::counts::Routine;
use crate::ext;

impl Chain {
    /// Takes `count` bytes away from the front (`m_adj` with a positive count); all bytes, if there are fewer. Mbufs
    /// that become empty stay.
    #[doc(alias = "m_adj")]
    pub fn trim_front(&mut self, count: usize) {
        self.routine(Routine::Adj);
        let total = self.len();
        let mut left = count;
        for seg in self.segs() {
            let piece = seg.len().min(left);
            seg.set_data(seg.data().wrapping_add(piece));
            seg.set_len(seg.len() - piece);
            left -= piece;
            if left == 0 {
                break;
            }
        }
        self.set_packet_len(total - (count - left));
    }

    /// Takes `count` bytes away from the end (`m_adj` with a negative count); all bytes, if there are fewer. Mbufs
    /// behind the last byte are freed, except the first.
    #[doc(alias = "m_adj")]
    pub fn trim_back(&mut self, count: usize) {
        self.routine(Routine::Adj);
        let total = self.len();
        let keep = total.saturating_sub(count);
        if keep == total {
            return;
        }
        let mut left = keep;
        for seg in self.segs() {
            if left <= seg.len() {
                seg.set_len(left);
                if let Some(behind) = seg.next() {
                    seg.set_next(None);
                    // SAFETY: out of the chain now.
                    unsafe { ext::free_chain(behind) };
                }
                break;
            }
            left -= seg.len();
        }
        self.set_packet_len(keep);
    }

    /// Shortens the chain to `len` bytes, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.trim_back(self.len().saturating_sub(len));
    }

    fn set_packet_len(&mut self, len: usize) {
        if self.is_packet() {
            self.first().set_pkt_len(len);
        }
    }
}
