//! Two honest domains with a name, a channel between them, a pool and a heap. All of it stays as it is.

use std::collections::BTreeSet;
use std::time::Duration;

use tranship_manager::state::Input;
use tranship_proto::{ChannelId, Event, HeapStat, PoolStat, Req, Request, Role, StatRecord};

use super::simulated::Simulated;
use super::world::{CHUNK, HONEST, SLOTS, World, shape};

impl World {
    /// Makes a world with the honest domains in it.
    pub fn settled() -> World {
        let mut world = World::new();
        world.settle();
        world
    }

    fn ask(&mut self, who: usize, request: impl FnOnce(Req) -> Request) -> Vec<Event> {
        self.ask_with(who, request, &[])
    }

    /// Sends a request with objects of these kinds, counts and sizes; returns the answers until now.
    fn ask_with(
        &mut self,
        who: usize,
        request: impl FnOnce(Req) -> Request,
        objects: &[(u32, u32, u64)],
    ) -> Vec<Event> {
        self.honest.req += 1;
        let req = Req(self.honest.req);
        let client = self.honest.clients[who].expect("joined");
        let fds = objects
            .iter()
            .map(|(kind, count, size)| self.object(*kind, *count, *size))
            .collect();
        self.honest.heard.clear();
        self.say(client, request(req), fds);
        self.heard(who)
    }

    fn heard(&mut self, who: usize) -> Vec<Event> {
        let client = self.honest.clients[who].expect("joined");
        let all = self.honest.heard.iter().filter(|(c, _)| *c == client);
        let all: Vec<Event> = all.map(|(_, e)| e.clone()).collect();
        let refused = all.iter().find(|e| matches!(e, Event::Refused { .. }));
        assert!(refused.is_none(), "{refused:?} to the honest");
        all
    }

    /// Lets the honest domains join, and make their objects.
    fn settle(&mut self) {
        for who in 0..2 {
            let client = self.connect(HONEST, 1_000_000 + who as u64);
            self.honest.clients[who] = Some(client);
            self.greet(client, None);
            let domain = self.heard(who).iter().find_map(|e| match e {
                Event::Welcome { domain, .. } => Some(*domain),
                _ => None,
            });
            self.honest.domains.extend(domain);
        }
        self.ask(0, |req| Request::Export {
            req,
            name: "honest".to_owned(),
            role: Role::Source,
        });
        self.honest.channel = Some(self.open());
        let made = self.ask_with(
            0,
            |req| Request::CreatePool {
                req,
                name: "honest".to_owned(),
                shape: shape(tranship_proto::Trust::Producer),
            },
            &[(2, SLOTS, 8192)],
        );
        let pool = made.iter().find_map(|e| match e {
            Event::PoolCreated { pool, .. } => Some(*pool),
            _ => None,
        });
        let (pool, channel) = (pool.expect("a pool"), self.honest.channel.expect("one"));
        self.honest.pool = Some(pool);
        self.grow();
        self.ask_with(
            0,
            |req| Request::Assign { req, channel, pool },
            &[(4, SLOTS, 4096)],
        );
        let with_refs = true;
        let accept = |_| Request::AcceptPool {
            channel,
            pool,
            with_refs,
        };
        self.ask_with(1, accept, &[(5, SLOTS, 4096), (3, SLOTS, 4096)]);
        let events = self.heard(1);
        let open = |e: &Event| matches!(e, Event::PoolOpen { .. });
        assert!(events.iter().any(open), "{events:?}");
        self.ask(1, |req| Request::CreateHeap {
            req,
            name: "honest".to_owned(),
            max_bytes: 8 * CHUNK,
            held_bytes: CHUNK,
        });
        self.closed(usize::MAX);
        self.honest.has = self.look();
        assert!(self.honest.has.len() >= 5, "{:?}", self.honest.has);
    }

    /// Connects the second domain to the first domain's name.
    fn open(&mut self) -> ChannelId {
        self.ask_with(
            1,
            |req| Request::Connect {
                req,
                name: "honest".to_owned(),
                role: Role::Sink,
                lines: 2,
                wait: true,
            },
            &[(7, 2, 8192)],
        );
        let peer = self.honest.domains[1];
        let incoming = self.heard(0).into_iter().find_map(|e| match e {
            Event::Incoming {
                channel, peer: p, ..
            } if p == peer => Some(channel),
            _ => None,
        });
        let channel = incoming.expect("the honest one's connect is heard");
        let accept = |req| Request::Accept {
            req,
            channel,
            lines: 2,
        };
        self.ask_with(0, accept, &[(6, 2, 8192)]);
        let events = self.heard(1);
        let opened = |e: &Event| matches!(e, Event::Opened { channel: c, .. } if *c == channel);
        assert!(events.iter().any(opened), "{events:?}");
        channel
    }

    /// Shows one more chunk; returns its serial.
    fn grow(&mut self) -> (u32, u32) {
        let pool = self.honest.pool.expect("one");
        let granted = self.ask(0, |req| Request::Grant {
            req,
            pool,
            chunks: 1,
        });
        let one = |e: &Event| matches!(e, Event::Granted { chunks: 1, .. });
        assert!(granted.iter().any(one), "{granted:?}");
        self.honest.serial += 1;
        let serial = self.honest.serial;
        // The first chunk stays.
        let index = (serial - 1).min(1);
        let show = |req| Request::ShowChunks {
            req,
            pool,
            chunks: vec![(index, serial)],
            least: 1,
        };
        let shown = self.ask_with(0, show, &[(0, 0, CHUNK)]);
        let ready = |e: &Event| matches!(e, Event::ChunksReady { .. });
        assert!(shown.iter().any(ready), "{shown:?}");
        (index, serial)
    }

    /// Returns a chunk, which its reader unmaps.
    fn shrink(&mut self, (index, serial): (u32, u32)) {
        let pool = self.honest.pool.expect("one");
        self.ask(0, |_| Request::ReturnChunk {
            pool,
            index,
            serial,
        });
        let gone = Event::ChunkGone {
            pool,
            index,
            serial,
        };
        assert!(self.heard(1).contains(&gone), "{:?}", self.honest.heard);
        self.ask(1, |_| Request::Unmapped {
            pool,
            index,
            serial,
        });
    }

    /// Returns the records of their objects, as any client may see them.
    fn look(&mut self) -> Vec<StatRecord> {
        let events = self.ask(1, |req| Request::Stat { req });
        let end = |e: &Event| matches!(e, Event::StatEnd { .. });
        assert!(events.iter().any(end), "no end of an answer: {events:?}");
        let ours = self.honest.domains.clone();
        let channel = self.honest.channel;
        let of_ours = |record: &StatRecord| match record {
            StatRecord::Domain(d) => ours.contains(&d.domain),
            StatRecord::Pool(PoolStat { writer: of, .. })
            | StatRecord::Heap(HeapStat { owner: of, .. }) => ours.contains(of),
            StatRecord::Channel(c) => {
                Some(c.channel) == channel || c.exported_as.is_some() && c.name == "honest"
            }
            _ => false,
        };
        let records = events.into_iter().filter_map(|e| match e {
            Event::Stat { record, .. } => Some(record),
            _ => None,
        });
        // The liars take of the room that all users have.
        let records = records.map(|mut record| {
            if let StatRecord::Domain(domain) = &mut record {
                domain.room_bytes = 0;
            }
            record
        });
        records.filter(of_ours).collect()
    }

    /// Checks that the honest domains have everything that they had, and may do everything that they might do.
    pub fn still_honest(&mut self) {
        let now = self.look();
        assert_eq!(now, self.honest.has, "what is the honest ones'");
        // Descriptors that they release here are closed late: otherwise these would use up their limit.
        if super::fair::are_many(self.shell.state.accounts()[&HONEST]) {
            self.closed(usize::MAX);
        }
        let (granted, stranded) = self.shell.state.memory();
        // If a liar has claimed more than the total, no domain is granted more.
        if granted + stranded <= super::world::TOTAL {
            let chunk = self.grow();
            self.shrink(chunk);
        }
        let channel = self.open();
        for who in [1, 0] {
            self.ask(who, |_| Request::CloseChannel { channel });
        }
        let client = self.honest.clients[0].expect("joined");
        self.feed(Input::Blocked { client });
        assert_eq!(self.look(), self.honest.has, "what is left of it");
    }

    /// Ends the untrusted domains, checks the honest ones, and ends these too: nothing is left.
    pub fn end(mut self) {
        self.still_honest();
        let untrusted = |world: &World| {
            let all = world.clients.values().filter(|c| c.uid != HONEST);
            all.map(|c| c.process).next()
        };
        while let Some(process) = untrusted(&self) {
            self.die(process, process % 2 == 0);
        }
        let rest: BTreeSet<u64> = self.shell.watched.iter().map(|(p, _)| *p).collect();
        let honest: BTreeSet<u64> = self.clients.values().map(|c| c.process).collect();
        for process in rest.difference(&honest) {
            self.die(*process, true);
        }
        self.wait();
        self.still_honest();
        self.honest.leave();
        for process in honest {
            self.die(process, true);
        }
        self.wait();
        self.shell.is_empty();
    }

    /// Waits for everything that goes by itself.
    fn wait(&mut self) {
        for _ in 0..100 {
            self.shell.now += Duration::from_millis(250);
            self.feed(Input::Tick);
            self.closed(usize::MAX);
        }
    }
}
