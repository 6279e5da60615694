//! `mbuf`: packets allocated and freed in one thread, against DPDK's.

mod dpdk;

use anyhow::{Result, ensure};
use std::mem::MaybeUninit;
use tranship_mbuf::{Chain, Error, Limits, MbufOptions, Mbufs, NoBuffers};

use crate::bench::Bench;
use crate::clock;
use crate::options::Common;
use crate::party;
use crate::plan::{Cell, Outcome};
use crate::report::Key;
use crate::stats::{Measured, hot};
use dpdk::{BATCH, Dpdk};

/// Packets that are out at once.
const DISTINCT: [usize; 2] = [1, 32];

/// What a system's pair is.
#[derive(Clone, Copy)]
struct Pair {
    system: &'static str,
    op: &'static str,
    how: How,
}

#[derive(Clone, Copy)]
enum How {
    Ours(fn(&Mbufs, usize, u64) -> Result<Vec<Measured>>),
    Dpdk(&'static str),
}

const PAIRS: &[Pair] = &[
    Pair {
        system: "tranship",
        op: "packet",
        how: How::Ours(|mbufs, distinct, ms| {
            run(
                distinct,
                ms,
                #[inline(always)]
                || mbufs.getcl(),
            )
        }),
    },
    Pair {
        system: "dpdk",
        op: "packet",
        how: How::Dpdk("pkt"),
    },
    Pair {
        system: "m_gethdr+m_clget",
        op: "packet",
        how: How::Ours(|mbufs, distinct, ms| {
            run(
                distinct,
                ms,
                #[inline(always)]
                || {
                    let mut chain = mbufs.gethdr()?;
                    match chain.clget() {
                        Err(Error::NoBuffers(error)) => Err(error),
                        _ => Ok(chain),
                    }
                },
            )
        }),
    },
    Pair {
        system: "tranship",
        op: "mbuf",
        how: How::Ours(|mbufs, distinct, ms| {
            run(
                distinct,
                ms,
                #[inline(always)]
                || mbufs.gethdr(),
            )
        }),
    },
    Pair {
        system: "dpdk-mempool",
        op: "mbuf",
        how: How::Dpdk("obj"),
    },
];

#[derive(Debug, clap::Args)]
pub struct Mbuf;

impl Bench for Mbuf {
    const REFERENCES: &'static [&'static str] = &["dpdk", "dpdk-mempool"];

    fn systems(&self) -> Vec<&'static str> {
        let names = PAIRS.iter().map(|pair| pair.system);
        names.collect()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let core = common.cores()[0];
        let dpdk = match Dpdk::start(core) {
            Ok(dpdk) => Some(dpdk),
            Err(error) => {
                eprintln!("SKIPPED: dpdk: {error:#}");
                None
            }
        };
        if let Some(dpdk) = &dpdk {
            let version = dpdk.version.clone();
            outcome.peers.insert("dpdk".to_owned(), version);
        }
        party::pin(core)?;
        let mbufs = MbufOptions::new().limits(Limits::NONE).build()?;
        for op in ["packet", "mbuf"] {
            for distinct in DISTINCT {
                let wanted = PAIRS
                    .iter()
                    .filter(|pair| pair.op == op && common.wants(pair.system))
                    .filter(|pair| dpdk.is_some() || matches!(pair.how, How::Ours(_)));
                let cells = wanted.map(|pair| Cell {
                    system: pair.system,
                    key: Key {
                        mode: op,
                        buffers: Some(distinct),
                        threads: Some(1),
                        ..Key::default()
                    },
                    measure: Box::new(|_| match (pair.how, &dpdk) {
                        (How::Ours(run), _) => run(&mbufs, distinct, common.sample_ms()),
                        (How::Dpdk(what), Some(dpdk)) => {
                            dpdk.measure(what, distinct, common.sample_ms())
                        }
                        (How::Dpdk(_), None) => anyhow::bail!("no DPDK"),
                    }),
                });
                outcome.group(common.runs(), cells.collect());
            }
        }
        ensure!(mbufs.stats().outstanding() == 0, "mbufs were lost");
        Ok(outcome)
    }
}

/// The loop: so many packets are taken, then given back.
fn run(
    distinct: usize,
    sample_ms: u64,
    alloc: impl Fn() -> Result<Chain, NoBuffers>,
) -> Result<Vec<Measured>> {
    match distinct {
        1 => timed(sample_ms, || {
            for _ in 0..BATCH {
                drop(used(alloc()?));
            }
            Ok(())
        }),
        _ => timed(sample_ms, || {
            for _ in 0..BATCH / 32 {
                let mut held: [MaybeUninit<Chain>; 32] = [const { MaybeUninit::uninit() }; 32];
                for place in &mut held {
                    place.write(used(alloc()?));
                }
                std::hint::black_box(&mut held);
                for place in &mut held {
                    // SAFETY: each was written above, and is read once.
                    drop(unsafe { place.assume_init_read() });
                }
            }
            Ok(())
        }),
    }
}

/// Shows the compiler a packet as used, in a register, as the C program does.
#[inline(always)]
fn used(chain: Chain) -> Chain {
    let raw = chain.into_raw();
    // SAFETY: no instruction; then what was given away is taken back.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) raw.as_ptr(), options(nostack, preserves_flags));
        Chain::from_raw(raw)
    }
}

/// Samples of a batch.
fn timed(
    sample_ms: u64,
    mut batch: impl FnMut() -> Result<(), NoBuffers>,
) -> Result<Vec<Measured>> {
    let budget = clock::in_ticks(std::time::Duration::from_millis(sample_ms));
    #[allow(clippy::cast_possible_truncation)] // 64
    let measured = hot(budget, BATCH as u32, || Ok(batch()?))?;
    Ok(vec![measured])
}
