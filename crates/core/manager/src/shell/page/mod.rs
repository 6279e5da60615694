//! The statistics page: a file beside the socket that shows tools the present state, and after the manager hangs, the
//! last one.
//!
//! A process that opens the file thereby asks for a new page. It gets one, at most four times a second. Otherwise a new
//! page comes two seconds after a change, and none without changes. A page is put together in pieces, between which
//! clients have their turn.

mod file;
mod run;
mod sight;

use crate::state::Item;
pub(super) use file::PagePath;
use run::{Run, Waits};
pub(super) use sight::Sight;
use std::time::{Duration, Instant};
use tranship_region::layout::PageRw;
use tranship_sys::epoll::{Epoll, Interest};
use tranship_sys::notice::Notice;

/// Time between two requested pages.
const PERIOD: Duration = Duration::from_millis(250);
/// Time between two pages without a request.
const UNASKED: Duration = Duration::from_secs(2);
/// Time between two pages if the kernel does not report opens of the file.
const UNHEARD: Duration = Duration::from_secs(1);
/// Time for putting a page together in one turn of the loop.
const SHARE: Duration = Duration::from_micros(300);

/// All of it.
#[derive(Debug)]
pub(super) struct Pages {
    place: Option<PagePath>,
    file: Option<PageRw>,
    notice: Option<Notice>,
    /// A process has opened the file since the last page was begun.
    asked: bool,
    /// The state has changed since then.
    changed: bool,
    /// The time at which the present page was begun.
    begun: Option<Duration>,
    run: Option<Run>,
    last: Option<Item>,
    waits: Waits,
}

impl Pages {
    /// Makes the pages; without a place there is no page.
    pub fn new(place: Option<PagePath>, notice: Option<Notice>) -> Pages {
        Pages {
            place,
            notice,
            changed: true,
            file: None,
            asked: false,
            begun: None,
            run: None,
            last: None,
            waits: Waits::default(),
        }
    }

    /// Records that the state has changed.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// Returns the time at which the next page is begun or continued.
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

impl Pages {
    /// Makes epoll wait for opens of the page.
    pub fn watch(&mut self, epoll: &Epoll, token: u64) {
        if let Some(notice) = &self.notice
            && let Err(error) = epoll.add(notice, token, Interest::Read)
        {
            tracing::warn!(%error, "cannot watch for opens of the statistics page");
            self.notice = None;
        }
    }

    /// Records that a process has opened the page.
    pub fn opened(&mut self) {
        self.asked |= self.notice.as_ref().is_some_and(Notice::drain);
    }

    /// Returns the time until the next work on a page.
    pub fn wait(&self, now: Duration) -> Option<Duration> {
        self.due().map(|due| due.saturating_sub(now))
    }

    /// Does a piece of the pending work.
    pub fn go_on(&mut self, sight: &Sight<'_>, instance: u64) {
        if self.due().is_none_or(|due| due > sight.now) {
            return;
        }
        let mut run = match self.run.take() {
            Some(run) => run,
            None => self.begin(sight.now),
        };
        let begin = Instant::now();
        loop {
            if !self.step(&mut run, sight) {
                self.show(run, instance);
                return;
            }
            if begin.elapsed() >= SHARE {
                self.run = Some(run);
                return;
            }
        }
    }

    fn begin(&mut self, now: Duration) -> Run {
        self.begun = Some(now);
        // A process that opens the page from here on wants to see later events.
        (self.asked, self.changed) = (false, false);
        self.ask();
        self.last = None;
        self.waits.begin();
        Run::default()
    }

    /// Asks for a notice of the next open.
    fn ask(&self) {
        let (Some(notice), Some(place), Some(_)) = (&self.notice, &self.place, &self.file) else {
            return;
        };
        notice.drain();
        if let Err(error) = notice.ask(place.path()) {
            tracing::debug!(%error, "cannot watch for opens of the statistics page");
        }
    }

    /// Takes the next item; false: that was the last.
    fn step(&mut self, run: &mut Run, sight: &Sight<'_>) -> bool {
        let Some((item, record)) = sight.state.survey(self.last) else {
            return false;
        };
        self.last = Some(item);
        if let Some(record) = record {
            run.take(&mut self.waits, sight, record);
        }
        true
    }

    fn show(&mut self, run: Run, instance: u64) {
        let Some(place) = &self.place else { return };
        let (words, left_out) = run.words();
        let file = self.file.as_ref();
        if file.is_none_or(|f| f.capacity() < words.len()) {
            match place.make(words.len(), instance) {
                Ok(file) => {
                    if let Some(old) = self.file.replace(file) {
                        old.has_moved();
                    }
                    self.ask();
                }
                Err(error) if self.file.is_none() => {
                    tracing::warn!(%error, path = %place.path().display(), "no statistics page");
                    self.place = None;
                    return;
                }
                Err(error) => tracing::debug!(%error, "no larger statistics page"),
            }
        }
        if let Some(file) = &self.file {
            file.publish(&words, tranship_sys::time::monotonic_ns(), left_out);
        }
    }
}
