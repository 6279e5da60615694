//! `#[service]`: a client's methods for a trait, and the dispatch of its requests.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use syn::parse::Parser;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, ItemTrait, Pat, Path, PathArguments,
    ReceiverKind, ReturnType, TraitItem, TraitItemFn, Type, TypePath, parse_quote,
};

/// The most methods of a service: their numbers have 7 bits.
const MOST_METHODS: usize = 128;

/// An argument of a method.
struct Argument {
    name: Ident,
    /// As the trait has it.
    kind: TokenStream,
    /// As it goes. `None`: it is the request itself, or its streams.
    passed: Option<TokenStream>,
    borrowed: bool,
    /// The types of the streams' items: from the caller and to it.
    stream: Option<[Type; 2]>,
}

struct Method<'a> {
    number: u8,
    name: &'a Ident,
    attributes: Vec<&'a Attribute>,
    arguments: Vec<Argument>,
    result: TokenStream,
}

impl Method<'_> {
    /// The types of the streams' items, if it has streams.
    fn stream(&self) -> Option<&[Type; 2]> {
        self.arguments.iter().find_map(|a| a.stream.as_ref())
    }
}

pub(crate) fn service(attribute: TokenStream, item: TokenStream) -> syn::Result<TokenStream> {
    let home = home(attribute)?;
    let mut item: ItemTrait = syn::parse2(item)?;
    if !item.generics.params.is_empty() {
        let text = "a service's trait has no parameters: its definition has to be one";
        return Err(Error::new_spanned(&item.generics, text));
    }
    item.supertraits.push(parse_quote!(::core::marker::Send));
    item.supertraits.push(parse_quote!(::core::marker::Sync));
    item.supertraits.push(parse_quote!('static));
    let methods = item.items.iter().enumerate().map(method);
    let methods: Vec<Method<'_>> = methods.collect::<syn::Result<_>>()?;
    let client = client(&home, &item, &methods);
    let interface = interface(&home, &item.ident, &methods);
    Ok(quote! { #item #client #interface })
}

fn home(attribute: TokenStream) -> syn::Result<Path> {
    let mut home: Path = parse_quote!(::tranship::typed);
    syn::meta::parser(|meta| {
        if !meta.path.is_ident("crate") {
            return Err(meta.error("known is `crate`"));
        }
        home = meta.value()?.call(Path::parse_mod_style)?;
        Ok(())
    })
    .parse2(attribute)?;
    Ok(home)
}

fn method((number, item): (usize, &TraitItem)) -> syn::Result<Method<'_>> {
    let refuse = |text| Err(Error::new_spanned(item, text));
    let TraitItem::Fn(TraitItemFn {
        attrs,
        sig,
        default: None,
        ..
    }) = item
    else {
        return refuse("a service's trait has methods without bodies, and nothing else");
    };
    let Some(number) = u8::try_from(number)
        .ok()
        .filter(|n| usize::from(*n) < MOST_METHODS)
    else {
        return refuse("a service has at most 128 methods");
    };
    if sig.asyncness.is_some() || !sig.generics.params.is_empty() {
        return refuse(
            "a service's methods are not async, and have no parameters but arguments: the client has an async form of each",
        );
    }
    let mut inputs = sig.inputs.iter();
    match inputs.next() {
        Some(FnArg::Receiver(this)) if matches!(this.kind, ReceiverKind::Reference(_, _, None)) => {
        }
        _ => return refuse("a service's methods take `&self`: several workers call them"),
    }
    let result = match &sig.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, kind) => quote!(#kind),
    };
    let arguments: Vec<Argument> = inputs.map(argument).collect::<syn::Result<_>>()?;
    if arguments.iter().filter(|a| a.stream.is_some()).count() > 1 {
        return refuse("a method has one `&Stream<In, Out>` at most: it has both directions");
    }
    Ok(Method {
        number,
        name: &sig.ident,
        attributes: attrs.iter().filter(|a| a.path().is_ident("doc")).collect(),
        arguments,
        result,
    })
}

fn argument(input: &FnArg) -> syn::Result<Argument> {
    let refuse = |text| Err(Error::new_spanned(input, text));
    let FnArg::Typed(typed) = input else {
        return refuse("`&self` comes first");
    };
    let Pat::Ident(name) = &*typed.pat else {
        return refuse("an argument has a name: both sides compare it");
    };
    let kind = &*typed.ty;
    let mut stream = None;
    let (passed, borrowed) = match kind {
        Type::Reference(to) if to.mutability.is_some() => {
            return refuse("nothing that a method writes goes back: it returns its result");
        }
        Type::Reference(to) => match &*to.elem {
            Type::Path(path) if path.path.is_ident("str") => {
                (Some(quote!(::std::string::String)), true)
            }
            Type::Path(path)
                if path
                    .path
                    .segments
                    .last()
                    .is_some_and(|s| s.ident == "Request") =>
            {
                (None, true)
            }
            Type::Path(path) if streamed(path).is_some() => {
                stream = streamed(path);
                (None, true)
            }
            Type::Slice(slice) => {
                let item = &slice.elem;
                (Some(quote!(::std::vec::Vec<#item>)), true)
            }
            _ => {
                return refuse(
                    "borrowed arguments are `&[T]`, `&str`, `&Request`, which is the call itself, and `&Stream<In, Out>`, which is its items",
                );
            }
        },
        _ => (Some(quote!(#kind)), false),
    };
    Ok(Argument {
        name: name.ident.clone(),
        kind: quote!(#kind),
        passed,
        borrowed,
        stream,
    })
}

/// The types of the items of a `Stream<In, Out>`.
fn streamed(path: &TypePath) -> Option<[Type; 2]> {
    let last = path.path.segments.last().filter(|s| s.ident == "Stream")?;
    let PathArguments::AngleBracketed(all) = &last.arguments else {
        return None;
    };
    let types = all.args.iter().filter_map(|argument| match argument {
        GenericArgument::Type(kind) => Some(kind.clone()),
        _ => None,
    });
    types.collect::<Vec<_>>().try_into().ok()
}

/// Returns the result type of a client's method, and its call: with streams, or for a result.
fn called(home: &Path, method: &Method<'_>) -> (TokenStream, [TokenStream; 2]) {
    let result = &method.result;
    match method.stream() {
        None => (
            quote!(<#result as #home::Answer>::Got),
            [quote!(call::<#result>), quote!(call_async::<#result>)],
        ),
        Some([from, to]) => (
            quote!(::core::result::Result<#home::Streaming<#from, #to, #result>, #home::Error>),
            [
                quote!(begin::<#from, #to, #result>),
                quote!(begin_async::<#from, #to, #result>),
            ],
        ),
    }
}

/// The client's trait, and its methods.
fn client(home: &Path, item: &ItemTrait, methods: &[Method<'_>]) -> TokenStream {
    let (this, shown) = (&item.ident, &item.vis);
    let name = format_ident!("{this}Client");
    let text = format!("Calls the methods of [`{this}`] in another process.");
    let declared = methods.iter().map(|method| {
        let Method {
            name, attributes, ..
        } = method;
        let (later, taken) = (format_ident!("{name}_async"), taken(method));
        let text = format!("Calls [`{this}::{name}`], for awaiting in any runtime.");
        let (got, _) = called(home, method);
        quote! {
            #(#attributes)*
            fn #name(&self, #(#taken),*) -> #got;
            #[doc = #text]
            fn #later(&self, #(#taken),*)
            -> impl ::core::future::Future<Output = #got> + ::core::marker::Send;
        }
    });
    let defined = methods.iter().map(|method| {
        let Method { name, number, .. } = method;
        let (later, taken) = (format_ident!("{name}_async"), taken(method));
        let (got, [call, call_async]) = called(home, method);
        let parcel = parcel(home, method);
        let number = Literal::u8_suffixed(*number);
        quote! {
            fn #name(&self, #(#taken),*) -> #got {
                let parcel = #parcel;
                self.#call(#number, parcel)
            }
            fn #later(&self, #(#taken),*)
            -> impl ::core::future::Future<Output = #got> + ::core::marker::Send {
                let parcel = #parcel;
                self.#call_async(#number, parcel)
            }
        }
    });
    quote! {
        #[doc = #text]
        #shown trait #name { #(#declared)* }
        impl #name for #home::Client<dyn #this> { #(#defined)* }
    }
}

/// The arguments that a client's method takes.
fn taken(method: &Method<'_>) -> Vec<TokenStream> {
    let passed = method.arguments.iter().filter(|a| a.passed.is_some());
    passed
        .map(|Argument { name, kind, .. }| quote!(#name: #kind))
        .collect()
}

/// An expression: the arguments in a parcel.
fn parcel(home: &Path, method: &Method<'_>) -> TokenStream {
    let put = method.arguments.iter().filter_map(|argument| {
        let (name, passed) = (&argument.name, argument.passed.as_ref()?);
        let value = match argument.borrowed {
            true => quote!(::std::borrow::ToOwned::to_owned(#name)),
            false => quote!(#name),
        };
        Some(quote!(<#passed as #home::Pass>::put(#value, &mut parcel)?;))
    });
    quote! {
        (move || -> ::core::result::Result<#home::Parcel, #home::Error> {
            #[allow(unused_mut)]
            let mut parcel = #home::Parcel::new();
            #(#put)*
            ::core::result::Result::Ok(parcel)
        })()
    }
}

/// Makes the text that both sides compare, and the way from a request to its method.
fn interface(home: &Path, this: &Ident, methods: &[Method<'_>]) -> TokenStream {
    let head = format!("{this}: {} methods\n", methods.len());
    let described = methods.iter().map(|method| {
        let (name, result) = (method.name, &method.result);
        let start = format!("{name}()\n");
        let arguments = method.arguments.iter().filter_map(|argument| {
            let place = format!("{name}({})", argument.name);
            let passed = match (&argument.passed, &argument.stream) {
                (Some(passed), _) => quote!(<#passed as #home::Pass>),
                (None, Some([from, to])) => quote!(#home::Stream::<#from, #to>),
                (None, None) => return None,
            };
            Some(quote!(#passed::describe(#place, &mut arguments);))
        });
        let place = format!("{name}() ->");
        quote! {
            arguments.push_str(#start);
            #(#arguments)*
            <#result as #home::Answer>::describe(#place, &mut results);
        }
    });
    let arms = methods.iter().map(|method| arm(home, this, method));
    quote! {
        impl #home::Interface for dyn #this {
            fn texts() -> [::std::string::String; 2] {
                let mut arguments = ::std::string::String::from(#head);
                let mut results = ::std::string::String::from(#head);
                #(#described)*
                [arguments, results]
            }
            fn dispatch(&self, mut request: #home::Request) -> ::core::result::Result<(), #home::Error> {
                match request.method() {
                    #(#arms)*
                    _ => ::core::result::Result::Err(#home::no_method(&request)),
                }
            }
        }
    }
}

/// One method's arm of the dispatch.
fn arm(home: &Path, this: &Ident, method: &Method<'_>) -> TokenStream {
    let Method {
        name,
        result,
        number,
        arguments,
        ..
    } = method;
    let number = Literal::u8_unsuffixed(*number);
    let passed: Vec<&TokenStream> = arguments.iter().filter_map(|a| a.passed.as_ref()).collect();
    let takes = arguments.iter().filter_map(|argument| {
        let (name, passed) = (&argument.name, argument.passed.as_ref()?);
        Some(quote!(let #name = <#passed as #home::Pass>::take(&mut parcel)?;))
    });
    let given = arguments
        .iter()
        .map(|argument| match (&argument.name, &argument.passed) {
            (_, None) => match &argument.stream {
                Some([from, to]) => quote!(&#home::Stream::<#from, #to>::of(&request)),
                None => quote!(&request),
            },
            (name, Some(_)) if argument.borrowed => quote!(&#name),
            (name, Some(_)) => quote!(#name),
        });
    quote! {
        #number => {
            let buffers = 0 #(+ <#passed as #home::Pass>::BUFFERS)*;
            let bytes = false #(|| <#passed as #home::Pass>::BYTES)*;
            #[allow(unused_mut)]
            let mut parcel = #home::arguments(&mut request, buffers, bytes)?;
            #(#takes)*
            parcel.end()?;
            let result = <dyn #this as #this>::#name(self, #(#given),*);
            <#result as #home::Answer>::answer(result, request)
        }
    }
}
