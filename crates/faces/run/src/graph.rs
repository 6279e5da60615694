//! The program as a picture: text and SVG.

use crate::program::{Kind, Program, Wire};
use std::fmt::{self, Write};
use tranship::component::WhenDown;

const BOX: (usize, usize) = (150, 44);
const GAP: (usize, usize) = (130, 28);
const EDGE: usize = 24;

/// Returns the program as text: components, then wires, one a line.
#[must_use]
pub fn text(program: &Program) -> String {
    let mut out = format!("program {}\n", program.name);
    for component in &program.components {
        let replicas = times(component.replicas);
        let command = component.run.join(" ");
        // Writing to a string does not fail.
        let _ = writeln!(out, "  {}{replicas}: {command}", component.name);
    }
    for wire in &program.wires {
        let names = |side: &[usize]| {
            let names: Vec<_> = side
                .iter()
                .map(|at| program.components[*at].name.as_str())
                .collect();
            names.join(", ")
        };
        let _ = writeln!(
            out,
            "  {} --[{} {}{}{}]--> {}",
            names(&wire.from),
            wire.kind.word(),
            wire.name,
            times(wire.copies),
            manner(wire),
            names(&wire.to)
        );
    }
    out
}

/// Returns the number of several.
fn times(number: u32) -> String {
    match number {
        1 => String::new(),
        n => format!(" x{n}"),
    }
}

/// Returns what a channel does when it is full or its receiver is down, if that is not to wait.
fn manner(wire: &Wire) -> &'static str {
    match (wire.drops, wire.when_down) {
        (true, _) => ", drops when full",
        (false, WhenDown::Drop) => ", drops when down",
        (false, WhenDown::Fail) => ", fails when down",
        (false, WhenDown::Wait) => "",
    }
}

/// Returns the program as SVG: components in columns, each right of those that send to it.
#[must_use]
pub fn svg(program: &Program) -> String {
    let columns = columns(program);
    let mut rows = vec![0; columns.iter().max().map_or(0, |most| most + 1)];
    let places: Vec<(usize, usize)> = columns
        .iter()
        .map(|column| {
            let row = rows[*column];
            rows[*column] += 1;
            (
                EDGE + column * (BOX.0 + GAP.0),
                2 * EDGE + row * (BOX.1 + GAP.1),
            )
        })
        .collect();
    let width = 2 * EDGE + rows.len() * (BOX.0 + GAP.0) - GAP.0.min(rows.len() * GAP.0);
    let height = 3 * EDGE + rows.iter().max().unwrap_or(&0) * (BOX.1 + GAP.1);
    let mut out = String::new();
    let mut put = |text: fmt::Arguments<'_>| {
        let _ = out.write_fmt(text);
        out.push('\n');
    };
    put(format_args!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"##
    ));
    put(format_args!(
        r##"<rect width="100%" height="100%" fill="#fff"/>"##
    ));
    put(format_args!(
        r##"<defs><marker id="a" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555"/></marker></defs>"##
    ));
    put(format_args!(
        r##"<text x="{EDGE}" y="24" font-size="16">{}</text>"##,
        escape(&program.name)
    ));
    for wire in &program.wires {
        for (from, to) in wire
            .from
            .iter()
            .flat_map(|from| wire.to.iter().map(move |to| (from, to)))
        {
            let (x, y) = (places[*from].0 + BOX.0, places[*from].1 + BOX.1 / 2);
            let (tx, ty) = (places[*to].0, places[*to].1 + BOX.1 / 2);
            let bend = GAP.0 / 2;
            put(format_args!(
                r##"<path d="M{x} {y}C{} {y} {} {ty} {tx} {ty}" fill="none" stroke="{}" stroke-width="1.5" marker-end="url(#a)"/>"##,
                x + bend,
                tx.saturating_sub(bend),
                colour(wire.kind)
            ));
            put(format_args!(
                r##"<text x="{}" y="{}" text-anchor="middle" fill="{}">{}{}</text>"##,
                (x + tx) / 2,
                (y + ty) / 2 - 4,
                colour(wire.kind),
                escape(&wire.name),
                times(wire.copies)
            ));
        }
    }
    for (component, (x, y)) in program.components.iter().zip(&places) {
        // A second box behind the first one stands for all other replicas.
        let boxes = if component.replicas > 1 {
            &[6, 0][..]
        } else {
            &[0]
        };
        for back in boxes {
            put(format_args!(
                r##"<rect x="{}" y="{}" width="{}" height="{}" rx="6" fill="#f4f6f8" stroke="#555"/>"##,
                x + back,
                y + back,
                BOX.0,
                BOX.1
            ));
        }
        let replicas = times(component.replicas);
        put(format_args!(
            r##"<text x="{}" y="{}" text-anchor="middle">{}{replicas}</text>"##,
            x + BOX.0 / 2,
            y + BOX.1 / 2 + 4,
            escape(&component.name)
        ));
    }
    put(format_args!("</svg>"));
    out
}

fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Channel => "#0072b2",
        Kind::Topic => "#d55e00",
        Kind::Queue => "#009e73",
        Kind::Service => "#a0507f",
    }
}

/// Returns the column of each component: one more than those of its senders. A wire back to the left moves nothing.
fn columns(program: &Program) -> Vec<usize> {
    let count = program.components.len();
    let mut columns = vec![0; count];
    for _ in 0..count {
        for wire in &program.wires {
            let Some(left) = wire.from.iter().map(|at| columns[*at]).max() else {
                continue;
            };
            for to in wire.to.iter().filter(|to| !wire.from.contains(to)) {
                // A circle would move its components for ever.
                columns[*to] = columns[*to].max(left + 1).min(count - 1);
            }
        }
    }
    // Circles leave columns empty.
    let mut used = columns.clone();
    used.sort_unstable();
    used.dedup();
    let place = |column: &usize| used.iter().position(|one| one == column).unwrap_or(0);
    columns.iter().map(place).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
