//! The large buffers of a pool of level `none`: on the way from the manager, not asked for yet, in use, and over.

use std::collections::HashMap;
use tranship_zone::Run;

/// How far one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// This domain can write it, and nobody else has it.
    Open,
    /// Nobody writes it any more; not all of its chunks are sealed and shown yet.
    Closing,
    /// Nobody can write it, and the readers were shown it.
    Shown,
}

#[derive(Clone, Copy, Debug)]
struct Large {
    run: Run,
    stage: Stage,
}

/// Each is a run of whole chunks that nothing else lies in.
#[derive(Debug, Default)]
pub(super) struct Larges {
    by_slot: HashMap<u32, Large>,
    /// Chunks that have come for the next one, of which others are still to come.
    part: Vec<Run>,
    /// Whole, and nobody's yet.
    ready: Vec<Run>,
    /// Nobody's any more: to go back, and not to be used again.
    over: Vec<Run>,
}

impl Larges {
    /// How many are in use.
    pub(super) fn len(&self) -> usize {
        self.by_slot.len()
    }

    pub(super) fn came(&mut self, chunk: Option<Run>) {
        self.part.extend(chunk);
    }

    /// All that were to come have.
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

    /// Whether there was one: it is over.
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
