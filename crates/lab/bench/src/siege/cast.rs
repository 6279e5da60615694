//! The manager and its honest clients.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::panic::{catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::report::{Key, Row};
use crate::stats::Measured;
use serde::{Deserialize, Serialize};
use tranship_manager::{Config, Listener, Shutdown};
use tranship_proto::{Event, ManagerStat, Req, Request, Role, StatRecord};
use tranship_region::layout::TableRw;
use tranship_region::{Opts, make};
use tranship_testkit::hostile::raw::{CHUNK, Raw, SLOTS, path};
use tranship_testkit::{Control, child};

child!(
    pub fn manager(ctl: Control) {
        let (config, core): (String, Option<usize>) = ctl.recv().unwrap().unwrap();
        if let Some(core) = core {
            tranship_sys::process::pin_to_cpu(core).unwrap();
        }
        let config = Config::parse(&config).unwrap();
        let listener = Listener::bind(&path(), 0o666).unwrap();
        ctl.send(&()).unwrap();
        tranship_manager::run(config, listener, &Shutdown::new().unwrap(), true).unwrap();
    }
);

child!(
    /// Offers names, hears what is said to it, and lets nobody in.
    pub fn exporter(ctl: Control) {
        let names: Vec<String> = ctl.recv().unwrap().unwrap();
        let mut raw = Raw::join("exporter");
        for name in names {
            raw.export(&name, Role::Source);
        }
        ctl.send(&()).unwrap();
        while let Some((event, _)) = raw.recv() {
            assert!(!matches!(event, Event::Expelled { .. }), "{event:?}");
        }
        panic!("hung up");
    }
);

/// How long answers of one kind took, in nanoseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Times {
    pub count: usize,
    pub median: f64,
    pub p99: f64,
    pub max: f64,
    pub sum: f64,
}

impl Times {
    /// As a row has it.
    #[allow(clippy::cast_precision_loss, reason = "counts")]
    fn measured(&self, op: &str) -> Measured {
        Measured {
            op: op.to_owned(),
            median_ns: self.median,
            p99_ns: self.p99,
            per_second: self.count as f64 * 1e9 / self.sum,
            facts: [("max_ns".into(), self.max)].into(),
            ..Measured::default()
        }
    }
}

/// The row of runs of one operation.
pub fn row<'a>(
    mode: &'static str,
    op: &str,
    payload_bytes: Option<usize>,
    of: impl Iterator<Item = &'a Times>,
) -> Row {
    let measured: Vec<Measured> = of.map(|times| times.measured(op)).collect();
    let key = Key::of(mode).op(op);
    Row::of(
        "tranship",
        Key {
            payload_bytes,
            ..key
        },
        &measured,
    )
}

/// Programs of the honest user that begin in a second, each with a domain that joins and asks for a few things. Nobody begins
/// more of them for long: a shell's loop of programs that do nothing comes to a few hundred. No multiple of a clock's tick.
pub const RATE: u32 = 97;
/// One life in so many also asks for all records. Beside thousands of hostile records the answer takes the client
/// itself longer than all other steps: if every life asked, they would measure how they wait for each other.
const ASKS: u64 = 4;
/// So many of them may be late at once.
const LIVES: usize = 16;

child!(
    /// Lives at a fixed rate for as long as it is told to, whether those before have ended or not; says how long each answer
    /// took, and what the manager said of itself at last.
    pub fn client(ctl: Control) {
        let (to_live, lives) = mpsc::channel();
        let lives = Arc::new(Mutex::new(lives));
        let (done, lived) = mpsc::channel();
        for _ in 0..LIVES {
            let (lives, done) = (Arc::clone(&lives), done.clone());
            std::thread::spawn(move || {
                loop {
                    let next = lives.lock().unwrap().recv();
                    let Ok((n, due)) = next else { return };
                    let life = catch_unwind(|| live(n, due));
                    done.send(life).unwrap();
                }
            });
        }
        let (mut n, mut said) = (0u64, None);
        while let Some(time) = ctl.recv::<Duration>().unwrap() {
            let begin = Instant::now();
            let count = (time.as_secs_f64() * f64::from(RATE)).ceil().max(1.0);
            let mut dues = 0;
            while f64::from(dues) < count {
                n += 1;
                to_live
                    .send((n, begin + Duration::from_secs(1) * dues / RATE))
                    .unwrap();
                dues += 1;
            }
            let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            for _ in 0..dues {
                let life = lived.recv().unwrap();
                let (times, of_itself) = life.unwrap_or_else(|why| resume_unwind(why));
                said = of_itself.or(said);
                for (what, time) in times {
                    let time = u64::try_from(time.as_nanos()).unwrap();
                    all.entry(what.to_owned()).or_default().push(time);
                }
            }
            let times = all.into_iter().map(|(what, times)| (what, sum_up(times)));
            ctl.send(&(times.collect::<BTreeMap<_, _>>(), &said))
                .unwrap();
        }
    }
);

#[allow(clippy::cast_precision_loss, reason = "nanoseconds")]
pub fn sum_up(mut times: Vec<u64>) -> Times {
    times.sort_unstable();
    let at = |permille: usize| times[(times.len() - 1) * permille / 1000] as f64;
    Times {
        count: times.len(),
        median: at(500),
        p99: at(990),
        max: at(1000),
        sum: times.iter().sum::<u64>() as f64,
    }
}

type Life = (Vec<(&'static str, Duration)>, Option<ManagerStat>);

/// A domain's life, each answer timed: the first from the moment when it was due, so that nothing of a delay is left out; the
/// others, which nobody asks for before, from the answer before.
fn live(n: u64, due: Instant) -> Life {
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    let (mut times, mut said) = (Vec::new(), None);
    times.push(("late", due.elapsed()));
    let raw = Raw::silent();
    times.push(("join-connected", due.elapsed()));
    let mut raw = raw.hello("client", None).unwrap();
    times.push(("join", due.elapsed()));
    let mut ask = |raw: &mut Raw, request: &dyn Fn(Req) -> Request, fds: &[_]| {
        let req = raw.req();
        let request = request(req);
        let begin = Instant::now();
        raw.send(&request, fds);
        let (event, _) = raw.wait(|e| (answers(e) == Some(req)).then(|| e.clone()));
        let what = match event {
            Event::Exported { .. } => "name",
            Event::PoolCreated { .. } => "pool",
            Event::Granted { .. } => "grant",
            Event::ChunksReady { .. } => "show",
            other => panic!("{other:?} to {request:?}"),
        };
        times.push((what, begin.elapsed()));
        event
    };
    let name = format!("client-{n}");
    let role = Role::Source;
    let export = |req| Request::Export {
        req,
        name: name.clone(),
        role,
    };
    ask(&mut raw, &export, &[]);
    let (table, _map) = TableRw::create(SLOTS, CHUNK, CHUNK).unwrap();
    let create = |req| Request::CreatePool {
        req,
        name: "client".into(),
        shape: tranship_proto::PoolShape {
            max_bytes: CHUNK,
            slots: SLOTS,
            chunk_bytes: CHUNK,
            trust: tranship_proto::Trust::Producer,
        },
    };
    let Event::PoolCreated { pool, .. } = ask(&mut raw, &create, &[table.as_fd()]) else {
        return (times, said);
    };
    let chunks = 1;
    ask(&mut raw, &|req| Request::Grant { req, pool, chunks }, &[]);
    let (chunk, _map) = make("client", usize::try_from(CHUNK).unwrap(), Opts::default()).unwrap();
    let show = |req| Request::ShowChunks {
        req,
        pool,
        chunks: vec![(0, 1)],
        least: 1,
    };
    ask(&mut raw, &show, &[chunk.as_fd()]);
    if n % ASKS != 1 {
        raw.send(&Request::Goodbye, &[]);
        return (times, said);
    }
    let req = raw.req();
    let begin = Instant::now();
    raw.send(&Request::Stat { req }, &[]);
    let (first, _) = raw.wait(|e| match e {
        Event::Stat { req: r, record } if *r == req => Some(record.clone()),
        _ => None,
    });
    if let StatRecord::Manager(manager) = first {
        said = Some(manager);
    }
    let first = begin.elapsed();
    raw.wait(|e| (answers(e) == Some(req)).then_some(()));
    times.extend([("stat", first), ("stat-all", begin.elapsed())]);
    raw.send(&Request::Goodbye, &[]);
    (times, said)
}

/// Which question this is the last answer to.
fn answers(event: &Event) -> Option<Req> {
    match *event {
        Event::Exported { req, .. }
        | Event::PoolCreated { req, .. }
        | Event::Granted { req, .. }
        | Event::ChunksReady { req, .. }
        | Event::StatEnd { req }
        | Event::Refused { req, .. } => Some(req),
        _ => None,
    }
}
