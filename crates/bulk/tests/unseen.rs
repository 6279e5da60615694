//! What a process cannot find at level `none`, in any of its mappings and descriptors: bytes that were not sent to it.

use std::os::unix::fs::FileExt;
use tranship_bulk::raw::{Aggregate, Event, Raw};
use tranship_bulk::{Constraints, Direction, Kind, Role, Trust, Wish};
use tranship_core::Domain as Manager;
use tranship_testkit::{Control, Peer, Watchdog, child};

const PAGE: usize = 4096;
/// How much of a page tells one text from others.
const MARK: usize = 64;

/// The byte of a text. It is worked out where it is compared, so that nobody holds it who was not sent it.
fn byte(text: u64, at: usize) -> u8 {
    let mixed = (text + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (at as u64) << 7;
    mixed.wrapping_mul(0xff51_afd7_ed55_8ccd).to_be_bytes()[0]
}

fn page(text: u64) -> Vec<u8> {
    (0..PAGE).map(|at| byte(text, at)).collect()
}

fn is(text: u64, bytes: &[u8]) -> bool {
    (0..MARK).all(|at| bytes.get(at) == Some(&byte(text, at)))
}

/// Where in this process a page begins with the text: in mappings, whatever they allow, and in memory behind descriptors.
fn found(text: u64) -> Vec<String> {
    let mut places = Vec::new();
    let mut bytes = [0; MARK];
    let memory = std::fs::File::open("/proc/self/mem").expect("our own memory");
    for line in std::fs::read_to_string("/proc/self/maps")
        .expect("maps")
        .lines()
    {
        let (range, _) = line.split_once(' ').expect("a range");
        let (begin, end) = range.split_once('-').expect("two ends");
        let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        for at in (number(begin)..number(end)).step_by(PAGE) {
            if memory.read_exact_at(&mut bytes, at).is_ok() && is(text, &bytes) {
                places.push(line.to_owned());
            }
        }
    }
    for fd in std::fs::read_dir("/proc/self/fd").expect("descriptors") {
        let path = fd.expect("a descriptor").path();
        let Ok(name) = std::fs::read_link(&path) else {
            continue;
        };
        if !name.to_string_lossy().starts_with("/memfd:") {
            continue;
        }
        let Ok(file) = std::fs::File::open(&path) else {
            continue;
        };
        let pages = file.metadata().expect("its size").len() / PAGE as u64;
        let mut begins = (0..pages).map(|at| at * PAGE as u64);
        if begins.any(|at| file.read_exact_at(&mut bytes, at).is_ok() && is(text, &bytes)) {
            places.push(name.display().to_string());
        }
    }
    places
}

fn wish() -> Wish {
    Wish {
        role: Role::Generic,
        trust: Trust::None,
        constraints: Constraints::default(),
    }
}

/// What comes is kept until it is asked to be given back; what it is asked for is looked for.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, Debug)]
enum Ask {
    /// Wait for as many buffers.
    Take(usize),
    GiveBack,
    Find(u64),
}

child!(
    fn sink(ctl: Control) {
        let address: String = ctl.recv().expect("control").expect("an address");
        let raw = Raw::new();
        let (channel, _) = raw.bind(&address, wish(), None).expect("bind");
        let mut here = Vec::new();
        loop {
            if ctl.is_ready() {
                let Some(ask) = ctl.recv().expect("control") else {
                    return;
                };
                match ask {
                    Ask::Take(count) => {
                        while here.len() < count {
                            raw.turn(channel).expect("turn");
                            match raw.poll_event(channel) {
                                Some(Event::Moved(pool, index, _)) => here.push((pool, index)),
                                Some(Event::Aggregate { buffers, .. }) => here.extend(buffers),
                                _ => std::thread::yield_now(),
                            }
                        }
                        ctl.send(&Vec::<String>::new()).expect("control");
                    }
                    Ask::GiveBack => {
                        for buffer in here.drain(..) {
                            raw.pass(channel, buffer, &[]).expect("pass");
                        }
                        ctl.send(&Vec::<String>::new()).expect("control");
                    }
                    Ask::Find(text) => ctl.send(&found(text)).expect("control"),
                }
            }
            raw.turn(channel).expect("turn");
            std::thread::yield_now();
        }
    }
);

/// The source of one channel, and the process that is its sink.
struct To {
    channel: u64,
    peer: Peer,
}

impl To {
    fn new(raw: &Raw, manager: &Manager, name: &str, pool: u64) -> To {
        let address = format!("shm:unseen-{name}-{}", std::process::id());
        let created = raw.create(&address, Direction::Source, wish(), 0, None);
        let channel = created.expect("create");
        let path = manager.socket_path().expect("its socket");
        let peer = sink().env("TRANSHIP_SOCKET", path).start().expect("start");
        peer.send(&address).expect("send");
        until(raw, channel, |event| matches!(event, Event::Bound(Ok(_))));
        let asked = raw.assign(channel, pool).expect("assign");
        while asked.result().is_none() {
            raw.turn(channel).expect("turn");
        }
        assert_eq!(asked.result(), Some(Ok(())));
        To { channel, peer }
    }

    fn ask(&self, ask: Ask) -> Vec<String> {
        self.peer.ask(&ask)
    }

    fn finds(&self, text: u64) -> bool {
        !self.ask(Ask::Find(text)).is_empty()
    }

    #[track_caller]
    fn does_not_find(&self, text: u64, what: &str) {
        assert_eq!(self.ask(Ask::Find(text)), Vec::<String>::new(), "{what}");
    }
}

fn until(raw: &Raw, channel: u64, wanted: impl Fn(&Event) -> bool) {
    loop {
        raw.turn(channel).expect("turn");
        if raw.poll_event(channel).is_some_and(|event| wanted(&event)) {
            return;
        }
    }
}

const SENT: u64 = 1;
const NEVER: u64 = 2;
const ELSEWHERE: u64 = 3;
const LATER: u64 = 4;
const BOTH: u64 = 5;
const REFUSED: u64 = 6;

fn only_what_was_sent_is_there(seal_from: u64) {
    let manager = Manager::embedded().expect("a manager");
    let raw = Raw::over(&manager).expect("a member");
    raw.seal_from(seal_from);
    let pool = raw.new_pool(8, PAGE as u64, false).expect("pool");
    let fresh = |text| {
        let buffer = (pool, raw.alloc(pool).expect("alloc"));
        raw.write(buffer, 0, &page(text)).expect("write");
        buffer
    };
    let early = fresh(NEVER);
    let a = To::new(&raw, &manager, &format!("a-{seal_from}"), pool);
    let b = To::new(&raw, &manager, &format!("b-{seal_from}"), pool);
    raw.move_(a.channel, fresh(SENT), &[]).expect("move");
    a.ask(Ask::Take(1));
    assert!(a.finds(SENT), "so looking finds what is there");
    a.does_not_find(NEVER, "what was written before the pool was assigned");
    b.does_not_find(SENT, "what went to another process");
    // The same buffer, once more, to somebody else.
    a.ask(Ask::GiveBack);
    until(&raw, a.channel, |event| matches!(event, Event::Passed(..)));
    raw.move_(b.channel, fresh(ELSEWHERE), &[]).expect("move");
    b.ask(Ask::Take(1));
    assert!(b.finds(ELSEWHERE));
    a.does_not_find(ELSEWHERE, "what is in a buffer that it had once");
    let later = fresh(LATER);
    a.does_not_find(LATER, "what is being written");
    // As a part of something larger.
    let mut both = Aggregate::default();
    let parts = [fresh(BOTH), later];
    for part in parts {
        raw.insert(&mut both, 0, part, (0, PAGE as u64))
            .expect("insert");
    }
    raw.move_all(b.channel, &both, &[]).expect("move");
    b.ask(Ask::Take(3));
    assert!(b.finds(BOTH) && b.finds(LATER));
    a.does_not_find(BOTH, "a part of what went to another process");
    // What there was no room for.
    let (full, refused) = (fresh(SENT), fresh(REFUSED));
    a.peer.stop();
    let mut sent = (0..).map(|_| raw.copy(a.channel, full, &[]).map(drop));
    assert_eq!(sent.find(Result::is_err), Some(Err(Kind::Full.into())));
    let no_room = raw.move_(a.channel, refused, &[]).map(drop);
    assert_eq!(no_room, Err(Kind::Full.into()));
    a.peer.resume();
    a.does_not_find(REFUSED, "what was not sent after all");
    a.does_not_find(NEVER, "what was never sent");
    b.does_not_find(NEVER, "what was never sent");
    raw.read(early, 0, &mut [0; 1]).expect("it is here");
}

#[test]
fn what_was_not_sent_is_nowhere_in_another_process() {
    let _dog = Watchdog::new();
    only_what_was_sent_is_there(u64::MAX);
}

#[test]
fn nor_where_each_buffer_is_sealed_by_itself() {
    let _dog = Watchdog::new();
    only_what_was_sent_is_there(0);
}
