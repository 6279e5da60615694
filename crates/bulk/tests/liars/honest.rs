//! An honest domain in a process of its own, and how the others tell it what to do.

use crate::stage::Says;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use tranship_bulk::raw::{Buffer, Event, Raw};
use tranship_bulk::{
    BufferState, ChannelState, Completion, Constraints, Direction, Error, Kind, PoolInfo, Role,
    Trust, Wish,
};
use tranship_sys::pidfd;
use tranship_testkit::{Control, Held, child, resource};

/// The longest metadata.
const META: u32 = 16;

pub fn wish(role: Role, trust: Trust) -> Wish {
    Wish {
        role,
        trust,
        constraints: Constraints::default(),
    }
}

#[derive(Serialize, Deserialize)]
pub enum Order {
    Create(String, Direction, Trust),
    Bind(String, Role, Trust),
    /// Up to so often; was there a message?
    Turn(u64, u32),
    SealFrom(u64),
    NewPool(u32, u64),
    Alloc(u64),
    Assign(u64, u64),
    /// How the last assignment ended.
    Assigned,
    Move(u64, Buffer),
    Copy(u64, Buffer),
    Pass(u64, Buffer),
    Fill(Buffer, u8),
    /// So often: the bytes, if they are always the same.
    Read(Buffer, u32),
    /// Takes what comes, writes it and gives it back.
    Serve(u64),
    State(u64),
    Buffer(Buffer),
    Pool(u64),
    Snapshots,
    /// This one's other end is honest, and lives on.
    Befriend(u64),
    /// The liar is dead: what is here that was not here at the start?
    Left,
}

child!(
    pub fn honest(ctl: Control) {
        warm();
        let start = held();
        let mut it = It::default();
        while let Some(order) = ctl.recv().expect("an order") {
            it.obey(order, &start, &ctl);
        }
    }
);

/// Makes a channel, with which a process gets what it keeps, and lets go of what others have closed for it meanwhile.
fn warm() {
    while !connects() {
        std::thread::yield_now();
    }
}

/// False if it did not come to a channel: what of the liar's is still being closed may keep its user out for a while, and on a busy machine
/// the two may be too slow for each other.
fn connects() -> bool {
    let (a, b) = (Raw::new(), Raw::new());
    let address = format!("shm:warm-{}", std::process::id());
    let wish = wish(Role::Generic, Trust::None);
    let source = a.create(&address, Direction::Source, wish, META, None);
    let source = source.expect("create");
    let sink = match b.bind(&address, wish, None) {
        Ok((sink, _)) => sink,
        Err(error) if error == Kind::PeerViolation => return false,
        Err(other) => panic!("{other}"),
    };
    loop {
        match b.channel_state(sink) {
            Some(ChannelState::Connected) => return true,
            None | Some(ChannelState::Closed) => return false,
            Some(_) => drop((a.turn(source), b.turn(sink))),
        }
    }
}

/// What is not as it was at the start, and does not become so.
fn left(start: &Held) -> Vec<String> {
    for _ in 0..2000 {
        if held().differences(start).is_empty() {
            return Vec::new();
        }
        warm();
    }
    held().differences(start)
}

/// Without the last helper that has closed something for this process (`sys::aside`), which it lets go of when it needs the next.
fn held() -> Held {
    let mut held = Held::here().expect("held");
    let all = resource::fds(std::process::id()).expect("descriptors");
    let ended = |fd: &&resource::Fd| {
        // SAFETY: of this process, which has one thread that opens and closes.
        let process = unsafe { BorrowedFd::borrow_raw(fd.number) };
        fd.target.ends_with("[pidfd]") && pidfd::is_dead(process).unwrap_or(false)
    };
    held.fds -= all.iter().filter(ended).count();
    held
}

#[derive(Default)]
struct It {
    raw: Raw,
    channels: Vec<u64>,
    friends: Vec<u64>,
    assigned: Option<Completion>,
}

impl It {
    fn obey(&mut self, order: Order, start: &Held, ctl: &Control) {
        let raw = &self.raw;
        let send =
            |result: Result<(), Error>| answer(ctl, &result.map_err(|error| error.kind().number()));
        match order {
            Order::Create(address, direction, trust) => {
                let wish = wish(Role::Generic, trust);
                let made = raw.create(&address, direction, wish, META, None);
                self.channels.extend(made.as_ref().ok());
                answer(ctl, &made.map_err(|error| error.kind().number()));
            }
            Order::Bind(address, role, trust) => {
                let made = raw.bind(&address, wish(role, trust), None);
                let made = made.map(|(channel, _)| channel);
                self.channels.extend(made.as_ref().ok());
                answer(ctl, &made.map_err(|error| error.kind().number()));
            }
            Order::Turn(channel, times) => {
                let turned = (0..times).filter(|_| raw.turn(channel) == Ok(true));
                answer(ctl, &(turned.count() > 0));
            }
            Order::SealFrom(bytes) => answer(ctl, &raw.seal_from(bytes)),
            Order::NewPool(buffers, bytes) => {
                let made = raw.new_pool(buffers, bytes, false);
                answer(ctl, &made.map_err(|error| error.kind().number()));
            }
            Order::Alloc(pool) => {
                answer(ctl, &raw.alloc(pool).map_err(|error| error.kind().number()))
            }
            Order::Assign(channel, pool) => {
                let asked = raw.assign(channel, pool);
                let asked = asked.map(|asked| self.assigned = Some(asked));
                send(asked);
            }
            Order::Assigned => {
                let result = self.assigned.as_ref().and_then(Completion::result);
                answer(
                    ctl,
                    &result.map(|it| it.map_err(|error| error.kind().number())),
                );
            }
            Order::Move(channel, buffer) => send(raw.move_(channel, buffer, &[]).map(drop)),
            Order::Copy(channel, buffer) => send(raw.copy(channel, buffer, &[]).map(drop)),
            Order::Pass(channel, buffer) => send(raw.pass(channel, buffer, &[]).map(drop)),
            Order::Fill(buffer, byte) => {
                let len = raw.pool(buffer.0).map_or(0, |pool| pool.buffer_bytes);
                let len = usize::try_from(len).unwrap_or(0);
                send(raw.write(buffer, 0, &vec![byte; len]));
            }
            Order::Read(buffer, times) => answer(ctl, &self.read(buffer, times)),
            Order::Serve(channel) => answer(ctl, &self.serve(channel)),
            Order::State(channel) => answer(ctl, &raw.channel_state(channel)),
            Order::Buffer(buffer) => answer(ctl, &raw.buffer_state(buffer)),
            Order::Pool(pool) => answer(ctl, &raw.pool(pool)),
            Order::Snapshots => answer(ctl, &raw.statistics().snapshots),
            Order::Befriend(channel) => answer(ctl, &self.friends.push(channel)),
            Order::Left => {
                self.friends
                    .iter()
                    .for_each(|channel| raw.abandon(*channel));
                self.channels.iter().for_each(|channel| over(raw, *channel));
                *self = It::default();
                answer(ctl, &left(start));
            }
        }
    }

    fn read(&self, buffer: Buffer, times: u32) -> Result<Vec<u8>, String> {
        let bytes = self.raw.pool(buffer.0).map_or(0, |pool| pool.buffer_bytes);
        let len = usize::try_from(bytes).unwrap_or(0);
        let read = || {
            let mut bytes = vec![0; len];
            let read = self.raw.read(buffer, 0, &mut bytes);
            read.map(|()| bytes).map_err(|code| format!("{code:?}"))
        };
        let first = read()?;
        for time in 1..times {
            if read()? != first {
                return Err(format!("other bytes at the {time}. look"));
            }
        }
        Ok(first)
    }

    fn serve(&self, channel: u64) {
        while let Some(event) = self.raw.poll_event(channel) {
            match event {
                Event::Moved(pool, index, _) => {
                    let _ = self.raw.write((pool, index), 0, b"mine");
                    let _ = self.raw.pass(channel, (pool, index), &[]);
                }
                Event::Copied(pool, index, _) => {
                    let _ = self.raw.release(channel, (pool, index));
                }
                _ => {}
            }
        }
    }
}

fn answer<T: Serialize>(ctl: &Control, it: &T) {
    ctl.send(it).expect("an answer");
}

/// Turns until the other end, which is dead, is seen to be.
fn over(raw: &Raw, channel: u64) {
    loop {
        match raw.channel_state(channel) {
            None | Some(ChannelState::Closed | ChannelState::Uninitialized) => return,
            // Nobody has bound, and nobody will.
            Some(ChannelState::Initialized) => raw.abandon(channel),
            Some(_) => drop(raw.turn(channel)),
        }
    }
}

/// One of these processes, as others see it: a [`Raw`] far away.
pub struct Honest {
    ctl: Rc<Control>,
    who: usize,
}

impl Honest {
    pub fn new(ctl: &Rc<Control>, who: usize) -> Honest {
        let ctl = Rc::clone(ctl);
        Honest { ctl, who }
    }

    fn ask<T: DeserializeOwned>(&self, order: &Order) -> T {
        let order = serde_json::to_value(order).expect("an order");
        self.ctl.send(&Says::To(self.who, order)).expect("control");
        self.ctl.recv().expect("control").expect("an answer")
    }

    fn coded<T: DeserializeOwned>(&self, order: &Order) -> Result<T, Error> {
        let result: Result<T, u16> = self.ask(order);
        result.map_err(|code| Kind::from_u16(code).expect("a kind").into())
    }

    pub fn create(&self, address: &str, direction: Direction, trust: Trust) -> u64 {
        let order = Order::Create(address.into(), direction, trust);
        self.coded(&order).expect("create")
    }

    pub fn bind(&self, address: &str, role: Role, trust: Trust) -> u64 {
        let order = Order::Bind(address.into(), role, trust);
        self.coded(&order).expect("bind")
    }

    pub fn turn(&self, channel: u64) -> bool {
        self.ask(&Order::Turn(channel, 16))
    }

    pub fn seal_from(&self, bytes: u64) {
        self.ask(&Order::SealFrom(bytes))
    }

    pub fn new_pool(&self, buffers: u32, bytes: u64) -> u64 {
        self.coded(&Order::NewPool(buffers, bytes)).expect("pool")
    }

    pub fn alloc(&self, pool: u64) -> u32 {
        self.coded(&Order::Alloc(pool)).expect("alloc")
    }

    pub fn assign(&self, channel: u64, pool: u64) {
        let asked = self.coded(&Order::Assign(channel, pool));
        asked.expect("assign")
    }

    /// How the last assignment ended.
    pub fn assigned(&self) -> Option<Result<(), Error>> {
        let result: Option<Result<(), u16>> = self.ask(&Order::Assigned);
        result.map(|it| it.map_err(|code| Kind::from_u16(code).expect("a kind").into()))
    }

    pub fn move_(&self, channel: u64, buffer: Buffer) {
        self.coded(&Order::Move(channel, buffer)).expect("move")
    }

    pub fn copy(&self, channel: u64, buffer: Buffer) {
        self.coded(&Order::Copy(channel, buffer)).expect("copy")
    }

    pub fn pass(&self, channel: u64, buffer: Buffer) {
        self.coded(&Order::Pass(channel, buffer)).expect("pass")
    }

    pub fn fill(&self, buffer: Buffer, byte: u8) {
        self.coded(&Order::Fill(buffer, byte)).expect("write")
    }

    /// All of a buffer's bytes, which are the same so many times.
    pub fn read(&self, buffer: Buffer, times: u32) -> Result<Vec<u8>, String> {
        self.ask(&Order::Read(buffer, times))
    }

    pub fn serve(&self, channel: u64) {
        self.ask(&Order::Serve(channel))
    }

    pub fn channel_state(&self, channel: u64) -> Option<ChannelState> {
        self.ask(&Order::State(channel))
    }

    pub fn buffer_state(&self, buffer: Buffer) -> Option<BufferState> {
        self.ask(&Order::Buffer(buffer))
    }

    pub fn pool(&self, pool: u64) -> Option<PoolInfo> {
        self.ask(&Order::Pool(pool))
    }

    pub fn snapshots(&self) -> u64 {
        self.ask(&Order::Snapshots)
    }

    /// The other end of this channel is honest, and lives on.
    pub fn befriend(&self, channel: u64) {
        self.ask(&Order::Befriend(channel))
    }
}
