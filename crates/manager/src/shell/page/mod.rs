//! The statistics page: a file beside the socket, from which tools learn what is, and after the manager hangs, what was last true.
//!
//! Who opens the file asks for a new page by that, and gets one, but no more than four a second. Otherwise there is a new one two seconds after
//! something has happened; where nothing happens nothing is done. A page is put together in pieces between which clients have their turn.

mod ages;
mod file;
mod look;
mod run;

use super::Shell;
use crate::state::Item;
use ages::Ages;
pub(super) use file::Place;
use run::Run;
use std::time::{Duration, Instant};
use tranship_region::layout::PageRw;
use tranship_sys::epoll::Interest;
use tranship_sys::notice::Notice;

/// Between two pages that were asked for.
const PERIOD: Duration = Duration::from_millis(250);
/// Between two that nobody asked for.
const UNASKED: Duration = Duration::from_secs(2);
/// Where the kernel does not say who opens the file, asked for or not.
const UNHEARD: Duration = Duration::from_secs(1);
/// What is put together in one turn of the loop.
const SHARE: Duration = Duration::from_micros(300);

/// All of it.
#[derive(Debug)]
pub(super) struct Pages {
    place: Option<Place>,
    file: Option<PageRw>,
    notice: Option<Notice>,
    /// Somebody has opened the file since the last page was begun.
    asked: bool,
    /// Something has happened since then.
    changed: bool,
    /// When that was.
    begun: Option<Duration>,
    run: Option<Run>,
    last: Option<Item>,
    ages: Ages,
}

impl Pages {
    /// Without a place there is no page.
    pub fn new(place: Option<Place>, notice: Option<Notice>) -> Pages {
        Pages {
            place,
            notice,
            changed: true,
            file: None,
            asked: false,
            begun: None,
            run: None,
            last: None,
            ages: Ages::default(),
        }
    }

    /// Something has happened.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// When the next page is begun, or gone on with.
    fn due(&self) -> Option<Duration> {
        self.place.as_ref()?;
        if self.run.is_some() {
            return Some(Duration::ZERO);
        }
        let period = match (self.asked, self.changed) {
            _ if self.notice.is_none() => UNHEARD,
            (true, _) => PERIOD,
            (false, true) => UNASKED,
            (false, false) => return None,
        };
        Some(self.begun.map_or(Duration::ZERO, |begun| begun + period))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let (Some(place), Some(_)) = (&self.place, &self.file) {
            place.remove();
        }
    }
}

impl Shell {
    /// Hears of who opens the page.
    pub(super) fn watch_page(&mut self, token: u64) {
        if let Some(notice) = &self.pages.notice
            && let Err(error) = self.epoll.add(notice, token, Interest::Read)
        {
            tracing::warn!(%error, "who wants statistics is not noticed");
            self.pages.notice = None;
        }
    }

    /// Somebody has opened it.
    pub(super) fn page_asked(&mut self) {
        self.pages.asked |= self.pages.notice.as_ref().is_some_and(Notice::drain);
    }

    /// How long there is nothing to do for it.
    pub(super) fn page_wait(&self) -> Option<Duration> {
        self.pages.due().map(|due| due.saturating_sub(self.now()))
    }

    /// Does a piece of what is to be done.
    pub(super) fn page_on(&mut self) {
        let now = self.now();
        if self.pages.due().is_none_or(|due| due > now) {
            return;
        }
        let mut run = match self.pages.run.take() {
            Some(run) => run,
            None => self.begin_page(now),
        };
        let begin = Instant::now();
        loop {
            if !self.page_step(&mut run) {
                self.show_page(run);
                return;
            }
            if begin.elapsed() >= SHARE {
                self.pages.run = Some(run);
                return;
            }
        }
    }

    fn begin_page(&mut self, now: Duration) -> Run {
        let pages = &mut self.pages;
        pages.begun = Some(now);
        // Who opens it from here on wants to see what comes after.
        (pages.asked, pages.changed) = (false, false);
        self.ask_for_notice();
        let pages = &mut self.pages;
        pages.last = None;
        pages.ages.begin();
        Run::default()
    }

    fn ask_for_notice(&mut self) {
        let pages = &mut self.pages;
        let (Some(notice), Some(place), Some(_)) = (&pages.notice, &pages.place, &pages.file)
        else {
            return;
        };
        notice.drain();
        if let Err(error) = notice.ask(place.path()) {
            tracing::debug!(%error, "who wants statistics is not noticed");
        }
    }

    /// Takes the next item; false: that was the last.
    fn page_step(&mut self, run: &mut Run) -> bool {
        if run.is_in_hold() {
            run.go_on(self);
            return true;
        }
        let Some((item, surveyed)) = self.state.survey(self.pages.last) else {
            return false;
        };
        self.pages.last = Some(item);
        if let Some(surveyed) = surveyed {
            run.take(self, surveyed);
        }
        true
    }

    fn show_page(&mut self, run: Run) {
        let ended = self.pages.ages.end();
        // What could not be looked at this time will be.
        self.pages.changed |= ended == ages::Ended::Behind;
        let pages = &mut self.pages;
        let Some(place) = &pages.place else { return };
        let (words, left_out) = run.words();
        let fits = pages
            .file
            .as_ref()
            .is_some_and(|f| f.capacity() >= words.len());
        let mut fresh = false;
        if !fits {
            match place.make(words.len(), self.instance) {
                Ok(file) => {
                    if let Some(old) = pages.file.replace(file) {
                        old.has_moved();
                    }
                    fresh = true;
                }
                Err(error) if pages.file.is_none() => {
                    tracing::warn!(%error, path = %place.path().display(), "no statistics page");
                    pages.place = None;
                    return;
                }
                Err(error) => tracing::debug!(%error, "no larger statistics page"),
            }
        }
        if let Some(file) = &pages.file {
            file.publish(&words, tranship_sys::time::monotonic_ns(), left_out);
        }
        if fresh {
            self.ask_for_notice();
        }
    }
}
