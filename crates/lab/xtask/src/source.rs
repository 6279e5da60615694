//! The text files of the repository, and Rust code with comments and literals blanked out.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the repository.
pub(crate) struct TextFile {
    /// Relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

/// Returns every text file that git tracks or would track.
pub(crate) fn files(root: &Path) -> Result<Vec<TextFile>> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("running git ls-files")?;
    let mut names: Vec<String> = if output.status.success() {
        String::from_utf8_lossy(&output.stdout)
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    } else {
        walk(root)
    };
    names.sort_unstable();
    names.dedup();
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path)).ok()?;
        Some(TextFile { path, text })
    };
    Ok(names.into_iter().filter_map(read).collect())
}

/// The parts of the house that are one crate each, and so have no folder around it.
const ALONE: &[&str] = &["block", "items"];

/// Splits the path of a file below `crates/` into the name of its crate's folder and the path inside of that.
pub(crate) fn split(path: &str) -> Option<(&str, &str)> {
    let inside = path.strip_prefix("crates/")?;
    let (part, rest) = inside.split_once('/')?;
    match ALONE.contains(&part) {
        true => Some((part, rest)),
        false => rest.split_once('/'),
    }
}

/// Returns the name of the crate's folder, for a file below `crates/`.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    Some(split(path)?.0)
}

/// Returns the files of a tree without git (an unpacked archive).
fn walk(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    open.push(path);
                }
            } else if let Ok(relative) = path.strip_prefix(root) {
                found.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// Returns `text` with the contents of comments, strings and character literals replaced by spaces; line breaks stay.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let rest = &bytes[i..];
        let skip = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if let Some(hashes) = raw_string(rest).filter(|_| !continues_a_word(&bytes[..i])) {
            raw_string_end(rest, hashes)
        } else if rest[0] == b'"' {
            quoted(rest)
        } else if rest[0] == b'\'' {
            character(rest)
        } else {
            out.push(rest[0]);
            i += 1;
            continue;
        };
        let skip = skip.clamp(1, rest.len());
        out.extend(
            rest[..skip]
                .iter()
                .map(|b| if *b == b'\n' { b'\n' } else { b' ' }),
        );
        i += skip;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn continues_a_word(before: &[u8]) -> bool {
    before
        .last()
        .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut i) = (0usize, 0);
    while i < rest.len() {
        if rest[i..].starts_with(b"/*") {
            depth += 1;
            i += 2;
        } else if rest[i..].starts_with(b"*/") {
            depth -= 1;
            i += 2;
            if depth == 0 {
                break;
            }
        } else {
            i += 1;
        }
    }
    i
}

/// Returns the number of hashes, if a raw string begins here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let after = rest
        .strip_prefix(b"r")
        .or_else(|| rest.strip_prefix(b"br"))?;
    let hashes = after.iter().take_while(|b| **b == b'#').count();
    (after.get(hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_string_end(rest: &[u8], hashes: usize) -> usize {
    let open = rest.iter().position(|b| *b == b'"').unwrap_or(0) + 1;
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    rest[open..]
        .windows(close.len())
        .position(|window| window == close)
        .map_or(rest.len(), |at| open + at + close.len())
}

fn quoted(rest: &[u8]) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// Returns the length of a character literal, or of the quote of a lifetime.
fn character(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest
            .iter()
            .skip(3)
            .position(|b| *b == b'\'')
            .map_or(1, |at| at + 4);
    }
    let literal = rest.iter().take(6).skip(2).position(|b| *b == b'\'');
    match literal {
        Some(0) => 3,
        Some(at) if !rest[1].is_ascii() => at + 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_vanish_and_code_stays() {
        let text = "a /* unsafe /* x */ y */ b // unsafe\nlet s = \"un\\\"safe\"; 'x' 'life r#\"unsafe\"# c '\\n' d";
        let code = code_only(text);
        assert!(!code.contains("unsafe"), "{code}");
        for kept in ["a ", " b ", "let s =", "life", " c ", " d"] {
            assert!(code.contains(kept), "{kept}: {code}");
        }
        assert_eq!(code.lines().count(), text.lines().count());
    }

    #[test]
    fn a_lifetime_does_not_open_a_literal() {
        assert!(code_only("fn f<'a>(x: &'a u8) { unsafe { g('é') } }").contains("unsafe"));
    }
}
