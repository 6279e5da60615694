//! Keys and their actions.

use super::app::{App, Mode};
use super::grid::{Sort, heading};
use crate::args::top::Tab;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    On,
    Leave,
}

/// Keys, for the help and the last line.
pub(super) const KEYS: [(&str, &str); 11] = [
    ("1-5 Tab < >", "domains, pools, channels, blocked, holders"),
    ("up down PgUp PgDn", "choose a line"),
    ("Enter", "all about it"),
    ("Esc", "back"),
    ("/", "only lines with a text"),
    ("s S", "sort by the next, the previous column"),
    ("r", "the other way round"),
    ("space p", "stand still, and on"),
    ("+ -", "look more often, less often"),
    ("? h", "this help"),
    ("q", "leave"),
];

impl App {
    pub fn key(&mut self, key: KeyEvent) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::On;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Flow::Leave;
        }
        match self.mode {
            Mode::Help => {
                self.mode = Mode::Look;
                match key.code {
                    KeyCode::Char('q') => Flow::Leave,
                    _ => Flow::On,
                }
            }
            Mode::Filter => {
                self.type_filter(key.code);
                Flow::On
            }
            Mode::Look => self.look_key(key.code),
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Look,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Look;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            // Limit: no name is longer.
            KeyCode::Char(c) if self.filter.len() < 256 => self.filter.push(c),
            _ => {}
        }
        self.arrange();
    }

    fn look_key(&mut self, code: KeyCode) -> Flow {
        let (at, page) = (self.cursor(), self.page.max(1));
        match code {
            KeyCode::Char('q') => return Flow::Leave,
            KeyCode::Esc | KeyCode::Backspace => drop(self.back()),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => {
                self.path.clear();
                self.mode = Mode::Filter;
                self.arrange();
            }
            KeyCode::Char(' ' | 'p') => self.paused = !self.paused,
            KeyCode::Char('+') => self.slower(false),
            KeyCode::Char('-') => self.slower(true),
            KeyCode::Up | KeyCode::Char('k') => self.move_to(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.move_to(at + 1),
            KeyCode::PageUp => self.move_to(at.saturating_sub(page)),
            KeyCode::PageDown => self.move_to(at + page),
            KeyCode::Home | KeyCode::Char('g') => self.move_to(0),
            KeyCode::End | KeyCode::Char('G') => self.move_to(usize::MAX),
            KeyCode::Enter => self.enter(),
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('>') => self.turn(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('<') => self.turn(Tab::ALL.len() - 1),
            KeyCode::Char('s') => self.next_sort(1),
            KeyCode::Char('S') => self.next_sort(heading(self.tab).len() - 1),
            KeyCode::Char('r') => {
                let sort = self.sort();
                self.sort_by(Sort {
                    down: !sort.down,
                    ..sort
                });
            }
            KeyCode::Char(c @ '1'..='5') => {
                let i = c.to_digit(10).map_or(0, |d| d as usize - 1);
                self.show(Tab::ALL[i]);
            }
            _ => {}
        }
        Flow::On
    }

    fn turn(&mut self, by: usize) {
        let next = (self.tab as usize + by) % Tab::ALL.len();
        self.show(Tab::ALL[next]);
    }

    fn next_sort(&mut self, by: usize) {
        let column = (self.sort().column + by) % heading(self.tab).len();
        self.sort_by(Sort::of(self.tab, column, false));
    }
}
