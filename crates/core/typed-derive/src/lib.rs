//! `#[derive(Message)]`: the layout of a plain struct, as the crate `tranship-typed` has it. `#[service]`: a trait as a service.
//!
//! NOT here: what a message may be. `zerocopy`'s own derive macros say that.

mod service;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Fields, LitStr, Path, parse_quote};

/// Derives `Message` for a struct of named fields with `#[repr(C)]`, or an enum of plain variants with `#[repr(u8)]` or another integer.
///
/// | attribute | meaning |
/// |---|---|
/// | `#[message(name = "Frame")]` | the name that both ends compare; default: the type's own |
/// | `#[message(crate = path)]` | where the crate is; default: `::tranship::typed` |
#[proc_macro_derive(Message, attributes(message))]
pub fn message(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let derived = syn::parse(input).and_then(|input| derive(&input));
    derived.unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a service of a trait: a client that calls its methods in another process, and a service that has them called.
///
/// For a trait `Images` it writes a trait `ImagesClient`, whose methods are those of `Client<dyn Images>`. Each method is there twice: `resize` waits, and
/// `resize_async` is awaited. `Service::<dyn Images>` calls an implementation of `Images`.
///
/// | an argument | at the client |
/// |---|---|
/// | a type that implements `Pass` | it is passed |
/// | `&[T]`, `&str` | it is copied |
/// | `&Request` | it is the call itself (memory for the result, deadline, cancellation), and no argument of the client's |
/// | `&Stream<In, Out>` | items that both sides send each other before the result: the client's method gives a `Streaming<In, Out, R>` |
///
/// A method that returns `Result<R, E>` gives its client `Result<R, Fault<E>>`, any other `Result<R, Error>`.
///
/// `#[service(crate = path)]` says where the crate is; default: `::tranship::typed`.
#[proc_macro_attribute]
pub fn service(
    attribute: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    let written = service::service(attribute.into(), item.into());
    written.unwrap_or_else(Error::into_compile_error).into()
}

fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let mut name = input.ident.to_string();
    let mut home: Path = parse_quote!(::tranship::typed);
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("message")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = meta.value()?.parse::<LitStr>()?.value();
            } else if meta.path.is_ident("crate") {
                home = meta.value()?.call(Path::parse_mod_style)?;
            } else {
                return Err(meta.error("known are `name` and `crate`"));
            }
            Ok(())
        })?;
    }
    if !input.generics.params.is_empty() {
        let text = "a message has no parameters: its layout has to be one";
        return Err(Error::new_spanned(&input.generics, text));
    }
    let this = &input.ident;
    let parts: Vec<TokenStream> = match &input.data {
        Data::Struct(data) => {
            let Fields::Named(fields) = &data.fields else {
                let text = "a message's fields have names: both ends compare them";
                return Err(Error::new_spanned(this, text));
            };
            if !says(&input.attrs, |word| word == "C") {
                let text = "a message is `#[repr(C)]`: else the compiler orders its fields";
                return Err(Error::new_spanned(this, text));
            }
            let part = |field: &syn::Field| {
                let (name, kind) = (field.ident.as_ref()?, &field.ty);
                let text = name.to_string();
                let text = text.strip_prefix("r#").unwrap_or(&text);
                Some(quote! {
                    .field(#text, <#kind as #home::Message>::layout(), ::core::mem::offset_of!(#this, #name))
                })
            };
            fields.named.iter().filter_map(part).collect()
        }
        Data::Enum(data) => {
            if !says(&input.attrs, |word| word.starts_with(['u', 'i'])) {
                let text = "a message's enum is `#[repr(u8)]`, or another integer";
                return Err(Error::new_spanned(this, text));
            }
            let part = |variant: &syn::Variant| match &variant.fields {
                Fields::Unit => {
                    let (name, text) = (&variant.ident, variant.ident.to_string());
                    Ok(quote! { .variant(#text, #this::#name as i128) })
                }
                fields => Err(Error::new_spanned(
                    fields,
                    "a message's enum has plain variants",
                )),
            };
            data.variants.iter().map(part).collect::<syn::Result<_>>()?
        }
        Data::Union(_) => {
            let text = "a union does not say which of its fields it holds";
            return Err(Error::new_spanned(this, text));
        }
    };
    Ok(quote! {
        impl #home::Message for #this {
            fn layout() -> #home::Layout {
                #home::Layout::of::<#this>(#name) #(#parts)*
            }
        }
    })
}

/// Whether a `repr` has such a word.
fn says(attributes: &[Attribute], fits: impl Fn(&str) -> bool) -> bool {
    let mut found = false;
    for attribute in attributes.iter().filter(|a| a.path().is_ident("repr")) {
        // The compiler tells of code that cannot be parsed.
        let _ = attribute.parse_nested_meta(|meta| {
            found |= meta
                .path
                .get_ident()
                .is_some_and(|word| fits(&word.to_string()));
            if meta.input.peek(syn::token::Paren) {
                let inside;
                syn::parenthesized!(inside in meta.input);
                inside.parse::<TokenStream>()?;
            }
            Ok(())
        });
    }
    found
}
