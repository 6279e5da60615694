//! Manual pages, one a file of the source, out of the comments that the header has.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

pub(super) const CRATE: &str = "crates/faces/capi";

/// A page: its name, the files of the source whose functions it has, its subject.
const PAGES: &[(&str, &[&str], &str)] = &[
    ("tranship_admin", &["admin/mod"], "an operator's questions"),
    (
        "tranship_buf",
        &["buf", "aggregate"],
        "buffers and messages",
    ),
    (
        "tranship_component",
        &["component/mod"],
        "a process of a program of isolated components",
    ),
    (
        "tranship_domain",
        &["domain"],
        "a process's membership with a manager",
    ),
    ("tranship_error", &["status"], "what went wrong"),
    (
        "tranship_mbuf",
        &[
            "mbuf/alloc",
            "mbuf/look",
            "mbuf/shape",
            "mbuf/copy",
            "mbuf/store",
            "mbuf/tag",
            "mbuf/cross",
            "mbuf/header",
            "mbuf/queue",
            "mbuf/uio",
        ],
        "network buffers",
    ),
    ("tranship_inbox", &["inbox"], "buffers by their ids alone"),
    (
        "tranship_listener",
        &["listener"],
        "names, and opening channels",
    ),
    (
        "tranship_poll",
        &["poll"],
        "waiting for many things at once",
    ),
    ("tranship_pool", &["pool"], "memory"),
    (
        "tranship_queue",
        &["queue/mod"],
        "many producers, many consumers, each item taken by one",
    ),
    (
        "tranship_receiver",
        &["receiver"],
        "the receiving end of a channel",
    ),
    (
        "tranship_sender",
        &["sender"],
        "the sending end of a channel",
    ),
    ("tranship_service", &["service/mod"], "requests and answers"),
    (
        "tranship_topic",
        &["topic/mod"],
        "one publisher's messages to any number of subscribers",
    ),
    ("tranship_uma", &["uma/zone"], "zones of items"),
];

/// Returns the header that declares a page's functions.
fn include(page: &str) -> &'static str {
    match page {
        "tranship_admin" => "tranship/admin.h",
        "tranship_component" => "tranship/component.h",
        "tranship_mbuf" => "tranship/mbuf.h",
        "tranship_queue" => "tranship/queue.h",
        "tranship_service" => "tranship/service.h",
        "tranship_topic" => "tranship/topic.h",
        "tranship_uma" => "tranship/uma.h",
        _ => "tranship.h",
    }
}

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
    for (name, files, about) in PAGES {
        let mut source = String::new();
        for file in *files {
            let path = root.join(CRATE).join("src").join(format!("{file}.rs"));
            source +=
                &std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        }
        let here = |f: &&Function| source.contains(&format!("fn {}(", f.name));
        let functions: Vec<&Function> = declared.iter().filter(here).collect();
        pages.push((
            PathBuf::from(format!("{CRATE}/man/{name}.3")),
            page(name, about, &functions),
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

fn page(name: &str, about: &str, functions: &[&Function]) -> String {
    let mut page = format!(
        ".\\\" Made from the source by `cargo run -p xtask -- header write`.\n.TH {} 3 \"\" tranship \"Library Functions Manual\"\n.SH NAME\n{} \\- {about}\n.SH LIBRARY\n.RI \"tranship (\" libtranship \", \" \\-ltranship )\n.SH SYNOPSIS\n.nf\n.B #include <{}>\n.PP\n",
        name.to_uppercase(),
        list(functions),
        include(name),
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
