//! No two files of a crate use each other, not even by a detour: `cargo run -p xtask -- circles` shows the uses
//! between those that do.
//!
//! Uses are imports and calls of methods (`references` says which it sees).

mod graph;
mod names;
mod references;
mod types;

use crate::findings::Findings;
use crate::source;
use anyhow::{Context, Result};
use graph::Arrows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Looks for circles in every crate.
pub(crate) fn check(root: &Path) -> Result<Findings> {
    look(root, |_, _, _| {})
}

/// Looks for circles, and prints them.
pub(crate) fn show(root: &Path) -> Result<Findings> {
    look(root, tell)
}

fn look(root: &Path, tell: fn(&str, &BTreeSet<String>, &Arrows)) -> Result<Findings> {
    let mut findings = Findings::default();
    let files = source::files(root)?;
    let mut crates: BTreeMap<String, BTreeMap<String, &str>> = BTreeMap::new();
    for file in &files {
        if let Some((name, inside)) = source::split(&file.path)
            && inside.ends_with(".rs")
            && let Some(inside) = match name {
                "fuzz" => Some(inside),
                _ => inside.strip_prefix("src/"),
            }
        {
            let texts = crates.entry(name.to_owned()).or_default();
            texts.insert(inside.to_owned(), &file.text);
        }
    }
    for (name, texts) in &crates {
        findings.saw();
        let arrows = arrows(texts).with_context(|| format!("crate {name}"))?;
        for circle in graph::circles(&arrows) {
            findings.error(format!(
                "{name}: a circle of {} files, {} among them; `cargo run -p xtask -- circles` shows it",
                circle.len(),
                circle.first().map_or("", String::as_str)
            ));
            tell(name, &circle, &arrows);
        }
    }
    Ok(findings)
}

fn tell(name: &str, circle: &BTreeSet<String>, arrows: &Arrows) {
    println!("{name}: a circle of {} files:", circle.len());
    for from in circle {
        for (to, names) in arrows.get(from).into_iter().flatten() {
            if circle.contains(to) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                println!("  {from} -> {to}: {}", names.join(", "));
            }
        }
    }
}

/// Returns the uses between a crate's files, by their paths below `src/`.
fn arrows(texts: &BTreeMap<String, &str>) -> Result<Arrows> {
    let mut all = Arrows::new();
    // A crate without a root of its own, as that of the fuzz targets, has a root in each file and folder at its top.
    let has_root = ["lib.rs", "main.rs"]
        .iter()
        .any(|root| texts.contains_key(*root));
    let is_root = |file: &&String| match file.split_once('/') {
        None => !has_root || matches!(file.as_str(), "lib.rs" | "main.rs"),
        Some((_, inside)) => !has_root && inside == "mod.rs",
    };
    for root in texts.keys().filter(is_root) {
        let modules = names::Modules::read(texts, root)?;
        references::collect(&modules, &mut all);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let texts = files.iter().map(|(path, text)| ((*path).to_owned(), *text));
        let arrows = arrows(&texts.collect()).expect("Rust");
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

    /// `way` is the body of a method in `a.rs` that leads to `B::turn`, which is in `b.rs`.
    fn closes_a_circle(way: &str) -> bool {
        let a = format!(
            "use crate::c::B; pub struct A {{ b: B, some: Option<Arc<B>>, all: Mutex<Vec<B>> }}\n\
             impl A {{ pub fn go(&mut self, b: &B) {{ {way} }} pub fn b(&self) -> Option<&B> {{ None }} pub fn new() -> A {{ loop {{}} }} }}"
        );
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", &a),
            (
                "b.rs",
                "use crate::a::A; impl crate::c::B { pub fn turn(&self, a: &A) {} }",
            ),
            ("c.rs", "pub struct B { pub x: u8 }"),
        ];
        !circles_of(&files).is_empty()
    }

    #[test]
    fn calls_of_methods_are_uses() {
        for way in [
            "self.b.turn(self)",
            "b.turn(self)",
            "(&self.b).turn(self)",
            "B::turn(b, self)",
            "if let Some(b) = &self.some { b.turn(self) }",
            "let Some(it) = self.b() else { return }; it.turn(self)",
            "for it in self.all.lock().unwrap().iter() { it.turn(self) }",
            "for it in &*lock(&self.all) { it.turn(self) }",
            "let b = B { x: 1 }; b.turn(self)",
            "for it in &self.some { it.turn(self) }",
            "let new = Self::new(); new.b.turn(self)",
            "match self.b() { Some(it) => it.turn(self), None => {} }",
            "let x: B = todo(); x.turn(self)",
            "[1].map(|_| self.b.turn(self));",
        ] {
            assert!(closes_a_circle(way), "{way}");
        }
    }

    #[test]
    fn methods_of_others_and_unknown_values_are_none() {
        for way in [
            "self.some.turn(self)",
            "self.all.lock().turn(self)",
            "other().turn(self)",
            "[1].map(|b| b.turn(self));",
            "b.other(self)",
        ] {
            assert!(!closes_a_circle(way), "{way}");
        }
    }

    #[test]
    fn a_type_whose_methods_are_in_two_files_that_call_each_other() {
        let found = circles_of(&[
            ("lib.rs", "mod a; mod b; pub struct S;"),
            ("a.rs", "impl crate::S { pub fn a(&self) { self.b() } }"),
            (
                "b.rs",
                "use super::S; impl S { pub fn b(&self) {} pub fn c(&self) { S::a(self) } }",
            ),
        ]);
        assert_eq!(found, [["a.rs", "b.rs"]]);
    }
}
