//! No two files of a crate import each other, not even by a detour: `cargo run -p xtask -- circles` shows the imports
//! between those that do.

mod graph;
mod names;
mod references;

use crate::findings::Findings;
use crate::source;
use anyhow::{Context, Result};
use graph::Arrows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Looks for circles in every crate.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    let files = source::files(root)?;
    let mut crates: BTreeMap<String, Vec<&source::TextFile>> = BTreeMap::new();
    for file in &files {
        if let Some((name, inside)) = source::split(&file.path)
            && inside.starts_with("src/")
            && inside.ends_with(".rs")
        {
            crates.entry(name.to_owned()).or_default().push(file);
        }
    }
    for (name, files) in crates {
        findings.saw();
        let arrows = arrows(&files).with_context(|| format!("crate {name}"))?;
        for circle in graph::circles(&arrows) {
            findings.error(format!(
                "crate {name}: {} files import each other in a circle",
                circle.len()
            ));
            tell(&circle, &arrows);
        }
    }
    Ok(findings)
}

fn tell(circle: &BTreeSet<String>, arrows: &Arrows) {
    println!("a circle of {} files:", circle.len());
    for from in circle {
        for (to, names) in arrows.get(from).into_iter().flatten() {
            if circle.contains(to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                println!("  {from} -> {to}: {}", names.join(", "));
            }
        }
    }
}

fn arrows(files: &[&source::TextFile]) -> Result<Arrows> {
    let texts: BTreeMap<String, &str> = files
        .iter()
        .map(|file| {
            let inside = source::split(&file.path).map_or("", |(_, inside)| inside);
            let path = inside.trim_start_matches("src/");
            (path.to_owned(), file.text.as_str())
        })
        .collect();
    let mut all = Arrows::new();
    for root in ["lib.rs", "main.rs"] {
        if texts.contains_key(root) {
            let modules = names::Modules::read(&texts, root)?;
            references::collect(&modules, &mut all);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files: Vec<source::TextFile> = files
            .iter()
            .map(|(path, text)| source::TextFile {
                path: format!("crates/base/x/src/{path}"),
                text: (*text).to_owned(),
            })
            .collect();
        let arrows = arrows(&files.iter().collect::<Vec<_>>()).expect("Rust");
        let circles = graph::circles(&arrows);
        circles
            .into_iter()
            .map(|c| c.into_iter().collect())
            .collect()
    }

    #[test]
    fn two_files_that_use_each_other() {
        let found = circles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "pub struct B; impl B { fn a(&self) -> crate::a::A { loop {} } }",
            ),
        ]);
        assert_eq!(found, [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_detour_and_names_handed_on() {
        let found = circles_of(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use c::*;"),
            ("a.rs", "use crate::C; pub struct A(C);"),
            ("b.rs", "pub type B = crate::A;"),
            ("c.rs", "pub struct C; fn c(_: &super::b::B) {}"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn handing_on_is_no_use_of_its_own() {
        let found = circles_of(&[
            ("lib.rs", "mod a; pub use a::A; pub const SIZE: usize = 1;"),
            ("a.rs", "pub struct A([u8; crate::SIZE]);"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn what_only_tests_use_does_not_count() {
        let found = circles_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_folder_and_its_child() {
        let found = circles_of(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod b; pub struct A { b: b::B }"),
            (
                "a/b.rs",
                "use super::A; pub struct B; impl B { fn a(&self, a: &A) {} }",
            ),
        ]);
        assert_eq!(found, [["a/b.rs", "a/mod.rs"]]);
    }
}
