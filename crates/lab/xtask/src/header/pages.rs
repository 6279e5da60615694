//! Manual pages, one a file of the source, out of the comments that the header has.

use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub(super) const CRATE: &str = "crates/faces/capi";

/// Pages, a line each: the name, the header, the files of the source whose functions it has, the subject.
const PAGES: &str = include_str!("pages.txt");

/// A function of the header.
struct Function {
    name: String,
    comment: String,
    prototype: String,
}

pub(super) fn all(root: &Path, header: &str) -> Result<Vec<(PathBuf, String)>> {
    let declared = declarations(header);
    let mut pages = Vec::new();
    let mut index = String::new();
    for line in PAGES.lines() {
        let parts: Vec<&str> = line.split(" | ").collect();
        let [name, include, files, about] = parts[..] else {
            bail!("a page is four parts, not {line:?}");
        };
        let mut source = String::new();
        for file in files.split(' ') {
            let path = root.join(CRATE).join("src").join(format!("{file}.rs"));
            source +=
                &std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        }
        let here = |f: &&Function| source.contains(&format!("fn {}(", f.name));
        let functions: Vec<&Function> = declared.iter().filter(here).collect();
        pages.push((
            PathBuf::from(format!("{CRATE}/man/{name}.3")),
            page(name, include, about, &functions),
        ));
        let _ = writeln!(index, ".TP\n.BR {name} (3)\n{about}: {}", list(&functions));
    }
    let whole = include_str!("tranship.3.in").replace("@PAGES@\n", &index);
    pages.push((PathBuf::from(format!("{CRATE}/man/tranship.3")), whole));
    Ok(pages)
}

fn list(functions: &[&Function]) -> String {
    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    names.join(", ")
}

fn page(name: &str, include: &str, about: &str, functions: &[&Function]) -> String {
    let mut page = format!(
        ".\\\" Made from the source by `cargo run -p xtask -- header write`.\n.TH {} 3 \"\" tranship \"Library Functions Manual\"\n.SH NAME\n{} \\- {about}\n.SH LIBRARY\n.RI \"tranship (\" libtranship \", \" \\-ltranship )\n.SH SYNOPSIS\n.nf\n.B #include <{include}>\n.PP\n",
        name.to_uppercase(),
        list(functions),
    );
    for function in functions {
        let _ = writeln!(page, "{}\n", escaped(&function.prototype));
    }
    page += ".fi\n.SH DESCRIPTION\n";
    for function in functions {
        let _ = writeln!(
            page,
            ".SS {}()\n{}",
            function.name,
            paragraphs(&function.comment)
        );
    }
    page += ".SH SEE ALSO\n.BR tranship (3)\n";
    page
}

fn escaped(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        match line.starts_with(['.', '\'']) {
            true => format!("\\&{line}"),
            false => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn paragraphs(comment: &str) -> String {
    let text = escaped(comment.trim());
    text.replace("\n\n", "\n.PP\n").replace('`', "")
}

/// Returns the functions that a header declares, with the comment before each.
fn declarations(header: &str) -> Vec<Function> {
    let mut all = Vec::new();
    let mut comment = String::new();
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        match line.trim() {
            "/**" => comment.clear(),
            short if short.starts_with("/** ") => {
                comment = short
                    .trim_start_matches("/** ")
                    .trim_end_matches(" */")
                    .into();
            }
            inside if inside.starts_with("* ") || inside == "*" => {
                let _ = writeln!(comment, "{}", inside.trim_start_matches('*').trim());
            }
            _ => {
                let Some(name) = functions(line).next().map(str::to_owned) else {
                    continue;
                };
                let mut prototype = line.to_owned();
                while !prototype.ends_with(';') {
                    let Some(more) = lines.next() else { break };
                    let _ = write!(prototype, "\n{more}");
                }
                let comment = std::mem::take(&mut comment);
                all.push(Function {
                    name,
                    comment,
                    prototype,
                });
            }
        }
    }
    all
}

/// Returns the functions that a header declares.
pub(super) fn functions(header: &str) -> impl Iterator<Item = &str> {
    header.lines().filter_map(|line| {
        let starts = line.starts_with(|c: char| c.is_ascii_lowercase())
            && !line.starts_with("typedef")
            && !line.starts_with("static");
        let before = line.split_once('(')?.0;
        let name = before.rsplit([' ', '*']).next()?;
        (starts && name.starts_with("tranship_")).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_its_own_comment_and_all_its_lines() {
        let header = "/**\n * Of a type.\n */\ntypedef struct a a;\n\n/**\n * Does.\n *\n * More -1.\n */\ntranship_status tranship_do(int a,\n                    int b);\n";
        let all = declarations(header);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].name, "tranship_do");
        assert!(all[0].prototype.ends_with("int b);"));
        assert_eq!(paragraphs(&all[0].comment), "Does.\n.PP\nMore \\-1.");
    }
}
