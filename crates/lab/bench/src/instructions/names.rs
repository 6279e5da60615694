//! Which function an address belongs to: `addr2line` of the binutils says it, with what was inlined where the program has line tables
//! (`cargo build --profile profiling`).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The files in which a writer finds out what nobody holds any more, and takes it back.
const COLLECTION: [&str; 6] = [
    "core/link/sender/collect",
    "core/pool/collect",
    "core/pool/few",
    "core/pool/gc",
    "ledger/collect",
    "ledger/direct",
];

/// A mapping of a file into this process.
struct Mapped {
    from: u64,
    to: u64,
    file: String,
}

/// A function, and the file and line that it is from.
type Frame = (String, String);

/// A function's name, and whether it is of the bench: what a program does around its calls of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub text: String,
    pub is_bench: bool,
    /// Whether it is executed to find out what nobody holds any more: it stands beside what the operation is for.
    pub is_collection: bool,
}

/// The name of each address: of the innermost function of ours that it lies in, else of the outermost.
pub fn of(addresses: impl Iterator<Item = u64>) -> Result<BTreeMap<u64, Name>> {
    let mapped = mapped()?;
    let exe = std::env::current_exe()?;
    let exe_name = exe.to_string_lossy();
    // A position-independent program begins where its first mapping does.
    let base = mapped.iter().find(|m| *m.file == *exe_name);
    let base = base.context("the program in /proc/self/maps")?.from;
    let mut names = BTreeMap::new();
    let mut ours = BTreeSet::new();
    for at in addresses {
        match mapped.iter().find(|m| (m.from..m.to).contains(&at)) {
            Some(m) if *m.file == *exe_name => {
                ours.insert(at);
            }
            Some(m) => {
                let file = m.file.rsplit('/').next().unwrap_or_default();
                let text = file.to_owned();
                let name = Name {
                    text,
                    is_bench: false,
                    is_collection: false,
                };
                names.insert(at, name);
            }
            None => {}
        }
    }
    let Ok(chains) = ask(&exe_name, base, &ours) else {
        eprintln!("no addr2line here, so no names of functions: apt-get install binutils");
        return Ok(names);
    };
    names.extend(ours.into_iter().zip(chains.iter().map(|chain| pick(chain))));
    Ok(names)
}

fn mapped() -> Result<Vec<Mapped>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        Some(Mapped {
            from: u64::from_str_radix(from, 16).ok()?,
            to: u64::from_str_radix(to, 16).ok()?,
            file: words.nth(4)?.to_owned(),
        })
    };
    Ok(text.lines().filter_map(one).collect())
}

/// For each address the functions that it lies in, innermost first.
fn ask(exe: &str, base: u64, addresses: &BTreeSet<u64>) -> Result<Vec<Vec<Frame>>> {
    let mut child = Command::new("addr2line")
        .args(["-e", exe, "-a", "-f", "-i", "-C"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("its input")?;
    let asked: String = addresses
        .iter()
        .map(|at| format!("{:#x}\n", at - base))
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let said = child.wait_with_output()?;
    writer.join().ok().context("what was asked")??;
    let mut chains: Vec<Vec<Frame>> = Vec::new();
    let said = String::from_utf8_lossy(&said.stdout);
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        match chains.last_mut() {
            _ if line.starts_with("0x") => chains.push(Vec::new()),
            Some(chain) => {
                let place = lines.next().unwrap_or_default();
                chain.push((line.to_owned(), place.to_owned()));
            }
            None => {}
        }
    }
    Ok(chains)
}

/// The innermost function of the product: with line tables one that is in a file of its crates, else one that has its name.
fn pick(chain: &[Frame]) -> Name {
    let in_file = chain.iter().find_map(|(name, place)| {
        let file = file_of(place)?;
        let name = short(name);
        Some(format!("{file} {}", name.rsplit("::").next()?))
    });
    let is_ours =
        |(name, _): &&Frame| name.contains("tranship_") && !name.contains("tranship_bench");
    let by_name = || {
        let frame = chain.iter().find(is_ours).or(chain.last());
        short(frame.map_or("?", |(name, _)| name.as_str()))
    };
    let is_bench = in_file.is_none()
        && !chain.iter().any(|frame| is_ours(&frame))
        && chain.iter().any(is_of_bench);
    Name {
        text: in_file.unwrap_or_else(by_name),
        is_bench,
        is_collection: chain.iter().any(is_of_collection),
    }
}

/// The collector's lock is the only one that is tried on these ways.
fn is_of_collection((name, place): &Frame) -> bool {
    let file = file_of(place);
    file.is_some_and(|file| COLLECTION.contains(&&*file)) || name.contains("try_lock")
}

/// Only where there are line tables: without, what is inlined into the bench's functions bears their name, the product's too.
fn is_of_bench((name, place): &Frame) -> bool {
    let line = place.rsplit(':').next().unwrap_or_default();
    let has_line = line.starts_with(|c: char| c.is_ascii_digit()) && line != "0";
    (has_line && name.contains("tranship_bench")) || place.contains("/crates/lab/bench/src/")
}

/// `/where/it/is/crates/core/core/src/link/sender.rs:12` is `core/link/sender`. None if it is not of the product, or the bench's.
fn file_of(place: &str) -> Option<String> {
    let (_, inside) = place.rsplit_once("/crates/")?;
    let (folders, rest) = inside.split_once("/src/")?;
    let name = folders.rsplit('/').next()?;
    let (file, _) = rest.split_once(".rs:")?;
    (name != "bench").then(|| format!("{name}/{file}"))
}

/// Without parameters of types and hashes: `<tranship_core::link::Sender>::send` is `link::Sender::send`.
fn short(name: &str) -> String {
    let mut depth = 0;
    let mut plain = String::new();
    for c in name.trim_start_matches('<').chars() {
        match c {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            '>' => {}
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let parts: Vec<_> = plain.split("::").filter(|p| !p.is_empty()).collect();
    let is_hash = |p: &&str| p.len() == 17 && p.starts_with('h');
    let parts = match parts.split_last() {
        Some((last, rest)) if is_hash(last) => rest,
        _ => &parts[..],
    };
    parts[parts.len().saturating_sub(3)..].join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        for (long, want) in [
            (
                "<tranship_core::link::sender::Sender>::send_fresh",
                "sender::Sender::send_fresh",
            ),
            (
                "tranship_zone::zone::Zone<B>::alloc_cached",
                "zone::Zone::alloc_cached",
            ),
            ("a::b::c::h0123456789abcdef", "a::b::c"),
            ("memcpy", "memcpy"),
        ] {
            assert_eq!(short(long), want);
        }
    }

    #[test]
    fn the_innermost_of_ours_is_picked() {
        let chain = [
            "core::ptr::read",
            "tranship_ring::pop",
            "tranship_core::recv",
            "tranship_bench::main",
        ];
        let named = |name: &str| (name.to_owned(), "??:?".to_owned());
        let picked = |chain: &[Frame]| {
            let name = pick(chain);
            (name.text, name.is_bench)
        };
        let ours = |text: &str| (text.to_owned(), false);
        let bench = |text: &str| (text.to_owned(), true);
        assert_eq!(picked(&chain.map(named)), ours("tranship_ring::pop"));
        let main = [named("core::ptr::read"), named("tranship_bench::main")];
        assert_eq!(picked(&main), ours("tranship_bench::main"));
        let of_a_unit = (
            "tranship_bench::main".to_owned(),
            "tranship_bench.0-cgu.1:?".to_owned(),
        );
        assert_eq!(picked(&[of_a_unit]), ours("tranship_bench::main"));
        let inlined = (
            "tranship_bench::main",
            "/rustc/1/library/core/src/ptr/mod.rs:7",
        );
        let inlined = [inlined].map(|(name, place)| (name.to_owned(), place.to_owned()));
        assert_eq!(picked(&inlined), bench("tranship_bench::main"));
        let placed = [
            ("inner", "/rustc/1/library/core/src/ptr/mod.rs:7"),
            ("{closure#0}", "/a/crates/core/core/src/link/sender.rs:12"),
            ("give", "/a/crates/lab/bench/src/ops.rs:1"),
        ];
        let placed = placed.map(|(name, place)| (name.to_owned(), place.to_owned()));
        assert_eq!(picked(&placed), ours("core/link/sender {closure#0}"));
        assert_eq!(picked(&placed[2..]), bench("give"));
        assert_eq!(picked(&placed[..1]), ours("inner"));
        assert_eq!(picked(&[]), ours("?"));
    }

    #[test]
    fn collection_is_told_from_publishing() {
        let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        for file in COLLECTION {
            let (name, rest) = file.split_once('/').unwrap();
            let is_in = |part| format!("{crates}/{part}/{name}/src/{rest}.rs");
            let there = ["base", "core"]
                .map(is_in)
                .into_iter()
                .any(|path| std::fs::exists(path).unwrap());
            assert!(there, "{file} is not there");
            let inside = ("f".to_owned(), format!("/a/crates/{name}/src/{rest}.rs:12"));
            let outside = (
                "send".to_owned(),
                "/a/crates/core/core/src/link/sender.rs:1".to_owned(),
            );
            assert!(!pick(std::slice::from_ref(&outside)).is_collection);
            assert!(pick(&[inside, outside]).is_collection);
        }
    }
}
