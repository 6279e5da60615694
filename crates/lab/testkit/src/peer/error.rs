//! Errors of a child, and its end.

/// Error of a child.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("child setup, step {step}: {source}")]
    Setup {
        step: &'static str,
        source: std::io::Error,
    },
    #[error("control socket: {0}")]
    Control(#[from] std::io::Error),
    #[error("control message: {0}")]
    Message(#[from] serde_json::Error),
    #[error("child ended: {0:?}")]
    Ended(Exit),
}

/// End of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}
