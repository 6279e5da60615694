//! Types of a crate: their fields, and the files in which their methods are. What an expression's type is, as far as it
//! is written down.

use super::names::{Modules, Path, Thing, is_for_tests};
use std::collections::BTreeMap;
use syn::{
    FnArg, GenericArgument, ImplItem, Item, Pat, PathArguments, ReturnType, Signature, Type,
};

/// The crate's own type to which an expression leads, if it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub thing: Thing,
    /// Number of types of others around it that are no pointers: 2 for `Mutex<Vec<T>>`.
    pub around: usize,
}

impl Known {
    pub(super) fn itself(thing: Thing) -> Known {
        Known { thing, around: 0 }
    }

    /// Returns what a type of others gives out: by `?`, by a pattern, by a loop.
    pub(super) fn inside(self) -> Option<Known> {
        let around = self.around.checked_sub(1)?;
        Some(Known { around, ..self })
    }

    /// Returns the crate's own type, if nothing is around it.
    pub(super) fn bare(self) -> Option<Thing> {
        (self.around == 0).then_some(self.thing)
    }
}

/// A method or a function: the file in which it is, and what it returns.
pub(super) struct Function {
    pub file: String,
    pub returns: Option<Known>,
}

/// All types and functions of a crate.
#[derive(Default)]
pub(super) struct Types {
    fields: BTreeMap<Thing, BTreeMap<String, Known>>,
    methods: BTreeMap<Thing, BTreeMap<String, Function>>,
    functions: BTreeMap<Thing, Option<Known>>,
}

impl Types {
    pub(super) fn read(modules: &Modules) -> Types {
        let mut types = Types::default();
        for (place, module) in &modules.all {
            for item in &module.items {
                types.add(modules, place, &module.file, item);
            }
        }
        types
    }

    fn add(&mut self, modules: &Modules, place: &Path, file: &str, item: &Item) {
        match item {
            Item::Struct(item) => {
                let named = item.fields.iter().enumerate();
                let fields = named.filter_map(|(at, field)| {
                    let name = field
                        .ident
                        .as_ref()
                        .map_or(at.to_string(), |i| i.to_string());
                    Some((name, known(modules, place, None, &field.ty)?))
                });
                let thing = (place.clone(), item.ident.to_string());
                self.fields.insert(thing, fields.collect());
            }
            Item::Fn(item) => {
                let thing = (place.clone(), item.sig.ident.to_string());
                let returned = returns(modules, place, None, &item.sig);
                self.functions.insert(thing, returned);
            }
            Item::Impl(item) if item.trait_.is_none() => {
                let Some(of) = known(modules, place, None, &item.self_ty).and_then(Known::bare)
                else {
                    return;
                };
                for function in &item.items {
                    if let ImplItem::Fn(function) = function
                        && !is_for_tests(&function.attrs)
                    {
                        let function_is = Function {
                            file: file.to_owned(),
                            returns: returns(modules, place, Some(&of), &function.sig),
                        };
                        let methods = self.methods.entry(of.clone()).or_default();
                        methods.insert(function.sig.ident.to_string(), function_is);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn method(&self, of: &Thing, name: &str) -> Option<&Function> {
        self.methods.get(of)?.get(name)
    }

    pub(super) fn field(&self, of: &Thing, name: &str) -> Option<&Known> {
        self.fields.get(of)?.get(name)
    }

    /// Returns what a call of the thing gives: of a function, or by the name of a tuple structure.
    pub(super) fn called(&self, thing: &Thing) -> Option<Known> {
        match self.functions.get(thing) {
            Some(returned) => returned.clone(),
            None => Some(Known::itself(thing.clone())).filter(|_| self.fields.contains_key(thing)),
        }
    }
}

fn returns(
    modules: &Modules,
    place: &Path,
    of: Option<&Thing>,
    of_function: &Signature,
) -> Option<Known> {
    match &of_function.output {
        ReturnType::Default => None,
        ReturnType::Type(_, returned) => known(modules, place, of, returned),
    }
}

/// Pointers through which methods are called.
const POINTERS: [&str; 9] = [
    "Box",
    "Arc",
    "Rc",
    "MutexGuard",
    "RwLockReadGuard",
    "RwLockWriteGuard",
    "Ref",
    "RefMut",
    "ManuallyDrop",
];

/// Returns what a type as it is written says; `of` is what `Self` means.
pub(super) fn known(
    modules: &Modules,
    place: &Path,
    of: Option<&Thing>,
    written: &Type,
) -> Option<Known> {
    let inside = |written: &Type| known(modules, place, of, written);
    match written {
        Type::Reference(to) => inside(&to.elem),
        Type::Paren(of) => inside(&of.elem),
        Type::Group(of) => inside(&of.elem),
        Type::Array(of) => holds(inside(&of.elem)),
        Type::Slice(of) => holds(inside(&of.elem)),
        Type::Path(path) if path.qself.is_none() => {
            let names: Path = path
                .path
                .segments
                .iter()
                .map(|s| s.ident.to_string())
                .collect();
            if names == ["Self"] {
                return of.cloned().map(Known::itself);
            }
            if let Some((thing, _)) = modules.definer(place, &names) {
                return Some(Known::itself(thing));
            }
            let last = path.path.segments.last()?;
            let PathArguments::AngleBracketed(arguments) = &last.arguments else {
                return None;
            };
            let mut types = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(written) => Some(inside(written)),
                _ => None,
            });
            if POINTERS.contains(&last.ident.to_string().as_str()) {
                return types.next()?;
            }
            // Of a map's two the value, which is what it gives out; of a result's two the first.
            let mut types: Vec<Option<Known>> = types.collect();
            if last.ident.to_string().ends_with("Result") {
                types.truncate(1);
            }
            holds(types.pop()?)
        }
        _ => None,
    }
}

fn holds(known: Option<Known>) -> Option<Known> {
    let known = known?;
    let around = known.around + 1;
    Some(Known { around, ..known })
}

/// Names of a function's arguments whose types are known; `self` is one.
pub(super) fn arguments(
    modules: &Modules,
    place: &Path,
    of: Option<&Thing>,
    function: &Signature,
) -> BTreeMap<String, Known> {
    let named = function
        .inputs
        .iter()
        .filter_map(|argument| match argument {
            FnArg::Receiver(_) => Some(("self".to_owned(), Known::itself(of?.clone()))),
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(name) => Some((
                    name.ident.to_string(),
                    known(modules, place, of, &typed.ty)?,
                )),
                _ => None,
            },
        });
    named.collect()
}
