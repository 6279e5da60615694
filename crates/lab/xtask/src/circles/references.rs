//! Uses: every path in code that leads to a thing of another file of the crate, in macros too.

use super::graph::Arrows;
use super::names::{Modules, Path, is_for_tests};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemUse, Macro, UseTree, Visibility};

/// Adds the arrows between a crate's files.
pub(super) fn collect(modules: &Modules, arrows: &mut Arrows) {
    for (place, module) in &modules.all {
        let mut reader = Reader {
            modules,
            place,
            file: &module.file,
            arrows,
        };
        module.items.iter().for_each(|item| reader.visit_item(item));
    }
}

struct Reader<'a> {
    modules: &'a Modules,
    place: &'a Path,
    file: &'a str,
    arrows: &'a mut Arrows,
}

impl Reader<'_> {
    fn refer(&mut self, path: &[String]) {
        let Some(place) = self.modules.definer(self.place, path) else {
            return;
        };
        let to = &self.modules.all[place].file;
        if to != self.file {
            let from = self.arrows.entry(self.file.to_owned()).or_default();
            let names = from.entry(to.clone()).or_default();
            names.extend(path.last().cloned());
        }
    }

    fn use_tree(&mut self, tree: &UseTree, mut before: Path) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.use_tree(&path.tree, before);
            }
            UseTree::Name(name) => {
                before.push(name.ident.to_string());
                self.refer(&before);
            }
            UseTree::Rename(name) => {
                before.push(name.ident.to_string());
                self.refer(&before);
            }
            UseTree::Glob(_) => {}
            UseTree::Group(group) => {
                let each = group.items.iter();
                each.for_each(|tree| self.use_tree(tree, before.clone()));
            }
        }
    }

    /// Finds what looks like a path in a macro's arguments.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Path::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.refer(&std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.refer(&std::mem::take(&mut path));
                    self.tokens(group.stream());
                }
                _ => {
                    self.refer(&std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.refer(&path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Path = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.refer(&names);
        visit::visit_path(self, path);
    }

    /// Skips a `use` that only hands names on: it uses nothing.
    fn visit_item_use(&mut self, used: &'ast ItemUse) {
        if matches!(used.vis, Visibility::Inherited) {
            self.use_tree(&used.tree, Path::new());
        }
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.tokens(called.tokens.clone());
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }
}
