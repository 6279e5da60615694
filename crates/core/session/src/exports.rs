//! The names that a domain exports, and the clients that have connected to them.

use super::backlog::{self, Backlog};
use super::wire::EventWithFds;
use crate::base::lock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use tranship_proto::{ChannelId, ExportId, Refusal, Req, Request, Role};

/// The exports, by their ids under the present manager.
#[derive(Default)]
pub struct Exports(Mutex<Names>);

#[derive(Default)]
struct Names {
    all: HashMap<ExportId, Export>,
    /// Threads that wait for an answer to Export.
    asking: u32,
}

/// An exported name and the clients that have connected to it.
#[derive(Default)]
struct Export {
    /// `None` until the thread that exports has the manager's answer.
    what: Option<Exported>,
    /// The export's id under the present manager, shared with the listener. It changes under the lock of all exports.
    id: Arc<AtomicU32>,
    incoming: Backlog,
    /// Why the present manager does not give the name back, after a restart.
    refused: Option<Refusal>,
}

/// The name and what it is offered as.
pub(super) type Exported = (String, Offered);

/// Kind under which a name is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The name of a channel. The offering domain has this role.
    Channel(Role),
    /// The name of a channel, which other domains may offer too. The offering domain has this role.
    Shared(Role),
    /// The name of a topic or a queue.
    Ring {
        /// Whether it is the name of a queue.
        queue: bool,
        /// Whether other domains may have the name too.
        shared: bool,
    },
}

impl Offered {
    /// Returns the request that offers a name.
    pub fn request(self, req: Req, name: String) -> Request {
        match self {
            Offered::Channel(role) => Request::Export { req, name, role },
            Offered::Shared(role) => Request::ExportShared { req, name, role },
            Offered::Ring { queue, shared } => Request::Publish {
                req,
                name,
                queue,
                shared,
            },
        }
    }
}

impl Names {
    /// Finds an entry by the id that its listener has.
    fn of(&mut self, id: &AtomicU32) -> Option<&mut Export> {
        let id = ExportId(id.load(Ordering::Relaxed)); // under the lock
        self.all.get_mut(&id)
    }
}

impl Exports {
    /// Begins a request. While the result lives, connections to names that are not on record yet are kept.
    pub fn ask(&self) -> Asking<'_> {
        lock(&self.0).asking += 1;
        Asking(self)
    }

    /// Adds an export. Connections that another thread's turn took in the meantime are in the entry that it made.
    pub fn add(&self, export: ExportId, what: Exported) -> Arc<AtomicU32> {
        let mut names = lock(&self.0);
        let entry = names.all.entry(export).or_default();
        entry.what = Some(what);
        entry.id.store(export.0, Ordering::Relaxed);
        entry.id.clone()
    }

    /// Ends an export. Returns its present id and the channels that were not taken. These must be refused, because the
    /// connected clients would wait on.
    pub fn remove(&self, id: &AtomicU32) -> (ExportId, Vec<ChannelId>) {
        let mut names = lock(&self.0);
        let export = ExportId(id.load(Ordering::Relaxed)); // under the lock
        let entry = names.all.remove(&export);
        drop(names);
        // Closes the channels that were not taken, without the lock.
        let left = entry.map_or_else(Vec::new, |entry| entry.incoming.into_channels());
        (export, left)
    }

    /// Takes a connection that was not taken yet.
    pub fn next(&self, id: &AtomicU32) -> Option<EventWithFds> {
        lock(&self.0).of(id)?.incoming.pop()
    }

    pub fn has_incoming(&self, id: &AtomicU32) -> bool {
        lock(&self.0).of(id).is_some_and(|e| !e.incoming.is_empty())
    }

    /// Says whether a listener exists for any name.
    pub(super) fn has_listener(&self) -> bool {
        lock(&self.0).all.values().any(|e| e.what.is_some())
    }

    /// Adds a client that has connected. Returns a channel that must be refused.
    pub(super) fn came(&self, export: ExportId, came: EventWithFds) -> Option<ChannelId> {
        let mut names = lock(&self.0);
        // If there is no entry, the answer to Export is still on its way to a thread that asked, or the name was given
        // up meanwhile.
        match names.all.contains_key(&export) || names.asking > 0 {
            true => names.all.entry(export).or_default().incoming.push(came),
            false => backlog::channel(&came),
        }
    }

    /// Removes a client that has given its connection up.
    pub(super) fn cancel(&self, channel: ChannelId) {
        let mut names = lock(&self.0);
        let all = names.all.values_mut();
        all.for_each(|entry| entry.incoming.cancel(channel));
    }

    /// Notes that the present manager does not give a name back: another domain has taken it.
    pub(super) fn refused(&self, export: ExportId, refusal: &Refusal) {
        if let Some(entry) = lock(&self.0).all.get_mut(&export) {
            entry.refused = Some(*refusal);
        }
    }

    /// Returns why the present manager did not give the name back, if it did not.
    pub fn refusal(&self, id: &AtomicU32) -> Option<Refusal> {
        lock(&self.0).of(id)?.refused
    }

    /// Gives a listener's name another id. Returns false if the listener is gone.
    pub(super) fn renamed(&self, old: ExportId, new: ExportId) -> bool {
        let all = &mut lock(&self.0).all;
        let Some(mut entry) = all.remove(&old) else {
            return false;
        };
        entry.id.store(new.0, Ordering::Relaxed); // read under the same lock
        if let Some(early) = all.remove(&new) {
            entry.incoming.append(early.incoming);
        }
        all.insert(new, entry);
        true
    }

    /// Starts again with another manager: clients that connected by the old one have to connect again. The asking
    /// threads export names again whose answer was still to come; this returns the other names.
    pub(super) fn begin_again(&self) -> Vec<(ExportId, Exported)> {
        let all = &mut lock(&self.0).all;
        all.retain(|_, entry| entry.what.is_some());
        let again = all.iter_mut().filter_map(|(id, entry)| {
            entry.incoming = Backlog::default();
            entry.refused = None;
            entry.what.clone().map(|what| (*id, what))
        });
        again.collect()
    }
}

/// A thread exports a name.
pub struct Asking<'a>(&'a Exports);

impl Asking<'_> {
    /// Ends a request that has an answer, or was given up. Returns the channels at names without a listener. These must
    /// be refused, because the connected clients would wait on.
    #[must_use]
    pub fn end(self) -> Vec<ChannelId> {
        let exports = self.0;
        std::mem::forget(self);
        exports.answered()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let _ = self.0.answered();
    }
}

impl Exports {
    fn answered(&self) -> Vec<ChannelId> {
        let mut names = lock(&self.0);
        names.asking -= 1;
        if names.asking > 0 {
            return Vec::new();
        }
        // Kept for a name that a thread had given up.
        let gone = names.all.extract_if(|_, entry| entry.what.is_none());
        let gone: Vec<Export> = gone.map(|(_, entry)| entry).collect();
        drop(names);
        let channels = gone.into_iter().map(|entry| entry.incoming.into_channels());
        channels.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranship_proto::{DomainId, Event};

    fn incoming(channel: u32, export: ExportId) -> EventWithFds {
        let event = Event::Incoming {
            channel: ChannelId(channel),
            export,
            peer: DomainId(9),
            peer_uid: 7,
            peer_pid: 1,
            role: Role::Sink,
            lines: 2,
            topic: false,
        };
        (event, Vec::new())
    }

    #[test]
    fn who_connected_to_a_name_that_nobody_listens_at_is_to_hear_of_it() {
        let exports = Exports::default();
        let (old, mine) = (ExportId(1), ExportId(2));
        let (first, second) = (exports.ask(), exports.ask());
        assert_eq!(exports.came(old, incoming(5, old)), None, "kept meanwhile");
        assert_eq!(exports.came(mine, incoming(6, mine)), None);
        let id = exports.add(mine, ("x".into(), Offered::Channel(Role::Source)));
        assert!(first.end().is_empty(), "one still asks");
        assert_eq!(second.end(), [ChannelId(5)]);
        assert_eq!(exports.came(old, incoming(8, old)), Some(ChannelId(8)));
        // That channel was not taken.
        assert!(exports.renamed(mine, ExportId(3)));
        assert_eq!(exports.remove(&id), (ExportId(3), vec![ChannelId(6)]));
        assert!(!exports.renamed(ExportId(3), ExportId(4)), "it is gone");
    }
}
