//! Uses: every path in code that leads to a thing of another file of the crate, in macros too, and every call of a
//! method of the crate's own types that is in another file.
//!
//! A method's receiver is known by the types that are written down: of arguments, fields, results and `let`, through
//! references, `Box`, `Arc`, `Option` and the like. Not seen: methods of traits, receivers whose type another crate or a
//! closure's context gives, methods called in a macro's arguments, and types that only a macro writes.

use super::graph::Arrows;
use super::names::{Modules, Path, Thing, is_for_tests};
use super::types::{Known, Types, arguments, known};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeMap;
use syn::visit::{self, Visit};
use syn::{
    Expr, ExprCall, ImplItemFn, ItemFn, ItemImpl, ItemUse, Local, Macro, Member, Pat, UseTree,
    Visibility,
};

/// Adds the arrows between a crate's files.
pub(super) fn collect(modules: &Modules, arrows: &mut Arrows) {
    let types = Types::read(modules);
    for (place, module) in &modules.all {
        let mut reader = Reader {
            modules,
            types: &types,
            place,
            file: &module.file,
            of: None,
            locals: BTreeMap::new(),
            arrows,
        };
        module.items.iter().for_each(|item| reader.visit_item(item));
    }
}

struct Reader<'a> {
    modules: &'a Modules,
    types: &'a Types,
    place: &'a Path,
    file: &'a str,
    /// The type that `Self` means.
    of: Option<Thing>,
    locals: BTreeMap<String, Known>,
    arrows: &'a mut Arrows,
}

impl Reader<'_> {
    fn refer(&mut self, path: &[String]) {
        let Some((thing, after)) = self.find(path) else {
            return;
        };
        if path[0] != "Self" {
            let file = self.modules.all[&thing.0].file.clone();
            self.arrow(&file, path.last().map_or("", String::as_str));
        }
        if let [method] = &after[..] {
            self.call(&thing, method);
        }
    }

    fn find(&self, path: &[String]) -> Option<(Thing, Path)> {
        match path.split_first() {
            Some((first, after)) if first == "Self" => Some((self.of.clone()?, after.to_vec())),
            _ => self.modules.definer(self.place, path),
        }
    }

    fn call(&mut self, of: &Thing, method: &str) {
        if let Some(function) = self.types.method(of, method) {
            self.arrow(&function.file, &format!("{}::{method}", of.1));
        }
    }

    fn arrow(&mut self, to: &str, name: &str) {
        if to != self.file {
            let from = self.arrows.entry(self.file.to_owned()).or_default();
            from.entry(to.to_owned())
                .or_default()
                .insert(name.to_owned());
        }
    }

    /// Returns what is known of an expression's type.
    fn type_of(&self, expression: &Expr) -> Option<Known> {
        match expression {
            Expr::Path(path) => match path.path.get_ident() {
                Some(name) => self.locals.get(&name.to_string()).cloned(),
                None => None,
            },
            Expr::Reference(of) => self.type_of(&of.expr),
            Expr::Paren(of) => self.type_of(&of.expr),
            Expr::Unary(of) => self.type_of(&of.expr),
            Expr::Await(of) => self.type_of(&of.base),
            Expr::Try(of) => self.type_of(&of.expr)?.inside(),
            Expr::Index(of) => self.type_of(&of.expr)?.inside(),
            Expr::Struct(made) => self
                .thing_of(&made.path)
                .map(|(thing, _)| Known::itself(thing)),
            Expr::Field(field) => {
                let of = self.type_of(&field.base)?.bare()?;
                let name = match &field.member {
                    Member::Named(name) => name.to_string(),
                    Member::Unnamed(at) => at.index.to_string(),
                };
                self.types.field(&of, &name).cloned()
            }
            Expr::Call(call) => self.given(call),
            Expr::MethodCall(call) => match &*call.receiver {
                // The result of a mutex of the standard library, and the guard in it, are one.
                Expr::MethodCall(inner)
                    if inner.method == "lock" && call.method.to_string().starts_with("unwrap") =>
                {
                    self.type_of(&call.receiver)
                }
                receiver => self.returned(self.type_of(receiver)?, &call.method.to_string()),
            },
            _ => None,
        }
    }

    /// Returns what is known of a function's result.
    fn given(&self, call: &ExprCall) -> Option<Known> {
        let Expr::Path(path) = &*call.func else {
            return None;
        };
        match self.thing_of(&path.path) {
            Some((thing, after)) => match &after[..] {
                [] => self.types.called(&thing),
                [method] => self.types.method(&thing, method)?.returns.clone(),
                _ => None,
            },
            // `lock` of another crate, around a mutex.
            None if path.path.is_ident("lock") => self.type_of(call.args.first()?)?.inside(),
            None => None,
        }
    }

    fn returned(&self, receiver: Known, method: &str) -> Option<Known> {
        if receiver.around == 0 {
            return match (self.types.method(&receiver.thing, method), method) {
                (Some(function), _) => function.returns.clone(),
                // `lock` of the standard library gives a result, of others the guard.
                (
                    None,
                    "clone" | "as_ref" | "as_mut" | "borrow" | "unwrap" | "expect"
                    | "unwrap_or_else",
                ) => Some(receiver),
                (None, _) => None,
            };
        }
        match method {
            "unwrap" | "expect" | "unwrap_or_else" | "unwrap_or_default" | "lock" | "read"
            | "write" | "borrow" | "borrow_mut" | "get_or_init" | "get_or_insert_with"
            | "or_default" | "or_insert_with" => receiver.inside(),
            "as_ref" | "as_mut" | "as_deref" | "as_deref_mut" | "get" | "get_mut" | "iter"
            | "iter_mut" | "into_iter" | "clone" | "take" | "values" | "values_mut"
            | "into_values" | "first" | "first_mut" | "last" | "last_mut" | "front" | "pop"
            | "pop_front" | "pop_back" | "remove" | "entry" | "ok" | "ok_or" | "ok_or_else"
            | "next" | "filter" | "find" | "drain" | "cloned" | "copied" | "rev" | "upgrade"
            | "map_err" => Some(receiver),
            _ => None,
        }
    }

    fn thing_of(&self, path: &syn::Path) -> Option<(Thing, Path)> {
        self.find(&names(path))
    }

    /// Notes the names of a pattern that are bound to a value of this type.
    fn bind(&mut self, pattern: &Pat, value: Option<Known>) {
        match pattern {
            Pat::Ident(name) => {
                let name = name.ident.to_string();
                match value {
                    Some(value) => self.locals.insert(name, value),
                    None => self.locals.remove(&name),
                };
            }
            Pat::Reference(of) => self.bind(&of.pat, value),
            Pat::Paren(of) => self.bind(&of.pat, value),
            Pat::Type(of) => {
                let written = known(self.modules, self.place, self.of.as_ref(), &of.ty);
                self.bind(&of.pat, written);
            }
            Pat::TupleStruct(of) => {
                let is_holder = of.path.is_ident("Some") || of.path.is_ident("Ok");
                let inside = value.filter(|_| is_holder).and_then(Known::inside);
                of.elems
                    .iter()
                    .for_each(|pattern| self.bind(pattern, inside.clone()));
            }
            Pat::Tuple(of) => of.elems.iter().for_each(|pattern| self.bind(pattern, None)),
            Pat::Struct(of) => {
                let of_type = self.thing_of(&of.path).map(|(thing, _)| thing);
                for field in &of.fields {
                    let Member::Named(name) = &field.member else {
                        continue;
                    };
                    let known = of_type
                        .as_ref()
                        .and_then(|of| self.types.field(of, &name.to_string()));
                    self.bind(&field.pat, known.cloned());
                }
            }
            _ => {}
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

fn names(path: &syn::Path) -> Path {
    path.segments.iter().map(|s| s.ident.to_string()).collect()
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.refer(&names(path));
        visit::visit_path(self, path);
    }

    /// Skips a `use` that only hands names on: it uses nothing.
    fn visit_item_use(&mut self, used: &'ast ItemUse) {
        if matches!(used.vis, Visibility::Inherited) {
            self.use_tree(&used.tree, Path::new());
        }
    }

    fn visit_item_impl(&mut self, block: &'ast ItemImpl) {
        self.of = known(self.modules, self.place, None, &block.self_ty).and_then(Known::bare);
        visit::visit_item_impl(self, block);
        self.of = None;
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.locals = arguments(self.modules, self.place, None, &function.sig);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            self.locals = arguments(self.modules, self.place, self.of.as_ref(), &function.sig);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        visit::visit_local(self, local);
        let value = local
            .init
            .as_ref()
            .and_then(|init| self.type_of(&init.expr));
        self.bind(&local.pat, value);
    }

    fn visit_expr_let(&mut self, tested: &'ast syn::ExprLet) {
        visit::visit_expr_let(self, tested);
        let value = self.type_of(&tested.expr);
        self.bind(&tested.pat, value);
    }

    fn visit_expr_for_loop(&mut self, turns: &'ast syn::ExprForLoop) {
        let value = self.type_of(&turns.expr).and_then(Known::inside);
        self.bind(&turns.pat, value);
        visit::visit_expr_for_loop(self, turns);
    }

    fn visit_expr_match(&mut self, choice: &'ast syn::ExprMatch) {
        let value = self.type_of(&choice.expr);
        self.visit_expr(&choice.expr);
        for arm in &choice.arms {
            self.bind(&arm.pat, value.clone());
            self.visit_arm(arm);
        }
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        let outside = self.locals.clone();
        closure
            .inputs
            .iter()
            .for_each(|pattern| self.bind(pattern, None));
        visit::visit_expr_closure(self, closure);
        self.locals = outside;
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Some(of) = self.type_of(&call.receiver).and_then(Known::bare) {
            self.call(&of, &call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, called: &'ast Macro) {
        self.tokens(called.tokens.clone());
    }
}
