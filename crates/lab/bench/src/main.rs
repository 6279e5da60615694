//! `tranship-bench`: the product and its peers, measured side by side in one run.
//!
//! `docs/benchmarks/README.md` says how. A new system is a file in `systems/`; a new bench is a [`Bench`] and a line in [`Name`].
//! NOT here: tests of correctness (though every run checks what arrives), and micro benches of single functions.

mod alloc;
mod bench;
mod carriers;
mod case;
mod clock;
mod collect;
mod hops;
mod instructions;
mod line;
mod machine;
mod mbuf;
mod messages;
mod met;
mod netbufs;
mod netpath;
mod options;
mod party;
mod peer;
mod placement;
mod plan;
mod python;
mod queue;
mod report;
mod siege;
mod spike;
mod stats;
mod systems;
mod topic;
mod touch;
mod zcopy;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use bench::Bench;
use machine::Machine;
use options::Common;
use report::Report;

/// Measures tranship and its peers side by side on this machine.
#[derive(Debug, Parser)]
#[command(name = "tranship-bench", version)]
struct Cli {
    #[command(subcommand)]
    bench: Name,
}

#[derive(Debug, Subcommand)]
enum Name {
    /// One message to and fro between two processes.
    Roundtrip(Of<messages::Roundtrip>),
    /// One way between two processes, as fast as it goes, both sides busy-polling.
    Stream(Of<messages::Stream>),
    /// A call of a service and its answer between two processes, beside the round trip of two channels and of a socket.
    Service(Of<messages::Service>),
    /// Alloc and free of a pool's buffers and by whole allocators, in one thread and across two; memory untouched.
    Alloc(Of<alloc::Alloc>),
    /// Alloc and free by 1, 2, 4 and 8 threads at once, by a pool, zones and whole allocators; memory untouched.
    Threads(Of<alloc::Threads>),
    /// Alloc with the collection of used buffers, against pool size and number of receivers.
    Collect(Of<collect::Turns>),
    /// A buffer moved to another domain and given back, by each way that bytes travel, against a socket that carries them.
    Carriers(Of<carriers::Carriers>),
    /// Buffers through a row of domains and back: one at a time, or as many as there are.
    Hops(Of<hops::Hops>),
    /// Instructions, locked instructions and system calls of each operation.
    Instructions(Of<instructions::Instructions>),
    /// Arrays to and fro between two processes in Python, by the Python face and by its peers, beside Rust's round trip.
    Python(Of<python::Python>),
    /// Packets allocated and freed against DPDK's.
    Mbuf(Of<mbuf::Mbuf>),
    /// Resident memory before, during and after a spike of packets, beside allocators that give nothing back.
    MbufSpike(Of<spike::Spike>),
    /// iperf3 through a forwarder and against an echo server of mbufs, in network namespaces (as root).
    Netpath(Of<netpath::Netpath>),
    /// GETs from a cache server: ours by reference, copied in batches, and Debian's memcached.
    ZcCache(Of<zcopy::cache::Cache>),
    /// The first write to a page that ZCopy protected, beside a native page fault and a system call.
    ZcFault(Of<zcopy::fault::Fault>),
    /// Debian's Varnish, unmodified, with libtranship_zcopy.so and without, under wrk or ab.
    ZcVarnish(Of<zcopy::varnish::Varnish>),
    /// A publish through the library to 1, 32 and 200 subscribers of a topic.
    Topic(Of<topic::Topic>),
    /// Items from several producers to several consumers of a queue, and an item there and back.
    Queue(Of<queue::Queue>),
    /// A manager under hostile clients, and its answers to honest clients of another user (as root). Each user has a
    /// cgroup with an equal share of the processors (`besieged`). Beside it, each process has a session
    /// (`besieged-sessions`), or all are in one cgroup (`besieged-together`).
    Siege(Of<siege::Siege>),
    /// A process that a bench starts of this program.
    #[command(hide = true)]
    Child { bench: String, given: String },
}

/// A bench's arguments: those that all benches have, and its own.
#[derive(Debug, Args)]
struct Of<B: Bench> {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    bench: B,
}

fn main() -> ExitCode {
    let bench = Cli::parse().bench;
    machine::begin();
    options::look();
    let done = match bench {
        Name::Roundtrip(of) => of.run("roundtrip"),
        Name::Stream(of) => of.run("stream"),
        Name::Service(of) => of.run("service"),
        Name::Alloc(of) => of.run("alloc"),
        Name::Threads(of) => of.run("threads"),
        Name::Collect(of) => of.run("collect"),
        Name::Carriers(of) => of.run("carriers"),
        Name::Hops(of) => of.run("hops"),
        Name::Instructions(of) => of.run("instructions"),
        Name::Python(of) => of.run("python"),
        Name::Queue(of) => of.run("queue"),
        Name::Mbuf(of) => of.run("mbuf"),
        Name::MbufSpike(of) => of.run("mbuf-spike"),
        Name::Netpath(of) => of.run("netpath"),
        Name::ZcCache(of) => of.run("zc-cache"),
        Name::ZcFault(of) => of.run("zc-fault"),
        Name::ZcVarnish(of) => of.run("zc-varnish"),
        Name::Topic(of) => of.run("topic"),
        Name::Siege(of) => of.run("siege"),
        Name::Child { bench, given } => child(&bench, &given).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tranship-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn child(bench: &str, given: &str) -> Result<()> {
    match bench {
        "alloc" => alloc::child(serde_json::from_str(given)?),
        "zc-cache" => zcopy::cache::child(serde_json::from_str(given)?),
        "zc-origin" => zcopy::varnish::origin(),
        _ => anyhow::bail!("{bench} starts no processes of this program"),
    }
}

impl<B: Bench> Of<B> {
    /// Measures and prints. True if every system could be measured.
    fn run(self, name: &'static str) -> Result<bool> {
        let (common, bench) = (self.common, self.bench);
        clock::calibrate();
        let systems = bench.systems();
        if systems::lacks_iceoryx2(&systems) {
            eprintln!("SKIPPED: iceoryx2: build with --features iceoryx2 (make bench-build)");
        }
        common.check(&systems)?;
        let mut outcome = bench.measure(&common)?;
        report::compare(&mut outcome.rows, B::REFERENCES);
        outcome.verdicts.extend(met::said(&outcome.rows));
        let mut machine = Machine::look(common.cores(), common.runs(), common.sample_ms());
        machine.peers.extend(outcome.peers);
        machine.cache_line_ns = line::round_trip(common.cores(), common.runs())?;
        let report = Report {
            bench: name,
            machine,
            rows: outcome.rows,
            verdicts: outcome.verdicts,
        };
        let text = match common.json {
            true => serde_json::to_string(&report)? + "\n",
            false => report.table(),
        };
        match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(outcome.failures == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let words = "b roundtrip --cores 1 --only raw,pipe --quick";
        let Name::Roundtrip(of) = Cli::parse_from(words.split(' ')).bench else {
            panic!("another bench")
        };
        let common = of.common;
        assert_eq!((common.cores(), common.runs()), ([1, 1], 3));
        assert!(common.check(&["raw", "pipe"]).is_ok());
        let unknown = common.check(&["raw"]).unwrap_err();
        assert!(unknown.to_string().contains("pipe"));
    }
}
