//! `zc-paper`: figures 6 to 10 and tables 1 and 2 of "Revisiting Software Zero-Copy for Web-caching Applications with Twin Memory
//! Allocation", as far as this machine can: `--save PREFIX` writes them as one page with pictures. With `--quick` table 2 alone.

use super::{fault, memcached, varnish};
use crate::clock;
use crate::options::Common;
use crate::party::{self, Member};
use crate::plan::{Cell, Outcome};
use crate::plot::{self, Along};
use crate::report::{Key, Row, bytes};
use crate::stats::{Measured, Samples};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

/// Sizes of the paper's values, and of its pages.
const VALUES: [usize; 5] = [256, 512, 768, 1024, 2048];
const PAGES: [usize; 6] = [1024, 2048, 3072, 4096, 6144, 8192];
/// Primitives of table 2 that are the machine's own.
const GETPID: &str = "getpid";
const NATIVE: &str = "native-fault";
const CPU: &str = "server_cpu_ns";

/// A figure: rows of a bench, and what of them is drawn.
struct Figure {
    number: u32,
    title: &'static str,
    mode: &'static str,
    point: fn(&Row) -> Option<f64>,
}

const FIGURES: [Figure; 5] = [
    figure(
        6,
        "memcached by UDP: time of a GET, 36 sockets, one worker",
        "udp",
        of_client,
    ),
    figure(
        7,
        "memcached by UDP: processor time of a GET",
        "udp",
        of_server,
    ),
    figure(
        8,
        "memcached by TCP, a connection for each GET: time",
        "tcp",
        of_client,
    ),
    figure(
        9,
        "memcached by TCP, a connection for each GET: processor time",
        "tcp",
        of_server,
    ),
    figure(
        10,
        "Varnish, kept connections: time of a page",
        "hot",
        of_client,
    ),
];

const fn figure(
    number: u32,
    title: &'static str,
    mode: &'static str,
    point: fn(&Row) -> Option<f64>,
) -> Figure {
    Figure {
        number,
        title,
        mode,
        point,
    }
}

/// What it takes at the rate that was reached: latencies are the client's own affair.
fn of_client(row: &Row) -> Option<f64> {
    (row.per_second > 0.0).then(|| 1e9 / row.per_second)
}

fn of_server(row: &Row) -> Option<f64> {
    row.facts.get(CPU).copied()
}

pub fn bench(common: &Common, save: Option<&Path>) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut add = |part: Outcome| {
        outcome.rows.extend(part.rows);
        outcome.verdicts.extend(part.verdicts);
        outcome.peers.extend(part.peers);
        outcome.failures += part.failures;
    };
    add(primitives(common));
    add(fault::bench(common, &[64]));
    if !common.is_quick() {
        let grid = memcached::Grid {
            carriers: &[],
            payloads: &VALUES,
            threads: &[1],
            folder: None,
        };
        add(memcached::bench(common, &grid));
        add(varnish::bench(common, &[varnish::Mode::Hot], &PAGES));
        eprintln!(
            "SKIPPED: of zc-paper, table 1: the misses of the second level's cache are not counted; bytes that were copied are in their place"
        );
    }
    if let Some(prefix) = save {
        save_page(&outcome, prefix)?;
    }
    Ok(outcome)
}

/// Table 2: a system call that does nothing, and the first write to a page of fresh memory.
fn primitives(common: &Common) -> Outcome {
    let mut outcome = Outcome::default();
    let cells = [GETPID, NATIVE].into_iter().map(|system| Cell {
        system,
        key: Key {
            mode: "primitive",
            ..Key::default()
        },
        measure: Box::new(move |number| {
            let budget = common.budget();
            let members = vec![Member {
                core: common.cores()[0],
                body: Box::new(move |_| primitive(system, budget)),
            }];
            party::run(number, members)?
                .pop()
                .context("nothing was measured")
        }),
    });
    outcome.group(common.runs_or(9), cells.collect());
    outcome
}

fn primitive(system: &str, budget: std::time::Duration) -> Result<Vec<Measured>> {
    const TOGETHER: u32 = 64;
    let page = rustix::param::page_size();
    let len = page * TOGETHER as usize;
    let at = tranship_sys::map::reserve_private(len, page)?;
    let mut samples = Samples::new(1 << 16, TOGETHER);
    let begun = Instant::now();
    while begun.elapsed() < budget || samples.is_empty() {
        let now = clock::ticks();
        for number in 0..TOGETHER as usize {
            if system == GETPID {
                // SAFETY: no precondition. Past the C library, which may remember it.
                ensure!(unsafe { libc::syscall(libc::SYS_getpid) } > 0, "getpid");
            } else {
                // SAFETY: inside the mapping, which is this function's own.
                unsafe { at.add(number * page).write_volatile(1) };
            }
        }
        if !samples.push(clock::ticks() - now) {
            break;
        }
        // SAFETY: its own mapping.
        unsafe { tranship_sys::map::discard(at, len)? };
    }
    // SAFETY: nobody has an address in it.
    unsafe { tranship_sys::map::unmap(at, len)? };
    Ok(vec![samples.finish("").context("no sample")?])
}

fn save_page(outcome: &Outcome, prefix: &Path) -> Result<()> {
    let mut page = String::from(
        "# The paper's figures and tables, here\n\nSong et al., \"Revisiting Software Zero-Copy for Web-caching Applications with Twin Memory Allocation\" (2012), figures 6 to 10 and\n\
         tables 1 and 2, by `tranship-bench zc-paper --save PREFIX`. The paper changed the kernel and sent by a card of 1 Gb/s; here everything\n\
         goes over loopback, whose receiver copies again, with an ordinary library.\n",
    );
    for figure in &FIGURES {
        let rows = outcome
            .rows
            .iter()
            .filter(|row| row.key.mode == figure.mode);
        let rows: Vec<Row> = rows.cloned().collect();
        let _ = writeln!(page, "\n## Figure {}: {}\n", figure.number, figure.title);
        if rows.is_empty() {
            page.push_str("Not measured: something was missing, as was said.\n");
            continue;
        }
        let point = |row: &Row| Some((row.key.payload_bytes? as f64, (figure.point)(row)?));
        let lines = plot::lines(&rows, |row| Some(row.system.clone()), point);
        let picture = prefix.with_added_extension(format!("fig{}.svg", figure.number));
        plot::save(&picture, figure.title, Along::Bytes, &lines)?;
        let name = picture
            .file_name()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        let _ = writeln!(page, "![{}]({name})\n", figure.title);
        page.push_str("| system | size | per second | processor time |\n|---|---|---|---|\n");
        for row in &rows {
            let size = bytes(row.key.payload_bytes.unwrap_or(0));
            let cpu = row.facts.get(CPU).copied().unwrap_or(f64::NAN) / 1e3;
            let (system, rate) = (&row.system, row.per_second);
            let _ = writeln!(page, "| {system} | {size} | {rate:.0} | {cpu:.2} us |");
        }
    }
    page.push_str(
        "\n## Table 1\n\nThe paper counts misses of the second level's cache. Here, what was copied and what went by reference, and the ratios with their\n\
         95 % intervals:\n\n",
    );
    for verdict in &outcome.verdicts {
        let _ = writeln!(page, "- {verdict}");
    }
    page.push_str("\n## Table 2\n\n| | time |\n|---|---|\n");
    let of_table = |row: &&Row| {
        row.key.mode == "primitive" || row.key.mode == "block" && row.key.op == "write"
    };
    for row in outcome.rows.iter().filter(of_table) {
        let threads = row
            .key
            .threads
            .map_or(String::new(), |n| format!(", {n} threads"));
        let _ = writeln!(
            page,
            "| {}{threads} | {:.0} ns |",
            row.system, row.median_ns
        );
    }
    page.push_str(
        "\n`private-view` is what ZCopy's write fault is here: the first write to a page that was sent. `native-fault` is the first write to a page\n\
         of fresh memory.\n",
    );
    let path = prefix.with_added_extension("md");
    std::fs::write(&path, page).with_context(|| format!("writing {}", path.display()))
}
