//! The large buffers of a pool of level `none`: on the way from the manager, ready, in use, and over.

use std::collections::HashMap;
use tranship_zone::Run;

/// State of a large buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// This domain can write the buffer, and no other domain has it.
    Open,
    /// The buffer is not written any more; not all of its chunks are sealed and shown yet.
    Closing,
    /// No process can write the buffer, and the readers were shown it.
    Shown,
}

#[derive(Clone, Copy, Debug)]
struct Large {
    run: Run,
    stage: Stage,
}

/// Large buffers. Each is a run of whole chunks of its own.
#[derive(Debug, Default)]
pub(super) struct Larges {
    by_slot: HashMap<u32, Large>,
    /// Chunks of the next large buffer, which still waits for others.
    part: Vec<Run>,
    /// Runs that are whole and not handed out yet.
    ready: Vec<Run>,
    /// Runs to give back, which are never used again.
    over: Vec<Run>,
}

impl Larges {
    /// Returns the number of large buffers in use.
    pub(super) fn len(&self) -> usize {
        self.by_slot.len()
    }

    pub(super) fn came(&mut self, chunk: Option<Run>) {
        self.part.extend(chunk);
    }

    /// Notes that all chunks of the next large buffer have come.
    pub(super) fn is_whole(&mut self) {
        let part = std::mem::take(&mut self.part);
        if let Some(first) = part.iter().map(|run| run.first_page).min() {
            let pages = part.iter().map(|run| run.pages).sum();
            self.ready.push(Run {
                first_page: first,
                pages,
            });
        }
    }

    pub(super) fn is_ready(&self, pages: u32) -> bool {
        self.ready.iter().any(|run| run.pages == pages)
    }

    pub(super) fn take_ready(&mut self, pages: u32) -> Option<Run> {
        let at = self.ready.iter().position(|run| run.pages == pages)?;
        Some(self.ready.swap_remove(at))
    }

    pub(super) fn give_ready(&mut self, run: Run) {
        self.ready.push(run);
    }

    pub(super) fn begin(&mut self, slot: u32, run: Run) {
        let stage = Stage::Open;
        self.by_slot.insert(slot, Large { run, stage });
    }

    /// Ends the slot's large buffer. Returns whether there was one.
    pub(super) fn end(&mut self, slot: u32) -> bool {
        let large = self.by_slot.remove(&slot);
        self.over.extend(large.map(|large| large.run));
        large.is_some()
    }

    pub(super) fn stage(&self, slot: u32) -> Option<(Run, Stage)> {
        let large = self.by_slot.get(&slot)?;
        Some((large.run, large.stage))
    }

    pub(super) fn set_stage(&mut self, slot: u32, stage: Stage) {
        if let Some(large) = self.by_slot.get_mut(&slot) {
            large.stage = stage;
        }
    }

    /// Forgets a large buffer that did not become whole, or that no caller asked for.
    pub(super) fn forget_part(&mut self) {
        self.over.append(&mut self.part);
    }

    pub(super) fn forget_ready(&mut self) {
        self.over.append(&mut self.ready);
    }

    pub(super) fn take_over(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.over)
    }
}
