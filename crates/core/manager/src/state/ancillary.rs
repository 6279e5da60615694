//! The descriptors of a request, and the lengths of the objects behind them (`docs/format.md`).

use super::refuse::refusal;
use super::types::{Done, Facts, Fail, Fd, FdToken, Sealed};
use std::collections::VecDeque;
use tranship_proto::{RefusalCode, Role, Trust};
use tranship_region::layout::{Kind, control_page, counts, page, refs, table, trace};

/// Returns the length of a shared object with this number of slots, lines or entries.
pub(crate) fn bytes_of(kind: Kind, count: u32) -> u64 {
    let bytes = match kind {
        Kind::Table => table::len(count),
        Kind::Refs => refs::len(count),
        Kind::Sent | Kind::Rcvd => counts::len(count),
        Kind::LinkSource | Kind::LinkSink => tranship_ring::len(count),
        Kind::ControlPage => control_page::len(count),
        Kind::Trace => trace::len(),
        Kind::Page => page::len(count),
        Kind::Lines => tranship_ring::broadcast::lines_len(count),
        Kind::Desk | Kind::Bell => tranship_ring::broadcast::page_len(),
        Kind::Claims => tranship_ring::broadcast::claims_len(count),
    };
    bytes as u64
}

/// Returns the kind of the half that an end writes.
pub(crate) fn half_of(role: Role) -> Kind {
    match role {
        Role::Source => Kind::LinkSource,
        Role::Sink => Kind::LinkSink,
    }
}

impl Facts {
    /// Says whether it is a shared object of this kind and count.
    pub(crate) fn is(&self, kind: Kind, count: u32) -> bool {
        if self.size != bytes_of(kind, count) {
            return false;
        }
        // Every reader of a queue can write its claims' header, so it says nothing.
        if kind == Kind::Claims {
            return self.sealed == Sealed::Shared;
        }
        let header = self.header.unwrap_or_default();
        self.sealed == Sealed::OneWriter && (header.kind, header.count) == (kind as u32, count)
    }
}

/// The descriptors of the present message; those that no handler becomes the owner of are closed.
#[derive(Debug)]
pub(crate) struct Ancillary {
    pub fds: VecDeque<Fd>,
}

impl Ancillary {
    /// Returns how many descriptors the client sent.
    pub fn sent(&self) -> usize {
        self.fds.iter().filter(|fd| !fd.facts.made_here).count()
    }

    /// Takes the two sockets that the shell made for the request.
    pub fn ends(&mut self) -> Result<[FdToken; 2], Fail> {
        let made = self.fds.iter().filter(|fd| fd.facts.made_here);
        let made: Vec<FdToken> = made.map(|fd| fd.token).collect();
        let ends = <[FdToken; 2]>::try_from(made)
            .map_err(|_: Vec<FdToken>| Fail::from(refusal(RefusalCode::NoDescriptors, 2, 0)))?;
        self.fds.retain(|fd| !fd.facts.made_here);
        Ok(ends)
    }

    /// Takes the next descriptor if it is a shared object of this kind and count.
    pub fn take(&mut self, kind: Kind, count: u32) -> Result<Fd, Fail> {
        let fd = self.take_any()?;
        if !fd.facts.is(kind, count) {
            let bytes = bytes_of(kind, count);
            return Err(refusal(RefusalCode::BadDescriptor, bytes, fd.facts.size).into());
        }
        Ok(fd)
    }

    /// Takes the next descriptor if it is memory that only its maker writes, of any kind.
    pub fn take_sealed(&mut self) -> Result<Fd, Fail> {
        let fd = self.take_any()?;
        match fd.facts.sealed {
            Sealed::OneWriter => Ok(fd),
            _ => Err(refusal(RefusalCode::BadDescriptor, 0, 0).into()),
        }
    }

    /// Checks that all are chunks of this length, of a pool of this level.
    pub fn are_chunks(&self, bytes: u64, trust: Trust) -> Done {
        self.are(
            bytes,
            match trust {
                Trust::Full | Trust::Half => &[Sealed::Shared],
                Trust::Producer => &[Sealed::OneWriter],
                Trust::None => &[Sealed::OneWriter, Sealed::Open, Sealed::Nobody],
            },
        )
    }

    /// Checks that these are chunks that no process writes any more.
    pub fn are_sealed(&self, bytes: u64) -> Done {
        self.are(bytes, &[Sealed::Nobody])
    }

    fn are(&self, bytes: u64, sealed: &[Sealed]) -> Done {
        let bad = |fd: &&Fd| !sealed.contains(&fd.facts.sealed) || fd.facts.size != bytes;
        match self.fds.iter().find(bad) {
            Some(fd) => Err(refusal(RefusalCode::BadDescriptor, bytes, fd.facts.size).into()),
            None => Ok(()),
        }
    }

    /// Takes the next descriptor, of any kind.
    pub fn take_any(&mut self) -> Result<Fd, Fail> {
        let fd = self.fds.pop_front();
        fd.ok_or(Fail::Expel(refusal(RefusalCode::BadDescriptor, 0, 1)))
    }
}
