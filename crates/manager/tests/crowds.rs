//! The state machine among crowds: what one client asks costs what it has itself, however much others have. A scan over what
//! others have is a scan for each request: with so many of both the watchdog would come first.

use std::collections::VecDeque;
use std::time::Duration;
use tranship_manager::state::{
    Action, ClientId, Facts, Fd, FdToken, Header, IdStart, Input, State,
};
use tranship_manager::{Config, Limits};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, Event, PROTOCOL_VERSION, PoolId, Req, Request, Role,
};
use tranship_testkit::Watchdog;

/// Of those who are there, and of requests among them.
const CROWD: u32 = 60_000;
const LINES: u32 = 2;
const LINK_SOURCE: u32 = 6;
const SENT: u32 = 4;

struct House {
    state: State,
    next: u64,
    _dog: Watchdog,
}

impl House {
    fn new() -> House {
        let limits = Limits {
            connections: u32::MAX,
            channels: u32::MAX,
            names: u32::MAX,
            descriptors: u32::MAX,
            records: u32::MAX,
            ..Limits::default()
        };
        let config = Config {
            limits,
            ..Config::default()
        };
        let ids = IdStart {
            next: 1_000_000,
            next_pool: 1,
        };
        House {
            state: State::new(config, 1 << 30, 1, 1, ids),
            next: 1,
            _dog: Watchdog::new(Duration::from_secs(100)),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// What is sent is taken at once, what is closed is closed.
    fn step(&mut self, input: Input) -> Vec<Event> {
        let (mut inputs, mut events) = (VecDeque::from([input]), Vec::new());
        while let Some(input) = inputs.pop_front() {
            for action in self.state.step(Duration::from_millis(1), input) {
                match action {
                    Action::Send { client, event, .. } => {
                        events.push(event);
                        inputs.push_back(Input::Sent { client });
                    }
                    Action::Close(token) => inputs.push_back(Input::Closed { token }),
                    Action::Disconnect { client, .. } => {
                        inputs.push_back(Input::Parted { client });
                    }
                    _ => {}
                }
            }
            // As the shell does before it waits.
            let _ = self.state.deadline();
        }
        events
    }

    fn connect(&mut self, uid: u32) -> ClientId {
        let client = ClientId(self.number());
        self.step(Input::Connected {
            client,
            uid,
            gid: uid,
            pid: 1,
        });
        client
    }

    fn join(&mut self, uid: u32, resume: Option<DomainId>) -> (ClientId, DomainId) {
        let client = self.connect(uid);
        let request = Request::Hello {
            version: PROTOCOL_VERSION,
            name: "one".into(),
            resume,
            dumpable: false,
        };
        let (process, pidfd, board) = (self.number(), self.number(), self.number());
        let events = self.step(Input::Hello {
            client,
            request,
            pidfd: Some(FdToken(pidfd)),
            process,
            board: Some(FdToken(board)),
        });
        match events.first() {
            Some(Event::Welcome { domain, .. }) => (client, *domain),
            other => panic!("{other:?}"),
        }
    }

    fn ask(
        &mut self,
        client: ClientId,
        request: Request,
        object: Option<(u32, u64)>,
    ) -> Vec<Event> {
        let fds = object.map(|(kind, size)| Fd {
            token: FdToken(self.number()),
            facts: Facts {
                sealed: true,
                size,
                header: Some(Header {
                    kind,
                    count: LINES,
                    ..Header::default()
                }),
                made_here: false,
                inode: 1,
            },
        });
        self.step(Input::Request {
            client,
            request,
            fds: fds.into_iter().collect(),
        })
    }

    fn part(&mut self, client: ClientId) {
        self.step(Input::HungUp { client });
        self.step(Input::Parted { client });
    }
}

#[test]
fn of_those_that_say_nothing() {
    let mut house = House::new();
    for _ in 0..CROWD {
        house.connect(1);
    }
    let (client, _) = house.join(2, None);
    for n in 0..CROWD {
        house.ask(client, Request::CancelConnect { req: Req(n) }, None);
    }
}

#[test]
fn of_domains() {
    let mut house = House::new();
    for _ in 0..CROWD {
        house.join(1, None);
    }
    let (client, _) = house.join(2, None);
    for index in 0..CROWD {
        let unmapped = Request::Unmapped {
            pool: PoolId(7),
            index,
            serial: 1,
        };
        let events = house.ask(client, unmapped, None);
        assert!(matches!(events[..], [Event::PoolGone { .. }]), "{events:?}");
    }
}

#[test]
fn of_channels() {
    let mut house = House::new();
    let half = || Some((LINK_SOURCE, 8192));
    let (exporter, _) = house.join(1, None);
    let (connector, _) = house.join(1, None);
    let export = Request::Export {
        req: Req(1),
        name: "crowd".into(),
        role: Role::Sink,
    };
    house.ask(exporter, export, None);
    for n in 0..CROWD {
        let connect = Request::Connect {
            req: Req(n),
            name: "crowd".into(),
            role: Role::Source,
            lines: LINES,
            wait: false,
        };
        let events = house.ask(connector, connect, half());
        let Some(Event::Incoming { channel, .. }) = events.first() else {
            panic!("{events:?}");
        };
        let accept = Request::Accept {
            req: Req(n),
            channel: *channel,
            lines: LINES,
        };
        let events = house.ask(exporter, accept, Some((LINK_SOURCE + 1, 8192)));
        assert!(
            matches!(events.first(), Some(Event::Opened { .. })),
            "{events:?}"
        );
    }
    // Others come, take back what they never asked for, and go: with their connections, and for good.
    for n in 0..CROWD {
        let (client, _) = house.join(2, None);
        house.ask(client, Request::CancelConnect { req: Req(n) }, None);
        if n % 2 == 0 {
            house.ask(client, Request::Goodbye, None);
        } else {
            house.part(client);
        }
    }
}

#[test]
fn of_claims() {
    let mut house = House::new();
    let (client, _) = house.join(1, Some(DomainId(7)));
    // Half of them with counters of a pool that never comes.
    for n in 0..CROWD / 2 {
        let channel = ChannelId(1000 + n);
        let claim = ChannelClaim {
            channel,
            name: "crowd".into(),
            role: Role::Source,
            peer: DomainId(8),
            lines: LINES,
            peer_inode: 1,
        };
        let req = Req(n);
        let events = house.ask(
            client,
            Request::ClaimChannel { req, claim },
            Some((LINK_SOURCE, 8192)),
        );
        assert!(events.is_empty(), "{events:?}");
        let assign = Request::ClaimAssign {
            req,
            channel,
            pool: PoolId(7),
        };
        let events = house.ask(client, assign, Some((SENT, 4096)));
        assert!(events.is_empty(), "{events:?}");
    }
    // Others come back, claim that they have nothing, and make something new.
    for n in 0..CROWD {
        let (client, _) = house.join(2, Some(DomainId(500_000 + n)));
        let events = house.ask(client, Request::ClaimDone { req: Req(1) }, None);
        assert!(matches!(events[..], [Event::Claimed { .. }]), "{events:?}");
        let export = Request::Export {
            req: Req(2),
            name: format!("name-{n}"),
            role: Role::Sink,
        };
        let events = house.ask(client, export, None);
        assert!(matches!(events[..], [Event::Exported { .. }]), "{events:?}");
    }
}
