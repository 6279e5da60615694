//! How far it is: one line on a terminal, redrawn in place; nothing elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often it is redrawn.
const PAUSE: Duration = Duration::from_millis(200);
const WIDTH: usize = 30;

#[derive(Debug)]
pub(crate) struct Bar {
    terminal: bool,
    drawn: Option<Instant>,
    name: String,
    /// Stages before this one, and in all.
    place: (usize, usize),
}

impl Bar {
    pub fn new(quiet: bool) -> Bar {
        Bar {
            terminal: !quiet && io::stderr().is_terminal(),
            drawn: None,
            name: String::new(),
            place: (0, 1),
        }
    }

    /// Shows the next stage: its name, its number, and the number of all stages.
    pub fn stage(&mut self, name: &str, number: usize, of: usize) {
        self.name = name.to_owned();
        self.place = (number, of.max(1));
        self.drawn = None;
        self.at(0.0);
    }

    /// A part of the stage is done, 0 to 1.
    pub fn at(&mut self, part: f64) {
        if !self.terminal || self.drawn.is_some_and(|drawn| drawn.elapsed() < PAUSE) {
            return;
        }
        self.drawn = Some(Instant::now());
        // A terminal that went away ends the drawing, not the work.
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{}",
            line(&self.name, self.place, part)
        );
    }

    /// Takes it off the screen.
    pub fn clear(&mut self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // clamped
fn line(name: &str, (number, of): (usize, usize), part: f64) -> String {
    let all = ((number as f64 + part.clamp(0.0, 1.0)) / of as f64).clamp(0.0, 1.0);
    let full = (all * WIDTH as f64) as usize;
    let bar: String = (0..WIDTH)
        .map(|i| if i < full { '#' } else { '.' })
        .collect();
    format!(
        "[{bar}] {:3.0} %  {} of {of}: {name}",
        100.0 * all,
        number + 1
    )
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_says_how_far_it_is() {
        let half = line("qos 5 %", (1, 4), 1.0);
        assert_eq!(half.matches('#').count(), 15, "{half}");
        assert!(half.ends_with(" 50 %  2 of 4: qos 5 %"), "{half}");
        assert_eq!(line("x", (3, 4), 7.0).matches('.').count(), 0);
    }
}
