//! FlatBuffers and Arrow batches: they lie in the buffer, and what is none is refused.
#![cfg(all(feature = "flatbuffers", feature = "arrow"))]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, Float64Array, Int32Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use flatbuffers::{ForwardsUOffset, Vector};
use std::ops::Range;
use std::sync::Arc;
use tranship_core::{Buffer, Domain, ErrorKind, Pool, PoolOptions, Receiver, Sender, Trust};
use tranship_testkit::{Random, Watchdog};
use tranship_typed::{arrow, flat};

type Names<'a> = Vector<'a, ForwardsUOffset<&'a str>>;

fn domains() -> (Domain, Domain) {
    let a = Domain::builder().name("a").helper_thread(true).embedded();
    let a = a.expect("embedded");
    let path = a.socket_path().expect("socket");
    let b = Domain::builder().name("b").socket(path);
    (a, b.helper_thread(true).connect().expect("connect"))
}

fn channel(a: &Domain, b: &Domain) -> (Sender, Receiver) {
    let listener = b.listen::<Receiver>("x").expect("listen");
    std::thread::scope(|s| {
        let sender = s.spawn(|| a.open::<Sender>("x").expect("open"));
        let receiver = listener.accept().expect("accept");
        (sender.join().expect("opener"), receiver)
    })
}

fn pool(domain: &Domain) -> Pool {
    domain
        .create_pool(PoolOptions::new(16 << 20))
        .expect("pool")
}

fn place(buffer: &Buffer) -> Range<usize> {
    let bytes = buffer.bytes().expect("nobody writes them").as_ptr_range();
    bytes.start.addr()..bytes.end.addr()
}

fn names(pool: &Pool, room: usize) -> Buffer {
    let mut builder = flat::builder(room, |len| pool.alloc(len)).expect("builder");
    let names: Vec<_> = (0..100)
        .map(|n| builder.create_string(&format!("name {n}")))
        .collect();
    let names = builder.create_vector(&names);
    builder.finish(names, None);
    flat::finish(builder).expect("finish")
}

fn batch() -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("x", DataType::Float64, false),
        Field::new("n", DataType::Int32, true),
        Field::new("name", DataType::Utf8, false),
    ]);
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(Float64Array::from_iter_values((0..1000).map(f64::from))),
        Arc::new(Int32Array::from_iter(
            (0..1000).map(|n| (n % 3 > 0).then_some(n)),
        )),
        Arc::new(StringArray::from_iter_values(
            (0..1000).map(|n| n.to_string()),
        )),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).expect("batch")
}

#[test]
fn what_is_built_in_a_buffer_is_read_where_it_lies() {
    let _dog = Watchdog::new();
    let (a, b) = domains();
    let (mut sender, mut receiver) = channel(&a, &b);
    let pool = pool(&a);
    for room in [1, 100_000] {
        sender.send(names(&pool, room)).expect("send");
        let came = receiver
            .recv()
            .expect("recv")
            .into_buffer()
            .expect("a buffer");
        // The sender could still write it.
        assert_eq!(
            flat::root::<Names<'_>>(&came).unwrap_err().kind(),
            ErrorKind::BufferState
        );
    }
    let written = arrow::write(&batch(), |len| pool.alloc(len)).expect("write");
    sender.send(written.freeze()).expect("send");
    let came = receiver
        .recv()
        .expect("recv")
        .into_buffer()
        .expect("a buffer");
    assert_eq!(
        arrow::read(came).unwrap_err().kind(),
        ErrorKind::BufferState
    );

    // SAFETY: the sender is this test, which writes nothing that it has sent.
    #[allow(unsafe_code)]
    unsafe {
        receiver.trust_writer();
    }
    sender.send(names(&pool, 1)).expect("send");
    let came = receiver
        .recv()
        .expect("recv")
        .into_buffer()
        .expect("a buffer");
    let read = flat::root::<Names<'_>>(&came).expect("a FlatBuffer");
    assert_eq!((read.len(), read.get(99)), (100, "name 99"));
    assert!(place(&came).contains(&read.get(99).as_ptr().addr()));

    let written = arrow::write(&batch(), |len| pool.alloc(len)).expect("write");
    sender.send(written.freeze()).expect("send");
    let came = receiver
        .recv()
        .expect("recv")
        .into_buffer()
        .expect("a buffer");
    let place = place(&came);
    let read = arrow::read(came).expect("a batch");
    assert_eq!(read, batch());
    let x = read.column(0).as_primitive::<Float64Type>().values();
    let n = read.column(1).as_primitive::<Int32Type>().values();
    let name = read.column(2).as_string::<i32>().value_data();
    for column in [x.as_ptr().addr(), n.as_ptr().addr(), name.as_ptr().addr()] {
        assert!(place.contains(&column), "{column:x} is not in {place:x?}");
    }
    // The batch keeps the buffer.
    drop((sender, receiver));
    assert_eq!(x.iter().sum::<f64>(), 499_500.0);
}

/// A receiver's snapshot of level `none` is what a hostile sender can no longer change: it is checked, and random damage is refused or harmless.
#[test]
fn a_hostile_buffer_is_refused() {
    let _dog = Watchdog::new();
    let (a, _b) = domains();
    let pool = pool(&a);
    let mut random = Random::printed("hostile libraries");
    let flat_bytes = names(&pool, 100_000).to_vec();
    let arrow_bytes = arrow::write(&batch(), |len| pool.alloc(len))
        .expect("write")
        .to_vec();
    let (mut no_flat, mut no_arrow) = (0, 0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for _ in 0..3000 {
        let damaged = |random: &mut Random, bytes: &[u8], most: u64| {
            let mut bytes = bytes.to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(most.min(bytes.len() as u64));
                bytes[usize::try_from(at).unwrap_or(0)] =
                    u8::try_from(random.below(256)).unwrap_or(0);
            }
            bytes.truncate(
                bytes.len() - usize::try_from(random.below(3) * random.below(64)).unwrap_or(0),
            );
            pool.copy(&bytes).expect("copy").freeze()
        };
        let damaged_flat = damaged(&mut random, &flat_bytes, 600);
        match flat::root::<Names<'_>>(&damaged_flat) {
            Ok(names) => assert!(names.iter().map(str::len).sum::<usize>() < 1 << 20),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PeerViolation);
                no_flat += 1;
            }
        }
        let damaged_batch = damaged(&mut random, &arrow_bytes, 1000);
        match arrow::read(damaged_batch) {
            Ok(batch) => assert!(format!("{batch:?}").len() > 10),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PeerViolation);
                no_arrow += 1;
            }
        }
    }
    std::panic::set_hook(hook);
    assert!(
        no_flat > 100 && no_arrow > 100,
        "{no_flat} and {no_arrow} of 3000 refused"
    );
    let full = a
        .create_pool(PoolOptions::new(16 << 20).trust(Trust::Full))
        .expect("pool");
    let refused = flat::builder(10, |len| full.alloc(len)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BufferState);
    let refused = arrow::write(&batch(), |len| full.alloc(len)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BufferState);
    // A builder that finds no memory says so at its end.
    let mut builder = flat::builder(64, |len| match len {
        64 => pool.alloc(len),
        _ => Err(ErrorKind::OutOfMemory.into()),
    })
    .expect("builder");
    let long = builder.create_string(&"x".repeat(1000));
    builder.finish(long, None);
    assert_eq!(
        flat::finish(builder).unwrap_err().kind(),
        ErrorKind::OutOfMemory
    );
}
