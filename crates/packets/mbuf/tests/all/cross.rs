//! Chains between domains: through three processes, with equal bytes and without copies.
//!
//! NOT here: links and pools by themselves (`core`), kills at chosen instants (`testkit`).
use std::error::Error as _;
use tranship_core::{Domain, ErrorKind, PoolOptions, Receiver, Sender};
use tranship_mbuf::{Chain, Error, ExtKind, Mbufs, What};
use tranship_testkit::{Control, Watchdog, child};

const BYTES: usize = 60_000;
const POOL: u64 = 1 << 20;

fn pattern(round: usize) -> Vec<u8> {
    (0..BYTES)
        .map(|at| (at * 7 + round).to_le_bytes()[0])
        .collect()
}

fn join(ctl: &Control, name: &str) -> Domain {
    let socket: String = ctl.recv().unwrap().unwrap();
    let builder = Domain::builder().name(name).socket(socket);
    builder.helper_thread(true).connect().unwrap()
}

fn receive(mbufs: &Mbufs, receiver: &mut Receiver) -> Option<Chain> {
    let message = receiver.recv().ok()?;
    Some(mbufs.receive(message).unwrap())
}

fn send(chain: &Chain, mbufs: &Mbufs, sender: &mut Sender) -> usize {
    let (aggregate, copied) = chain.to_aggregate(mbufs.pool().unwrap()).unwrap();
    sender.send(aggregate).unwrap();
    copied
}

// Passes on the received chains: every other chain as it is, the others with a header of its own. Reports the number of
// copied bytes.
child!(
    fn forwards(ctl: Control) {
        let domain = join(&ctl, "middle");
        ctl.send(&domain.id().0).unwrap();
        let _: Option<()> = ctl.recv().unwrap(); // may forward
        let pool = domain.create_pool(PoolOptions::new(POOL)).unwrap();
        let mbufs = Mbufs::over_pool(&pool).unwrap();
        let mut inward = domain.open::<Receiver>("in").unwrap();
        let listener = domain.listen::<Sender>("out").unwrap();
        ctl.send(&()).unwrap();
        let mut outward = listener.accept().unwrap();
        let mut round = 0;
        while let Some(mut chain) = receive(&mbufs, &mut inward) {
            assert!(!chain.is_writable());
            let mut copied = 0;
            if round % 2 == 1 {
                chain.push_front(b"header of the middle").unwrap();
                assert_eq!(chain.pullup(4).unwrap(), b"head");
                copied = 20;
            }
            assert_eq!(send(&chain, &mbufs, &mut outward), copied);
            drop(chain);
            assert_eq!(mbufs.stats().outstanding(), 0);
            ctl.send(&copied).unwrap();
            round += 1;
        }
    }
);

// Checks the received chains; keeps the last one until it is killed or told to end.
child!(
    fn checks(ctl: Control) {
        let domain = join(&ctl, "end");
        let mbufs = Mbufs::new().unwrap();
        let mut inward = domain.open::<Receiver>("out").unwrap();
        ctl.send(&()).unwrap();
        let mut kept = Vec::new();
        let mut round = 0;
        while let Some(keep) = ctl.recv::<bool>().unwrap() {
            let mut chain = receive(&mbufs, &mut inward).unwrap();
            assert!(chain.iter().all(|mbuf| mbuf.is_mini()));
            assert!(
                chain
                    .iter()
                    .all(|mbuf| mbuf.storage() == Some(ExtKind::Buffer))
            );
            if round % 2 == 1 {
                assert_eq!(chain.pullup(20).unwrap(), b"header of the middle");
                chain.trim_front(20);
            }
            chain.sanity().unwrap();
            assert!(chain.to_vec().unwrap() == pattern(round), "round {round}");
            if keep {
                kept.push(chain);
            }
            ctl.send(&()).unwrap();
            round += 1;
        }
    }
);

#[test]
fn a_chain_passes_three_processes_uncopied_and_its_memory_returns() {
    let _dog = Watchdog::new();
    let manager = Domain::builder().name("first").helper_thread(true);
    let domain = manager.embedded().expect("embedded");
    let socket = domain.socket_path().expect("socket").display().to_string();
    let options = PoolOptions::new(POOL).chunk_bytes(64 << 10);
    let pool = domain.create_pool(options).expect("pool");
    let mbufs = Mbufs::over_pool(&pool).expect("mbufs");
    let listener = domain.listen::<Sender>("in").expect("listen");

    let middle = forwards().start().expect("middle");
    middle.send(&socket).expect("send");
    let id: u32 = middle.expect();
    pool.allow_forward(tranship_core::DomainId(id))
        .expect("allow");
    middle.send(&()).expect("send");
    let mut sender = listener.accept().expect("accept");
    middle.expect::<()>();
    let end = checks().start().expect("end");
    end.send(&socket).expect("send");
    end.expect::<()>();

    const ROUNDS: usize = 60; // more than the pool holds at once
    for round in 0..ROUNDS {
        let bytes = pattern(round);
        let mut chain = mbufs.getm2(BYTES).expect("mbufs");
        chain.append(&[]).expect("nothing");
        bytes::BufMut::put_slice(&mut chain.writer(), &bytes);
        assert!(chain.is_writable());
        assert_eq!(send(&chain, &mbufs, &mut sender), 0, "bytes copied");
        assert!(!chain.is_writable(), "others read it now");
        drop(chain);
        let keep = round + 1 == ROUNDS;
        end.send(&keep).expect("send");
        let copied: usize = middle.expect();
        assert_eq!(copied, if round % 2 == 1 { 20 } else { 0 });
        end.expect::<()>();
    }
    assert_eq!(mbufs.stats().outstanding(), 0);
    drop(mbufs);
    // The whole pool except the part that the other end has kept.
    let all = usize::try_from(POOL).expect("small");
    let error = pool.try_alloc(all).expect_err("one chain is held");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    end.kill();
    while pool.try_alloc(all).is_err() {
        assert!(!middle.has_ended());
        std::thread::yield_now();
    }
    drop(sender);
    drop(middle);
}

#[test]
fn what_the_pool_said_is_the_source_of_the_error() {
    let _dog = Watchdog::new();
    let domain = Domain::builder().name("one").embedded().expect("embedded");
    let pool = domain.create_pool(PoolOptions::new(POOL)).expect("pool");
    let (over, private) = (
        Mbufs::over_pool(&pool).expect("mbufs"),
        Mbufs::new().expect("mbufs"),
    );
    let outside = private.devget(&[1; 3000], 0).expect("packet");
    let mut held = Vec::new();
    let error = loop {
        match over.getcl() {
            Ok(chain) => held.push(chain),
            Err(error) => break error,
        }
    };
    assert_eq!(error.what(), What::Pool);
    let said = error.refusal().expect("what the pool said");
    assert_eq!(said.kind(), ErrorKind::OutOfMemory);
    assert!(said.to_string().contains("bytes"), "{said}");
    assert!(
        error
            .source()
            .is_some_and(|source| source.is::<tranship_core::Error>())
    );
    let Err(Error::NoBuffers(error)) = outside.to_aggregate(&pool) else {
        panic!("there is no memory");
    };
    assert_eq!(
        error.refusal().map(tranship_core::Error::kind),
        Some(ErrorKind::OutOfMemory)
    );
    drop(held);
}

#[test]
fn what_lies_elsewhere_is_copied_into_the_pool_and_counted() {
    let _dog = Watchdog::new();
    let domain = Domain::builder().name("one").embedded().expect("embedded");
    let pool = domain.create_pool(PoolOptions::new(POOL)).expect("pool");
    let (over, private) = (
        Mbufs::over_pool(&pool).expect("mbufs"),
        Mbufs::new().expect("mbufs"),
    );
    let mut chain = over.getcl().expect("packet");
    chain.append(&[1; 1000]).expect("room");
    assert_eq!(chain.last().storage(), Some(ExtKind::Buffer));
    assert!(chain.is_writable());
    chain.cat(private.devget(&[2; 3000], 0).expect("packet"));
    let mut third = over
        .getjcl(tranship_mbuf::ClusterSize::Jumbo9)
        .expect("packet");
    third.append(&[3; 9000]).expect("room");
    chain.cat(third);
    let before = chain.to_vec().expect("mapped");
    let (aggregate, copied) = chain.to_aggregate(&pool).expect("memory");
    // The part of the second chain that did not fit behind the first.
    assert_eq!(copied, 3000);
    assert_eq!(aggregate.pieces().len(), 3);
    assert_eq!(aggregate.to_vec(), before);
    // The chain is not sent, but the aggregate shares it.
    assert!(!chain.is_writable());
    drop(aggregate);
    assert!(chain.is_writable(), "never sent, so it is one's own again");
    chain.pulldown(0..10).expect("in place").fill(9);
    drop(chain);
    assert_eq!(
        over.stats().outstanding() + private.stats().outstanding(),
        0
    );
}
