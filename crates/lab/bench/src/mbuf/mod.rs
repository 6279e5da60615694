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

type Ours = fn(&Mbufs, usize, u64) -> Result<Vec<Measured>>;

#[derive(Clone, Copy)]
enum How {
    Ours(Ours),
    Dpdk(&'static str),
}

/// Systems, operations, and what takes one.
const PAIRS: [(&str, &str, How); 5] = [
    (
        "tranship",
        "packet",
        How::Ours(|of, n, ms| run(of, n, ms, Mbufs::getcl)),
    ),
    ("dpdk", "packet", How::Dpdk("pkt")),
    (
        "m_gethdr+m_clget",
        "packet",
        How::Ours(|of, n, ms| run(of, n, ms, in_two_steps)),
    ),
    (
        "tranship",
        "mbuf",
        How::Ours(|of, n, ms| run(of, n, ms, Mbufs::gethdr)),
    ),
    ("dpdk-mempool", "mbuf", How::Dpdk("obj")),
];

/// The work of m_gethdr(9) and m_clget(9).
#[inline(always)]
fn in_two_steps(mbufs: &Mbufs) -> Result<Chain, NoBuffers> {
    let mut chain = mbufs.gethdr()?;
    match chain.clget() {
        Err(Error::NoBuffers(error)) => Err(error),
        _ => Ok(chain),
    }
}

#[derive(Debug, clap::Args)]
pub struct Mbuf;

impl Bench for Mbuf {
    const REFERENCES: &'static [&'static str] = &["dpdk", "dpdk-mempool"];

    fn systems(&self) -> Vec<&'static str> {
        PAIRS.map(|(system, ..)| system).to_vec()
    }

    fn measure(&self, common: &Common) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let core = common.cores()[0];
        let dpdk = Dpdk::start(core);
        let dpdk = dpdk.inspect_err(|error| eprintln!("SKIPPED: dpdk: {error:#}"));
        let dpdk = dpdk.ok();
        let version = dpdk.iter().map(|dpdk| dpdk.version.clone());
        outcome
            .peers
            .extend(version.map(|is| ("dpdk".to_owned(), is)));
        party::pin(core)?;
        let mbufs = MbufOptions::new().limits(Limits::NONE).build()?;
        for op in ["packet", "mbuf"] {
            for distinct in DISTINCT {
                let of_op = PAIRS.iter().filter(|pair| pair.1 == op);
                let wanted = of_op.filter(|pair| common.wants(pair.0));
                let key = Key::of(op).buffers(distinct).threads(1);
                let ms = common.sample_ms();
                let cells = wanted.filter_map(|&(system, _, how)| match (how, &dpdk) {
                    (How::Ours(run), _) => {
                        let mbufs = &mbufs;
                        let run = move |_| run(mbufs, distinct, ms);
                        Some(Cell::of(system, key.clone(), run))
                    }
                    (How::Dpdk(what), Some(dpdk)) => {
                        let run = move |_| dpdk.measure(what, distinct, ms);
                        Some(Cell::of(system, key.clone(), run))
                    }
                    (How::Dpdk(_), None) => None,
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
    mbufs: &Mbufs,
    distinct: usize,
    sample_ms: u64,
    alloc: impl Fn(&Mbufs) -> Result<Chain, NoBuffers>,
) -> Result<Vec<Measured>> {
    match distinct {
        1 => timed(sample_ms, || {
            for _ in 0..BATCH {
                drop(used(alloc(mbufs)?));
            }
            Ok(())
        }),
        _ => timed(sample_ms, || {
            for _ in 0..BATCH / 32 {
                let mut held: [MaybeUninit<Chain>; 32] = [const { MaybeUninit::uninit() }; 32];
                for place in &mut held {
                    place.write(used(alloc(mbufs)?));
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
