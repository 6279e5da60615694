//! Public surface of `tranship`, with signatures: `cargo run -p xtask -- surface` prints it, `surface check` holds
//! `docs/surface.txt` to it, `surface write` renews that. So a review sees every change of it.
//!
//! It is taken from the pages that rustdoc makes, because rustdoc resolves re-exports. Implementations of traits are
//! left out, and so are crates of other projects that a module re-exports whole.

use crate::findings::Findings;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = "docs/surface.txt";

/// Checks that the page is that of the code.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    findings.saw();
    let page = read(&root.join(PAGE))?;
    let made = page.lines().next().unwrap_or_default();
    if !page.is_empty() && made != version()? {
        findings.warn(format!(
            "{PAGE}: {made}, here is {}: not compared",
            version()?
        ));
        return Ok(findings);
    }
    let now = all(root)?;
    let differs = page.lines().zip(now.lines()).find(|(a, b)| a != b);
    if page != now {
        let what = differs.map_or_else(String::new, |(was, is)| format!(" (`{is}` was `{was}`)"));
        findings.error(format!(
            "{PAGE} is not the surface of the crate `tranship`{what}; `cargo run -p xtask -- surface write` renews it"
        ));
    }
    Ok(findings)
}

/// Makes it so.
pub(crate) fn write(root: &Path) -> Result<()> {
    std::fs::write(root.join(PAGE), all(root)?).context(PAGE)
}

/// Returns all of it, an item after the other.
pub(crate) fn all(root: &Path) -> Result<String> {
    let pages = document(root)?;
    let list = read(&pages.join("all.html"))?;
    let (_, list) = list
        .split_once("id=\"main-content\"")
        .context("a list of all items")?;
    let foreign = foreign(&read(&root.join("Cargo.toml"))?)?;
    let mut text = version()? + "\n";
    for link in list.split("<li><a href=\"").skip(1) {
        let (address, _) = link.split_once('"').context("an address")?;
        let is_foreign = address
            .split('/')
            .any(|part| foreign.iter().any(|f| f == part));
        if address.starts_with('#') || is_foreign {
            continue;
        }
        let page = read(&pages.join(address))?;
        write!(text, "{}", item(address, &page)?)?;
    }
    Ok(text)
}

/// Returns the names of modules that are crates of other projects: the workspace's dependencies.
fn foreign(manifest: &str) -> Result<Vec<String>> {
    let list = manifest.split_once("[workspace.dependencies]\n");
    let (_, list) = list.context("[workspace.dependencies]")?;
    let list = list.lines().take_while(|line| !line.starts_with('['));
    let names = list.filter_map(|line| Some(line.split_once(" = ")?.0.replace('-', "_")));
    Ok(names.filter(|name| !name.starts_with("tranship")).collect())
}

/// Returns the version: another rustdoc may write otherwise.
fn version() -> Result<String> {
    let rustdoc = std::env::var_os("RUSTDOC").unwrap_or_else(|| "rustdoc".into());
    let said = Command::new(rustdoc)
        .arg("--version")
        .output()
        .context("rustdoc")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let number = said
        .split_whitespace()
        .nth(1)
        .unwrap_or("of an unknown version");
    Ok(format!("by rustdoc {number}"))
}

/// Returns the file into which rustdoc has put its pages.
fn document(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Variables that cargo sets for xtask would make build scripts that look at them run again (`ring`'s does).
    for (name, _) in std::env::vars()
        .filter(|(name, _)| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    {
        command.env_remove(name);
    }
    let arguments = "doc --quiet --package tranship --no-deps --all-features";
    let done = command.args(arguments.split(' ')).current_dir(root);
    if !done.status().context("cargo doc")?.success() {
        bail!("`cargo {arguments}` failed");
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(root.join(target).join("doc/tranship"))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Returns an item's path and declaration, and its own methods, a line each.
fn item(address: &str, page: &str) -> Result<String> {
    let name = address.trim_end_matches(".html").replace('/', "::");
    let name = name.rsplit_once("::").map_or_else(
        || bare(&name),
        |(module, last)| format!("{module}::{}", bare(last)),
    );
    let declared = between(page, "item-decl\"><code>", "</code></pre>").context("a declaration")?;
    let mut text = format!("\ntranship::{name}\n");
    // The fields of a record of figures are the table's. A review sees a change there, and in Python's stub.
    let is_record = tranship_proto::RECORDS
        .iter()
        .any(|(record, ..)| name.ends_with(record));
    let declared = plain(declared);
    for line in declared
        .lines()
        .filter(|line| {
            !is_record || !line.trim_start().starts_with("pub ") || line.contains("struct")
        })
        .filter(|line| !line.trim().is_empty())
    {
        writeln!(text, "    {line}")?;
    }
    // Methods that others bring come after.
    let own = between(
        page,
        "id=\"implementations\"",
        "id=\"trait-implementations\"",
    );
    let own = own.and_then(|own| own.split("id=\"deref-methods").next());
    for rest in own
        .unwrap_or_default()
        .split("<h4 class=\"code-header\">")
        .skip(1)
    {
        let signature = plain(rest.split("</h4>").next().unwrap_or(rest));
        let words: Vec<&str> = signature.split_whitespace().collect();
        let line = words.join(" ").replace("( ", "(").replace(", )", ")");
        writeln!(text, "    {line}")?;
    }
    Ok(text)
}

/// Returns `struct.Sender` without its kind.
fn bare(name: &str) -> String {
    name.split_once('.')
        .map_or(name, |(_, bare)| bare)
        .to_owned()
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    text.split_once(begin)?
        .1
        .split_once(end)
        .map(|(inner, _)| inner)
}

/// Returns the text without tags, and without parts that are only to be clicked at.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for piece in html.replace("</div>", "\n").split('<') {
        let (tag, after) = piece.split_once('>').unwrap_or(("", piece));
        let clicked = tag.starts_with("summary") || text.ends_with('\u{1}');
        match (clicked, tag) {
            (_, "/summary") => {
                text.pop();
                text.push_str(after);
            }
            (true, _) if !text.ends_with('\u{1}') => text.push('\u{1}'),
            (true, _) => {}
            (false, _) => text.push_str(after),
        }
    }
    let entities = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&nbsp;", " "),
        ("&amp;", "&"),
    ];
    let text = entities
        .iter()
        .fold(text, |text, (entity, sign)| text.replace(entity, sign));
    // Rustdoc's own remarks.
    text.replace("/* private fields */", "..").replace('ⓘ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_a_declaration_and_its_own_methods() {
        let page = "<pre class=\"rust item-decl\"><code><div class=\"code-attribute\">#[non_exhaustive]</div>pub enum <a>K</a> {\n\
            <details><summary class=\"hideme\"><span>Show 2 variants</span></summary>    A = 1,\n    B(<a>Vec</a>&lt;u8&gt;),\n</details>}</code></pre>\
            <h2 id=\"implementations\"><h4 class=\"code-header\">pub fn <a>of</a>(\n    &amp;self,\n    n: u32,\n) -&gt; u8</h4>\
            <h2 id=\"trait-implementations\"><h4 class=\"code-header\">fn drop(&amp;mut self)</h4>";
        let expected = "\ntranship::error::K\n    #[non_exhaustive]\n    pub enum K {\n        A = 1,\n        B(Vec<u8>),\n    }\n    \
            pub fn of(&self, n: u32) -> u8\n";
        assert_eq!(item("error/enum.K.html", page).expect("an item"), expected);
    }

    #[test]
    fn crates_of_others_are_the_dependencies_that_are_not_ours() {
        let manifest = "[workspace]\nresolver = \"3\"\n\n[workspace.dependencies]\narrow-array = { version = \"60\" }\n\
            tranship-core = { path = \"a\" }\n\n# a comment\nlibc = \"0.2\"\n\n[workspace.lints.rust]\nx = \"warn\"\n";
        assert_eq!(foreign(manifest).expect("a list"), ["arrow_array", "libc"]);
        assert!(foreign("[package]\n").is_err());
    }
}
