//! `tranship cache get`: values by reference.

use crate::args::cache::GetArgs;
use crate::commands::connect;
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::Write;
use tranship::ErrorKind;
use tranship_cache::{Answer as Found, Reader};

/// Row of a value.
#[derive(Serialize)]
struct Row<'a> {
    key: &'a str,
    found: bool,
    bytes: Option<usize>,
    flags: Option<u32>,
    cas: Option<u64>,
    /// Seconds until it expires; null: never.
    expires_in_s: Option<u32>,
}

pub(super) fn run(args: &GetArgs) -> Result<Answer> {
    output::check_stdout()?;
    let domain = connect::join(&args.connect, "tranship-cache-get")?;
    let reader = Reader::open_within(&domain, &args.shm, args.wait);
    let mut reader = match reader {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            let text = format!("no cache server shows its values at `{}`", args.shm);
            return Err(error).context(text);
        }
        other => other.with_context(|| format!("reading at `{}`", args.shm))?,
    };
    let mut out = output::stdout();
    let mut rows = Vec::new();
    let mut missed = 0;
    // Values come one at a time, so that a printed value is released.
    for key in &args.keys {
        let answer = reader.get_many(&[key.as_bytes()]);
        let answer = answer.with_context(|| format!("asking for `{key}`"))?;
        let hit = match answer.into_iter().next() {
            Some(Found::Hit(hit)) => Some(hit),
            Some(Found::Refused(why)) => return Err(why).context(format!("asking for `{key}`")),
            Some(Found::Miss) | None => None,
        };
        missed += usize::from(hit.is_none());
        if args.json {
            rows.push(Row {
                key,
                found: hit.is_some(),
                bytes: hit.as_ref().map(|hit| hit.len()),
                flags: hit.as_ref().map(|hit| hit.flags()),
                cas: hit.as_ref().map(|hit| hit.cas()),
                expires_in_s: hit.as_ref().and_then(|hit| hit.ttl()),
            });
            continue;
        }
        match hit {
            Some(hit) => hit.write_to(&mut out)?,
            None => eprintln!("tranship: nothing is stored under `{key}`"),
        }
    }
    if args.json {
        output::json(&rows)?;
    }
    out.flush()?;
    Ok((missed == 0).into())
}
