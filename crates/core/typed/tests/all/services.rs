//! Typed services: what travels, and which definitions refuse each other.
#![cfg(feature = "service")]

use crate::kit::watched;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tranship_core::error::TypeMismatch;
use tranship_core::{Buffer, ErrorKind};
use tranship_service::{CallOptions, Request, ServiceOptions, Services};
use tranship_testkit::block_on;
use tranship_typed::{Client, Fault, Interface, Message, Service, Value, reply_draft, service};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug)]
#[message(crate = tranship_typed)]
#[repr(C)]
struct Size {
    width: u32,
    height: u32,
}

#[derive(
    Message, TryFromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug,
)]
#[message(crate = tranship_typed)]
#[repr(u8)]
enum Why {
    TooLarge = 1,
    Blurred = 2,
}

#[service(crate = tranship_typed)]
trait Images {
    /// Gives each pixel, halved.
    fn halve(&self, request: &Request, size: Size, image: Buffer) -> Result<Buffer, Why>;
    fn echo(&self, image: Buffer) -> Buffer;
    fn sum(&self, numbers: &[u32], more: Vec<u8>, by: u64) -> u64;
    fn name(&self, of: &str) -> Result<String, String>;
    fn both(&self, first: Buffer, second: Buffer) -> u64;
    fn stamp(
        &self,
        request: &Request,
        pixels: Value<Size, [u16]>,
    ) -> Result<Value<Size, [u16]>, Why>;
    fn nothing(&self);
}

struct Here;

impl Images for Here {
    fn halve(&self, request: &Request, size: Size, image: Buffer) -> Result<Buffer, Why> {
        if size.width > 1000 {
            return Err(Why::TooLarge);
        }
        let mut half = request.alloc(image.len() / 2).map_err(|_| Why::Blurred)?;
        let bytes = image.to_vec();
        for (to, pair) in half.iter_mut().zip(bytes.chunks(2)) {
            *to = pair[0];
        }
        Ok(half.freeze())
    }
    fn echo(&self, image: Buffer) -> Buffer {
        image
    }
    fn sum(&self, numbers: &[u32], more: Vec<u8>, by: u64) -> u64 {
        let numbers: u64 = numbers.iter().map(|n| u64::from(*n)).sum();
        (numbers + more.iter().map(|n| u64::from(*n)).sum::<u64>()) * by
    }
    fn name(&self, of: &str) -> Result<String, String> {
        match of {
            "" => Err("no name".into()),
            of => Ok(format!("{of}!")),
        }
    }
    fn both(&self, first: Buffer, second: Buffer) -> u64 {
        (first.len() * 1000 + second.len()) as u64
    }
    fn stamp(
        &self,
        request: &Request,
        pixels: Value<Size, [u16]>,
    ) -> Result<Value<Size, [u16]>, Why> {
        let mut stamped =
            reply_draft::<Size, u16>(request, pixels.len()).map_err(|_| Why::Blurred)?;
        stamped
            .write(&pixels.read().map_err(|_| Why::Blurred)?)
            .map_err(|_| Why::Blurred)?;
        let items = stamped.items_mut().map_err(|_| Why::Blurred)?;
        for (at, to) in items.iter_mut().enumerate() {
            *to = pixels.item(at).map_err(|_| Why::Blurred)? + 1;
        }
        Ok(stamped.freeze())
    }
    fn nothing(&self) {}
}

/// A trait of one name in a program of another version.
mod later {
    use super::*;

    #[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy)]
    #[message(crate = tranship_typed)]
    #[repr(C)]
    pub(crate) struct Size {
        pub(crate) width: u32,
        pub(crate) height: u16,
        pub(crate) depth: u16,
    }

    #[service(crate = tranship_typed)]
    pub(crate) trait Images {
        fn halve(&self, request: &Request, size: Size, image: Buffer) -> Result<Buffer, Why>;
        fn echo(&self, image: Buffer) -> Buffer;
        fn sum(&self, numbers: &[u32], more: Vec<u8>, by: u64) -> u64;
        fn name(&self, of: &str) -> Result<String, String>;
        fn both(&self, first: Buffer, second: Buffer) -> u64;
        fn stamp(
            &self,
            pixels: Value<super::Size, [u16]>,
        ) -> Result<Value<super::Size, [u16]>, Why>;
        fn nothing(&self);
    }
}

/// Serves in a thread until the future or the closure is done.
fn while_served<R: Send>(service: &Service<dyn Images>, work: impl FnOnce() -> R + Send) -> R {
    thread::scope(|s| {
        let work = s.spawn(work);
        while !work.is_finished() {
            let short = Duration::from_millis(5);
            match service.next_timeout(short) {
                Err(error) if error != ErrorKind::TimedOut => panic!("{error}"),
                _ => {}
            }
        }
        work.join().expect("work")
    })
}

fn image(client: &Client<dyn Images>, bytes: &[u8]) -> Buffer {
    let mut image = client.untyped().alloc(bytes.len()).expect("alloc");
    image.copy_from_slice(bytes);
    image.freeze()
}

#[test]
fn methods_are_called_in_another_domain() {
    let (_dog, (a, b)) = watched();
    for address in ["images", "local:images"] {
        let service = Service::<dyn Images>::serve(&a, address, Arc::new(Here)).expect("serve");
        while_served(&service, || {
            let images = Client::<dyn Images>::open(&b, address).expect("open");
            let size = Size {
                width: 2,
                height: 2,
            };
            let half = images
                .halve(size, image(&images, &[1, 0, 3, 0]))
                .expect("halve");
            assert_eq!(half.to_vec(), [1, 3]);
            let wide = Size {
                width: 1001,
                height: 2,
            };
            let failed = images.halve(wide, image(&images, b"x")).unwrap_err();
            assert!(matches!(failed, Fault::Own(Why::TooLarge)), "{failed}");
            let numbers: Vec<u32> = (0..1000).collect();
            assert_eq!(
                images.sum(&numbers, vec![1, 2], 2).expect("sum"),
                (499_500 + 3) * 2
            );
            assert_eq!(images.sum(&[], Vec::new(), 2).expect("sum"), 0);
            assert_eq!(images.name("a").expect("name"), "a!");
            assert!(matches!(images.name(""), Err(Fault::Own(text)) if text == "no name"));
            let (first, second) = (image(&images, b"12"), image(&images, b"345"));
            assert_eq!(images.both(first, second).expect("both"), 2003);
            let mut pixels = images.draft::<Size, u16>(3).expect("draft");
            pixels.write(&size).expect("write");
            pixels
                .items_mut()
                .expect("items")
                .copy_from_slice(&[7, 8, 9]);
            let stamped = images.stamp(pixels.freeze()).expect("stamp");
            assert_eq!(stamped.read().expect("read"), size);
            assert_eq!((stamped.len(), stamped.item(2).expect("item")), (3, 10));
            images.nothing().expect("nothing");
            let quick = images.with_timeout(Duration::from_secs(3600));
            block_on(async {
                quick.nothing_async().await.expect("nothing");
                assert_eq!(quick.name_async("b").await.expect("name"), "b!");
                let half = quick.halve_async(size, image(&quick, &[5, 0])).await;
                assert_eq!(half.expect("halve").to_vec(), [5]);
            });
            assert_eq!(images.untyped().in_flight(), 0);
        });
    }
}

#[test]
fn more_than_a_call_copies_is_refused_with_numbers() {
    let (_dog, (a, b)) = watched();
    let service = Service::<dyn Images>::serve(&a, "images", Arc::new(Here)).expect("serve");
    while_served(&service, || {
        let images = Client::<dyn Images>::open(&b, "images").expect("open");
        let error = images.sum(&[1; 300_000], Vec::new(), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(error.to_string().contains("1200000 bytes"), "{error}");
        // Buffers of that pool go to the service alone, and back to nobody.
        let refused = images.echo(image(&images, b"x")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PeerDied, "{refused}");
        images.nothing().expect("goes on");
    });
}

#[test]
fn another_definition_is_refused_and_its_field_is_named() {
    let (_dog, (a, b)) = watched();
    let service = Service::<dyn Images>::serve(&a, "images", Arc::new(Here)).expect("serve");
    let error = while_served(&service, || {
        Client::<dyn later::Images>::open(&b, "images").unwrap_err()
    });
    assert_eq!(error.kind(), ErrorKind::ChannelBind);
    assert!(error.find::<TypeMismatch>().is_some());
    let text = error.to_string();
    assert!(text.contains("halve(size).height: u16 at 4"), "{text}");
    let bytes = while_served(&service, || b.client("images").unwrap_err());
    assert!(bytes.find::<TypeMismatch>().is_some(), "{bytes}");
}

/// A client that says it has the definition, and passes anything: its requests are let go, and others are served.
#[test]
fn a_client_that_passes_no_arguments_of_the_definition_gets_no_answer() {
    let (_dog, (a, b)) = watched();
    let service = Service::<dyn Images>::serve(&a, "images", Arc::new(Here)).expect("serve");
    let [arguments, results] = <dyn Images as Interface>::texts();
    while_served(&service, || {
        let options = ServiceOptions::new().types(&arguments, &results);
        let liar = b.client_with("images", options).expect("client");
        let big = liar.alloc(2 << 20).expect("alloc").freeze();
        for method in [0, 1, 2, 3, 4, 5, 7, 127] {
            let method = CallOptions::new().method(method);
            let refused = |error: tranship_core::Error| {
                assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
            };
            refused(liar.call_with(&[0xff; 9], method).unwrap_err().into());
            let mut pieces = tranship_core::Aggregate::new();
            for piece in [big.slice(..64), big.clone(), big.clone(), big.clone()] {
                pieces.push_back(piece).expect("push");
            }
            refused(liar.call_with(pieces, method).unwrap_err().into());
        }
        // Bytes that no Vec of u32 has: the length says more than there is.
        let method = CallOptions::new().method(2);
        for lie in [u64::MAX, u64::MAX / 4, 1 << 40, 9] {
            assert!(liar.call_with(&lie.to_ne_bytes(), method).is_err());
        }
        let honest = Client::<dyn Images>::open(&b, "images").expect("open");
        honest.nothing().expect("served");
    });
}
