//! Figure 7: what a page costs with its part of the collections, by how large the pool is and by how many domains each page is sent to.
//!
//! A round takes all pages of the pool, which are dead, sends each to all readers, and waits until they have let go: what is timed is the taking,
//! and never waits for anybody.

use super::super::lines::{Cost, SMALL, say};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};
use tranship::{Body, ChannelOptions, Domain, PoolOptions, Receiver, Sender, Wait};

/// Pools of so many pages. The smallest is one chunk.
const PAGES: [u64; 7] = [16, 32, 64, 128, 256, 512, 1024];
/// Rounds that are not timed.
const WARM: u64 = 3;
/// A page that is not there after so long is lost.
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> ChannelOptions {
    ChannelOptions::new().lines(2048).wait(Wait::Sleep)
}

fn there(reader: u32) -> String {
    format!("pages {reader}")
}

fn back(reader: u32) -> String {
    format!("done {reader}")
}

/// The other process of a channel, both ways.
struct Reader {
    pages: Sender,
    done: Receiver,
}

pub(super) fn write(domain: &Domain, readers: u32, operations: u64) -> Result<()> {
    let open = |reader| {
        let pages = domain.open_with::<Sender>(&there(reader), options())?;
        let listener = domain.listen_with::<Receiver>(&back(reader), options())?;
        let done = listener.accept()?;
        Ok(Reader { pages, done })
    };
    let mut readers: Vec<Reader> = (1..=readers).map(open).collect::<Result<_>>()?;
    for pages in PAGES {
        let cost = measure(domain, &mut readers, pages, operations)
            .with_context(|| format!("a pool of {pages} pages"))?;
        if !say(&cost) {
            break;
        }
    }
    Ok(())
}

fn measure(domain: &Domain, readers: &mut [Reader], pages: u64, operations: u64) -> Result<Cost> {
    let bytes = pages * SMALL;
    let options = PoolOptions::new(bytes)
        .chunk_bytes(64 << 10)
        .preallocate(bytes)
        .name("pages");
    let pool = domain.create_pool(options)?;
    for reader in readers.iter_mut() {
        reader.pages.assign(&pool)?;
    }
    let count = usize::try_from(pages)?;
    let mut taken = Vec::with_capacity(count);
    let rounds = operations.div_ceil(pages).max(1);
    let mut times = Vec::with_capacity(usize::try_from(WARM + rounds)?);
    let mut before = pool.stats();
    for round in 0..WARM + rounds {
        if round == WARM {
            times.clear();
            before = pool.stats();
        }
        let begin = Instant::now();
        for _ in 0..count {
            taken.push(pool.alloc_timeout(usize::try_from(SMALL)?, PATIENCE)?);
        }
        times.push(begin.elapsed());
        for page in taken.drain(..) {
            let page = page.freeze();
            for reader in readers.iter_mut() {
                reader.pages.send(page.clone())?;
            }
        }
        for reader in readers.iter_mut() {
            reader.pages.send(&[])?;
            reader.done.recv_timeout(PATIENCE).context("a reader")?;
        }
    }
    let (after, allocs) = (pool.stats(), rounds * pages);
    let collecting = after.collect_ns - before.collect_ns;
    let all: Duration = times.iter().sum();
    times.sort_unstable();
    let middle = times[times.len() / 2];
    #[allow(clippy::cast_precision_loss)] // for people
    Ok(Cost {
        pages,
        readers: u32::try_from(readers.len())?,
        ns: middle.as_nanos() as f64 / pages as f64,
        allocs,
        collections: after.collections - before.collections,
        collecting: collecting as f64 / (all.as_nanos() as f64).max(1.0),
    })
}

/// Lets go of each page at once, and answers what is no page.
pub(super) fn read(domain: &Domain, number: u32) -> Result<()> {
    let listener = domain.listen_with::<Receiver>(&there(number), options())?;
    let mut pages = listener.accept()?;
    let mut done = domain.open_with::<Sender>(&back(number), options())?;
    loop {
        match pages.recv()?.body {
            Body::Buffer(page) => drop(page),
            Body::Inline(_) => done.send(&[]).map(drop)?,
            other => bail!("a message that is none: {other:?}"),
        }
    }
}
