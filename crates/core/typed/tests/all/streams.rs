//! Typed streams: items of a call, either way, and which definitions refuse each other.
#![cfg(feature = "service")]

use crate::kit::domains;
use std::sync::Arc;
use std::thread;
use tranship_core::error::TypeMismatch;
use tranship_core::{Buffer, Domain, ErrorKind};
use tranship_service::{CallOptions, ServiceOptions, Services};
use tranship_testkit::Watchdog;
use tranship_typed::{Client, Fault, Interface, Service, Stream, service};

#[service(crate = tranship_typed)]
trait Numbers {
    fn plain(&self, number: u64) -> u64;
    /// Gives each number times `by`, and says how many came.
    fn scale(&self, by: u64, items: &Stream<u64, u64>) -> Result<u32, String>;
    /// Gives each text's bytes as a buffer of the caller's.
    fn back(&self, items: &Stream<Buffer, Vec<u8>>) -> u64;
}

struct Here;

impl Numbers for Here {
    fn plain(&self, number: u64) -> u64 {
        number
    }
    fn scale(&self, by: u64, items: &Stream<u64, u64>) -> Result<u32, String> {
        let mut count = 0;
        while let Some(item) = items.recv().map_err(|error| error.to_string())? {
            if item == 0 {
                return Err("nothing".into());
            }
            let sent = items.send(item * by);
            sent.map_err(|error| error.to_string())?;
            count += 1;
        }
        Ok(count)
    }
    fn back(&self, items: &Stream<Buffer, Vec<u8>>) -> u64 {
        let mut bytes = 0;
        while let Ok(Some(buffer)) = items.recv() {
            bytes += buffer.len() as u64;
            if items.send(buffer.to_vec()).is_err() {
                break;
            }
        }
        bytes
    }
}

/// A service whose one worker ends with its domain's manager, and a client.
fn connected() -> (Domain, Domain, Client<dyn Numbers>) {
    let (a, b) = domains();
    let service = Service::<dyn Numbers>::serve(&a, "x", Arc::new(Here)).expect("serve");
    thread::spawn(move || service.run());
    let client = Client::<dyn Numbers>::open(&b, "x").expect("open");
    (a, b, client)
}

#[test]
fn items_have_their_types_either_way() {
    let _dog = Watchdog::new();
    let (_a, _b, client) = connected();
    assert_eq!(client.plain(5).expect("plain"), 5);
    let call = client.scale(3).expect("begin");
    for number in 1..100 {
        call.send(number).expect("send");
        assert_eq!(call.recv().expect("recv"), Some(3 * number));
    }
    call.finish();
    assert_eq!(call.recv().expect("recv"), None);
    assert_eq!(call.wait().expect("result"), 99);

    let call = client.scale(3).expect("begin");
    call.send(0).expect("send");
    match call.wait() {
        Err(Fault::Own(why)) => assert_eq!(why, "nothing"),
        other => panic!("{other:?}"),
    }

    // Large items go by reference, and come copied into memory of their own.
    let call = client.back().expect("begin");
    for len in [1, 100, 100_000] {
        let mut buffer = client.untyped().alloc(len).expect("alloc");
        buffer.fill(7);
        call.send(buffer.freeze()).expect("send");
        assert_eq!(call.recv().expect("recv"), Some(vec![7; len]));
    }
    call.finish();
    assert_eq!(call.wait().expect("result"), 100_101);
}

/// A client that passes what is no item of the definition is told by the method's error, and the service goes on.
#[test]
fn an_item_of_another_form_is_refused() {
    let _dog = Watchdog::new();
    let (_a, b, client) = connected();
    let [arguments, results] = <dyn Numbers as Interface>::texts();
    let options = ServiceOptions::new().types(&arguments, &results);
    let untyped = b.client_with("x", options).expect("client");
    let scale = CallOptions::new().method(1).streams();
    for wrong in [&b"seven.."[..], b"nine....."] {
        let call = untyped.begin_with(&3u64.to_ne_bytes(), scale);
        let call = call.expect("begin");
        call.send(wrong).expect("send");
        call.finish();
        let error = call.wait().unwrap_err().to_string();
        assert!(error.contains("were passed"), "{error}");
    }
    assert_eq!(client.plain(5).expect("plain"), 5);
}

mod changed {
    use super::*;

    #[service(crate = tranship_typed)]
    pub trait Numbers {
        fn plain(&self, number: u64) -> u64;
        fn scale(&self, by: u64, items: &Stream<u64, u32>) -> Result<u32, String>;
        fn back(&self, items: &Stream<Buffer, Vec<u8>>) -> u64;
    }
}

#[test]
fn definitions_whose_items_differ_refuse_each_other_and_name_them() {
    let _dog = Watchdog::new();
    let (_a, b, _client) = connected();
    let error = Client::<dyn changed::Numbers>::open(&b, "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChannelBind);
    assert!(error.find::<TypeMismatch>().is_some(), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("scale(items) to the caller: u32") && text.contains("to the caller: u64"),
        "{text}"
    );
}
