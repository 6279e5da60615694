//! Descriptors that are kept outside of the manager's process for the next manager: memory that no other process may
//! have any more.
//!
//! Domains show a new manager everything else again. An orphan's writer is gone. Only the manager has the chunks that a
//! reader was not sent yet, although messages about them may be in its ring, and only the manager knows the pool's
//! state. The orphan's table, its chunks and its readers therefore lie in the service manager's store. (Readers are
//! kept as pidfds, so that they are awaited for as long as they live.) The descriptors' names hold the rest of the
//! state.

use crate::state::ancillary::bytes_of;
use crate::state::books::back_refs::BackRef;
use crate::state::books::extent::{For, Piece};
use crate::state::model::Chunk;
use crate::state::pools::pool::Pool;
use crate::state::types::{Action, ChunkKey, Fd, FdToken, Sealed};
use crate::state::{Ancillary, Of, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tranship_proto::{DomainId, PoolId, PoolShape, Trust, check_name};
use tranship_region::layout::Kind;

/// Most stored descriptors, in all and of one user's pools: the unit file has the same number.
const MOST: usize = 4000;
const MOST_OF_ONE: usize = 1000;
/// Before every name.
const PREFIX: &str = "tranship-";

/// The kind of a stored descriptor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stored {
    /// An orphan's slot table, and the pool's other data.
    Table {
        /// The pool.
        pool: PoolId,
        /// The writer.
        writer: DomainId,
        /// The user that pays.
        uid: u32,
        /// The pool's numbers.
        shape: PoolShape,
        /// The pool's name.
        name: String,
    },
    /// One of the pool's chunks.
    Chunk {
        /// The pool.
        pool: PoolId,
        /// The chunk's place.
        index: u32,
        /// The chunk's serial.
        serial: u32,
    },
    /// The process of a reader.
    Reader {
        /// The pool.
        pool: PoolId,
        /// The domain.
        domain: DomainId,
        /// The inode of its counters.
        inode: u64,
    },
}

impl Stored {
    /// Parses a stored descriptor's name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Stored> {
        let mut parts = name.strip_prefix(PREFIX)?.split('.');
        let kind = parts.next()?;
        let mut number = || parts.next()?.parse::<u64>().ok();
        let mut small = || number().and_then(|n| u32::try_from(n).ok());
        let stored = match kind {
            "c" => Stored::Chunk {
                pool: PoolId(small()?),
                index: small()?,
                serial: small()?,
            },
            "r" => Stored::Reader {
                pool: PoolId(small()?),
                domain: DomainId(small()?),
                inode: number()?,
            },
            "t" => {
                let (pool, writer, uid) = (PoolId(small()?), DomainId(small()?), small()?);
                let shape = PoolShape {
                    max_bytes: number()?,
                    slots: u32::try_from(number()?).ok()?,
                    chunk_bytes: number()?,
                    trust: *Trust::ALL.get(usize::try_from(number()?).ok()?)?,
                };
                Stored::Table {
                    pool,
                    writer,
                    uid,
                    shape,
                    name: unhex(parts.next()?)?,
                }
            }
            _ => return None,
        };
        // Only the canonical form is valid, so that one object has one name.
        (stored.to_string() == name).then_some(stored)
    }

    fn pool(&self) -> PoolId {
        match self {
            Stored::Table { pool, .. }
            | Stored::Chunk { pool, .. }
            | Stored::Reader { pool, .. } => *pool,
        }
    }

    /// Says whether it is a process, not memory.
    #[must_use]
    pub fn is_process(&self) -> bool {
        matches!(self, Stored::Reader { .. })
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        match self {
            Stored::Chunk {
                pool,
                index,
                serial,
            } => write!(f, "c.{}.{index}.{serial}", pool.0),
            Stored::Reader {
                pool,
                domain,
                inode,
            } => write!(f, "r.{}.{}.{inode}", pool.0, domain.0),
            Stored::Table {
                pool,
                writer,
                uid,
                shape,
                name,
            } => {
                let PoolShape {
                    max_bytes,
                    slots,
                    chunk_bytes,
                    trust,
                } = *shape;
                let trust = Trust::ALL.iter().position(|t| *t == trust).unwrap_or(0);
                write!(
                    f,
                    "t.{}.{}.{uid}.{max_bytes}.{slots}.{chunk_bytes}.{trust}.",
                    pool.0, writer.0
                )?;
                name.bytes().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

fn unhex(text: &str) -> Option<String> {
    let digits = text.as_bytes().chunks(2);
    let byte = |d: &[u8]| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok();
    String::from_utf8(digits.map(byte).collect::<Option<Vec<u8>>>()?).ok()
}

/// The descriptors found of one pool.
#[derive(Default)]
struct Found {
    table: Option<(Stored, Fd)>,
    chunks: Vec<(ChunkKey, Fd)>,
    readers: Vec<(DomainId, u64, FdToken)>,
}

impl State {
    /// Returns a number that changes whenever the result of `stored` does.
    #[must_use]
    pub fn stored_version(&self) -> u64 {
        self.pools.stored_version()
    }

    /// Returns the descriptors that should be in the store now: of each pool all or none.
    #[must_use]
    pub fn stored(&self) -> Vec<(Stored, FdToken)> {
        let mut all = Vec::new();
        let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
        for (id, p) in self
            .pools
            .iter()
            .filter(|(_, p)| p.is_orphan() && !p.chunks.is_empty())
        {
            let users = of_users.entry(p.uid).or_default();
            let more = 1 + p.chunks.len() + p.readers.len() + p.awaited().len();
            if all.len() + more > MOST || *users + more > MOST_OF_ONE {
                continue;
            }
            *users += more;
            self.stored_of(*id, p, &mut all);
        }
        all
    }

    fn stored_of(&self, pool: PoolId, p: &Pool, all: &mut Vec<(Stored, FdToken)>) {
        let table = Stored::Table {
            pool,
            writer: p.writer,
            uid: p.uid,
            shape: p.shape,
            name: p.name.clone(),
        };
        all.push((table, p.table));
        for (index, c) in &p.chunks {
            let (index, serial) = (*index, c.serial);
            all.push((
                Stored::Chunk {
                    pool,
                    index,
                    serial,
                },
                c.fd,
            ));
        }
        let here = p.readers.iter().filter(|(_, r)| r.refs.is_some());
        let here = here.filter_map(|(d, r)| Some((*d, r.inode, self.cx.domains.get(d)?.pidfd)));
        let awaited = p
            .awaited()
            .iter()
            .filter(|(d, _)| !p.readers.contains_key(d));
        let awaited = awaited.filter_map(|(d, pidfd)| Some((*d, *p.named.get(d)?, *pidfd)));
        for (domain, inode, pidfd) in here.chain(awaited) {
            all.push((
                Stored::Reader {
                    pool,
                    domain,
                    inode,
                },
                pidfd,
            ));
        }
    }

    /// Takes an earlier manager's stored descriptors, before any client has connected. Pools with an error are not
    /// taken, and descriptors without a pool are closed.
    pub fn take_stored(&mut self, all: Vec<(Stored, Fd)>) -> Vec<Action> {
        let mut pools: BTreeMap<PoolId, Found> = BTreeMap::new();
        for (stored, fd) in all {
            let found = pools.entry(stored.pool()).or_default();
            match stored {
                Stored::Table { .. } if found.table.is_none() => found.table = Some((stored, fd)),
                Stored::Table { .. } => self.cx.out.push(Action::Close(fd.token)),
                Stored::Chunk { index, serial, .. } => found.chunks.push(((index, serial), fd)),
                Stored::Reader { domain, inode, .. } => {
                    found.readers.push((domain, inode, fd.token))
                }
            }
        }
        for (id, found) in pools {
            if self.fits(id, &found).is_some() {
                self.take_pool(id, found);
                continue;
            }
            let Found {
                table,
                chunks,
                readers,
            } = found;
            let table = table.map(|(_, fd)| fd.token).into_iter();
            let tokens = table.chain(chunks.iter().map(|(_, fd)| fd.token));
            let tokens = tokens.chain(readers.iter().map(|(_, _, token)| *token));
            self.cx.out.extend(tokens.map(Action::Close));
        }
        self.pools.store_again();
        std::mem::take(&mut self.cx.out)
    }

    /// Checks that a manager would have stored this, by the facts about the descriptors.
    fn fits(&self, id: PoolId, found: &Found) -> Option<()> {
        let (
            Stored::Table {
                writer,
                uid,
                shape,
                name,
                ..
            },
            table,
        ) = found.table.as_ref()?
        else {
            return None;
        };
        shape.check().ok()?;
        let mut ancillary = Ancillary {
            fds: [*table].into(),
        };
        let table = ancillary.take(Kind::Table, shape.slots).ok()?;
        let header = table.facts.header.unwrap_or_default();
        let ancillary = Ancillary {
            fds: found.chunks.iter().map(|(_, fd)| *fd).collect(),
        };
        ancillary.are_chunks(shape.chunk_bytes, shape.trust).ok()?;
        let indices: BTreeSet<u32> = found.chunks.iter().map(|((index, _), _)| *index).collect();
        let serials: BTreeSet<u32> = found
            .chunks
            .iter()
            .map(|((_, serial), _)| *serial)
            .collect();
        let readers: BTreeSet<DomainId> = found.readers.iter().map(|(d, _, _)| *d).collect();
        let n = found.chunks.len();
        let descriptors = 1 + n + found.readers.len();
        let good = check_name(name)
            && (header.max_bytes, header.chunk_bytes) == (shape.max_bytes, shape.chunk_bytes)
            && n > 0
            && (indices.len(), serials.len()) == (n, n)
            && indices.last().is_some_and(|i| *i < shape.windows())
            && !serials.contains(&0)
            && readers.len() == found.readers.len()
            && !readers.contains(writer)
            && writer.0 != 0
            && id.0 != 0
            && id <= PoolId::MAX
            && !self.pools.contains_key(&id)
            && self
                .cx
                .accounts
                .check_descriptors(*uid, descriptors as u64)
                .is_ok();
        good.then_some(())
    }

    fn take_pool(&mut self, id: PoolId, found: Found) {
        let Some((
            Stored::Table {
                writer,
                uid,
                shape,
                name,
                ..
            },
            table,
        )) = found.table
        else {
            return;
        };
        let by = self.cx.descriptors.maker();
        let piece = |of, bytes| Piece { by, of, bytes };
        let bytes = bytes_of(Kind::Table, shape.slots);
        self.cx
            .hold_piece(table.token, uid, piece(For::Tables, bytes));
        let mut chunks = BTreeMap::new();
        for ((index, serial), fd) in &found.chunks {
            self.cx
                .hold_piece(fd.token, uid, piece(For::Data, shape.chunk_bytes));
            let chunk = Chunk {
                serial: *serial,
                fd: fd.token,
                open: fd.facts.sealed == Sealed::Open,
                ready: None,
            };
            chunks.insert(*index, chunk);
        }
        let n = u32::try_from(chunks.len()).unwrap_or(u32::MAX);
        for (reader, _, pidfd) in &found.readers {
            self.cx.hold(*pidfd, uid);
            self.back_refs.insert(*reader, BackRef::Named(id));
        }
        self.cx.accounts.add(uid, Of::Pools, 1);
        self.cx
            .accounts
            .add(uid, Of::Records, found.readers.len() as u64);
        self.back_refs.insert(writer, BackRef::Writes(id));
        let mut record = Pool::new(&name, (writer, uid), shape, table);
        let named = found.readers.iter().map(|(d, inode, _)| (*d, *inode));
        record.named = named.collect();
        record.granted_at = self.cx.now;
        record.last_serial = chunks.values().map(|c| c.serial).max().unwrap_or(0);
        record.chunks = chunks;
        let awaited = found.readers.iter().map(|(d, _, pidfd)| (*d, *pidfd));
        self.pools.insert_orphan(id, record, awaited.collect());
        // The memory exists, even if it exceeds the total.
        self.pools.add_granted(&mut self.cx, id, n);
        self.cx.totals.was_claimed();
        self.sweep_first(id);
    }

    /// Returns the readers that are awaited, with their processes.
    #[must_use]
    pub fn awaited(&self) -> Vec<(PoolId, DomainId, FdToken)> {
        let pools = self.pools.iter().filter(|(_, p)| !p.awaited().is_empty());
        let each = pools.flat_map(|(id, p)| p.awaited().iter().map(|(d, t)| (*id, *d, *t)));
        each.collect()
    }

    /// Says whether any reader is awaited.
    #[must_use]
    pub fn awaits(&self) -> bool {
        self.pools.awaits()
    }

    /// Handles that an awaited reader has ended.
    pub fn awaited_ended(&mut self, id: PoolId, reader: DomainId) -> Vec<Action> {
        let here = self.cx.domains.contains_key(&reader);
        if let Some(p) = self.pools.get_mut(id)
            && p.awaited().contains_key(&reader)
            // The process that came back as that domain ends by itself.
            && !here
            && p.named.remove(&reader).is_some()
        {
            let uid = p.uid;
            self.cx.accounts.sub(uid, Of::Records, 1);
            self.back_refs.remove(reader, BackRef::Named(id));
        }
        self.pools.awaits_no_more(&mut self.cx, id, reader);
        std::mem::take(&mut self.cx.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_are_and_nothing_else() {
        let all = [
            Stored::Table {
                pool: PoolId(7),
                writer: DomainId(u32::MAX),
                uid: 1000,
                shape: PoolShape {
                    max_bytes: 1 << 43,
                    slots: 1024,
                    chunk_bytes: 65536,
                    trust: Trust::Full,
                },
                name: "a:b.c\u{e4}".repeat(8),
            },
            Stored::Chunk {
                pool: PoolId(7),
                index: 0,
                serial: u32::MAX,
            },
            Stored::Reader {
                pool: PoolId(7),
                domain: DomainId(3),
                inode: u64::MAX,
            },
        ];
        for stored in all {
            let name = stored.to_string();
            assert_eq!(Stored::parse(&name), Some(stored), "{name}");
            // The limits of systemd.
            assert!(
                name.len() < 255 && !name.contains(':') && name.is_ascii(),
                "{name}"
            );
            for wrong in [
                format!("{name}.1"),
                format!("x{name}"),
                name.replace('7', "07"),
                name.replace('7', "+7"),
            ] {
                assert_eq!(Stored::parse(&wrong), None, "{wrong}");
            }
        }
        for wrong in [
            "",
            "tranship-",
            "tranship-c",
            "tranship-c.1.2",
            "tranship-c.1.2.4294967296",
            "tranship-t.1.2.3.4.5.6.9.61",
            "tranship-t.1.2.3.4.5.6.1.6",
            "tranship.socket",
        ] {
            assert_eq!(Stored::parse(wrong), None, "{wrong}");
        }
    }
}
