//! `tranship top` against a manager's process: as text, on a terminal, and while the manager does nothing.

#[path = "top/lines.rs"]
mod lines;
#[path = "top/stage.rs"]
mod stage;
#[path = "top/terminal.rs"]
mod terminal;
