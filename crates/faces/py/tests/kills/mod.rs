//! C and Python programs are killed (SIGKILL) while they send and receive: the program at the other end is told, and
//! nothing is left.
//!
//! Four programs stay, one of each language at each end. Each program that connects to them is killed at a random
//! moment. The test then looks from outside: the manager knows no other domains, and it and they hold what they held
//! before. When they have left, too, there is nothing.

use crate::stage::{Stage, compiled, here, staged};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tranship::admin::StatRecord;
use tranship::{Domain, ErrorKind, Receiver, Sender};
use tranship_testkit::chaos::Auditor;
use tranship_testkit::resource::memory;
use tranship_testkit::{Held, Lines, Random, Watchdog, artifact};

/// Messages in each of the four lanes before anything is measured: things that a program and the manager need once,
/// they have then.
const BEFORE: u64 = 2;
/// Messages of a transfer that ends in order.
const ORDERLY: u64 = 100;
/// Tolerance of the manager's own memory, for memory that its allocator keeps.
const SLACK_BYTES: u64 = 2 << 20;

pub fn kills() -> u64 {
    tranship_testkit::kills(40, 1000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Python,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Send,
    Receive,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Role::Send => "send",
            Role::Receive => "receive",
        }
    }

    fn other(self) -> Role {
        match self {
            Role::Send => Role::Receive,
            Role::Receive => Role::Send,
        }
    }
}

/// Everything lies in one folder, and each started program bears its name.
struct Scene {
    audit: Auditor,
    c: PathBuf,
    python: Option<&'static Stage>,
}

impl Scene {
    fn new() -> Scene {
        let audit = Auditor::new();
        let c = compiled("tests/kills/worker.c", &audit.path(""));
        let python = staged();
        Scene { audit, c, python }
    }

    fn socket(&self) -> PathBuf {
        self.audit.path("socket")
    }

    fn start(&self, mut command: Command) -> Program {
        for key in ["TMPDIR", "XDG_RUNTIME_DIR", "HOME"] {
            command.env(key, self.audit.path(""));
        }
        command.env("TRANSHIP_SOCKET", self.socket());
        Program(Lines::of(command.stdin(Stdio::null())))
    }

    fn manager(&self) -> Program {
        let mut manager = Command::new(artifact("tranship-cli", "tranship"));
        // The machine's memory is others' too: survivors would give theirs back when it is short.
        let config = self.socket().with_extension("toml");
        fs::write(&config, "[pressure]\nwatch = false\n").expect("a configuration");
        manager.args(["manager", "--socket"]).arg(self.socket());
        manager.arg("--config").arg(config);
        self.start(manager)
    }

    fn worker(&self, language: Language, role: Role, words: &[&str]) -> Program {
        let python = self.python.filter(|_| language == Language::Python);
        let mut command = match python {
            None => Command::new(&self.c),
            Some(stage) => {
                let mut python = Command::new(&stage.python);
                python
                    .arg(here("tests/kills/worker.py"))
                    .env("PYTHONPATH", &stage.package)
                    .env("PYTHONDONTWRITEBYTECODE", "1");
                python
            }
        };
        command.arg(role.word()).args(words);
        self.start(command)
    }
}

/// A program that does not outlive the test.
struct Program(Lines);

impl Program {
    fn pid(&self) -> u32 {
        self.0.program.0.id()
    }

    /// Returns its next line.
    #[track_caller]
    fn hear(&mut self) -> String {
        let line = self.0.line();
        assert!(!line.is_empty(), "it ended: {:?}", self.0.program.0.wait());
        line
    }

    /// Returns the number in its next line, after this word.
    #[track_caller]
    fn number(&mut self, word: &str) -> u32 {
        let line = self.hear();
        number(&line, word).unwrap_or_else(|| panic!("{line:?} instead of {word:?}"))
    }

    /// Kills it by SIGKILL. Returns its output before.
    fn kill(mut self) -> Vec<String> {
        self.0.program.kill();
        let line = || Some(self.0.line()).filter(|line| !line.is_empty());
        std::iter::from_fn(line).collect()
    }

    fn ends_well(self) {
        self.0.program.ends_well();
    }
}

fn number(line: &str, word: &str) -> Option<u32> {
    line.strip_prefix(word)?.trim().parse().ok()
}

/// A program that stays, and those that come to it.
struct Lane<'a> {
    scene: &'a Scene,
    survivor: Program,
    name: String,
    role: Role,
    random: Random,
    figures: Figures,
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    killed: u64,
    /// Number of these with a channel; and number with messages on it.
    connected: u64,
    in_the_midst: u64,
    messages: u64,
}

/// Report of a survivor on a program that had connected.
#[derive(Debug, PartialEq, Eq)]
struct Report {
    peer: u32,
    how: String,
    messages: u64,
}

impl Lane<'_> {
    fn language(&mut self) -> Language {
        match self.random.one_in(2) {
            true => Language::C,
            false => Language::Python,
        }
    }

    fn visitor(&self, language: Language, level: u64, count: u64) -> Program {
        let (level, count) = (level.to_string(), count.to_string());
        let words = [self.name.as_str(), "once", &level, &count];
        self.scene.worker(language, self.role.other(), &words)
    }

    /// Returns the report on a peer. Before it may come reports on others, which were killed before they knew that they
    /// were connected.
    fn report_of(&mut self, peer: u32) -> Report {
        loop {
            let line = self.survivor.hear();
            let mut words = line.split(' ');
            let mut word = || words.next().expect("three words");
            let report = Report {
                peer: word().parse().expect("a domain"),
                how: word().to_owned(),
                messages: word().parse().expect("a number"),
            };
            if report.peer == peer {
                return report;
            }
            assert_eq!(report.how, self.end_of_the_killed(), "{report:?}");
        }
    }

    /// A sender is not told why its receiver is gone.
    fn end_of_the_killed(&self) -> &'static str {
        match self.role {
            Role::Send => "gone",
            Role::Receive => "died",
        }
    }

    fn kill_one(&mut self) {
        let (language, level) = (self.language(), 2 + self.random.below(3));
        let mut victim = self.visitor(language, level, 0);
        // Most at work, some while they join and connect, some as they start.
        let stage = self.random.below(8);
        let mut peer = (stage > 0).then(|| victim.number("joined"));
        if stage > 1 {
            victim.number("open");
        }
        let longest = if stage == 0 { 200 } else { 20 };
        self.random.instant(Duration::from_millis(longest));
        let rest = victim.kill();
        peer = peer.or_else(|| rest.iter().find_map(|line| number(line, "joined")));
        self.figures.killed += 1;
        if stage > 1 || rest.iter().any(|line| line.starts_with("open")) {
            let report = self.report_of(peer.expect("who connects has joined"));
            assert_eq!(
                report.how,
                self.end_of_the_killed(),
                "{language:?} {report:?}"
            );
            self.figures.connected += 1;
            self.figures.in_the_midst += u64::from(report.messages > 0);
            self.figures.messages += report.messages;
        }
    }

    /// One that nobody kills: it gets, or brings, everything.
    fn serve_one(&mut self, language: Language) {
        let mut visitor = self.visitor(language, 2, ORDERLY);
        let peer = visitor.number("joined");
        visitor.number("open");
        visitor.ends_well();
        let report = self.report_of(peer);
        assert_eq!(report.how, "gone", "{language:?} {report:?}");
        match self.role {
            Role::Receive => assert_eq!(report.messages, ORDERLY),
            Role::Send => assert!(report.messages >= ORDERLY, "{report:?}"),
        }
    }

    /// Returns the memory that it holds; it lets go of others' memory while it waits for the next peer.
    fn held(&self) -> Held {
        Held::by([self.survivor.pid()]).expect("/proc")
    }
}

fn in_all(lanes: &mut [Lane<'_>], dog: &Watchdog, what: impl Fn(&mut Lane<'_>) + Sync) {
    thread::scope(|scope| {
        for lane in lanes {
            let what = &what;
            scope.spawn(move || {
                what(lane);
                dog.step(format!("{}: {:?}", lane.name, lane.figures));
            });
        }
    });
}

/// Returns the domains that the manager knows besides the observer and the survivors.
pub fn strange(domain: &Domain, known: &[u32]) -> Vec<String> {
    let known = |id: u32| id == domain.id().0 || known.contains(&id);
    let all = domain.admin().stat().expect("stat");
    let strange = all.iter().filter(|record| match record {
        StatRecord::Domain(other) => !known(other.domain.0),
        StatRecord::Pool(pool) => !known(pool.writer.0) || pool.stranded_bytes > 0,
        // An exported name, or an end that waits for one, is nobody's channel yet.
        StatRecord::Channel(channel) => {
            channel.exported_as.is_none() && channel.waiting_as.is_none()
        }
        StatRecord::Hold(_) | StatRecord::Heap(_) => true,
        StatRecord::Manager(_) => false,
    });
    strange.map(|record| format!("{record:?}")).collect()
}

/// Waits until nothing is strange any more: the watchdog reports the rest.
pub fn wait_until_none(dog: &Watchdog, strange: impl Fn() -> Vec<String>) {
    let mut before = Vec::new();
    loop {
        let now = strange();
        if now.is_empty() {
            return;
        }
        if now != before {
            dog.step(format!("{now:#?}"));
            before = now;
        }
        thread::yield_now();
    }
}

/// Returns the resources of which there are more than before. There may be less: something of the last visitor was
/// perhaps still there.
fn more(what: &str, now: &Held, before: &Held) -> Vec<String> {
    let figures = |held: &Held| {
        [
            ("descriptors", held.fds as u64),
            ("memfds", held.memfds.len() as u64),
            ("bytes of memfds", held.resident()),
            ("mappings of memfds", held.mappings as u64),
            ("bytes mapped", held.mapped),
        ]
    };
    let both = figures(now).into_iter().zip(figures(before));
    let more = both.filter(|((_, now), (_, before))| now > before);
    more.map(|((of, now), (_, before))| format!("{what}: {before} {of} before, {now} now"))
        .collect()
}

fn granted(domain: &Domain) -> u64 {
    let all = domain.admin().stat().expect("stat");
    let manager = all.iter().find_map(|record| match record {
        StatRecord::Manager(manager) => Some(manager.granted_bytes),
        _ => None,
    });
    manager.expect("the manager's own record")
}

fn observer(scene: &Scene) -> Domain {
    loop {
        let builder = Domain::builder().name("observer").socket(scene.socket());
        match builder.connect() {
            Err(error) if error == ErrorKind::NoManager => thread::yield_now(), // it is just starting
            joined => return joined.expect("a domain"),
        }
    }
}

#[test]
fn who_is_killed_at_work_leaves_nothing_and_the_other_is_told() {
    let dog = Watchdog::new();
    let scene = Scene::new();
    let manager = scene.manager();
    let domain = observer(&scene);
    let mut random = Random::printed("kills");
    let mut lanes = Vec::new();
    let mut survivors = Vec::new();
    for language in [Language::C, Language::Python] {
        for role in [Role::Send, Role::Receive] {
            let name = format!("{language:?}-{}", role.word());
            let last = domain.id().0.to_string();
            let mut survivor = scene.worker(language, role, &[&name, "serve", &last]);
            survivors.push(survivor.number("joined"));
            lanes.push(Lane {
                scene: &scene,
                survivor,
                name,
                role,
                random: Random::seeded(random.next()),
                figures: Figures::default(),
            });
        }
    }
    let settle = || wait_until_none(&dog, || strange(&domain, &survivors));
    in_all(&mut lanes, &dog, |lane| {
        for _ in 0..BEFORE {
            lane.kill_one();
            lane.serve_one(Language::C);
            lane.serve_one(Language::Python);
        }
    });
    settle();
    let of_manager = || Held::by([manager.pid()]).expect("/proc");
    let anonymous = || memory(manager.pid()).expect("/proc").anonymous;
    let (before, before_bytes, had) = (of_manager(), anonymous(), granted(&domain));
    let each: Vec<Held> = lanes.iter().map(Lane::held).collect();

    let each_kills = kills().div_ceil(4);
    in_all(&mut lanes, &dog, |lane| {
        for number in 0..each_kills {
            lane.kill_one();
            dog.step(format!("{} killed {number}", lane.name));
        }
    });
    settle();
    wait_until_none(&dog, || {
        let mut all = more("the manager", &of_manager(), &before);
        for (lane, before) in lanes.iter().zip(&each) {
            all.extend(more(&lane.name, &lane.held(), before));
        }
        all
    });
    // A survivor gives back what it does not need for a second: before, it may have done so already.
    wait_until_none(&dog, || {
        let has = granted(&domain);
        let more = (has > had).then(|| format!("{had} B granted before, {has} B now"));
        more.into_iter().collect()
    });
    let (was, is) = (before_bytes, anonymous());
    assert!(
        is <= was + SLACK_BYTES,
        "the manager's memory: {was} B, {is} B now"
    );
    for lane in &lanes {
        eprintln!("{}: {:?}", lane.name, lane.figures);
    }
    eprintln!("the manager's memory: {was} B before, {is} B after");

    // The four programs work as before, and leave when the observer has connected.
    in_all(&mut lanes, &dog, |lane| {
        lane.serve_one(Language::C);
        lane.serve_one(Language::Python);
    });
    for lane in lanes {
        match lane.role {
            Role::Send => drop(domain.open::<Receiver>(&lane.name).expect("a channel")),
            Role::Receive => drop(domain.open::<Sender>(&lane.name).expect("a channel")),
        }
        lane.survivor.ends_well();
    }
    wait_until_none(&dog, || {
        let mut all = strange(&domain, &[]);
        let names = domain.admin().stat().expect("stat");
        let channels = names
            .iter()
            .filter(|record| matches!(record, StatRecord::Channel(_)));
        all.extend(channels.map(|record| format!("{record:?}")));
        all
    });
    assert_eq!(granted(&domain), 0);
    drop(domain);
    manager.0.program.signal(libc::SIGTERM);
    manager.ends_well();
    let files = ["worker", "libtranship.so.0", "socket.ids", "socket.toml"];
    scene.audit.nothing_is_left_but(&files);
}
