//! The manager and its honest clients.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

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
        for (n, name) in names.into_iter().enumerate() {
            let req = raw.req();
            let request = match n % 2 {
                0 => Request::Export {
                    req,
                    name,
                    role: Role::Source,
                },
                _ => Request::ExportSocket { req, name },
            };
            raw.send(&request, &[]);
            raw.wait(|e| matches!(e, Event::Exported { req: r, .. } if *r == req).then_some(()));
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

child!(
    /// Asks for one thing after the other, for as long as it is told to; says how long each took, and what the manager said of
    /// itself at last.
    pub fn client(ctl: Control) {
        let (mut n, mut said) = (0, None);
        while let Some(time) = ctl.recv::<Duration>().unwrap() {
            let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
            let end = Instant::now() + time;
            while Instant::now() < end {
                n += 1;
                for (what, time) in round(n, &mut said) {
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

/// A domain's life, each answer timed.
fn round(n: u64, said: &mut Option<ManagerStat>) -> Vec<(&'static str, Duration)> {
    let mut times = Vec::new();
    let mut begin = Instant::now();
    let mut done = |what, begin: &mut Instant| {
        times.push((what, begin.elapsed()));
        *begin = Instant::now();
    };
    let mut raw = Raw::join("client");
    done("join", &mut begin);
    let mut ask = |raw: &mut Raw, request: &dyn Fn(Req) -> Request, fds: &[_]| {
        let req = raw.req();
        let request = request(req);
        begin = Instant::now();
        raw.send(&request, fds);
        let (event, _) = raw.wait(|e| (answers(e) == Some(req)).then(|| e.clone()));
        let what = match event {
            Event::Exported { .. } => "name",
            Event::PoolCreated { .. } => "pool",
            Event::Granted { .. } => "grant",
            Event::ChunkReady { .. } => "show",
            other => panic!("{other:?} to {request:?}"),
        };
        done(what, &mut begin);
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
        max_bytes: CHUNK,
        slots: SLOTS,
        chunk_bytes: CHUNK,
    };
    let Event::PoolCreated { pool, .. } = ask(&mut raw, &create, &[table.as_fd()]) else {
        return times;
    };
    let chunks = 1;
    ask(&mut raw, &|req| Request::Grant { req, pool, chunks }, &[]);
    let (chunk, _map) = make("client", usize::try_from(CHUNK).unwrap(), Opts::default()).unwrap();
    let show = |req| Request::ShowChunk {
        req,
        pool,
        index: 0,
        serial: 1,
    };
    ask(&mut raw, &show, &[chunk.as_fd()]);
    let req = raw.req();
    begin = Instant::now();
    raw.send(&Request::Stat { req }, &[]);
    let (first, _) = raw.wait(|e| match e {
        Event::Stat { req: r, record } if *r == req => Some(record.clone()),
        _ => None,
    });
    if let StatRecord::Manager(manager) = first {
        *said = Some(manager);
    }
    let first = begin.elapsed();
    raw.wait(|e| (answers(e) == Some(req)).then_some(()));
    times.extend([("stat", first), ("stat-all", begin.elapsed())]);
    raw.send(&Request::Goodbye, &[]);
    times
}

/// Which question this is the last answer to.
fn answers(event: &Event) -> Option<Req> {
    match *event {
        Event::Exported { req, .. }
        | Event::PoolCreated { req, .. }
        | Event::Granted { req, .. }
        | Event::ChunkReady { req, .. }
        | Event::StatEnd { req }
        | Event::Refused { req, .. } => Some(req),
        _ => None,
    }
}
