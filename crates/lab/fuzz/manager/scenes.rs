//! Scenes that bytes alone seldom reach: untrusted domains share a pool, and its chunks come and go.

use tranship_proto::{ChannelId, PoolId, Req, Request, Role, Trust};

use super::bytes::Bytes;
use super::world::{World, shape};

impl World {
    pub fn newest_pool(&self) -> PoolId {
        PoolId(self.seen.pools.last().copied().unwrap_or(0))
    }

    pub fn newest_channel(&self) -> ChannelId {
        ChannelId(self.seen.channels.last().copied().unwrap_or(0))
    }

    /// Gives two domains a channel, with a pool of one of them or the newest pool, as far as the steps go.
    pub fn befriend(&mut self, bytes: &mut Bytes<'_>) {
        let (writer, reader) = (self.untrusted(bytes), self.untrusted(bytes));
        let (steps, anew) = (bytes.below(8), !bytes.one_in(2));
        let (req, lines) = (Req(bytes.number()), 2);
        for step in 0..steps {
            let (channel, pool) = (self.newest_channel(), self.newest_pool());
            let (from, request) = match step {
                0 => (writer, export(req, "friends")),
                1 => (reader, connect(req, "friends")),
                2 => {
                    let accept = Request::Accept {
                        req,
                        channel,
                        lines,
                    };
                    (writer, accept)
                }
                3 if anew => (writer, create_pool(req)),
                4 if anew => {
                    let chunks = 6;
                    (writer, Request::Grant { req, pool, chunks })
                }
                5 => (writer, Request::Assign { req, channel, pool }),
                6 => {
                    let with_refs = true;
                    let accept = Request::AcceptPool {
                        channel,
                        pool,
                        with_refs,
                    };
                    (reader, accept)
                }
                _ => continue,
            };
            self.tell(from, request);
        }
        self.drain(writer);
        self.drain(reader);
    }

    /// Shows chunks of the newest pool, returns them, has a reader unmap them, and shows others in the same window.
    pub fn trade(&mut self, bytes: &mut Bytes<'_>) {
        let (writer, reader) = (self.untrusted(bytes), self.untrusted(bytes));
        let (req, pool) = (Req(bytes.number()), self.newest_pool());
        for _ in 0..bytes.below(8) {
            let what = bytes.below(8);
            let index = bytes.small(4);
            // Chunks with odd serials are sealed as the pool prescribes.
            self.serial += 2 * u32::from(what < 4);
            let serial = self.serial;
            let (from, request) = match what {
                0..4 => {
                    let show = Request::ShowChunks {
                        req,
                        pool,
                        chunks: vec![(index, serial)],
                        least: 1,
                    };
                    (writer, show)
                }
                4 => {
                    let back = Request::ReturnChunk {
                        pool,
                        index,
                        serial,
                    };
                    (writer, back)
                }
                5 => {
                    let unmapped = Request::Unmapped {
                        pool,
                        index,
                        serial,
                    };
                    (reader, unmapped)
                }
                6 => {
                    let channel = self.newest_channel();
                    (reader, Request::CloseChannel { channel })
                }
                _ => (writer, Request::Ungrant { pool, chunks: 16 }),
            };
            self.tell(from, request);
            self.drain(reader);
        }
    }
}

pub fn export(req: Req, name: &str) -> Request {
    let (name, role) = (name.to_owned(), Role::Source);
    Request::Export { req, name, role }
}

/// Makes a connect that waits if there is no such name.
pub fn connect(req: Req, name: &str) -> Request {
    Request::Connect {
        req,
        name: name.to_owned(),
        role: Role::Sink,
        lines: 2,
        wait: true,
    }
}

pub fn create_pool(req: Req) -> Request {
    Request::CreatePool {
        req,
        name: "p".to_owned(),
        shape: shape(Trust::Producer),
    }
}
