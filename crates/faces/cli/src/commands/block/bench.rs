//! `tranship block bench`: a user's quick look at a service.

use super::setup::{Shared, endpoint};
use crate::args::block::BenchArgs;
use crate::exit::Answer;
use crate::output::{self, Table, size};
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tranship_block::{Fault, Job, Op, Remote, Request, Store, sums};

/// Longest time until a server is reached.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Row {
    mode: &'static str,
    request_bytes: u32,
    depth: u32,
    per_second: f64,
    bytes_per_second: f64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
}

pub(super) fn run(args: &BenchArgs) -> Result<Answer> {
    let server =
        endpoint(&args.address, &args.channels, &Shared::default())?.give_up_after(PATIENCE);
    let remote = Remote::new(&server);
    let info = remote.wait(PATIENCE).map_err(|fault| {
        let why = remote.why().unwrap_or_else(|| fault.to_string());
        anyhow!("{} is not reached: {why}", args.address)
    })?;
    if info.size < u64::from(args.request) {
        bail!("{} bytes are less than one request", info.size);
    }
    if args.write && info.read_only {
        bail!("{} is read-only", args.address);
    }
    let mut rows = vec![
        measure(args, &remote, info.size, "random read", Op::Read, true)?,
        measure(args, &remote, info.size, "sequential read", Op::Read, false)?,
    ];
    if args.write {
        rows.push(measure(
            args,
            &remote,
            info.size,
            "random write",
            Op::Write,
            true,
        )?);
        rows.push(measure(
            args,
            &remote,
            info.size,
            "sequential write",
            Op::Write,
            false,
        )?);
    }
    if args.json {
        output::json(&serde_json::json!({ "schema": 1, "address": args.address, "rows": rows }))?;
        return Ok(Answer::Yes);
    }
    let mut table = Table::new(&["", ">/s", ">per second", ">p50", ">p99", ">p99.9"]);
    for row in rows {
        let time = |ns: u64| format!("{:.1} us", us(ns));
        table.row(vec![
            row.mode.to_owned(),
            format!("{:.0}", row.per_second),
            size(whole(row.bytes_per_second)),
            time(row.p50_ns),
            time(row.p99_ns),
            time(row.p999_ns),
        ]);
    }
    table.write(&mut output::stdout())?;
    Ok(Answer::Yes)
}

#[allow(clippy::cast_precision_loss)] // for people
fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a rate
fn whole(value: f64) -> u64 {
    value as u64
}

/// Place of the next request.
struct Places {
    random: bool,
    count: u64,
    asked: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.asked += 1;
        if !self.random {
            return (self.asked - 1) % self.count;
        }
        // splitmix64 (Steele, Lea, Flood 2014); every run goes the same way.
        let mut z = self.asked.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % self.count
    }
}

fn measure(
    args: &BenchArgs,
    remote: &Remote,
    total: u64,
    mode: &'static str,
    op: Op,
    random: bool,
) -> Result<Row> {
    let (tell, told) = mpsc::channel();
    let len = args.request;
    let mut places = Places {
        random,
        count: total / u64::from(len),
        asked: 0,
    };
    let mut begin = || -> Result<(), Fault> {
        let block = places.next();
        let mut data = remote.data(op, len as usize)?;
        let mut request = Request::new(op, block * u64::from(len), len);
        if op == Op::Write {
            let bytes = vec![places.asked.to_le_bytes()[0]; len as usize];
            data.write(0, &bytes)?;
            request.sums = sums(request.offset, &bytes);
        }
        let (tell, since) = (tell.clone(), Instant::now());
        remote.submit(Job {
            request,
            data,
            done: Box::new(move |data, result| {
                drop(data);
                let _ = tell.send((result.map(drop), since.elapsed()));
            }),
        });
        Ok(())
    };
    let begun = Instant::now();
    for _ in 0..args.depth {
        begin()?;
    }
    let mut times = Vec::new();
    let mut under_way = args.depth;
    while under_way > 0 {
        let (result, time) = told.recv()?;
        result.with_context(|| mode.to_owned())?;
        times.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        match begun.elapsed() < args.time {
            true => begin()?,
            false => under_way -= 1,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let part = |thousandths: usize| times[(times.len() - 1) * thousandths / 1000];
    #[allow(clippy::cast_precision_loss)] // a rate
    let per_second = times.len() as f64 / seconds;
    Ok(Row {
        mode,
        request_bytes: len,
        depth: args.depth,
        per_second,
        bytes_per_second: per_second * f64::from(len),
        p50_ns: part(500),
        p99_ns: part(990),
        p999_ns: part(999),
    })
}
