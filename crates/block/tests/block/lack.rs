//! A process that lacks something for a moment goes on when that is over, and its channels stay.

use crate::kit;
use std::sync::Arc;
use std::time::Duration;
use tranship_block::{Access, Blocking, Data, Endpoint, Job, Op, Request, Store, sums};
use tranship_core::error::{Limit, Shortage};
use tranship_core::{BufferMut, Domain, Pool, PoolOptions, Trust};
use tranship_manager::Config;

const SIZE: u64 = 1 << 20;
/// Bytes that the manager has for all.
const TOTAL: u64 = 64 << 20;

/// Takes everything that there is left.
fn hog(domain: &Domain) -> (Vec<BufferMut>, Pool) {
    let options = PoolOptions::new(TOTAL).chunk_bytes(64 << 10);
    let pool = domain.create_pool(options).expect("a pool");
    let mut all = Vec::new();
    // The service does not have memory that the manager refuses, nor memory that it has not given when it was asked so
    // often. A busy machine may be late once.
    let mut late = 0;
    while late < 5 {
        match pool.alloc_timeout(64 << 10, Duration::from_secs(2)) {
            Ok(buffer) => {
                all.push(buffer);
                late = 0;
            }
            Err(error) => match error.find() {
                Some(Shortage { limit, .. }) if *limit == Limit::Late => late += 1,
                _ => break,
            },
        }
    }
    (all, pool)
}

#[test]
fn a_lack_that_passes_costs_no_channel_and_no_request() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let disk = kit::disk(&file, SIZE, Access::Auto, false);
    let config = Config {
        total: Some(TOTAL),
        ..kit::config()
    };
    let manager = Arc::new(kit::embedded(config));
    let members = Arc::clone(&manager);
    let name = format!("shm:lack-{}", std::process::id());
    let at = Endpoint::new(&name, Trust::Producer).with_domains(move || kit::member(&members));
    let _front = kit::front(&at, disk);
    // Its pools have nothing yet: neither for its writes, nor the server's for its reads.
    let remote = kit::connect(&at);
    let taken = hog(&manager);
    let (tell, told) = std::sync::mpsc::channel();
    let ask = |request: Request, data: Data| {
        let tell = tell.clone();
        let done = Box::new(move |data, result| drop(tell.send((data, result))));
        remote.submit(Job {
            request,
            data,
            done,
        });
    };
    let mut data = Data::heap(20_000);
    data.write(0, &[7; 20_000]).expect("in bounds");
    let mut write = Request::new(Op::Write, 0, 20_000);
    write.sums = sums(0, &[7; 20_000]);
    ask(write, data);
    let lacks = manager.create_pool(PoolOptions::new(64 << 10).preallocate(64 << 10));
    assert!(lacks.is_err(), "there is memory");
    assert!(told.try_recv().is_err(), "written without memory");
    drop(taken);
    let (_, written) = told.recv().expect("an answer");
    written.expect("written");

    let taken = hog(&manager);
    ask(Request::new(Op::Read, 0, 20_000), Data::heap(20_000));
    assert!(told.try_recv().is_err(), "read without memory");
    drop(taken);
    let (data, read) = told.recv().expect("an answer");
    assert_eq!(read.expect("read"), sums(0, &[7; 20_000]));
    let mut bytes = [0; 20_000];
    data.read(0, &mut bytes).expect("in bounds");
    assert!(bytes == [7; 20_000]);
    Blocking(Arc::clone(&remote)).flush().expect("flushing");
    assert_eq!(remote.connections(), 1, "connected again");
}
