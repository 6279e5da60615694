//! Messages of a consumer to its parent: lines of JSON on its standard output.

use super::consumers::Outcome;
use super::sandbox::Confinement;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::{Duration, Instant};

/// One line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The consumer is locked down and waits for frames.
    Ready(Confinement),
    /// Progress so far.
    Progress(Progress),
    /// No more frames come.
    Done {
        progress: Progress,
        outcome: Outcome,
        /// CPU time that it took, microseconds.
        cpu_us: u64,
    },
}

/// Progress of a consumer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    pub frames: u64,
    pub bytes: u64,
    /// Bytes that were copied on their way here, by any process.
    pub copied: u64,
}

/// Reporter of the consumer: it reports the progress, at most ten times a second.
#[derive(Debug)]
pub(crate) struct Reporter<W> {
    out: W,
    progress: Progress,
    last: Instant,
    /// Says nothing between its first and its last line.
    silent: bool,
}

impl<W: Write> Reporter<W> {
    const PAUSE: Duration = Duration::from_millis(100);

    pub(crate) fn new(out: W, silent: bool) -> Self {
        Self {
            out,
            progress: Progress::default(),
            last: Instant::now(),
            silent,
        }
    }

    pub(crate) fn ready(&mut self, confinement: Confinement) -> Result<()> {
        self.line(&Line::Ready(confinement))
    }

    /// Counts one frame.
    pub(crate) fn frame(&mut self, bytes: usize, copied: usize) -> Result<()> {
        self.progress.frames += 1;
        self.progress.bytes += bytes as u64;
        self.progress.copied += copied as u64;
        if self.silent || self.last.elapsed() < Self::PAUSE {
            return Ok(());
        }
        self.last = Instant::now();
        self.line(&Line::Progress(self.progress))
    }

    pub(crate) fn done(&mut self, outcome: Outcome) -> Result<()> {
        self.line(&Line::Done {
            progress: self.progress,
            outcome,
            cpu_us: cpu_us(),
        })
    }

    fn line(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.out.write_all(&text)?;
        Ok(self.out.flush()?)
    }
}

/// Returns the CPU time of this process so far, microseconds.
pub(crate) fn cpu_us() -> u64 {
    let all = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(all.tv_sec).unwrap_or(0) * 1_000_000
        + u64::try_from(all.tv_nsec).unwrap_or(0) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_way() {
        let mut text = Vec::new();
        let mut reporter = Reporter::new(&mut text, false);
        reporter
            .ready(Confinement {
                landlock: true,
                escaped: vec![],
            })
            .expect("ready");
        reporter.frame(7, 14).expect("a frame");
        reporter.done(Outcome::Written { bytes: 7 }).expect("done");
        let lines: Vec<Line> = String::from_utf8(text)
            .expect("text")
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line"))
            .collect();
        assert!(matches!(
            lines.first(),
            Some(Line::Ready(Confinement { landlock: true, .. }))
        ));
        let Some(Line::Done { progress, .. }) = lines.last() else {
            panic!("{lines:?}")
        };
        assert_eq!(
            *progress,
            Progress {
                frames: 1,
                bytes: 7,
                copied: 14
            }
        );
    }
}
