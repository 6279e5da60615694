//! Report on the main stage alone.

use super::Report;
use crate::demo::passing::{Counted, Left, Trouble};
use crate::demo::table::Live;
use crate::output::size;
use anyhow::Result;
use std::io;
use std::path::Path;

impl Report {
    /// Adds the stage with events.
    pub(crate) fn add_trouble(
        &mut self,
        trouble: &Trouble,
        live: &Live,
        output: &Path,
    ) -> Result<()> {
        let marks = trouble.events.iter();
        let marks = marks.map(|(at, what)| (self.time + at, what.clone()));
        self.plot.marks.extend(marks);
        self.draw(&trouble.reached, live);
        self.check_work("with trouble", &trouble.reached, output)?;

        let missed = trouble.missed.iter();
        self.facts.missed = missed.map(|(role, n)| (role.name(), *n)).collect();
        let stopped = match self.facts.missed.get("stats") {
            Some(missed) => format!("{missed} frames were not sent to it"),
            None => "it missed none".to_owned(),
        };
        self.check(
            "stopped: the others go on",
            trouble.taken_meanwhile > 0,
            format!(
                "{} frames each meanwhile; {stopped}",
                trouble.taken_meanwhile
            ),
        );
        let killed = &trouble.killed;
        self.facts.killed_held_bytes = killed.held;
        self.facts.killed_back_ms = killed.back_after.map(|time| time.as_millis());
        self.check(
            "killed: its memory returns",
            killed.back_after.is_some(),
            match killed.back_after {
                Some(time) => format!(
                    "it held {} and {} more frames waited for it; all back after {} ms",
                    size(killed.held),
                    killed.queued,
                    time.as_millis()
                ),
                None => format!(
                    "it held {}, and the manager still says so",
                    size(killed.held)
                ),
            },
        );
        self.facts.intruder_refused.clone_from(&trouble.refused);
        self.facts.intruder_succeeded.clone_from(&trouble.succeeded);
        self.check(
            "intruder: every attempt to write into a frame is refused",
            trouble.succeeded.is_empty() && !trouble.refused.is_empty(),
            if trouble.succeeded.is_empty() {
                format!("{} attempts", trouble.refused.len())
            } else {
                format!("{:?}", trouble.succeeded)
            },
        );
        let copied = |consumers: &[crate::demo::worker::Finished]| -> u64 {
            consumers.iter().map(|one| one.progress.copied).sum()
        };
        let steady = self.stages.last().map_or(0, super::Stage::copied);
        self.facts.copied_bytes = steady + copied(&trouble.reached.consumers);
        let stages = self.stages.iter().map(|one| (one.frames(), one.copied()));
        let frames = self.stages.last().map_or(0, super::Stage::frames);
        self.check(
            "bytes copied between the processes",
            is_counted(stages) && self.facts.copied_bytes == 0,
            format!("{}, {frames} frames each", size(self.facts.copied_bytes)),
        );
        Ok(())
    }

    /// Adds the system calls in steady state.
    pub(crate) fn add_counted(&mut self, counted: &Result<Counted>) {
        self.facts.syscalls_per_frame = counted.as_ref().ok().map(Counted::per_frame);
        let (holds, found) = judged(counted);
        self.check("system calls per frame in steady state", holds, found);
    }

    /// Returns whether the pool has all its frames again.
    pub(crate) fn add_frames(&mut self, (back, all): (usize, usize)) {
        self.facts.frames_back = back;
        self.facts.frames_in_pool = all;
        self.check(
            "every frame can be had again",
            back == all,
            format!("{back} of {all}"),
        );
    }

    /// Reports what is left when the pool and the consumers are gone and the manager still runs.
    pub(crate) fn add_left(&mut self, left: &Left) {
        let Left {
            before,
            after,
            granted,
        } = left;
        let bytes = after.bytes().saturating_sub(before.bytes()) + granted;
        let fds = after.more_fds(before);
        let mappings = after.mappings.saturating_sub(before.mappings);
        self.facts.leaked_bytes = bytes;
        self.facts.leaked_fds = fds.len();
        self.check(
            "leaked",
            (bytes, fds.len(), mappings) == (0, 0, 0),
            if fds.is_empty() {
                format!("{bytes} B, 0 descriptors, {mappings} mappings")
            } else {
                format!(
                    "{bytes} B, {mappings} mappings, descriptors: {}",
                    fds.join(", ")
                )
            },
        );
    }
}

/// Returns whether a count of 0 copied bytes is a proof: all stages got frames, and the count saw the copies of the
/// stages that copy. The last is ours.
fn is_counted(stages: impl Iterator<Item = (u64, u64)>) -> bool {
    let stages: Vec<_> = stages.collect();
    let copying = stages.split_last().map_or(&[][..], |(_, others)| others);
    !stages.is_empty()
        && stages.iter().all(|(frames, _)| *frames > 0)
        && copying.iter().all(|(_, copied)| *copied > 0)
}

/// Returns whether it is as it must be, if that is visible, and the finding.
fn judged(counted: &Result<Counted>) -> (Option<bool>, String) {
    let counted = match counted {
        Ok(counted) => counted,
        Err(error) => {
            // If tracing is forbidden, the check can neither fail nor pass.
            let cause = error.downcast_ref::<io::Error>().map(io::Error::kind);
            let forbidden = cause == Some(io::ErrorKind::PermissionDenied);
            let holds = (!forbidden).then_some(false);
            return (holds, format!("not counted: {error:#}"));
        }
    };
    let calls = counted.per_frame();
    let mut found = format!(
        "{calls:.2}, both sides together, over {} frames; reading the file took {} more",
        counted.frames, counted.file_reads
    );
    for (side, calls) in [
        ("producer", &counted.producer),
        ("consumer", &counted.consumer),
    ] {
        if !calls.is_empty() {
            found += &format!("; {side}, number: times {calls:?}");
        }
    }
    if !counted.is_seen() {
        found += &format!("; that cannot be: {} of the consumer's end", counted.at_end);
    }
    // On a slow machine the consumer's timed work may fall into each span.
    (Some(counted.is_seen() && calls < 0.1), found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;
    use std::collections::BTreeMap;

    #[test]
    fn no_copies_count_only_where_copies_would_have() {
        let counted = |stages: &[(u64, u64)]| is_counted(stages.iter().copied());
        assert!(counted(&[(3, 9), (3, 9), (5, 0)]));
        assert!(!counted(&[(3, 9), (3, 9), (0, 0)]), "no frame came");
        assert!(!counted(&[(3, 0), (5, 0)]), "pipes copy");
        assert!(!counted(&[]));
    }

    #[test]
    fn no_system_calls_count_only_if_some_were_seen() {
        let holds = |change: fn(&mut Counted)| {
            let mut counted = Counted {
                frames: 64,
                producer: BTreeMap::new(),
                file_reads: 64,
                consumer: BTreeMap::from([(202, 1)]),
                at_end: 3,
            };
            change(&mut counted);
            judged(&Ok(counted)).0
        };
        assert_eq!(holds(|_| {}), Some(true));
        let broken: [fn(&mut Counted); 4] = [
            |counted| counted.consumer = BTreeMap::from([(202, 64)]),
            |counted| counted.file_reads = 0,
            |counted| counted.at_end = 0,
            |counted| counted.frames = 0,
        ];
        for change in broken {
            assert_eq!(holds(change), Some(false));
        }
        let failed =
            |kind: io::ErrorKind| judged(&Err(io::Error::from(kind)).context("attaching")).0;
        assert_eq!(failed(io::ErrorKind::PermissionDenied), None);
        assert_eq!(failed(io::ErrorKind::Other), Some(false));
    }
}
