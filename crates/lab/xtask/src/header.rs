//! `tranship.h`, its smaller sisters and the manual pages are made from the source of `crates/faces/capi`: `cargo
//! run -p xtask -- header write` renews them, `header check` holds them to it. So building the product needs no
//! generator, and a review sees every change of the interface of C programs.
//!
//! NOT here: the papers' names (`include/tranship/*.h`), which are written by hand over it.

mod pages;

use self::pages::{CRATE, functions};
use crate::findings::Findings;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use tranship_error::ErrorKind;

/// A header: a path below `include`, the folder of its functions in `src` (none: all files that are in no folder), and its
/// text around what the source declares.
struct Header {
    path: &'static str,
    folder: Option<&'static str>,
    text: &'static str,
}

macro_rules! header {
    ($name:literal, $folder:expr) => {
        Header {
            path: $name,
            folder: $folder,
            text: include_str!(concat!("header/", $name, ".in")),
        }
    };
}

const HEADERS: &[Header] = &[
    header!("tranship.h", None),
    header!("tranship/admin.h", Some("admin")),
    header!("tranship/component.h", Some("component")),
    header!("tranship/queue.h", Some("queue")),
    header!("tranship/service.h", Some("service")),
    header!("tranship/topic.h", Some("topic")),
    header!("tranship/mbufs.h", Some("mbuf")),
    header!("tranship/zones.h", Some("uma")),
];

const MAP: &str = "crates/faces/capi/tranship.map";

/// Types of the source whose names in C are the library's prefix and their words.
const PREFIXED: &str = "Buf Call ChannelOptions Client Component Consumer ConsumerOptions Domain DomainOptions Error \
    ExtFree Inbox Iovec Item Listener MbufOptions Mbufs PollItem Pool PoolOptions PoolStats Producer Publisher \
    QueueOptions Receiver Request Sender Service ServiceOptions Status Subscriber SubscriberOptions TopicOptions \
    UmaAlloc UmaCtor UmaDtor UmaFini UmaFree UmaInit UmaMaxaction";

/// Types with other names: FreeBSD's own, and those of its functions.
const NAMED: [(&str, &str); 8] = [
    ("Copy", "tranship_m_copy"),
    ("Each", "tranship_m_each"),
    ("Mbuf", "mbuf"),
    ("Mbufq", "mbufq"),
    ("Pkthdr", "pkthdr"),
    ("Tag", "m_tag"),
    ("Uio", "uio"),
    ("Zone", "uma_zone"),
];

/// Returns the words of a name of the source, with `_` between them.
fn snake(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// Checks that the files are those that the source makes.
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
    let mut headers = Vec::new();
    for header in HEADERS {
        let path = PathBuf::from(CRATE).join("include").join(header.path);
        headers.push((path, header.made(root)?));
    }
    let texts: Vec<&str> = headers.iter().map(|(_, text)| text.as_str()).collect();
    let texts = texts.concat();
    let mut all = pages::all(root, &texts)?;
    all.push((MAP.into(), map(&texts)));
    all.extend(headers);
    Ok(all)
}

impl Header {
    /// Returns the files of its functions; cbindgen reads the modules that a file names, too.
    fn sources(&self, root: &Path) -> Result<Vec<PathBuf>> {
        let src = root.join(CRATE).join("src");
        if let Some(folder) = self.folder {
            return Ok(vec![src.join(folder).join("mod.rs")]);
        }
        let sources = std::fs::read_dir(src).context(CRATE)?;
        let mut sources: Vec<PathBuf> = sources.flatten().map(|entry| entry.path()).collect();
        sources.retain(|path| path.is_file() && !path.ends_with("lib.rs"));
        sources.sort();
        Ok(sources)
    }

    fn made(&self, root: &Path) -> Result<String> {
        let (top, rest) = self
            .text
            .split_once("\n@DECLARATIONS@\n")
            .context(self.path)?;
        let (types, bottom) = rest.split_once("@BOTTOM@\n").unwrap_or((rest, ""));
        let mut builder = cbindgen::Builder::new().with_config(self.config(top, types));
        for source in self.sources(root)? {
            builder = builder.with_src(source);
        }
        let mut text = Vec::new();
        builder.generate().context("cbindgen")?.write(&mut text);
        let text = String::from_utf8(text).context("the header")?;
        if bottom.is_empty() {
            return Ok(tidied(&text));
        }
        // A trailer would stand behind the guard.
        let (all, end) = text.rsplit_once("#endif").context("no guard")?;
        let bottom = bottom.trim_end();
        Ok(tidied(&format!("{all}{bottom}\n\n#endif{end}")))
    }

    fn config(&self, top: &str, types: &str) -> cbindgen::Config {
        let bytes = tranship_ring::INLINE_BYTES.to_string();
        let types = types.replace("@ERRORS@", &errors());
        let mut config = cbindgen::Config {
            language: cbindgen::Language::C,
            header: Some(top.into()),
            include_guard: Some(self.path.replace(['/', '.'], "_").to_uppercase()),
            cpp_compat: true,
            no_includes: true,
            sys_includes: vec!["stddef.h".into(), "stdint.h".into()],
            after_includes: Some(types.replace("@INLINE_BYTES@", &bytes)),
            style: cbindgen::Style::Both,
            documentation_style: cbindgen::DocumentationStyle::Doxy,
            documentation: true,
            usize_is_size_t: true,
            line_length: 100,
            tab_width: 4,
            ..cbindgen::Config::default()
        };
        if self.folder.is_some() {
            config.sys_includes.clear();
            config.includes = vec!["../tranship.h".into()];
            // FreeBSD's `struct mbuf`, which takes no other name.
            config.style = cbindgen::Style::Tag;
        }
        config.function.args = cbindgen::Layout::Auto;
        config.export.exclude = vec!["Status".into()];
        let prefixed = PREFIXED.split(' ').filter(|name| !name.is_empty());
        let prefixed = prefixed.map(|name| (name.to_owned(), format!("tranship_{}", snake(name))));
        let named = NAMED.map(|(rust, c)| (rust.to_owned(), c.to_owned()));
        let names = prefixed.chain(named);
        config.export.rename = names.collect();
        config
    }
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

/// Returns the table of kinds of errors (`docs/errors.md`), as C has it.
fn errors() -> String {
    let constant = |kind: &ErrorKind| {
        format!(
            "    /** {}. What to do: {}. */\n    TRANSHIP_ERR_{} = {},\n",
            kind.meaning(),
            kind.advice(),
            snake(kind.name()).to_uppercase(),
            kind.number()
        )
    };
    ErrorKind::ALL.iter().map(constant).collect()
}

/// Returns which symbols the shared library shows, and since which version.
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
