//! A page of tables and pictures that needs no other file.

use super::svg::escape;
use crate::output::Table;
use std::fmt::Write;

/// Returns the beginning of the page: a title, and the first notes.
pub(crate) fn begin(title: &str, notes: &[String]) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>\
body {{ font-family: sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em }} \
table {{ border-collapse: collapse; margin: 1em 0 }} td, th {{ padding: 0.2em 0.8em; text-align: right }} \
td:first-child, th:first-child, td.text, th.text {{ text-align: left }} \
tr:nth-child(even) {{ background: #f4f4f4 }}</style></head><body>\n<h1>{title}</h1>\n"
    );
    for note in notes {
        let _ = writeln!(out, "<p>{}</p>", escape(note));
    }
    out
}

pub(crate) fn heading(out: &mut String, text: &str) {
    let _ = writeln!(out, "<h2>{}</h2>", escape(text));
}

/// Adds a table, numbers to the right.
pub(crate) fn table(out: &mut String, table: &Table) {
    out.push_str("<table>\n");
    let (heading, rows) = table.cells();
    let mut row = |cells: &mut dyn Iterator<Item = &str>, tag: &str| {
        out.push_str("<tr>");
        for (column, cell) in cells.enumerate() {
            let class = if table.is_text(column) {
                " class=\"text\""
            } else {
                ""
            };
            let _ = write!(out, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        out.push_str("</tr>\n");
    };
    row(&mut heading.into_iter(), "th");
    for cells in rows {
        row(&mut cells.iter().map(String::as_str), "td");
    }
    out.push_str("</table>\n");
}

pub(crate) fn end(mut out: String) -> String {
    out.push_str("</body></html>\n");
    out
}
