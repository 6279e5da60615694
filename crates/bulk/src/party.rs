//! A domain's handle: where channels and pools come from.

use crate::raw::{Accept, Raw};
use crate::{
    Channel, Completion, Constraints, Direction, Error, Kind, Pool, Role, Statistics, Trust, Wish,
};
use std::sync::Arc;
use tranship_transport::Backend;

/// A party to bulk channels. A process may have several. Cloneable; when the last handle of it and of what is in it
/// is gone, its ends of channels are too, which the other ends see as its death.
#[derive(Clone, Debug, Default)]
pub struct Domain(Raw);

/// How an end of a channel is to be.
pub struct EndOptions {
    wish: Wish,
    meta_bytes: u32,
    accept: Option<Accept>,
}

impl std::fmt::Debug for EndOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EndOptions({:?}, {})", self.wish, self.meta_bytes)
    }
}

impl EndOptions {
    /// Generic role, no constraints, no metadata, all pools welcome.
    #[must_use]
    pub fn new(trust: Trust) -> EndOptions {
        EndOptions {
            wish: Wish {
                role: Role::Generic,
                trust,
                constraints: Constraints::default(),
            },
            meta_bytes: 0,
            accept: None,
        }
    }

    /// Who is to provide the buffers.
    #[must_use]
    pub fn role(mut self, role: Role) -> EndOptions {
        self.wish.role = role;
        self
    }

    /// What pools must be like.
    #[must_use]
    pub fn constraints(mut self, constraints: Constraints) -> EndOptions {
        self.wish.constraints = constraints;
        self
    }

    /// The longest metadata of an operation, bytes, at most 2048. The creator's counts.
    #[must_use]
    pub fn meta_bytes(mut self, bytes: u32) -> EndOptions {
        self.meta_bytes = bytes;
        self
    }

    /// Decides about pools that the other end assigns; an error is a veto. Called while the channel is turned, with
    /// no lock held.
    #[must_use]
    pub fn accept(
        mut self,
        accept: impl FnMut(&crate::PoolInfo) -> Result<(), Error> + Send + 'static,
    ) -> EndOptions {
        self.accept = Some(Box::new(accept));
        self
    }
}

impl Domain {
    /// A domain with nothing in it. At the first `shm:` address the process joins a manager, as
    /// [`tranship_core::Domain::connect`] does.
    #[must_use]
    pub fn new() -> Domain {
        Domain(Raw::new())
    }

    /// A domain that uses a membership which the program has: its names, and its quota.
    ///
    /// # Errors
    /// `NoManager`; `Full` if the manager's limit of pools per user is reached.
    pub fn over(domain: &tranship_core::Domain) -> Result<Domain, Error> {
        Ok(Domain(Raw::over(domain)?))
    }

    /// Makes a further kind of address known.
    pub fn add_backend(&self, scheme: &str, backend: Arc<dyn Backend>) {
        self.0.add_backend(scheme, backend);
    }

    /// Creates a channel at `scheme:name` and waits there for the other end, which binds to the same address.
    pub fn create(
        &self,
        address: &str,
        direction: Direction,
        options: EndOptions,
    ) -> Result<Channel, Error> {
        let (wish, meta, accept) = (options.wish, options.meta_bytes, options.accept);
        let id = self.0.create(address, direction, wish, meta, accept)?;
        Ok(self.channel(id))
    }

    /// Asks to be the other end; the creator's answer completes it.
    pub fn bind(&self, address: &str, options: EndOptions) -> Result<(Channel, Completion), Error> {
        let (id, asked) = self.0.bind(address, options.wish, options.accept)?;
        Ok((self.channel(id), asked))
    }

    /// From which buffer size on this domain's pools send each buffer in a sealed memfd of its own, at level `none`; smaller
    /// ones are copied out by the receiver. Counts for pools that are assigned for the first time from now on. 0: all;
    /// `u64::MAX`: none. Without it, [`SEAL_FROM_BYTES`](crate::SEAL_FROM_BYTES) where the kernel gives memfds huge pages, else none.
    ///
    /// Such a pool takes a mapping and a descriptor for each of its buffers, in every domain that has it; where its creator's
    /// process has no room for as many it is copied from after all, elsewhere the assignment is refused ([`Kind::Limit`]).
    pub fn seal_from(&self, bytes: u64) {
        self.0.seal_from(bytes);
    }

    /// How many ends of channels it has, those apart that are over and forgotten.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.0.0.lock().channels.values().count()
    }

    /// What it has counted. Does not block for longer than its operations.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// A new pool. `buffer_bytes` is a multiple of the page size; with `forward`, whoever gets the pool may assign it
    /// on.
    pub fn pool(&self, buffers: u32, buffer_bytes: u64, forward: bool) -> Result<Pool, Error> {
        self.pool_within(buffers, buffer_bytes, forward, &Constraints::default())
    }

    /// As [`Domain::pool`], where and with buffers as a channel may want them. [`Kind::BadArgument`] for buffers of another
    /// size, [`Kind::PoolMap`] if no addresses are free there.
    pub fn pool_within(
        &self,
        buffers: u32,
        buffer_bytes: u64,
        forward: bool,
        within: &Constraints,
    ) -> Result<Pool, Error> {
        let id = self
            .0
            .new_pool_within(buffers, buffer_bytes, forward, within)?;
        let info = self.0.pool(id).ok_or(Kind::PoolInvalid)?;
        Ok(Pool {
            domain: Arc::clone(&self.0.0),
            info,
        })
    }

    fn channel(&self, id: u64) -> Channel {
        Channel::new(&self.0.0, id)
    }
}
