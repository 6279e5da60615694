//! The manager: a pure state machine in a thin I/O shell.
