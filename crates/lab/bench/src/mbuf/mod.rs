//! `mbuf`: packets allocated and freed in one thread, against DPDK's.

mod dpdk;

use anyhow::{Result, ensure};
use std::mem::MaybeUninit;
use tranship_mbuf::{Chain, Limits, MbufOptions, Mbufs, NoBuffers};

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

/// Operations, what measures ours, the peer, and its operation.
const OPS: [(&str, Ours, &str, &str); 2] = [
    (
        "packet",
        |of, n, ms| run(of, n, ms, Mbufs::getcl),
        "dpdk",
        "pkt",
    ),
    (
        "mbuf",
        |of, n, ms| run(of, n, ms, Mbufs::gethdr),
        "dpdk-mempool",
        "obj",
    ),
];
const OURS: &str = "tranship";

#[derive(Debug, clap::Args)]
pub struct Mbuf;

impl Bench for Mbuf {
    const REFERENCES: &'static [&'static str] = &["dpdk", "dpdk-mempool"];

    fn systems(&self) -> Vec<&'static str> {
        [OURS].into_iter().chain(OPS.map(|op| op.2)).collect()
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
        let (mbufs, ms) = (&mbufs, common.sample_ms());
        for (op, ours, peer, what) in OPS {
            for distinct in DISTINCT {
                let key = Key::of(op).with("buffers", distinct).with("threads", 1);
                let mut cells = Vec::new();
                if common.wants(OURS) {
                    let run = move |_| ours(mbufs, distinct, ms);
                    cells.push(Cell::of(OURS, key.clone(), run));
                }
                if let Some(dpdk) = dpdk.as_ref().filter(|_| common.wants(peer)) {
                    let run = move |_| dpdk.measure(what, distinct, ms);
                    cells.push(Cell::of(peer, key, run));
                }
                outcome.group(common.runs(), cells);
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
