//! Sends out of registered pages whose notifications are to come: which half of the log each refers to, and on which
//! socket the kernel copied all the same.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bits of a socket's number in a mark: above that of the half, below the send's own.
const SOCKET: u32 = 31;
/// Bits of the send's own number. The uppermost bit is the ring's.
const NUMBER: u32 = 31;
/// Sockets that are remembered until their next send.
const MOST: usize = 64;

/// Returns a number for a socket: no other one has it for the next two thousand million.
pub(super) fn number_of_socket() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only that they differ.
    NEXT.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> (u32::BITS - SOCKET))
}

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Sends that refer to each half of the log.
    outstanding: [u32; 2],
    next: u64,
    /// Sends that the kernel copied all the same, one for each socket.
    copied: Vec<u64>,
    /// Failed sends of which the kernel has still to report that it is done with them. It reports of them that it
    /// copied, because it used nothing.
    failed: Vec<u64>,
}

impl Marks {
    /// Returns the mark of the next send, before the call: the kernel may be done with it, and have reported so, by the
    /// end of it.
    pub(super) fn begin(&mut self, half: usize, socket: u32) -> u64 {
        self.outstanding[half] += 1;
        self.next = (self.next + 1) & low(NUMBER);
        half as u64 | u64::from(socket) << 1 | self.next << (1 + SOCKET)
    }

    /// Notes that the kernel is done with a send.
    pub(super) fn done(&mut self, mark: u64, copied: bool) {
        let sends = &mut self.outstanding[usize::from(mark & 1 != 0)];
        debug_assert!(*sends > 0, "a notification of nothing that was sent");
        *sends = sends.saturating_sub(1);
        if !copied || take(&mut self.failed, mark) {
            return;
        }
        let of_one = |other: &u64| socket(*other) == socket(mark);
        if self.copied.len() < MOST && !self.copied.iter().any(of_one) {
            self.copied.push(mark);
        }
    }

    /// Notes a failed send that the kernel had taken: it reports so, or has reported.
    pub(super) fn failed(&mut self, mark: u64) {
        if !take(&mut self.copied, mark) && self.failed.len() < MOST {
            self.failed.push(mark);
        }
    }

    /// Returns whether the kernel copies the data of a socket. Reported once.
    pub(super) fn copies(&mut self, number: u32) -> bool {
        let found = self.copied.iter().position(|mark| socket(*mark) == number);
        found.map(|at| self.copied.swap_remove(at)).is_some()
    }

    pub(super) fn outstanding(&self, half: usize) -> u32 {
        self.outstanding[half]
    }
}

fn socket(mark: u64) -> u32 {
    u32::try_from(mark >> 1 & low(SOCKET)).expect("31 bits")
}

fn take(marks: &mut Vec<u64>, mark: u64) -> bool {
    let found = marks.iter().position(|known| *known == mark);
    found.map(|at| marks.swap_remove(at)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_copies_if_the_kernel_says_so_of_what_it_sent() {
        let mut marks = Marks::default();
        let (one, other) = (number_of_socket(), number_of_socket());
        let sent = [(0, one), (1, other), (1, one)].map(|(half, it)| marks.begin(half, it));
        assert_eq!([0, 1].map(|half| marks.outstanding(half)), [1, 2]);
        marks.done(sent[1], false);
        marks.done(sent[2], true);
        marks.done(sent[0], true);
        assert_eq!([0, 1].map(|half| marks.outstanding(half)), [0, 0]);
        assert!(!marks.copies(other));
        assert!(marks.copies(one));
        assert!(!marks.copies(one), "it was said");
    }

    #[test]
    fn what_failed_says_nothing() {
        let mut marks = Marks::default();
        let number = number_of_socket();
        // The kernel says that it is done before it is known that it failed, or afterwards.
        let before = marks.begin(0, number);
        marks.done(before, true);
        marks.failed(before);
        assert!(!marks.copies(number));
        let after = marks.begin(0, number);
        marks.failed(after);
        marks.done(after, true);
        assert!(!marks.copies(number));
        let sent = marks.begin(0, number);
        marks.done(sent, true);
        assert!(marks.copies(number));
    }
}
