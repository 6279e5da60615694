//! `tranship top` against a manager's process: as text, on a terminal, and while the manager does nothing.

mod lines;
mod stage;
mod terminal;
