//! `tranship-bench`: the product and its peers, measured side by side in one run.
//!
//! `docs/benchmarks/README.md` says how. A new system is a file in `systems/`. NOT here: tests of
//! correctness (though every run checks what arrives), and micro benches of single functions.

mod aims;
mod alloc;
mod block;
mod case;
mod channels;
mod cli;
mod clock;
mod collect;
mod demo;
mod histogram;
mod instructions;
mod line;
mod machine;
mod malloc;
mod mbuf;
mod messages;
mod met;
mod netpath;
mod ops;
mod options;
mod party;
mod peer;
mod placement;
mod plan;
mod plot;
mod python;
mod report;
mod scaling;
mod siege;
mod slices;
mod spike;
mod stats;
mod systems;
mod tail;
mod top;
mod touch;
mod zcopy;
mod zone;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use cli::{Bench, Cli};
use machine::Machine;
use options::Common;
use plan::Outcome;
use report::Report;

fn main() -> ExitCode {
    let bench = Cli::parse().bench;
    machine::begin();
    options::look();
    if !matches!(
        bench,
        Bench::AllocChild { .. }
            | Bench::ZcCacheChild { .. }
            | Bench::ZcOrigin
            | Bench::ZoneChild { .. }
            | Bench::MallocChild { .. }
            | Bench::MbumaChild { .. }
    ) {
        clock::calibrate();
    }
    match run(bench) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("tranship-bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True if every system could be measured.
fn run(bench: Bench) -> Result<bool> {
    match bench {
        Bench::Roundtrip {
            common,
            mode,
            payload,
            buffers,
        } => {
            known(&common, &message_systems())?;
            let outcome = messages::roundtrip(&common, &mode, &payload, buffers);
            say("roundtrip", &common, outcome, &["raw", "iceoryx2"])
        }
        Bench::C {
            common,
            mode,
            payload,
            buffers,
        } => {
            let all = systems::with_c();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            common.check(&names)?;
            let outcome = messages::roundtrip_of(&all, &common, &mode, &payload, buffers);
            say("c", &common, outcome, &["tranship"])
        }
        Bench::Python {
            common,
            mode,
            payload,
            python,
            svg,
        } => {
            common.check(&python::names())?;
            let grid = python::Grid {
                modes: &mode,
                payloads: &payload,
                python: python.as_deref(),
            };
            let outcome = python::bench(&common, &grid)?;
            if let Some(prefix) = svg {
                python::pictures(&outcome.rows, &prefix)?;
            }
            say("python", &common, outcome, &["tranship-python"])
        }
        Bench::Stream {
            common,
            mode,
            payload,
            buffers,
        } => {
            known(&common, &message_systems())?;
            let outcome = messages::stream(&common, &mode, &payload, buffers);
            say("stream", &common, outcome, &["raw", "iceoryx2"])
        }
        Bench::Ops { common } => {
            let all = systems::with_ops();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            known(&common, &names)?;
            let outcome = ops::bench(&common, &all);
            say("ops", &common, outcome, &["raw", "iceoryx2"])
        }
        Bench::Tail {
            common,
            payload,
            svg,
        } => {
            let all = systems::with_tail();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            known(&common, &names)?;
            let outcome = tail::bench(&common, &all, &payload);
            if let Some(prefix) = svg {
                tail::pictures(&outcome.rows, &prefix)?;
            }
            say("tail", &common, outcome, &["raw", "iceoryx2"])
        }
        Bench::Instructions { common, save } => {
            let all = systems::with_steps();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            known(&common, &names)?;
            let outcome = instructions::bench(&common, &all, save.as_deref())?;
            say("instructions", &common, outcome, &[])
        }
        Bench::Alloc { common, payload } => {
            let all = systems::allocators::all();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            common.check(&names)?;
            let outcome = alloc::bench(&common, &all, &payload);
            say("alloc", &common, outcome, &["glibc", report::FASTEST])
        }
        Bench::AllocChild {
            system,
            bytes,
            core,
            sample_ms,
        } => {
            let all = systems::allocators::all();
            alloc::child(&all, &system, bytes, core, sample_ms)?;
            Ok(true)
        }
        Bench::Zone { common, payload } => {
            common.check(&zone::names())?;
            let outcome = zone::bench(&common, &payload);
            say("zone", &common, outcome, &["glibc", report::FASTEST])
        }
        Bench::ZoneChild {
            system,
            work,
            bytes,
            core,
            other_core,
            sample_ms,
        } => {
            zone::child(&system, &work, bytes, [core, other_core], sample_ms)?;
            Ok(true)
        }
        Bench::Malloc { common, payload } => {
            common.check(&malloc::names())?;
            let outcome = malloc::bench(&common, &payload);
            say("malloc", &common, outcome, &["glibc", report::FASTEST])
        }
        Bench::MallocChild {
            system,
            work,
            bytes,
            buffers,
            core,
            other_core,
            sample_ms,
        } => {
            let cores = [core, other_core];
            malloc::child(&system, &work, bytes, buffers, cores, sample_ms)?;
            Ok(true)
        }
        Bench::MbumaFig7 {
            common,
            packets,
            steady,
            svg,
        } => {
            let steady: Vec<_> = steady.iter().map(|n| n.get()).collect();
            spike::bench(&common, packets, &steady, svg.as_deref())
        }
        Bench::MbumaChild {
            system,
            packets,
            steady,
            quick,
        } => {
            spike::child(&system, packets, steady, quick)?;
            Ok(true)
        }
        Bench::Collect { common } => {
            let all = systems::with_collect();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            known(&common, &names)?;
            let outcome = collect::bench(&common, &all);
            say("collect", &common, outcome, &["iceoryx2"])
        }
        Bench::Carriers {
            common,
            mode,
            trust,
            payload,
            svg,
        } => {
            common.check(&channels::carriers::SYSTEMS)?;
            let _credentials = channels::Credentials::make()?;
            let outcome = channels::carriers::bench(&common, &mode, &trust, &payload);
            if let Some(path) = svg {
                channels::carriers::picture(&outcome.rows, &path)?;
            }
            say("carriers", &common, outcome, &["copy", "stream"])
        }
        Bench::Trust {
            common,
            mode,
            payload,
            svg,
        } => {
            common.check(&channels::trust::SYSTEMS)?;
            let outcome = channels::trust::bench(&common, &mode, &payload);
            if let Some(path) = svg {
                channels::trust::picture(&outcome.rows, &path)?;
            }
            say("trust", &common, outcome, &["copy", "stream"])
        }
        Bench::Hops {
            common,
            mode,
            trust,
            hops,
            payload,
            buffers,
            svg,
        } => {
            common.check(&channels::hops::SYSTEMS)?;
            let _credentials = channels::Credentials::make()?;
            let [one, two] = common.cores();
            let both = [[one, one], [one, two]];
            let grid = channels::hops::Grid {
                modes: &mode,
                levels: &trust,
                hops: &hops,
                payloads: &payload,
                buffers,
                placements: if one == two { &both[..1] } else { &both },
            };
            let outcome = channels::hops::bench(&common, &grid);
            if let Some(path) = svg {
                match payload.len() {
                    1 => channels::hops::picture(&outcome.rows, &path)?,
                    _ => channels::hops::picture_of_sizes(&outcome.rows, &path)?,
                }
            }
            say("hops", &common, outcome, &["copy", "tcp+plain"])
        }
        Bench::Join { common } => {
            common.check(&channels::join::SYSTEMS)?;
            let _credentials = channels::Credentials::make()?;
            let outcome = channels::join::bench(&common);
            say("join", &common, outcome, &["shm"])
        }
        Bench::Netpath { common } => {
            common.check(&netpath::SYSTEMS.map(|(name, _)| name))?;
            say(
                "netpath",
                &common,
                netpath::bench(&common)?,
                &["heap", "kernel"],
            )
        }
        Bench::Block {
            common,
            access,
            mode,
            payload,
            depth,
            svg,
        } => {
            common.check(&block::SYSTEMS)?;
            let grid = block::Grid {
                access: &access,
                modes: &mode,
                payloads: &payload,
                depths: &depth,
            };
            let outcome = block::bench(&common, &grid)?;
            if let Some(path) = svg {
                block::picture(&outcome.rows, &path)?;
            }
            say("block", &common, outcome, &["nbdkit", "qemu-nbd"])
        }
        Bench::ZcSend {
            common,
            mode,
            client,
            payload,
            depth,
            set_mib,
            sink,
        } => {
            common.check(&zcopy::SYSTEMS)?;
            let grid = zcopy::Grid {
                sink: &sink,
                modes: &mode,
                clients: &client,
                payloads: &payload,
                depths: &depth,
                set: set_mib << 20,
            };
            say(
                "zc-send",
                &common,
                zcopy::bench(&common, &grid),
                &["batched"],
            )
        }
        Bench::ZcCache {
            common,
            mode,
            client,
            payload,
            depth,
            set_mib,
            break_even,
        } => {
            common.check(&zcopy::cache::SYSTEMS)?;
            let grid = zcopy::cache::Grid {
                modes: &mode,
                clients: &client,
                payloads: &payload,
                depths: &depth,
                set: set_mib << 20,
                break_even,
            };
            let outcome = zcopy::cache::bench(&common, &grid);
            say("zc-cache", &common, outcome, &["batched", "memcached"])
        }
        Bench::ZcCacheChild {
            system,
            threads,
            memory,
        } => {
            zcopy::cache::child(&system, threads, memory)?;
            Ok(true)
        }
        Bench::ZcPaper { common, save } => {
            let outcome = zcopy::paper::bench(&common, save.as_deref())?;
            say("zc-paper", &common, outcome, &["stock"])
        }
        Bench::ZcOrigin => {
            zcopy::varnish::origin()?;
            Ok(true)
        }
        Bench::ZcVarnish {
            common,
            mode,
            payload,
        } => {
            common.check(&zcopy::varnish::SYSTEMS)?;
            let outcome = zcopy::varnish::bench(&common, &mode, &payload);
            say("zc-varnish", &common, outcome, &["stock"])
        }
        Bench::ZcMemcached {
            common,
            carrier,
            payload,
            threads,
            folder,
        } => {
            common.check(&zcopy::memcached::SYSTEMS)?;
            let grid = zcopy::memcached::Grid {
                carriers: &carrier,
                payloads: &payload,
                threads: &threads,
                folder: folder.as_deref(),
            };
            let outcome = zcopy::memcached::bench(&common, &grid);
            say("zc-memcached", &common, outcome, &["stock"])
        }
        Bench::ZcSuite { common, folder } => {
            let outcome = zcopy::memcached::suite::bench(folder.as_deref());
            say("zc-suite", &common, outcome, &[])
        }
        Bench::ZcShm { common, payload } => {
            common.check(&zcopy::shm::SYSTEMS)?;
            let outcome = zcopy::shm::bench(&common, &payload);
            say("zc-shm", &common, outcome, &["socket"])
        }
        Bench::ZcUdp {
            common,
            mode,
            frame,
            payload,
            set_mib,
        } => {
            common.check(&zcopy::udp::SYSTEMS)?;
            let grid = zcopy::udp::Grid {
                modes: &mode,
                frames: &frame,
                payloads: &payload,
                set: set_mib << 20,
            };
            let outcome = zcopy::udp::bench(&common, &grid);
            say("zc-udp", &common, outcome, &["gso-copy"])
        }
        Bench::ZcFault { common, blocks } => {
            common.check(&zcopy::fault::SYSTEMS)?;
            let outcome = zcopy::fault::bench(&common, &blocks);
            say("zc-fault", &common, outcome, &["private-view"])
        }
        Bench::Siege {
            common,
            attackers,
            mode,
        } => {
            let outcome = siege::bench(&common, attackers, &mode)?;
            say("siege", &common, outcome, &[])
        }
        Bench::Top { common, program } => {
            let outcome = top::bench(&common, program.as_deref())?;
            say("top", &common, outcome, &[])
        }
        Bench::Mbuf { common } => {
            common.check(&mbuf::systems())?;
            say(
                "mbuf",
                &common,
                mbuf::bench(&common)?,
                &["dpdk", "dpdk-mempool"],
            )
        }
        Bench::Report { common, save } => {
            for (system, feature) in systems::missing() {
                eprintln!("SKIPPED: {system}: build with --features {feature} (make bench-build)");
            }
            aims::bench(&common, save.as_deref())
        }
        Bench::Demo { common } => {
            let all = systems::with_fan();
            let names: Vec<_> = all.iter().map(|e| e.name).collect();
            common.check(&names)?;
            let outcome = demo::bench(&common, &all);
            say("demo", &common, outcome, &["pipe", "stream"])
        }
    }
}

fn message_systems() -> Vec<&'static str> {
    systems::all().iter().map(|e| e.name).collect()
}

/// Refuses names in `--only` that nobody has; says what this program was built without.
fn known(common: &Common, names: &[&'static str]) -> Result<()> {
    for (system, feature) in systems::missing() {
        eprintln!("SKIPPED: {system}: build with --features {feature} (make bench-build)");
    }
    common.check(names)
}

fn say(
    name: &'static str,
    common: &Common,
    mut outcome: Outcome,
    refs: &[&'static str],
) -> Result<bool> {
    report::compare(&mut outcome.rows, refs);
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
    let text = if common.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        report.table(refs)
    };
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(outcome.failures == 0)
}
