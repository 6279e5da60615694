//! `tranship-lab papers`: every figure and table of the four papers by a program of its own, and one page of all.
//!
//! ```text
//!  figures.toml ──► child (tranship-bench, tranship-lab experiment) ──► rows ──► orderings, page ──► DIR/index.html, results.json
//! ```

mod child;
mod figure;
mod keeper;
mod page;
mod picture;
mod rows;

use crate::args::{PapersArgs, Scale};
use crate::machine::Machine;
use anyhow::{Context, Result, bail};
use figure::{Done, Figure, List};
use keeper::Keeper;
use std::time::{Duration, Instant};

/// Every figure and table: what it shows in the paper, the program that measures it here, and orderings.
const FIGURES: &str = include_str!("figures.toml");

/// Whether every figure was measured, and every ordering held.
pub(crate) fn run(args: &PapersArgs) -> Result<bool> {
    let list: List = toml::from_str(FIGURES).context("the list of figures")?;
    if let Some(unknown) = args
        .only
        .iter()
        .find(|id| list.figure.iter().all(|f| f.id != **id))
    {
        let ids: Vec<_> = list.figure.iter().map(|f| &*f.id).collect();
        bail!("no figure {unknown}; there are: {}", ids.join(", "));
    }
    let at_scale = usize::from(args.scale == Scale::Whole);
    let limit = Duration::from_secs(args.limit.unwrap_or(list.limits[at_scale]));
    let keeper = Keeper::new(limit)?;
    let is_wanted = |figure: &Figure| args.only.is_empty() || args.only.contains(&figure.id);
    let figures: Vec<Figure> = list.figure.into_iter().filter(is_wanted).collect();
    std::fs::create_dir_all(&args.out).with_context(|| format!("making {}", args.out.display()))?;
    let (begun, machine) = (Instant::now(), Machine::now());
    let cost = |figure: &Figure| figure.seconds[at_scale];
    let all: f64 = figures.iter().map(cost).sum();
    let (mut spent, mut done, mut known) = (0.0, Vec::new(), child::Known::new());
    for (number, figure) in figures.iter().enumerate() {
        // The pace so far corrects the list's figures for this machine.
        let pace = if spent > 0.0 {
            begun.elapsed().as_secs_f64() / spent
        } else {
            1.0
        };
        let left = (all - spent) * pace;
        let (of, id) = (figures.len(), &figure.id);
        eprintln!(
            "{} of {of}: {id}; about {} left",
            number + 1,
            page::time(left)
        );
        spent += cost(figure);
        let one = child::measure(figure, args.scale, &args.out, &keeper, &mut known);
        if let Some(why) = &one.failed {
            eprintln!("FAILED: {id}: {why}");
        }
        one.skipped.iter().for_each(|line| eprintln!("{line}"));
        for found in &one.orderings {
            let held = match found.held {
                Some(true) => continue,
                Some(false) => "did not hold",
                None => "not measured",
            };
            eprintln!("{held}: {id}: {}: {}", found.what, found.measured);
        }
        done.push(one);
        // After each figure, so that an interrupted run leaves a page.
        page::write(&args.out, args.scale, &machine, &done)?;
        if keeper.is_stopped()? {
            bail!("stopped by a signal at figure {id}, {} of {of}", number + 1);
        }
    }
    let failed: Vec<&str> = done
        .iter()
        .filter(|d| d.failed.is_some())
        .map(|d| &*d.id)
        .collect();
    let page = args.out.join("index.html");
    println!(
        "{} figures in {}",
        done.len() - failed.len(),
        page.display()
    );
    if !failed.is_empty() {
        bail!("not measured: {}", failed.join(", "));
    }
    let held = |one: &Done| one.orderings.iter().all(|found| found.held != Some(false));
    Ok(done.iter().all(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_figure_and_table_once() {
        let list: List = toml::from_str(FIGURES).unwrap();
        let mut ids: Vec<_> = list.figure.iter().map(|f| &*f.id).collect();
        ids.sort_unstable();
        let mut once = ids.clone();
        once.dedup();
        assert_eq!(ids, once);
        for (paper, count) in [("cbuf", 8), ("bulk", 5), ("zcopy", 7), ("mbuf", 4)] {
            let of = ids.iter().filter(|id| id.starts_with(paper)).count();
            assert_eq!(of, count, "{paper}: {ids:?}");
        }
        for figure in &list.figure {
            let texts = [
                &figure.shape,
                &figure.differs,
                &figure.title,
                &figure.command,
            ];
            assert!(texts.iter().all(|text| !text.is_empty()), "{}", figure.id);
            assert!(!figure.columns.is_empty(), "{}", figure.id);
        }
    }
}
