//! State of the screen, apart from drawing it.

use super::detail::{self, Entry};
use super::grid::{Grid, Id, Sort};
use super::view::{Before, View};
use crate::args::top::Tab;
use std::time::Duration;
use tranship_manager::page::Snapshot;

/// Periods to choose from by `+` and `-`.
const PERIODS: [u64; 8] = [100, 250, 500, 1000, 2000, 5000, 10_000, 60_000];

/// Meaning of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Look,
    /// A filter is being typed.
    Filter,
    Help,
}

#[derive(Debug)]
pub(super) struct App {
    pub tab: Tab,
    pub sorts: [Sort; 5],
    pub filter: String,
    pub mode: Mode,
    pub paused: bool,
    pub every: Duration,
    pub colour: bool,
    /// Lines of the table that fit; drawing says it.
    pub page: usize,
    /// The first line of the table that is shown.
    pub top: usize,
    pub view: Option<View>,
    pub grid: Grid,
    /// Pages to which Enter has led, innermost last, with the chosen line of each.
    pub path: Vec<(Id, usize)>,
    pub entries: Vec<Entry>,
    /// Reason for which there is nothing new.
    pub trouble: Option<String>,
    chosen: [Option<Id>; 5],
    at: [usize; 5],
    before: Before,
}

impl App {
    pub fn new(tab: Tab, filter: &str, every: Duration, colour: bool) -> App {
        App {
            tab,
            sorts: Tab::ALL.map(Sort::usual),
            filter: filter.to_owned(),
            mode: Mode::Look,
            paused: false,
            every,
            colour,
            page: 1,
            top: 0,
            view: None,
            grid: Grid {
                heading: Vec::new(),
                lines: Vec::new(),
            },
            path: Vec::new(),
            entries: Vec::new(),
            trouble: None,
            chosen: [const { None }; 5],
            at: [0; 5],
            before: Before::default(),
        }
    }

    /// Takes a new page.
    pub fn take(&mut self, said: &Snapshot) {
        if self.paused {
            return;
        }
        self.trouble = None;
        self.view = Some(self.before.view(said));
        self.arrange();
    }

    pub fn sort(&self) -> Sort {
        self.sorts[self.tab as usize]
    }

    /// Returns which line is chosen.
    pub fn cursor(&self) -> usize {
        match self.path.last() {
            Some((_, at)) => *at,
            None => self.at[self.tab as usize],
        }
    }

    /// Builds the table anew. The chosen line stays chosen, wherever it has gone. If it is not there any more, the line
    /// in its place is chosen.
    pub fn arrange(&mut self) {
        let Some(view) = &self.view else { return };
        let i = self.tab as usize;
        self.grid = Grid::of(view, self.tab, &self.filter, self.sorts[i]);
        let same = |id: &Id| self.grid.lines.iter().position(|l| l.id == *id);
        let found = self.chosen[i].as_ref().and_then(same);
        self.at[i] = found.unwrap_or(self.at[i]);
        self.at[i] = self.at[i].min(self.grid.lines.len().saturating_sub(1));
        if let Some((id, at)) = self.path.last_mut() {
            self.entries = detail::about(view, id);
            *at = (*at).min(self.entries.len().saturating_sub(1));
        }
        self.scroll();
    }

    /// Scrolls so that the chosen line is among those that are shown.
    pub fn scroll(&mut self) {
        let (at, page) = (self.cursor(), self.page.max(1));
        self.top = self.top.clamp(at.saturating_sub(page - 1), at);
        let lines = match self.path.is_empty() {
            true => self.grid.lines.len(),
            false => self.entries.len(),
        };
        self.top = self.top.min(lines.saturating_sub(page));
    }

    pub fn move_to(&mut self, at: usize) {
        match self.path.last_mut() {
            Some((_, cursor)) => *cursor = at.min(self.entries.len().saturating_sub(1)),
            None => {
                let i = self.tab as usize;
                self.at[i] = at.min(self.grid.lines.len().saturating_sub(1));
                self.chosen[i] = self.grid.lines.get(self.at[i]).map(|l| l.id.clone());
            }
        }
        self.scroll();
    }

    pub fn show(&mut self, tab: Tab) {
        self.tab = tab;
        self.path.clear();
        self.top = 0;
        self.arrange();
    }

    /// Opens the page of the chosen line.
    pub fn enter(&mut self) {
        let to = match self.path.last() {
            Some((_, at)) => self.entries.get(*at).and_then(|e| e.to.clone()),
            None => self.grid.lines.get(self.cursor()).map(|l| l.id.clone()),
        };
        let Some(to) = to else { return };
        // The line that it came from is chosen when one comes back.
        if self.path.is_empty() {
            self.move_to(self.cursor());
        }
        self.path.push((to, 0));
        self.top = 0;
        self.arrange();
    }

    /// Goes back. False: there was nothing to come back from.
    pub fn back(&mut self) -> bool {
        if self.path.pop().is_some() {
            self.arrange();
            return true;
        }
        if !self.filter.is_empty() {
            self.filter.clear();
            self.arrange();
            return true;
        }
        false
    }

    pub fn sort_by(&mut self, sort: Sort) {
        self.sorts[self.tab as usize] = sort;
        self.arrange();
    }

    pub fn slower(&mut self, slower: bool) {
        let now = u64::try_from(self.every.as_millis()).unwrap_or(u64::MAX);
        let next = match slower {
            true => PERIODS.iter().find(|p| **p > now),
            false => PERIODS.iter().rev().find(|p| **p < now),
        };
        if let Some(next) = next {
            self.every = Duration::from_millis(*next);
        }
    }
}
