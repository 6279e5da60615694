//! The command line: which benches there are, and what each can vary.

use clap::{Parser, Subcommand};

use crate::block::{self, Access};
use crate::case::Wait;
use crate::channels::{Level, hops};
use crate::options::Common;
use crate::siege;
use crate::zcopy;

/// Measures tranship and its peers side by side on this machine.
#[derive(Debug, Parser)]
#[command(name = "tranship-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub bench: Bench,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// All that is promised, measured in one sitting and judged: a quarter of an hour. `--only` names parts of it.
    Report {
        #[command(flatten)]
        common: Common,
        /// Write PREFIX.md, which is what is printed, and PREFIX.json.
        #[arg(long, value_name = "PREFIX")]
        save: Option<std::path::PathBuf>,
    },
    /// One message to and fro between two processes.
    Roundtrip {
        #[command(flatten)]
        common: Common,
        /// How the sides wait [default: spin, then block].
        #[arg(long, value_enum)]
        mode: Vec<Wait>,
        /// Payload sizes, e.g. 64,4K,64K,1M.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["64", "4K", "64K", "1M"])]
        payload: Vec<usize>,
        /// Buffers of each sender.
        #[arg(long, default_value_t = 256)]
        buffers: usize,
    },
    /// The round trip through the C face, `libtranship.so`, beside Rust's.
    C {
        #[command(flatten)]
        common: Common,
        /// How the sides wait [default: spin, then block].
        #[arg(long, value_enum)]
        mode: Vec<Wait>,
        /// Payload sizes, e.g. 64,4K,64K,1M.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["64", "4K", "1M"])]
        payload: Vec<usize>,
        /// Buffers of each sender.
        #[arg(long, default_value_t = 256)]
        buffers: usize,
    },
    /// Arrays to and fro between two processes in Python, by the Python face and by what else there is, beside Rust's round trip.
    Python {
        #[command(flatten)]
        common: Common,
        /// How the sides wait [default: spin, then block].
        #[arg(long, value_enum)]
        mode: Vec<Wait>,
        /// Sizes of the arrays, e.g. 64,4K,64K,1M.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["1K", "4K", "16K", "64K", "256K", "1M", "4M", "16M", "64M"])]
        payload: Vec<usize>,
        /// The interpreter [default: of an environment that is made under the target folder; with --quick python3, if there is none].
        #[arg(long, value_name = "PATH")]
        python: Option<std::path::PathBuf>,
        /// Draw plots into PREFIX-spin-word.svg and so on.
        #[arg(long, value_name = "PREFIX")]
        svg: Option<std::path::PathBuf>,
    },
    /// One way between two processes, as fast as it goes, both sides busy-polling.
    Stream {
        #[command(flatten)]
        common: Common,
        /// How much of the payload is written and read [default: untouched, then touched].
        #[arg(long, value_parser = ["untouched", "touched"])]
        mode: Vec<String>,
        /// Payload sizes, e.g. 64,4K,64K,1M.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["64", "4K", "64K", "1M"])]
        payload: Vec<usize>,
        /// Buffers of each sender; no more than 16 MiB of them when all bytes are touched.
        #[arg(long, default_value_t = 64)]
        buffers: usize,
    },
    /// Each operation by itself: alloc, send, receive, free.
    Ops {
        #[command(flatten)]
        common: Common,
    },
    /// How long single operations take at worst: each alloc, send, receive and release of a round trip timed by itself, as histograms.
    Tail {
        #[command(flatten)]
        common: Common,
        /// Payload sizes, e.g. 64,4K,64K,1M.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["4K"])]
        payload: Vec<usize>,
        /// Draw quantiles into PREFIX-near.svg and PREFIX-far.svg, as far as these were met.
        #[arg(long, value_name = "PREFIX")]
        svg: Option<std::path::PathBuf>,
    },
    /// What each operation executes: instructions, locked ones, system calls of a message, by function. Names of what is inlined need
    /// line tables: `cargo build --profile profiling`.
    Instructions {
        #[command(flatten)]
        common: Common,
        /// Write all functions with what they execute into this file: only what has changed differs from that of another day.
        #[arg(long, value_name = "FILE")]
        save: Option<std::path::PathBuf>,
    },
    /// Alloc and free in one thread, against malloc and mmap; memory untouched.
    Alloc {
        #[command(flatten)]
        common: Common,
        /// Sizes in bytes [default: 64 to 4K, and 1 to 256 pages].
        #[arg(long, value_delimiter = ',', value_parser = size)]
        payload: Vec<usize>,
    },
    /// Item zones against malloc: one thread, two threads, and items freed on another thread than they came from.
    Zone {
        #[command(flatten)]
        common: Common,
        /// Sizes in bytes [default: 64, 256, 1K, 4K, 16K, 64K].
        #[arg(long, value_delimiter = ',', value_parser = size)]
        payload: Vec<usize>,
    },
    /// Whole allocators, preloaded: one thread, two, mixed loads and the memory that they take.
    Malloc {
        #[command(flatten)]
        common: Common,
        /// Sizes in bytes [default: 64 to 4K, 16K, 64K, 256K, 1M].
        #[arg(long, value_delimiter = ',', value_parser = size)]
        payload: Vec<usize>,
    },
    /// Resident memory over time around a spike of network buffers: our mbufs, and allocators with and without reclamation
    /// (one run unless told otherwise; 7 s each, of each system at each load).
    MbumaFig7 {
        #[command(flatten)]
        common: Common,
        /// Packets of the spike.
        #[arg(long, default_value_t = 65536)]
        packets: usize,
        /// Packets that are out all the time: several loads, of which the first is drawn [default: 16384, 1024, 4096, 65536;
        /// with --quick 4096].
        #[arg(long, value_delimiter = ',')]
        steady: Vec<std::num::NonZeroUsize>,
        /// Draw a plot into this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },
    /// Alloc with the collection of used buffers, against pool size and number of receivers.
    Collect {
        #[command(flatten)]
        common: Common,
    },
    /// Packets allocated and freed against DPDK's, and what packets of real sizes cost.
    Mbuf {
        #[command(flatten)]
        common: Common,
    },
    /// One producer, four consumers that read every byte: large frames, each way of moving them.
    Demo {
        #[command(flatten)]
        common: Common,
    },
    /// A buffer moved to another domain and given back, by each way that bytes travel, against a socket that carries them.
    Carriers {
        #[command(flatten)]
        common: Common,
        /// Whether 8 bytes of the buffer are written and read, or travel as metadata [default: untouched, then touched].
        #[arg(long, value_parser = ["untouched", "touched"])]
        mode: Vec<String>,
        /// Levels of trust [default: all].
        #[arg(long, value_enum, value_delimiter = ',')]
        trust: Vec<Level>,
        /// Buffer sizes, multiples of the page.
        #[arg(long, value_delimiter = ',', value_parser = pages, default_values = ["4K", "16K", "64K", "256K", "1M", "4M"])]
        payload: Vec<usize>,
        /// Draw a plot into this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },
    /// What each level of trust costs: a buffer moved and passed back, all of its bytes written and read, or none.
    Trust {
        #[command(flatten)]
        common: Common,
        /// Whether all bytes are written and read [default: untouched, then touched].
        #[arg(long, value_parser = ["untouched", "touched"])]
        mode: Vec<String>,
        /// Buffer sizes, multiples of the page.
        #[arg(long, value_delimiter = ',', value_parser = pages, default_values = ["4K", "8K", "16K", "64K", "256K", "1M", "4M", "16M"])]
        payload: Vec<usize>,
        /// Draw a plot into this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },
    /// The block service's NBD exports against nbdkit and qemu-nbd.
    Block {
        #[command(flatten)]
        common: Common,
        /// With the page cache, or without it [default: both].
        #[arg(long, value_enum, value_delimiter = ',')]
        access: Vec<Access>,
        /// What is asked [default: all].
        #[arg(long, value_delimiter = ',', value_parser = block::MODES)]
        mode: Vec<String>,
        /// Bytes of a request, multiples of the page.
        #[arg(long, value_delimiter = ',', value_parser = pages, default_values = ["4K", "64K", "1M"])]
        payload: Vec<usize>,
        /// Requests under way at a time.
        #[arg(long, value_delimiter = ',', default_values = ["1", "16"])]
        depth: Vec<usize>,
        /// Draw a plot into this file: of the first mode, at the largest depth.
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },
    /// Replies out of a set of values over TCP: by reference, and copied.
    ZcSend {
        #[command(flatten)]
        common: Common,
        /// A set of 512 MiB, or one of 1 MiB [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::MODES)]
        mode: Vec<String>,
        /// What the client does with the values [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::CLIENTS)]
        client: Vec<String>,
        /// Bytes of a value.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["4K", "16K", "64K", "256K"])]
        payload: Vec<usize>,
        /// Requests under way on each connection.
        #[arg(long, value_delimiter = ',', default_values = ["1", "8"])]
        depth: Vec<usize>,
        /// Size of the cold set, MiB.
        #[arg(long, default_value_t = 512)]
        set_mib: usize,
        /// Where replies go: to a client by loopback, or into a TUN device, the stand-in for a network card (as root).
        #[arg(long, default_value = "loopback", value_parser = zcopy::SINKS)]
        sink: String,
    },
    /// GETs from a cache server: ours by reference, copied in batches, copied naively, and Debian's memcached.
    ZcCache {
        #[command(flatten)]
        common: Common,
        /// A set of 512 MiB, or one of 1 MiB [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::MODES)]
        mode: Vec<String>,
        /// What the client does with the values [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::CLIENTS)]
        client: Vec<String>,
        /// Bytes of a value.
        #[arg(long, value_delimiter = ',', value_parser = size,
            default_values = ["512", "1K", "2K", "4K", "16K", "64K", "256K", "1M"])]
        payload: Vec<usize>,
        /// Requests under way on each connection.
        #[arg(long, value_delimiter = ',', default_values = ["1", "8"])]
        depth: Vec<usize>,
        /// Size of the cold set, MiB.
        #[arg(long, default_value_t = 512)]
        set_mib: usize,
        /// Look for the size from which on references pay, too.
        #[arg(long)]
        break_even: bool,
    },
    /// The paper's port: Debian's memcached, built of its source package as it is and with its values from zc_malloc, by UDP and by TCP.
    /// Fetches the package (apt-get source) and builds it, the first time.
    ZcMemcached {
        #[command(flatten)]
        common: Common,
        /// By UDP from 36 sockets, or by TCP with one request for each connection [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::memcached::CARRIERS)]
        carrier: Vec<String>,
        /// Bytes of a value.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["256", "512", "768", "1K", "2K"])]
        payload: Vec<usize>,
        /// Worker threads of the server: with one it has one core, with more both.
        #[arg(long, value_delimiter = ',', default_values = ["1", "2"])]
        threads: Vec<usize>,
        /// Where the package is unpacked and built [default: zc-memcached, beside this program].
        #[arg(long)]
        folder: Option<std::path::PathBuf>,
    },
    /// memcached's own tests, of Debian's source package, against the cache server, each file beside what is known of it. Fetches the package (apt-get
    /// source) the first time, and builds nothing.
    ZcSuite {
        #[command(flatten)]
        common: Common,
        /// Where the package is unpacked [default: zc-memcached, beside this program].
        #[arg(long)]
        folder: Option<std::path::PathBuf>,
    },
    /// Debian's Varnish, unmodified, with libtranship_zcopy.so and without, under wrk or ab.
    ZcVarnish {
        #[command(flatten)]
        common: Common,
        /// What is asked for.
        #[arg(long, value_enum, value_delimiter = ',', default_values = ["hot", "cold"])]
        mode: Vec<crate::zcopy::varnish::Mode>,
        /// Bytes of an object.
        #[arg(long, value_delimiter = ',', value_parser = size,
            default_values = ["1K", "2K", "4K", "6K", "8K", "16K", "64K", "256K"])]
        payload: Vec<usize>,
    },
    /// Figures 6 to 10 and tables 1 and 2 of ZCopy's paper: zc-memcached, zc-varnish and zc-fault with its sizes, as one page.
    ZcPaper {
        #[command(flatten)]
        common: Common,
        /// Write PREFIX.md and a picture for each figure.
        #[arg(long, value_name = "PREFIX")]
        save: Option<std::path::PathBuf>,
    },
    /// Values of a cache server in another process: by reference through a channel, and over TCP.
    ZcShm {
        #[command(flatten)]
        common: Common,
        /// Bytes of a value.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["4K", "16K", "64K", "256K", "1M"])]
        payload: Vec<usize>,
    },
    /// Values by UDP, many datagrams in a call: by reference, and copied (as root).
    ZcUdp {
        #[command(flatten)]
        common: Common,
        /// A set of 256 MiB, or one of 1 MiB [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::MODES)]
        mode: Vec<String>,
        /// What is around a value [default: both].
        #[arg(long, value_delimiter = ',', value_parser = zcopy::udp::FRAMES)]
        frame: Vec<String>,
        /// Bytes of a value.
        #[arg(long, value_delimiter = ',', value_parser = size, default_values = ["512", "1024"])]
        payload: Vec<usize>,
        /// Size of the cold set, MiB.
        #[arg(long, default_value_t = 256)]
        set_mib: usize,
    },
    /// What keeps bytes as they were sent when their memory is written: a private view (as ZCopy has it), write protection by
    /// mprotect, write protection by userfaultfd.
    ZcFault {
        #[command(flatten)]
        common: Common,
        /// Pageblocks that are protected together.
        #[arg(long, value_delimiter = ',', default_values = ["1", "64"])]
        blocks: Vec<usize>,
    },
    /// A manager under hostile clients, and what honest ones of another user see of it (as root). Each user has a cgroup
    /// with an equal share of the processors, as on a real machine (`besieged`); beside it a session for each process
    /// (`besieged-sessions`), and all in one cgroup (`besieged-together`).
    Siege {
        #[command(flatten)]
        common: Common,
        /// Attacking processes, of two users.
        #[arg(long, default_value_t = 8)]
        attackers: usize,
        /// What is measured [default: all].
        #[arg(long, value_delimiter = ',', value_parser = siege::MODES)]
        mode: Vec<String>,
    },
    /// What looking costs: `tranship top` and the manager beside a hundred domains with a thousand channels, and the fast path with and without
    /// somebody who looks.
    Top {
        #[command(flatten)]
        common: Common,
        /// The program `tranship` [default: the one beside this].
        #[arg(long, value_name = "PATH")]
        program: Option<std::path::PathBuf>,
    },
    /// Buffers through a row of domains and back, by each way that bytes travel, on one core and on two; processor time for each.
    Hops {
        #[command(flatten)]
        common: Common,
        /// One buffer is out, or all [default: both].
        #[arg(long, value_parser = hops::MODES)]
        mode: Vec<String>,
        /// Levels of trust [default: all].
        #[arg(long, value_enum, value_delimiter = ',')]
        trust: Vec<Level>,
        /// Domains between the first and the last.
        #[arg(long, value_delimiter = ',', default_values = ["0", "1", "2"])]
        hops: Vec<usize>,
        /// Buffer sizes, multiples of the page.
        #[arg(long, value_delimiter = ',', value_parser = pages, default_values = ["4K"])]
        payload: Vec<usize>,
        /// Buffers that may be out at once.
        #[arg(long, default_value_t = 64)]
        buffers: usize,
        /// Draw a plot into this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },
    /// What comes before the first message: a domain joins, a channel is opened, carries one buffer and is closed.
    Join {
        #[command(flatten)]
        common: Common,
    },
    /// iperf3 through a forwarder and against an echo server of mbufs, in network namespaces (as root).
    Netpath {
        #[command(flatten)]
        common: Common,
    },
    /// What is behind the Varnish of zc-varnish.
    #[command(hide = true)]
    ZcOrigin,
    /// A server of zc-cache.
    #[command(hide = true)]
    ZcCacheChild {
        system: String,
        threads: usize,
        memory: u64,
    },
    /// One run of alloc, in a process with the allocator under test.
    #[command(hide = true)]
    AllocChild {
        system: String,
        bytes: usize,
        core: usize,
        sample_ms: u64,
    },
    /// One run of malloc, in a process with the allocator under test.
    #[command(hide = true)]
    MallocChild {
        system: String,
        work: String,
        bytes: usize,
        buffers: usize,
        core: usize,
        other_core: usize,
        sample_ms: u64,
    },
    /// One run of mbuma-fig7, in a process of its own.
    #[command(hide = true)]
    MbumaChild {
        system: String,
        packets: usize,
        steady: usize,
        #[arg(long)]
        quick: bool,
    },
    /// One run of zone, in a process with the allocator under test.
    #[command(hide = true)]
    ZoneChild {
        system: String,
        work: String,
        bytes: usize,
        core: usize,
        other_core: usize,
        sample_ms: u64,
    },
}

/// `64`, `4K`, `1M`: bytes, a multiple of 8.
fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1 << 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let n: usize = digits.parse().map_err(|_| format!("not a size: {text}"))?;
    match n.checked_mul(unit) {
        Some(n) if (8..=1 << 30).contains(&n) && n.is_multiple_of(8) => Ok(n),
        _ => Err(format!("{text}: a size is a multiple of 8 from 8 to 1024M")),
    }
}

/// A [`size`] that is a multiple of the page.
fn pages(text: &str) -> Result<usize, String> {
    let page = rustix::param::page_size();
    match size(text) {
        Ok(n) if !n.is_multiple_of(page) => Err(format!("{text}: not a multiple of {page} bytes")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("1M"), Ok(1 << 20));
        for bad in ["", "K", "7", "12x", "2048M", "99999999999999999999"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
        let cli = Cli::parse_from([
            "b",
            "roundtrip",
            "--cores",
            "1",
            "--only",
            "raw,pipe",
            "--quick",
        ]);
        let Bench::Roundtrip { common, .. } = cli.bench else {
            panic!("{cli:?}")
        };
        assert_eq!((common.cores(), common.runs()), ([1, 1], 3));
        assert!(common.check(&["raw", "pipe"]).is_ok());
        assert!(
            common
                .check(&["raw"])
                .unwrap_err()
                .to_string()
                .contains("pipe")
        );
    }
}
