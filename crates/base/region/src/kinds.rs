//! The kinds of this crate's errors, for callers that pass them on.

use crate::layout::{AggregateError, CreateError, OpenError};
use crate::{MakeError, NoMappings, OutOfBounds, VerifyError, WindowError};
use tranship_error::{Cause, ErrorKind};

impl Cause for MakeError {
    fn kind(&self) -> ErrorKind {
        match self {
            MakeError::Length { .. } => ErrorKind::BadArgument,
            MakeError::Headroom { .. } | MakeError::Io { .. } => ErrorKind::OutOfMemory,
        }
    }
}

impl Cause for CreateError {
    fn kind(&self) -> ErrorKind {
        match self {
            CreateError::Count { .. } => ErrorKind::BadArgument,
            CreateError::Make(error) => error.kind(),
        }
    }
}

impl Cause for VerifyError {
    fn kind(&self) -> ErrorKind {
        match self {
            VerifyError::Io { .. } => ErrorKind::System,
            _ => ErrorKind::PeerViolation,
        }
    }
}

impl Cause for OpenError {
    fn kind(&self) -> ErrorKind {
        match self {
            OpenError::Count { .. } | OpenError::Header { .. } => ErrorKind::PeerViolation,
            OpenError::Verify(error) => error.kind(),
            OpenError::Map { .. } => ErrorKind::OutOfMemory,
        }
    }
}

impl Cause for WindowError {
    fn kind(&self) -> ErrorKind {
        match self {
            WindowError::Shape { .. } => ErrorKind::BadArgument,
            WindowError::NoSuchChunk { .. }
            | WindowError::Taken { .. }
            | WindowError::Empty { .. } => ErrorKind::PeerViolation,
            WindowError::NotAChunk { source, .. } => source.kind(),
            WindowError::Make(error) => error.kind(),
            WindowError::Forked => ErrorKind::Forked,
            WindowError::Io { .. } => ErrorKind::OutOfMemory,
        }
    }
}

impl Cause for AggregateError {
    fn kind(&self) -> ErrorKind {
        match self {
            AggregateError::TooMany { .. } => ErrorKind::BadArgument,
            _ => ErrorKind::PeerViolation,
        }
    }
}

impl Cause for NoMappings {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Limit
    }
}

impl Cause for OutOfBounds {
    fn kind(&self) -> ErrorKind {
        ErrorKind::BadArgument
    }
}
