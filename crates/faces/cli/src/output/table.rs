//! A table for people: columns as wide as their widest cell, numbers to the right.

use std::io::{self, Write};
use tranship_proto::shown;

/// Rows of text under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table. A heading that begins with `>` is of a column aligned to the right.
    pub(crate) fn new(heading: &[&str]) -> Self {
        Self {
            heading: heading.iter().map(|text| (*text).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty. A stranger's text in it is [`shown`].
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| shown(cell).into_owned());
        self.rows.push(cells.collect());
    }

    #[cfg(feature = "zcopy")]
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn titles(&self) -> Vec<&str> {
        let titles = self.heading.iter();
        titles
            .map(|title| title.strip_prefix('>').unwrap_or(title))
            .collect()
    }

    /// The lines, heading first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let titles = self.titles();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(titles[column].chars().count())
        };
        let widths: Vec<usize> = (0..titles.len()).map(width).collect();
        let line = |cell: &dyn Fn(usize) -> String| {
            let mut text = String::new();
            for (column, width) in widths.iter().enumerate() {
                let cell = cell(column);
                let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
                let right = self.heading[column].starts_with('>');
                text += &if right { gap + &cell } else { cell + &gap };
                text += "  ";
            }
            text.trim_end().to_owned()
        };
        let mut lines = vec![line(&|column| titles[column].to_owned())];
        for row in &self.rows {
            lines.push(line(&|column| row.get(column).cloned().unwrap_or_default()));
        }
        lines
    }

    /// Prints it on standard output.
    pub(crate) fn print(&self) -> io::Result<()> {
        let mut out = super::stdout();
        self.write(&mut out)?;
        out.flush()
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.lines()
            .iter()
            .try_for_each(|line| writeln!(out, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["name", ">bytes", "note"]);
        table.row(vec!["a".into(), "1000".into(), "x".into()]);
        table.row(vec!["longer".into(), "7".into()]);
        assert_eq!(
            table.lines(),
            ["name    bytes  note", "a        1000  x", "longer      7"]
        );
    }
}
