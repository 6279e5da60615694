//! The table of figures as text: types for Python, and tables for the documentation.

use crate::{Kind, RECORDS};
use std::fmt::Write as _;

/// Returns the word for a record in metrics: `PoolStat` is `pool`.
pub fn word_of(record: &str) -> String {
    record.trim_end_matches("Stat").to_lowercase()
}

/// Returns the table as types for Python, as its stub has them.
pub fn python_types() -> String {
    let mut text = String::new();
    for (name, about, figures) in RECORDS {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "@type_check_only\nclass _{name}(TypedDict):\n    \"\"\"{}\"\"\"\n",
            about.trim()
        );
        for figure in figures.iter().filter(|f| !f.page_only) {
            let _ = writeln!(text, "    {}: {}", figure.name, figure.python);
        }
        text.push('\n');
    }
    text
}

/// Returns the table as a page of the documentation has it.
pub fn page_table() -> String {
    let mut text = String::new();
    for (name, about, figures) in RECORDS {
        let record = word_of(name);
        let title = name.trim_end_matches("Stat");
        let _ = writeln!(text, "### {title}\n\n{}\n", about.trim());
        text += "| figure | unit | metric | meaning |\n|---|---|---|---|\n";
        for f in *figures {
            let metric = match f.metric_name(&record) {
                Some((name, _)) if f.kind == Kind::Counter => format!("`{name}_total`"),
                Some((name, _)) => format!("`{name}`"),
                None if f.page_only => "`top` only".to_owned(),
                None => String::new(),
            };
            let (name, unit, help) = (f.name, f.unit_name(), f.help.trim());
            let _ = writeln!(text, "| `{name}` | {unit} | {metric} | {help} |");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_whole() {
        for (name, about, figures) in RECORDS {
            assert!(about.ends_with('.'), "{name}");
            for f in *figures {
                assert!(f.help.ends_with('.'), "{name}: {f:?}");
                let number = f.python == "int" || f.python == "int | None" || f.python == "bool";
                assert!(number || f.kind == Kind::Fact, "{name}: {f:?}");
            }
        }
    }
}
