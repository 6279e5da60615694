//! Modules of a crate: their names, their files, and the names that they know.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use syn::{Attribute, Item, UseTree};

/// A module's place in its crate, from the root: `["link", "sender"]`.
pub(super) type Path = Vec<String>;

/// An item of the crate: the module that defines it, and its name.
pub(super) type Thing = (Path, String);

/// Thing that a name stands for in a module.
enum Name {
    /// Defined here.
    Item,
    /// A module below.
    Module,
    /// Brought in by `use`.
    Used(Path),
}

/// One module.
pub(super) struct Module {
    pub file: String,
    pub items: Vec<Item>,
    names: BTreeMap<String, Name>,
    globs: Vec<Path>,
}

/// All modules of a crate, without those for tests.
pub(super) struct Modules {
    pub all: BTreeMap<Path, Module>,
}

impl Modules {
    /// Reads the files that belong to a crate root. The modules of a root `x/mod.rs` lie beside it.
    pub(super) fn read(texts: &BTreeMap<String, &str>, root: &str) -> Result<Modules> {
        let mut modules = Modules {
            all: BTreeMap::new(),
        };
        let folder = root.strip_suffix("mod.rs").unwrap_or_default();
        modules.read_file(texts, root, Path::new(), folder)?;
        Ok(modules)
    }

    /// Reads a file; `folder` is the place of the files of modules below it.
    fn read_file(
        &mut self,
        texts: &BTreeMap<String, &str>,
        file: &str,
        place: Path,
        folder: &str,
    ) -> Result<()> {
        let text = texts.get(file).with_context(|| format!("no file {file}"))?;
        let parsed = syn::parse_file(text).with_context(|| format!("parsing {file}"))?;
        self.read_items(texts, file, place, folder, parsed.items)
    }

    fn read_items(
        &mut self,
        texts: &BTreeMap<String, &str>,
        file: &str,
        place: Path,
        folder: &str,
        items: Vec<Item>,
    ) -> Result<()> {
        let mut module = Module {
            file: file.to_owned(),
            items: Vec::new(),
            names: BTreeMap::new(),
            globs: Vec::new(),
        };
        for item in items {
            if is_for_tests(attributes(&item)) {
                continue;
            }
            match item {
                // A file of another crate, which is looked at there.
                Item::Mod(below) if below.attrs.iter().any(|a| a.path().is_ident("path")) => {}
                Item::Mod(below) => {
                    let name = below.ident.to_string();
                    module.names.insert(name.clone(), Name::Module);
                    let mut inner = place.clone();
                    inner.push(name.clone());
                    let inside = format!("{folder}{name}/");
                    match below.content {
                        Some((_, items)) => self.read_items(texts, file, inner, &inside, items)?,
                        None => {
                            let flat = format!("{folder}{name}.rs");
                            let deep = format!("{inside}mod.rs");
                            let found = [flat, deep].into_iter().find(|f| texts.contains_key(f));
                            let found =
                                found.with_context(|| format!("{file}: no file of {name}"))?;
                            self.read_file(texts, &found, inner, &inside)?;
                        }
                    }
                }
                Item::Use(used) => {
                    bring(&used.tree, Path::new(), &mut module);
                    module.items.push(Item::Use(used));
                }
                item => {
                    if let Some(name) = defined(&item) {
                        module.names.insert(name, Name::Item);
                    }
                    module.items.push(item);
                }
            }
        }
        self.all.insert(place, module);
        Ok(())
    }

    /// Returns the thing that `path` names, seen from `from`, and what of the path is left behind the thing's name;
    /// None: defined elsewhere, or it is a module.
    pub(super) fn definer(&self, from: &Path, path: &[String]) -> Option<(Thing, Path)> {
        self.find(from, path, 0)
    }

    fn find(&self, from: &Path, path: &[String], depth: usize) -> Option<(Thing, Path)> {
        // Names may be handed round in circles.
        if depth > 16 {
            return None;
        }
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Path::new(),
            "self" => from.clone(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => {
                rest = path;
                from.clone()
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let module = self.all.get(&at)?;
            match module.names.get(name) {
                _ if name == "super" => at.truncate(at.len().checked_sub(1)?),
                Some(Name::Item) => return Some(((at, name.clone()), after.to_vec())),
                Some(Name::Module) => at.push(name.clone()),
                Some(Name::Used(to)) => {
                    let whole: Path = to.iter().chain(after).cloned().collect();
                    return self.find(&at, &whole, depth + 1);
                }
                None => {
                    let through = |to: &Path| {
                        let whole: Path = to.iter().chain(rest).cloned().collect();
                        self.find(&at, &whole, depth + 1)
                    };
                    return module.globs.iter().find_map(through);
                }
            }
            rest = after;
        }
        None
    }
}

/// Adds the names that a `use` brings.
fn bring(tree: &UseTree, mut before: Path, module: &mut Module) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            bring(&path.tree, before, module);
        }
        UseTree::Name(name) if name.ident == "self" => {
            if let Some(last) = before.last().cloned() {
                used(module, last, before);
            }
        }
        UseTree::Name(name) => {
            before.push(name.ident.to_string());
            used(module, name.ident.to_string(), before);
        }
        UseTree::Rename(name) => {
            before.push(name.ident.to_string());
            used(module, name.rename.to_string(), before);
        }
        UseTree::Glob(_) => module.globs.push(before),
        UseTree::Group(group) => {
            let each = group.items.iter();
            each.for_each(|tree| bring(tree, before.clone(), module));
        }
    }
}

/// Adds a `use`. `use a::b` where `a` is a name of the same module means nothing new for `b` itself.
fn used(module: &mut Module, name: String, path: Path) {
    if path.len() > 1 {
        module.names.entry(name).or_insert(Name::Used(path));
    }
}

fn defined(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether there is `#[cfg(test)]`, or `#[cfg(all(test, ...))]`.
pub(super) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Ok(list) = attribute.meta.require_list() else {
            return false;
        };
        let words = list.tokens.to_string();
        attribute.path().is_ident("cfg") && (words == "test" || words.starts_with("all (test"))
    })
}
