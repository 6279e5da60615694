//! The words of the statistics page (`docs/format.md`, kind 10): records, for tools that read them while the manager may
//! hang.

use crate::StatRecord;
use crate::figures::{Reading, Writing};

/// Appends a record to the words of the statistics page (`docs/format.md`, kind 10).
///
/// A record is a word `kind | words << 16 | text bytes << 32`, its words, and its text, filled up with zeros to whole
/// words. A reader skips unknown kinds, and words beyond those that it knows. It takes missing words for 0. Both kinds
/// and words may therefore be added.
pub fn encode_page(record: &StatRecord, to: &mut Vec<u64>) {
    let mut own = Writing::default();
    let kind = record.put(&mut own);
    to.push(kind | (own.words.len() as u64) << 16 | (own.text.len() as u64) << 32);
    to.append(&mut own.words);
    for piece in own.text.chunks(8) {
        let mut raw = [0; 8];
        raw[..piece.len()].copy_from_slice(piece);
        to.push(u64::from_le_bytes(raw));
    }
}

/// Decodes all known records from any words; the first impossible word ends the page.
pub fn decode_page(mut words: &[u64]) -> Vec<StatRecord> {
    let mut records = Vec::new();
    while let Some((head, rest)) = words.split_first() {
        let (kind, count, bytes) = (head & 0xffff, (head >> 16) & 0xffff, head >> 32);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let text = usize::try_from(bytes.div_ceil(8)).unwrap_or(usize::MAX);
        let Some((own, rest)) = rest.split_at_checked(count) else {
            break;
        };
        let Some((text, rest)) = rest.split_at_checked(text) else {
            break;
        };
        let mut raw: Vec<u8> = text.iter().flat_map(|w| w.to_le_bytes()).collect();
        raw.truncate(usize::try_from(bytes).unwrap_or(0));
        let mut from = Reading {
            words: own.iter(),
            text: &raw,
        };
        records.extend(StatRecord::take(kind, &mut from));
        words = rest;
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChannelStat, DomainId, DomainStat, HeapStat, HogAction, HogStat, HoldStat, ManagerStat,
        PoolId, PoolStat, Pressure, Role, Trust,
    };

    /// Returns records of each kind: all from words that every type has, and some with what is rare.
    fn records() -> Vec<StatRecord> {
        let words: Vec<u64> = (0..64).map(|i| i % 3).collect();
        let any = |kind| {
            let mut from = Reading {
                words: words.iter(),
                text: b"frames",
            };
            StatRecord::take(kind, &mut from)
        };
        let mut all: Vec<StatRecord> = (1..=6).filter_map(any).collect();
        all.push(StatRecord::Domain(DomainStat {
            domain: DomainId(9),
            hog: Some(HogStat {
                action: HogAction::Kill,
                over_bytes: 34,
                since_ms: 35,
            }),
            ..DomainStat::default()
        }));
        all.push(StatRecord::Channel(ChannelStat {
            name: "video".to_owned(),
            source: Some(DomainId(0)),
            waiting_as: Some(Role::Sink),
            pools: vec![PoolId(7), PoolId(8)],
            place: Some("10.0.0.7:51000".to_owned()),
            sink_asleep: true,
            ..ChannelStat::default()
        }));
        all.push(StatRecord::Hold(HoldStat {
            held_ms: Some(0),
            ..HoldStat::default()
        }));
        all.push(StatRecord::Manager(ManagerStat {
            instance: u64::MAX,
            pressure: Pressure::Full,
            ..ManagerStat::default()
        }));
        all.push(StatRecord::Pool(PoolStat {
            trust: Trust::Half,
            writer_alive: true,
            ..PoolStat::default()
        }));
        all.push(StatRecord::Heap(HeapStat::default()));
        all
    }

    fn encoded(records: &[StatRecord]) -> Vec<u64> {
        let mut words = Vec::new();
        for record in records {
            encode_page(record, &mut words);
        }
        words
    }

    #[test]
    fn a_written_page_is_read_back() {
        let all = records();
        assert_eq!(all.len(), 12);
        assert_eq!(decode_page(&encoded(&all)), all);
    }

    #[test]
    fn unknown_kinds_and_words_are_skipped() {
        let all = records();
        let mut words = vec![99 | 2 << 16 | 3 << 32, 1, 2, 0x0061_6161];
        words.extend(encoded(&all));
        assert_eq!(decode_page(&words), all);
        // A heap record of a later version, with one word more.
        let heap = encoded(&all[all.len() - 1..]);
        let mut longer = vec![heap[0] + (1 << 16)];
        longer.extend(&heap[1..]);
        longer.push(77);
        assert_eq!(decode_page(&longer), all[all.len() - 1..]);
    }

    proptest::proptest! {
        /// A page from any writer can be read: of a shortened or invented page, only the possible records are returned.
        #[test]
        fn any_words_are_read(words: Vec<u64>, cut in 0usize..300) {
            decode_page(&words);
            let whole = encoded(&records());
            let found = decode_page(&whole[..cut.min(whole.len())]);
            proptest::prop_assert!(records().starts_with(&found));
        }
    }
}
