//! The kinds of this crate's errors, for callers that pass them on.

use crate::layout::{AggregateError, CreateError, OpenError};
use crate::{MakeError, NoMappings, OutOfBounds, VerifyError, WindowError};
use tranship_error::{Cause, Kind};

impl Cause for MakeError {
    fn kind(&self) -> Kind {
        match self {
            MakeError::Length { .. } => Kind::BadArgument,
            MakeError::Headroom { .. } | MakeError::Io { .. } => Kind::OutOfMemory,
        }
    }
}

impl Cause for CreateError {
    fn kind(&self) -> Kind {
        match self {
            CreateError::Count { .. } => Kind::BadArgument,
            CreateError::Make(error) => error.kind(),
        }
    }
}

impl Cause for VerifyError {
    fn kind(&self) -> Kind {
        match self {
            VerifyError::Io { .. } => Kind::System,
            _ => Kind::PeerViolation,
        }
    }
}

impl Cause for OpenError {
    fn kind(&self) -> Kind {
        match self {
            OpenError::Count { .. } | OpenError::Header { .. } => Kind::PeerViolation,
            OpenError::Verify(error) => error.kind(),
            OpenError::Map { .. } => Kind::OutOfMemory,
        }
    }
}

impl Cause for WindowError {
    fn kind(&self) -> Kind {
        match self {
            WindowError::Shape { .. } => Kind::BadArgument,
            WindowError::NoSuchChunk { .. }
            | WindowError::Taken { .. }
            | WindowError::Empty { .. } => Kind::PeerViolation,
            WindowError::NotAChunk { source, .. } => source.kind(),
            WindowError::Make(error) => error.kind(),
            WindowError::Forked => Kind::Forked,
            WindowError::Io { .. } => Kind::OutOfMemory,
        }
    }
}

impl Cause for AggregateError {
    fn kind(&self) -> Kind {
        match self {
            AggregateError::TooMany { .. } => Kind::BadArgument,
            _ => Kind::PeerViolation,
        }
    }
}

impl Cause for NoMappings {
    fn kind(&self) -> Kind {
        Kind::Limit
    }
}

impl Cause for OutOfBounds {
    fn kind(&self) -> Kind {
        Kind::BadArgument
    }
}
