//! Questions to a store and its answers, as bytes of a message.

use std::time::Duration;

/// The longest key, in bytes.
pub(crate) const LONGEST_KEY: usize = 4096;
const HEAD: usize = 20;

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Subject of a question.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Verb { $($(#[$doc])* $name,)* }

        impl Verb {
            fn of(code: u8) -> Option<Verb> {
                match code { $($code => Some(Verb::$name),)* _ => None }
            }
            fn code(self) -> u8 {
                match self { $(Verb::$name => $code,)* }
            }
        }
    };
}

verbs! {
    /// Keeps a value until it is deleted, or evicted.
    Put = 1,
    /// Keeps a value for one taker; no quota evicts it.
    Park = 2,
    /// Returns a value, and waits for it.
    Get = 3,
    /// Returns a value and forgets it.
    Take = 4,
    Delete = 5,
    Pin = 6,
    Unpin = 7,
    /// Appends to a queue. `number` is the most items that the queue may have.
    Push = 8,
    /// Takes the first item of a queue.
    Pop = 9,
    /// Says that an item is finished.
    Finish = 10,
    /// Waits until all items are finished.
    Join = 11,
    Length = 12,
    /// Opens a queue for this domain, which keeps the queue.
    Open = 13,
    Close = 14,
    /// Makes a block of `number` bytes that all may write.
    Block = 15,
    Attach = 16,
    Detach = 17,
    /// Stays unanswered as long as the client is there.
    Presence = 18,
    /// Ends the wait that has this `number`.
    Cancel = 19,
    /// Returns the bytes that values have.
    Bytes = 20,
    /// Puts an item back to the front of a queue: its taker has no use for it.
    Unpop = 21,
    /// Forgets the name of a block.
    Unlink = 22,
}

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask<'a> {
    pub verb: Verb,
    pub key: &'a [u8],
    /// How long the store waits before it answers that there is nothing. `None`: for ever.
    pub wait: Option<Duration>,
    /// The verb's number: a limit, a length, or the mark of a wait.
    pub number: u64,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(verb: Verb, key: &'a [u8]) -> Ask<'a> {
        Ask {
            verb,
            key,
            wait: None,
            number: 0,
        }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let nanos = self.wait.map_or(u64::MAX, |wait| {
            u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
        });
        let mut bytes = Vec::with_capacity(HEAD + self.key.len());
        bytes.push(self.verb.code());
        bytes.extend([0; 3]);
        bytes.extend(nanos.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.key);
        bytes
    }

    /// Reads a question that a client sent. `None`: it is none.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Ask<'a>> {
        let (head, key) = bytes.split_first_chunk::<HEAD>()?;
        let nanos = u64::from_le_bytes(*head[4..].first_chunk()?);
        let wait = (nanos != u64::MAX).then(|| Duration::from_nanos(nanos));
        let number = u64::from_le_bytes(*head[12..].first_chunk()?);
        let verb = Verb::of(head[0]).filter(|_| key.len() <= LONGEST_KEY)?;
        Some(Ask {
            verb,
            key,
            wait,
            number,
        })
    }
}

/// An answer without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Done(u64),
    /// There is no such key, and the time to wait for it is over.
    Absent,
    /// The queue stayed full with so many items.
    Full(u64),
    /// The key has a value already.
    Exists,
    /// The wait was ended by its caller.
    Cancelled,
    /// The quota's bytes: pinned values leave no room.
    NoRoom(u64),
    /// More items were finished than there were.
    Finished,
    /// The question was none, or of a kind that does not fit the key.
    Bad,
    /// All items are finished, or were taken by processes that ended before they had finished them.
    Left {
        items: u32,
        /// The process that ended last.
        pid: u32,
    },
}

impl Said {
    fn parts(self) -> (u8, u64) {
        match self {
            Said::Done(number) => (0, number),
            Said::Absent => (1, 0),
            Said::Full(items) => (2, items),
            Said::Exists => (3, 0),
            Said::Cancelled => (4, 0),
            Said::NoRoom(quota) => (5, quota),
            Said::Finished => (6, 0),
            Said::Bad => (7, 0),
            Said::Left { items, pid } => (8, u64::from(pid) << 32 | u64::from(items)),
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; 9] {
        let (code, number) = self.parts();
        let mut bytes = [code; 9];
        bytes[1..].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Said> {
        let bytes: &[u8; 9] = bytes.try_into().ok()?;
        let number = u64::from_le_bytes(*bytes[1..].first_chunk()?);
        let all = [
            Said::Done(number),
            Said::Absent,
            Said::Full(number),
            Said::Exists,
            Said::Cancelled,
            Said::NoRoom(number),
            Said::Finished,
            Said::Bad,
            Said::Left {
                items: u32::from_le_bytes(*bytes[1..].first_chunk()?),
                pid: u32::from_le_bytes(*bytes[5..].first_chunk()?),
            },
        ];
        all.get(usize::from(bytes[0])).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_reads_as_it_was_written() {
        for code in 0..=u8::MAX {
            let Some(verb) = Verb::of(code) else { continue };
            for wait in [None, Some(Duration::from_millis(7))] {
                let ask = Ask {
                    verb,
                    key: b"key",
                    wait,
                    number: 1 << 40,
                };
                assert_eq!(Ask::read(&ask.to_bytes()), Some(ask));
            }
        }
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let good = Ask::new(Verb::Put, &[1; LONGEST_KEY]).to_bytes();
        assert!(Ask::read(&good).is_some());
        let long = Ask::new(Verb::Put, &[1; LONGEST_KEY + 1]).to_bytes();
        assert_eq!(Ask::read(&long), None);
        assert_eq!(Ask::read(&good[..HEAD - 1]), None);
        assert_eq!(Ask::read(&[255; HEAD]), None);
    }

    #[test]
    fn an_answer_reads_as_it_was_written() {
        for said in [
            Said::Done(3),
            Said::Full(9),
            Said::NoRoom(1 << 50),
            Said::Left { items: 3, pid: 77 },
            Said::Bad,
        ] {
            assert_eq!(Said::read(&said.to_bytes()), Some(said));
        }
        assert_eq!(Said::read(&[9; 9]), None);
        assert_eq!(Said::read(b"short"), None);
    }
}
