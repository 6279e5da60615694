//! `tranship.h` and its manual pages are made from the source of `crates/capi`: `cargo run -p xtask -- header write` renews them, `header check`
//! holds them to it. So building the product needs no generator, and a review sees every change of what C programs may use.
//!
//! NOT here: the papers' names (`include/tranship/*.h`), which are written by hand over it.

mod pages;

use self::pages::{CRATE, functions};
use crate::findings::Findings;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use tranship_error::Kind;

const HEADER: &str = "crates/capi/include/tranship.h";
const MAP: &str = "crates/capi/tranship.map";

/// What C calls the types of the source.
const NAMES: &[(&str, &str)] = &[
    ("Buf", "tranship_buf"),
    ("Domain", "tranship_domain"),
    ("DomainOptions", "tranship_domain_options"),
    ("Error", "tranship_error"),
    ("LinkOptions", "tranship_link_options"),
    ("Listener", "tranship_listener"),
    ("Pool", "tranship_pool"),
    ("PoolOptions", "tranship_pool_options"),
    ("PoolStats", "tranship_pool_stats"),
    ("PollItem", "tranship_poll_item"),
    ("Receiver", "tranship_receiver"),
    ("Sender", "tranship_sender"),
    ("Status", "tranship_status"),
];

/// Are the files what the source says?
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    for (path, text) in all(root)? {
        findings.saw();
        if std::fs::read_to_string(root.join(&path)).ok().as_deref() != Some(&text) {
            findings.error(format!(
                "{} is not what {CRATE}/src says; `cargo run -p xtask -- header write` renews it",
                path.display()
            ));
        }
    }
    Ok(findings)
}

/// Makes them so.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (path, text) in all(root)? {
        let path = root.join(path);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn all(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let header = header(root)?;
    let mut all = pages::all(root, &header)?;
    all.push((MAP.into(), map(&header)));
    all.push((HEADER.into(), header));
    Ok(all)
}

fn header(root: &Path) -> Result<String> {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(TOP.into()),
        include_guard: Some("TRANSHIP_H".into()),
        cpp_compat: true,
        no_includes: true,
        sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
        after_includes: Some(statuses()),
        style: cbindgen::Style::Both,
        documentation_style: cbindgen::DocumentationStyle::Doxy,
        documentation: true,
        usize_is_size_t: true,
        line_length: 100,
        tab_width: 4,
        ..cbindgen::Config::default()
    };
    config.function.args = cbindgen::Layout::Auto;
    config.export.exclude = vec!["Status".into()];
    let names = NAMES
        .iter()
        .map(|(rust, c)| ((*rust).to_owned(), (*c).to_owned()));
    config.export.rename = names.collect();
    let sources = std::fs::read_dir(root.join(CRATE).join("src")).context(CRATE)?;
    let mut sources: Vec<PathBuf> = sources.flatten().map(|entry| entry.path()).collect();
    // It only names the others, which cbindgen would read once more.
    sources.retain(|path| !path.ends_with("lib.rs"));
    sources.sort();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut text = Vec::new();
    builder.generate().context("cbindgen")?.write(&mut text);
    let text = String::from_utf8(text).context("the header")?;
    // A trailer would stand behind the guard.
    let (all, end) = text.rsplit_once("#endif").context("no guard")?;
    Ok(tidied(&format!("{all}{BOTTOM}\n\n#endif{end}")))
}

/// Constants get the library's prefix; a comment of one line takes one; no line ends in spaces.
fn tidied(text: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let line = line.trim_end();
        let constant = line.strip_prefix("#define ");
        let constant = constant.filter(|rest| !rest.starts_with("TRANSHIP_"));
        match (constant, &mut all[..]) {
            (Some(rest), _) => all.push(format!("#define TRANSHIP_{rest}")),
            (None, [.., begin, text]) if line.trim() == "*/" && begin.trim() == "/**" => {
                let said = text.trim_start().trim_start_matches("* ");
                *begin = format!("{begin} {said} */");
                all.pop();
            }
            _ => all.push(line.to_owned()),
        }
    }
    all.join("\n") + "\n"
}

/// The table of kinds of errors (`docs/errors.md`), as C has it.
fn statuses() -> String {
    let constant = |kind: &Kind| {
        let mut name = String::new();
        for c in kind.name().chars() {
            if c.is_ascii_uppercase() && !name.is_empty() {
                name.push('_');
            }
            name.push(c.to_ascii_uppercase());
        }
        format!(
            "    /** {}. What to do: {}. */\n    TRANSHIP_ERR_{name} = {},\n",
            kind.meaning(),
            kind.advice(),
            kind.number()
        )
    };
    let all: String = Kind::ALL.iter().map(constant).collect();
    format!("{VERSION}{STATUS}enum {{\n    /** Done. */\n    TRANSHIP_OK = 0,\n{all}}};\n{TIMES}")
}

/// Which symbols the shared library shows, and since which version.
fn map(header: &str) -> String {
    let mut names: Vec<&str> = functions(header).collect();
    names.sort_unstable();
    let names: String = names
        .iter()
        .map(|name| format!("        {name};\n"))
        .collect();
    format!(
        "/* Made from the source by `cargo run -p xtask -- header write`. What a release has shown never leaves its block. */\nTRANSHIP_0 {{\n    global:\n{names}    local:\n        *;\n}};\n"
    )
}

const TOP: &str = "/*
 * tranship: moves large data between isolated processes without copying it.
 *
 * Made from the source by `cargo run -p xtask -- header write`; tranship(3) is the manual.
 *
 * Handles are opaque. A NULL handle is an error that says so, and to close or release NULL does nothing. Close a handle when no call with
 * it is under way or will begin; to be able to stop a thread, let it wait in turns or by tranship_poll, and join it before.
 *
 * Functions that can fail return a tranship_status, and take a `tranship_error **` last: NULL if the status is enough (then nothing is
 * allocated for an error), else a variable that is NULL at first. After each call it holds the call's error, or NULL; what it held before
 * is freed. There is no error state beside that, neither global nor a thread's.
 *
 * The library starts no thread unless asked to, installs no signal handler, and never ends the program.
 */";

const VERSION: &str = "
#define TRANSHIP_VERSION_MAJOR 0
#define TRANSHIP_VERSION_MINOR 1
#define TRANSHIP_VERSION_PATCH 0
";

const STATUS: &str = "
/**
 * What a call returns: TRANSHIP_OK, or what went wrong. Numbers are stable, and the same in Rust, in the messages between processes and in
 * docs/errors.md. There will be more.
 */
typedef int32_t tranship_status;

";

const TIMES: &str = "
/** As a timeout, in nanoseconds: do not wait. */
#define TRANSHIP_NOW INT64_C(0)
/** As a timeout: wait without end. */
#define TRANSHIP_FOREVER INT64_C(-1)
/** As a timeout: so many milliseconds. */
#define TRANSHIP_MS(n) ((int64_t)(n) * INT64_C(1000000))

/** The most bytes that a message can have inline. */
#define TRANSHIP_INLINE_BYTES 48
";

const BOTTOM: &str = "#ifdef __cplusplus
extern \"C\" {
#endif

/**
 * The bytes of a buffer, a message or inline bytes, buf->len of them; NULL of an aggregate (tranship_aggregate_piece,
 * tranship_copy_out). They are there until the buf is sent or released. Inline bytes are inside the struct.
 */
static inline void *tranship_data(const tranship_buf *buf)
{
    return buf->kind == TRANSHIP_BUF_INLINE ? (void *)(uintptr_t)buf->words : buf->ptr;
}

#ifdef __cplusplus
}
#endif";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_in_what_is_printed() {
        let header = "/* a tranship_no( */\ntranship_status tranship_a(int b,\n    int c);\nconst char *tranship_d(void);\ntypedef int (*tranship_e)(int);\n";
        let found: Vec<_> = functions(header).collect();
        assert_eq!(found, ["tranship_a", "tranship_d"]);
        let map = map(header);
        assert!(map.contains("        tranship_a;\n        tranship_d;\n    local:"));
    }

    #[test]
    fn constants_have_the_prefix_and_short_comments_one_line() {
        assert_eq!(
            tidied("#define A 1 \n#define TRANSHIP_B 2"),
            "#define TRANSHIP_A 1\n#define TRANSHIP_B 2\n"
        );
        let comments = "/**\n * One.\n */\n  /**\n   * Two\n   * lines.\n   */\n";
        let short = "/** One. */\n  /**\n   * Two\n   * lines.\n   */\n";
        assert_eq!(tidied(comments), short);
    }
}
