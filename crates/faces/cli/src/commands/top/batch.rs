//! Text, or JSON lines, for use without a screen.

use super::grid::{Grid, Sort, heading, title};
use super::source::Source;
use super::view::{Before, View};
use crate::args::top::{Tab, TopArgs};
use crate::commands::view::SCHEMA;
use crate::exit::Answer;
use crate::output::{self, Table};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::io::Write;
use std::time::{Duration, Instant};

/// Time from the first look to the second where one look has no rates.
const FIRST: Duration = Duration::from_millis(300);

pub(super) fn run(args: &TopArgs, mut source: Source) -> Result<Answer> {
    let sort = sort_of(args)?;
    let count = if args.once { Some(1) } else { args.count };
    let mut before = Before::default();
    before.view(&source.look()?);
    let mut next = Instant::now() + FIRST.min(args.every);
    let mut done = 0;
    loop {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        next += args.every;
        let view = before.view(&source.look()?);
        let mut out = output::stdout();
        match args.json {
            true => {
                let value = as_json(args, &view)?;
                serde_json::to_writer(&mut out, &value).map_err(std::io::Error::from)?;
                writeln!(out)?;
            }
            false => {
                if done > 0 {
                    writeln!(out)?;
                }
                write_text(args, sort, &view, &mut out)?;
            }
        }
        out.flush()?;
        done += 1;
        if count.is_some_and(|count| done >= count) {
            return Ok(Answer::Yes);
        }
        // A suspended program does not catch up.
        next = next.max(Instant::now());
    }
}

/// Returns the column to sort by, if one was given.
pub(super) fn sort_of(args: &TopArgs) -> Result<Option<(Tab, Sort)>> {
    let (Some(tab), Some(name)) = (args.show, &args.sort) else {
        return Ok(None);
    };
    let Some(sort) = Sort::by(tab, name) else {
        let all: Vec<&str> = heading(tab).iter().map(|h| title(h)).collect();
        bail!("{} have no column {name:?}: {}", tab.name(), all.join(", "));
    };
    Ok(Some((tab, sort)))
}

fn as_json(args: &TopArgs, view: &View) -> Result<Value> {
    let mut value = serde_json::to_value(view)?;
    value["schema"] = json!(SCHEMA);
    for tab in Tab::ALL {
        let Some(list) = value.get_mut(tab.name()).and_then(Value::as_array_mut) else {
            continue;
        };
        if args.show.is_some_and(|show| show != tab) {
            list.clear();
            continue;
        }
        let filter = args.filter.to_lowercase();
        if !filter.is_empty() {
            list.retain(|entry| entry.to_string().to_lowercase().contains(&filter));
        }
        list.truncate(args.rows.unwrap_or(usize::MAX));
    }
    Ok(value)
}

fn write_text(
    args: &TopArgs,
    sort: Option<(Tab, Sort)>,
    view: &View,
    out: &mut impl Write,
) -> Result<()> {
    writeln!(out, "{}", view.headline().0)?;
    for tab in Tab::ALL {
        if args.show.is_some_and(|show| show != tab) {
            continue;
        }
        let sort = match sort {
            Some((of, sort)) if of == tab => sort,
            _ => Sort::usual(tab),
        };
        let grid = Grid::of(view, tab, &args.filter, sort);
        if grid.lines.is_empty() {
            continue;
        }
        let mut table = Table::new(&grid.heading);
        let rows = args.rows.unwrap_or(usize::MAX);
        let left = grid.lines.len().saturating_sub(rows);
        for line in grid.lines.into_iter().take(rows) {
            table.row(line.cells.into_iter().map(|cell| cell.text).collect());
        }
        writeln!(out, "\n{}", tab.name())?;
        table.write(out)?;
        if left > 0 {
            writeln!(out, "({left} more)")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;

    fn args(more: &[&str]) -> TopArgs {
        let all = ["tranship", "top"].iter().chain(more);
        match Args::try_parse_from(all).expect("arguments").command {
            Command::Top(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn text(more: &[&str]) -> String {
        let args = args(more);
        let view = Before::default().view(&sample::snapshot(1));
        let mut out = Vec::new();
        let sort = sort_of(&args).expect("a column");
        write_text(&args, sort, &view, &mut out).expect("text");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn text_has_what_was_asked_for() {
        let all = text(&["--once"]);
        for part in [
            "manager 9",
            "domains\n",
            "frames",
            "memory of frames#7",
            "2.5 s",
            "python3 (heap)",
            "3 callers wait",
        ] {
            assert!(all.contains(part), "{part}:\n{all}");
        }
        let one = text(&["--once", "--show", "channels", "--sort=-taken"]);
        assert!(
            one.contains("video") && !one.contains("camera#1 ("),
            "{one}"
        );
        assert!(!one.contains("holders"), "{one}");
        let few = text(&["--once", "--show", "domains", "--rows", "1"]);
        assert!(few.contains("(1 more)"), "{few}");
        let some = text(&["--once", "--filter", "python"]);
        assert!(
            some.contains("python3") && !some.contains("video"),
            "{some}"
        );
    }

    #[test]
    fn json_is_one_object_with_every_list() {
        let view = Before::default().view(&sample::snapshot(1));
        let value = as_json(&args(&["--json"]), &view).expect("JSON");
        assert_eq!(
            (&value["schema"], &value["silent_ns"]),
            (&json!(SCHEMA), &json!(0))
        );
        for tab in Tab::ALL {
            assert!(
                value[tab.name()].as_array().is_some_and(|l| !l.is_empty()),
                "{tab:?}"
            );
        }
        let pool = &value["pools"][0];
        assert_eq!(
            (&pool["name"], &pool["waiters"], &pool["live_bytes"]),
            (&json!("frames"), &json!(2), &json!(3 << 20))
        );
        assert_eq!(value["blocked"][0]["on"][2], "its quota, 4.0 MiB");
        let only = as_json(&args(&["--json", "--show", "pools"]), &view).expect("JSON");
        assert_eq!(only["domains"], json!([]));
    }

    #[test]
    fn a_column_that_is_not_there_is_named_with_those_that_are() {
        let args = args(&["--once", "--show", "pools", "--sort", "price"]);
        let error = sort_of(&args).expect_err("no such column").to_string();
        assert!(
            error.contains("\"price\"") && error.contains("granted"),
            "{error}"
        );
    }
}
