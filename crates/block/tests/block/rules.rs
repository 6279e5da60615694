//! Refusals, and things that outlive others.

use crate::kit;
use std::sync::Arc;
use std::time::Duration;
use tranship_block::{
    Access, Blocking, Data, Disk, DiskOptions, Fault, Job, Op, OpenError, Request, Store, sums,
};
use tranship_core::{Receiver, Sender, Trust};

const SIZE: u64 = 1 << 20;

/// One request as it is.
fn ask(store: &impl Store, request: Request, data: Data) -> Result<Vec<u32>, Fault> {
    let (tell, told) = std::sync::mpsc::channel();
    store.submit(Job {
        request,
        data,
        done: Box::new(move |_, result| {
            let _ = tell.send(result);
        }),
    });
    store.kick();
    told.recv().expect("an answer")
}

#[test]
fn requests_that_reach_beyond_the_end_are_refused_with_numbers() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, SIZE);
    let remote = kit::connect(&service.at);
    for (op, offset) in [
        (Op::Read, SIZE - 1),
        (Op::Write, SIZE),
        (Op::Trim, u64::MAX),
        (Op::Zero { punch: true }, SIZE - 1),
    ] {
        let mut data = Data::None;
        let mut request = Request::new(op, offset, 4096);
        if matches!(op, Op::Read | Op::Write) {
            data = remote.data(op, 4096).expect("memory");
        }
        if op == Op::Write {
            request.sums = sums(offset, &[0; 4096]);
        }
        let bounds = Fault::Bounds {
            offset,
            len: 4096,
            size: SIZE,
        };
        assert_eq!(ask(&remote, request, data), Err(bounds));
    }
}

#[test]
fn damaged_bytes_do_not_reach_the_disk() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Full, SIZE);
    let remote = kit::connect(&service.at);
    let mut data = remote.data(Op::Write, 8192).expect("memory");
    data.write(0, &[1; 8192]).expect("in bounds");
    let mut request = Request::new(Op::Write, 4096, 8192);
    request.sums = sums(4096, &[1; 8192]);
    request.sums[1] ^= 1;
    assert_eq!(ask(&remote, request, data), Err(Fault::Corrupt(8192)));
    // Without checksums no end could know.
    let data = remote.data(Op::Write, 4096).expect("memory");
    assert_eq!(
        ask(&remote, Request::new(Op::Write, 0, 4096), data),
        Err(Fault::Invalid)
    );
    let mut read = [9; 12288];
    Blocking(remote).read_at(0, &mut read).expect("reading");
    assert!(read == [0; 12288]);
}

#[test]
fn a_read_only_store_refuses_writes() {
    let _dog = kit::watchdog();
    let file = kit::file();
    drop(kit::disk(&file, SIZE, Access::Auto, false));
    let options = DiskOptions {
        read_only: true,
        ..DiskOptions::default()
    };
    // Two readers at a time.
    let first = Disk::open(&file.path, &options).expect("a disk");
    let second = Disk::open(&file.path, &options).expect("a disk");
    let at = kit::endpoint("shm", Trust::Full);
    let _front = kit::front(&at, first);
    let remote = Blocking(kit::connect(&at));
    assert_eq!(remote.write_at(0, &[1; 512], false), Err(Fault::ReadOnly));
    assert_eq!(remote.zero(0, 512, false), Err(Fault::ReadOnly));
    assert_eq!(remote.read_at(0, &mut [0; 512]), Ok(()));
    assert_eq!(remote.flush(), Ok(()));
    drop(second);
}

#[test]
fn files_that_cannot_be_served_are_refused() {
    let _dog = kit::watchdog();
    let file = kit::file();
    let open = |options: &DiskOptions| Disk::open(&file.path, options).expect_err("refused");
    assert!(matches!(
        open(&DiskOptions::default()),
        OpenError::System { .. }
    ));
    std::fs::write(&file.path, [1; 5000]).expect("a file");
    let smaller = DiskOptions {
        size: Some(4096),
        ..DiskOptions::default()
    };
    assert!(matches!(
        open(&smaller),
        OpenError::Size {
            has: 5000,
            wants: 4096,
            ..
        }
    ));
    // Requests that are not whole blocks: only through the page cache.
    let direct = DiskOptions {
        access: Access::Direct,
        ..DiskOptions::default()
    };
    assert!(matches!(open(&direct), OpenError::Direct(_)));
    let odd = Disk::open(&file.path, &DiskOptions::default()).expect("a disk");
    let odd = Blocking(odd);
    odd.write_at(4990, &[2; 10], false).expect("writing");
    assert!(odd.write_at(4991, &[2; 10], false).is_err());
    drop(odd);
    assert_eq!(std::fs::metadata(&file.path).expect("there").len(), 5000);
    std::fs::write(&file.path, []).expect("a file");
    assert!(matches!(open(&DiskOptions::default()), OpenError::Empty(_)));
}

#[test]
fn what_waits_is_asked_again_when_the_server_is_back() {
    let _dog = kit::watchdog();
    let mut service = kit::serve("shm", Trust::Full, SIZE);
    let remote = kit::connect(&service.at);
    for round in 0..5u8 {
        let writer = std::thread::spawn({
            let remote = Arc::clone(&remote);
            move || {
                let store = Blocking(remote);
                for n in 0..64u64 {
                    store
                        .write_at(n * 4096, &[round + 1; 4096], false)
                        .expect("writing");
                }
                store.flush().expect("flushing");
            }
        });
        // The door is closed, every channel cut, while it writes.
        drop(service.front.take());
        let disk = kit::disk(service.file(), SIZE, Access::Auto, false);
        service.front = Some(kit::front(&service.at, disk));
        writer.join().expect("the writer");
        let mut all = vec![0; 64 * 4096];
        Blocking(Arc::clone(&remote))
            .read_at(0, &mut all)
            .expect("reading");
        assert!(all.iter().all(|byte| *byte == round + 1), "round {round}");
    }
    assert!(
        remote.connections() >= 3,
        "{} connections",
        remote.connections()
    );
}

/// A server that dies as soon as a client has connected, or as soon as it has said something, costs the client nothing.
#[test]
fn a_connection_that_ends_before_anything_is_agreed_costs_no_memory() {
    use tranship_core::ChannelOptions;
    let _dog = kit::watchdog();
    let mut service = kit::serve("local", Trust::Full, SIZE);
    let remote = kit::connect(&service.at);
    drop(service.front.take());
    let dying = kit::member(kit::manager()).expect("a member");
    let options = || ChannelOptions::new().accept_trust([Trust::Full]);
    let named = |end| format!("{}.{end}", service.at);
    let answers = dying
        .listen_with::<Sender>(&named("answer"), options())
        .expect("the name");
    drop(answers.accept().expect("the client"));
    let asks = dying
        .listen_with::<Receiver>(&named("ask"), options())
        .expect("the name");
    let mut answer = answers.accept().expect("the client");
    // The message of a ticket: its number, and the ticket's word.
    answer.send(&[0, 7]).expect("sent");
    drop(asks.accept().expect("the client"));
    drop((answer, answers, asks));
    let disk = kit::disk(service.file(), SIZE, Access::Auto, false);
    let _front = kit::front(&service.at, disk);
    let all: Vec<Data> = (0..16)
        .map(|_| remote.data(Op::Write, 200_000).expect("memory"))
        .collect();
    drop(all);
    let store = Blocking(remote);
    store.write_at(0, &[7; 4096], false).expect("writing");
    let mut read = [0; 4096];
    store.read_at(0, &mut read).expect("reading");
    assert!(read == [7; 4096]);
}

#[test]
fn without_a_server_requests_wait_and_end_with_their_store() {
    let _dog = kit::watchdog();
    let at = kit::endpoint("shm", Trust::Full);
    let remote = tranship_block::Remote::new(&at);
    assert_eq!(remote.wait(Duration::from_millis(1)), Err(Fault::Gone));
    let (tell, told) = std::sync::mpsc::channel();
    remote.submit(Job {
        request: Request::new(Op::Flush, 0, 0),
        data: Data::None,
        done: Box::new(move |_, result| {
            let _ = tell.send(result);
        }),
    });
    assert!(told.try_recv().is_err());
    drop(remote);
    assert_eq!(told.recv(), Ok(Err(Fault::Gone)));
}

#[test]
fn a_server_that_is_away_for_too_long_is_given_up_until_it_is_back() {
    let _dog = kit::watchdog();
    let at = kit::endpoint("shm", Trust::Full);
    let limited = at.clone().give_up_after(Duration::ZERO);
    let remote = tranship_block::Remote::new(&limited);
    // Asked before it is given up, and after.
    for _ in 0..2 {
        let flush = Request::new(Op::Flush, 0, 0);
        assert_eq!(ask(&remote, flush, Data::None), Err(Fault::Gone));
    }
    assert_eq!(remote.info(), Err(Fault::Gone));
    assert_eq!(remote.data(Op::Read, 4096).err(), Some(Fault::Gone));
    assert!(
        remote
            .why()
            .is_some_and(|why| why.contains("no domain offers"))
    );
    let file = kit::file();
    let disk = kit::disk(&file, SIZE, Access::Auto, false);
    let _front = kit::front(&at, disk);
    remote.wait(kit::PATIENCE).expect("the server");
    let store = Blocking(remote);
    store.write_at(0, &[1; 512], false).expect("writing");
    store.flush().expect("flushing");
    assert_eq!(store.0.why(), None);
}

/// Channels cost a front threads and memory: so many of a client at a time.
#[test]
fn a_client_has_so_many_channels_at_most() {
    use tranship_core::{ChannelOptions, ErrorKind};
    let _dog = kit::watchdog();
    let service = kit::serve("local", Trust::Full, SIZE);
    let domain = kit::member(kit::manager()).expect("a member");
    let open = || {
        let options = ChannelOptions::new();
        let answers = domain.open_with::<Receiver>(&format!("{}.answer", service.at), options);
        answers.expect("the service")
    };
    let ends = |mut answers: Receiver| {
        let ended = answers.recv().expect_err("no ticket");
        assert!(
            matches!(ended.kind(), ErrorKind::PeerDied | ErrorKind::PeerGone),
            "{ended}"
        );
    };
    let mut all: Vec<_> = (0..64).map(|_| open()).collect();
    for answers in &mut all {
        answers.recv().expect("a ticket");
    }
    ends(open());
    // If a channel goes, another comes.
    all.pop();
    kit::connect(&service.at);
}
