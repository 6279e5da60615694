//! The pages as mkdocs wants them: all that the site shows in one folder, links as they are, Markdown as its parser
//! understands it.

use super::{MENU, nav};
use crate::findings::Findings;
use crate::source;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Line of a page in whose place the site shows the table of figures.
const FIGURES: &str =
    "<!-- figures: the site has the table of crates/core/proto/src/stat.rs here -->\n";

/// Copies the listed pages, and the files that they link to, to a folder, whose contents go.
pub(crate) fn stage(root: &Path, to: &Path) -> Result<Findings> {
    let tracked: BTreeSet<PathBuf> = tracked(root)?;
    let menu = fs::read_to_string(root.join(MENU)).context(MENU)?;
    let mut open: Vec<PathBuf> = nav::pages(&menu).into_iter().map(PathBuf::from).collect();
    let mut done: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut findings = Findings::default();
    while let Some(path) = open.pop() {
        let shown = Shown::of(&path, &tracked);
        let at = shown.place(&path);
        if done.contains_key(&at) {
            continue;
        }
        findings.saw();
        let contents = match shown {
            Shown::Page => {
                let text = fs::read_to_string(root.join(&path));
                let text = text.with_context(|| path.display().to_string())?;
                let text = text.replace(FIGURES, &tranship_proto::page_table());
                let folder = path.parent().unwrap_or(Path::new(""));
                let mut links = Vec::new();
                let text = with_links(&text, |target| {
                    let (file, part) = target.split_at(target.find('#').unwrap_or(target.len()));
                    let there = joined(folder, file);
                    let shown = Shown::of(&there, &tracked);
                    links.push(there);
                    shown.place(Path::new(file)).display().to_string() + part
                });
                open.extend(links);
                understood(&text).into_bytes()
            }
            Shown::Source => {
                let text = fs::read_to_string(root.join(&path));
                source_page(&path, &text.with_context(|| path.display().to_string())?).into_bytes()
            }
            Shown::Folder => {
                let inside = |file: &&PathBuf| file.parent() == Some(path.as_path());
                let files: Vec<_> = tracked.iter().filter(inside).cloned().collect();
                open.extend(files.iter().cloned());
                let page = folder_page(&path, &files, |file| Shown::of(file, &tracked));
                page.into_bytes()
            }
            Shown::AsIs => {
                fs::read(root.join(&path)).with_context(|| path.display().to_string())?
            }
        };
        done.insert(at, contents);
    }
    if to.exists() {
        fs::remove_dir_all(to).context("the last one")?;
    }
    for (path, contents) in done {
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(&path, contents)?;
    }
    Ok(findings)
}

fn tracked(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let files = source::files(root)?;
    Ok(files.into_iter().map(|file| file.path.into()).collect())
}

/// Form in which the site shows something.
#[derive(Clone, Copy)]
enum Shown {
    Page,
    /// A file of text, as a page.
    Source,
    /// A page with its content.
    Folder,
    AsIs,
}

impl Shown {
    fn of(path: &Path, tracked: &BTreeSet<PathBuf>) -> Shown {
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some("md") => Shown::Page,
            Some("svg" | "png") => Shown::AsIs,
            _ if tracked.contains(path) => Shown::Source,
            _ => Shown::Folder,
        }
    }

    fn place(self, path: &Path) -> PathBuf {
        match self {
            Shown::Page | Shown::AsIs => path.to_owned(),
            Shown::Source => format!("{}.md", path.display()).into(),
            Shown::Folder => path.join("index.md"),
        }
    }
}

/// Joins paths without `..`.
fn joined(folder: &Path, file: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            other => path.push(other),
        }
    }
    path
}

/// Returns the text with its links to other files changed; code stays.
fn with_links(text: &str, mut change: impl FnMut(&str) -> String) -> String {
    let mut out = String::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if fenced {
            out += line;
        } else {
            for (number, piece) in line.split('`').enumerate() {
                out += if number > 0 { "`" } else { "" };
                match number % 2 {
                    0 => change_links(piece, &mut change, &mut out),
                    _ => out += piece,
                }
            }
        }
        out.push('\n');
    }
    out
}

fn change_links(text: &str, change: &mut impl FnMut(&str) -> String, out: &mut String) {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        *out += before;
        *out += "](";
        let end = after.find(')').unwrap_or(after.len());
        let target = &after[..end];
        let elsewhere = target.contains("://") || target.starts_with(['#', '<']);
        match elsewhere || target.starts_with("mailto:") {
            true => *out += target,
            false => *out += &change(target),
        }
        rest = &after[end..];
    }
    *out += rest;
}

/// Rewrites lists and Rust code so that the parser of mkdocs reads them as other parsers do.
fn understood(text: &str) -> String {
    let mut out = String::new();
    let mut language = None;
    let mut before = "";
    for line in text.lines() {
        if let Some(info) = line.strip_prefix("```") {
            // The highlighter knows a language and nothing behind it.
            let name = info.split(',').next().unwrap_or(info);
            language = if language.is_none() { Some(name) } else { None };
            let _ = writeln!(out, "```{}", if language.is_some() { name } else { "" });
            before = line;
            continue;
        }
        let hidden = line == "#" || line.starts_with("# ");
        if language == Some("rust") && hidden {
            continue; // for the compiler
        }
        let begins = |line: &str| line.starts_with("- ") || line.starts_with('|');
        let goes_on = before.is_empty() || begins(before) || before.starts_with("  ");
        if language.is_none() && begins(line) && !goes_on {
            out.push('\n');
        }
        out += line;
        out.push('\n');
        before = line;
    }
    out
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn source_page(path: &Path, text: &str) -> String {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let language = match ending {
        Some("rs") => "rust",
        Some("h") => "c",
        Some(known @ ("c" | "py" | "toml" | "sh")) => known,
        _ => "text",
    };
    // Longer than any inside.
    format!("# {}\n\n````````{language}\n{text}\n````````\n", name(path))
}

fn folder_page(path: &Path, files: &[PathBuf], shown: impl Fn(&Path) -> Shown) -> String {
    let mut page = format!("# {}\n\n", name(path));
    for file in files {
        let place = shown(file).place(file);
        let _ = writeln!(page, "- [{}]({})", name(file), name(&place));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_pages_stay_and_others_lead_to_pages() {
        let tracked = ["x/a.c", "x/b.md"].map(PathBuf::from).into();
        let text = "[a](x/a.c) [b](x/b.md#part) `[c](x/a.c)` [d](https://e) [f](#g) [h](x)\n```c\n[i](x/a.c)\n```\n";
        let changed = with_links(text, |target| {
            let (file, part) = target.split_at(target.find('#').unwrap_or(target.len()));
            let place = Shown::of(Path::new(file), &tracked).place(Path::new(file));
            place.display().to_string() + part
        });
        let wanted = text
            .replacen("x/a.c", "x/a.c.md", 1)
            .replace("(x)", "(x/index.md)");
        assert_eq!(changed, wanted);
        assert_eq!(joined(Path::new("docs"), "../x/a.c"), Path::new("x/a.c"));
    }

    #[test]
    fn lists_are_set_apart_and_what_only_compilers_read_is_not_shown() {
        let text = "A list:\n- one\n  more\n- two\n```rust,no_run\n# fn f() {\nlet a = 1;\n# }\n```\n| a |\n|---|\n";
        let wanted = "A list:\n\n- one\n  more\n- two\n```rust\nlet a = 1;\n```\n\n| a |\n|---|\n";
        assert_eq!(understood(text), wanted);
    }
}
