//! `tranship doctor`: features of this machine, missing ones, their cost, and remedies.

mod finding;
mod huge;
mod isolation;
mod kernel;
mod limits;
mod manager;
mod memory;
#[cfg(feature = "net")]
mod network;
mod proc;

use crate::args::ViewArgs;
use crate::exit::Answer;
use crate::output::{self, Colour, paint};
use anyhow::Result;
use finding::{Finding, State};
use serde_json::json;
use std::io::Write;

/// Looks at everything. The answer is no if something is missing that tranship needs.
pub(crate) fn run(args: &ViewArgs) -> Result<Answer> {
    let socket = args.connect.socket.as_deref();
    let topics: Vec<(&str, Vec<Finding>)> = vec![
        ("kernel", kernel::look()),
        ("limits", limits::look()),
        ("memory", memory::look()),
        ("huge pages", huge::look()),
        ("isolation", isolation::look()),
        ("manager", manager::look(socket)),
        #[cfg(feature = "net")]
        ("network", network::look()),
    ];
    let worst = topics
        .iter()
        .flat_map(|(_, found)| found)
        .map(|finding| finding.state)
        .max();
    if args.json {
        let sections = topics
            .iter()
            .map(|(topic, found)| json!({ "topic": topic, "findings": found }));
        output::json(&json!({
            "schema": 1,
            "usable": worst < Some(State::Missing),
            "topics": sections.collect::<Vec<_>>(),
        }))?;
    } else {
        print(&topics)?;
    }
    Ok((worst < Some(State::Missing)).into())
}

fn print(topics: &[(&str, Vec<Finding>)]) -> Result<()> {
    let colour = output::colour_on_stdout();
    let mut out = output::stdout();
    for (topic, findings) in topics {
        writeln!(out, "{}", paint(topic, Colour::Bold, colour))?;
        for finding in findings {
            let (sign, shade) = match finding.state {
                State::Ok => ("ok     ", Colour::Green),
                State::Weak => ("weak   ", Colour::Yellow),
                State::Missing => ("MISSING", Colour::Red),
            };
            writeln!(
                out,
                "  {} {:<24} {}",
                paint(sign, shade, colour),
                finding.name,
                finding.value
            )?;
            for (word, text) in [("costs", &finding.cost), ("do", &finding.fix)] {
                if let Some(text) = text {
                    writeln!(out, "          {word:>24}: {text}")?;
                }
            }
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
