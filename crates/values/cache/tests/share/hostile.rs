//! Readers that send invalid messages: this costs them their channel, and no other reader anything.

use super::kit::{NAME, stage, until};
use std::time::Duration;
use tranship_cache::Reader;
use tranship_core::{ChannelOptions, Domain, ErrorKind, Receiver, Sender};
use tranship_testkit::{Random, Watchdog};

fn open(domain: &Domain) -> Receiver {
    let options = ChannelOptions::new().lines(256);
    let mut receiver = domain
        .open_with::<Receiver>(NAME, options)
        .expect("a channel");
    receiver.recv().expect("a greeting");
    receiver
}

/// Takes all messages until the end.
fn is_sent_away(receiver: &mut Receiver) {
    let end = loop {
        match receiver.recv() {
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert!(
        matches!(end, ErrorKind::PeerGone | ErrorKind::PeerDied),
        "{end:?}"
    );
}

#[test]
fn questions_that_are_none() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |share| share.readers = 64, |_| {});
    stage.set("key", 0, b"value");
    let join = || {
        Domain::builder()
            .socket(&stage.manager)
            .connect()
            .expect("a domain")
    };
    let honest = join();
    let mut reader = Reader::open(&honest, NAME).expect("a reader");
    let domain = join();
    let ask = 0x7a63 << 48 | 1 << 40;
    let lies: [&[(&[u8], u64)]; 7] = [
        &[(b"key", 0)],
        &[(b"key", ask)],
        &[(b"key", ask | 251)],
        &[(b"key", ask | 4)],
        &[(&[1; 40], ask | 100), (b"x", ask | 100)],
        &[(&[1; 40], ask | 100), (&[1; 40], ask | 99)],
        &[(b"key", ask | 0xff_ffff_ffff)],
    ];
    for lie in lies {
        let mut liar = open(&domain);
        for (bytes, word) in lie {
            // The liar may be away already.
            let _ = liar.send_back((*bytes, *word));
        }
        is_sent_away(&mut liar);
        let hit = reader.get(b"key").expect("answered").expect("there");
        assert_eq!(hit.to_vec(), b"value");
    }
    let mut random = Random::printed("questions that are none");
    for _ in 0..200 {
        let mut liar = open(&domain);
        let lie: Vec<u8> = (0..random.below(49))
            .map(|_| random.next().to_le_bytes()[0])
            .collect();
        let word = match random.below(2) {
            0 => random.next(),
            _ => ask | random.below(300),
        };
        let _ = liar.send_back((&lie[..], word));
        drop(liar);
        assert!(reader.get(b"key").expect("answered").is_some());
    }
}

#[test]
fn answers_that_nobody_takes() {
    let _dog = Watchdog::new();
    let brief =
        |options: &mut tranship_cache::Options| options.patience = Duration::from_millis(300);
    let stage = stage(64 << 20, |_| {}, brief);
    stage.set("key", 0, &[7; 1000]);
    let domain = Domain::builder()
        .socket(&stage.manager)
        .connect()
        .expect("a domain");
    let mut liar = open(&domain);
    let word = 0x7a63 << 48 | 1 << 40 | 3;
    let honest = Domain::builder()
        .socket(&stage.manager)
        .connect()
        .expect("a domain");
    let mut reader = Reader::open(&honest, NAME).expect("a reader");
    until(|| {
        // Again and again: its questions are full before there is no room for answers, where the server is slow to read
        // them.
        let _ = liar.send_back((b"key", word));
        assert!(reader.get(b"key").expect("answered").is_some());
        stage.stat("shm_expelled") == 1
    });
    is_sent_away(&mut liar);
}

#[test]
fn the_channels_of_one_domain_are_one_reader() {
    let _dog = Watchdog::new();
    let stage = stage(64 << 20, |share| share.readers = 2, |_| {});
    stage.set("key", 0, b"value");
    let [greedy, honest] = [(); 2].map(|()| {
        let domain = Domain::builder().socket(&stage.manager).connect();
        domain.expect("a domain")
    });
    let _channels: Vec<Receiver> = (0..4).map(|_| open(&greedy)).collect();
    let mut reader = Reader::open(&honest, NAME).expect("a place");
    assert!(reader.get(b"key").expect("answered").is_some());
    let most = Reader::open(&greedy, NAME).expect_err("a fifth channel");
    assert_eq!(most.kind(), ErrorKind::Limit, "{most}");
}

/// Another service under the name, and one that sends invalid answers.
#[test]
fn a_server_that_lies() {
    let _dog = Watchdog::new();
    let domain = Domain::builder()
        .name("liar")
        .helper_thread(true)
        .embedded()
        .expect("a domain");
    let manager = domain.socket_path().expect("a socket");
    let listener = domain.listen::<Sender>(NAME).expect("a name");
    let reading = std::thread::spawn(move || {
        let domain = Domain::builder()
            .socket(manager)
            .connect()
            .expect("a domain");
        let mut heard = Vec::new();
        for _ in 0..2 {
            let reader = Reader::open(&domain, NAME);
            heard.push(reader.and_then(|mut reader| reader.get(b"key")).map(drop));
        }
        heard
    });
    let mark = 0x7a63_u64 << 48;
    let mut first = listener.accept().expect("a reader");
    first.send((b"hello", 1)).expect("sent");
    let mut second = listener.accept().expect("a reader");
    let limits = [[0; 8], [0; 8], [0; 8]].concat();
    second
        .send((&limits[..], mark | 2 << 40 | 2))
        .expect("sent");
    let pool = domain
        .create_pool(tranship_core::PoolOptions::new(1 << 20))
        .expect("a pool");
    let short = pool.alloc(5).expect("room").freeze();
    second.send((short, mark | 3 << 40)).expect("sent");
    let heard = reading.join().expect("a thread");
    for (heard, what) in heard.into_iter().zip(["no cache server", "shorter than"]) {
        let error = heard.expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::PeerViolation);
        assert!(error.to_string().contains(what), "{error}");
    }
}
