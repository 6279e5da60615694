//! What became of each item, in a file that outlives every process: a record is written by one system call.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

/// Statement of a process about an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A consumer has it, for the first time.
    Came,
    /// A consumer has it, which was told that another may have had it.
    CameAgain,
    /// A consumer rejects it.
    Rejected,
    /// The producer reports the item.
    Lost,
    /// A consumer is about to acknowledge it.
    Acking,
    /// A consumer has acknowledged it, and was told that this holds.
    Acked,
}

const FATES: [Fate; 6] = [
    Fate::Came,
    Fate::CameAgain,
    Fate::Rejected,
    Fate::Lost,
    Fate::Acking,
    Fate::Acked,
];

pub struct Log(File);

impl Log {
    pub fn open(path: &Path) -> std::io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(Log)
    }

    pub fn say(&mut self, id: u64, fate: Fate) -> std::io::Result<()> {
        let mut record = [0; 9];
        record[..8].copy_from_slice(&id.to_le_bytes());
        record[8] = fate as u8;
        self.0.write_all(&record)
    }
}

/// How often each was said of an item.
#[derive(Debug, Default, Clone, Copy)]
pub struct Said {
    pub came: u32,
    pub came_again: u32,
    pub rejected: u32,
    pub lost: u32,
    pub acking: u32,
    pub acked: u32,
    /// Statements about the item after its acknowledgement.
    pub after: u32,
}

pub fn read(path: &Path) -> BTreeMap<u64, Said> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).expect("the log");
    file.read_to_end(&mut bytes).expect("read");
    let mut all = BTreeMap::<u64, Said>::new();
    let (records, rest) = bytes.as_chunks::<9>();
    assert!(rest.is_empty(), "records are whole");
    for record in records {
        let id = u64::from_le_bytes(*record.first_chunk().expect("8 bytes"));
        let said = all.entry(id).or_default();
        said.after += u32::from(said.acked > 0);
        match FATES[usize::from(record[8])] {
            Fate::Came => said.came += 1,
            Fate::CameAgain => said.came_again += 1,
            Fate::Rejected => said.rejected += 1,
            Fate::Lost => said.lost += 1,
            Fate::Acking => said.acking += 1,
            Fate::Acked => said.acked += 1,
        }
    }
    all
}
