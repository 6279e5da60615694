//! The other end of a service's channels sends anything: it loses its own connection, and no other client loses
//! anything.

use crate::kit;
use serde::Serialize;
use std::sync::Arc;
use tranship_block::{Access, Blocking, Fault, Info, Op, Request, sums};
use tranship_core::{
    Aggregate, BufferMut, ChannelOptions, Domain, Error, ErrorKind, Pool, PoolOptions, Receiver,
    Sender, Trust,
};

const SIZE: u64 = 1 << 20;
const VERSION: u16 = 5;
/// Bits of a word below the number.
const LEN_BITS: u32 = 20;

/// Returns the first message of a client: the number of that message, and its fields.
fn hello(ticket: u128, version: u16) -> Vec<u8> {
    let session = u64::try_from(ticket % (1 << 64)).expect("small");
    let session = session.to_le_bytes();
    said(&(0u8, version, ticket.to_le_bytes(), session, session, false))
}

fn said(words: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(words).expect("memory")
}

fn request(request: Request) -> Vec<u8> {
    said(&(1u8, request))
}

/// A client of a service's, as its channels see it.
struct Client {
    domain: Domain,
    answers: Receiver,
    asks: Sender,
    pool: Pool,
}

fn options() -> ChannelOptions {
    ChannelOptions::new().accept_trust([Trust::Producer])
}

impl Client {
    /// One that was given a ticket, and has said nothing.
    fn connect(at: &str) -> (Client, u128) {
        let domain = kit::member(kit::manager()).expect("a member");
        let mut answers = domain
            .open_with::<Receiver>(&format!("{at}.answer"), options())
            .expect("answers");
        let asks = domain.open::<Sender>(&format!("{at}.ask")).expect("asks");
        let pool = domain.create_pool(PoolOptions::new(1 << 20)).expect("pool");
        let first = answers.recv().expect("a ticket").to_vec();
        let (0u8, ticket) = postcard::from_bytes(&first).expect("a ticket") else {
            panic!("{first:?}");
        };
        let client = Client {
            domain,
            answers,
            asks,
            pool,
        };
        (client, ticket)
    }

    /// One that was let in.
    fn welcomed(at: &str) -> Client {
        let (mut client, ticket) = Client::connect(at);
        client.say(&hello(ticket, VERSION)).expect("said");
        let welcome = client.answers.recv().expect("a welcome").to_vec();
        assert_eq!(welcome[0], 1);
        client
    }

    fn say(&mut self, words: &[u8]) -> Result<(), Error> {
        Ok(self.asks.send(words).map(drop)?)
    }

    fn buffer(&self, data: usize, head: &[u8]) -> BufferMut {
        let mut buffer = self.pool.alloc(data + head.len()).expect("memory");
        buffer.fill(0);
        buffer.write(data, head).expect("in bounds");
        buffer
    }

    /// Sends buffers as one message.
    fn pieces(&mut self, all: &[(usize, &[u8])], word: u64) {
        let mut pieces = Aggregate::new();
        for (data, head) in all {
            let piece = self.buffer(*data, head).freeze();
            pieces.push_back(piece).expect("room");
        }
        self.asks.send((pieces, word)).expect("sent");
    }

    /// Checks that its channels end.
    fn ends(mut self) {
        loop {
            match self.answers.recv() {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error}");
                    return;
                }
            }
        }
    }
}

#[test]
fn whoever_says_what_no_client_says_loses_its_connection_and_nobody_else_anything() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Producer, SIZE);
    let at = service.at.to_string();
    let honest = kit::connect(&service.at);
    let store = Blocking(Arc::clone(&honest));
    store.write_at(0, &[7; 20_000], false).expect("writing");

    // Before the client is let in. A client without a right ticket takes no other client's channel: its own channel
    // waits on.
    let firsts: [&dyn Fn(u128) -> Vec<u8>; 5] = [
        &|_| vec![],
        &|_| vec![9; 40],
        &|ticket| hello(ticket ^ 1, VERSION),
        &|ticket| [hello(ticket, VERSION), vec![0]].concat(),
        &|_| request(Request::new(Op::Flush, 0, 0)),
    ];
    for first in firsts {
        let (mut client, ticket) = Client::connect(&at);
        client.say(&first(ticket)).expect("said");
        while !client.asks.status().peer_gone {
            std::thread::yield_now();
        }
    }
    // A client of another version is told which version is spoken.
    let (mut client, ticket) = Client::connect(&at);
    client.say(&hello(ticket, VERSION + 1)).expect("said");
    let told = client.answers.recv().expect("an answer").to_vec();
    assert_eq!(told, said(&(3u8, VERSION)));
    // A ticket is for one.
    let (mut client, ticket) = Client::connect(&at);
    client.say(&hello(ticket, VERSION)).expect("said");
    client.answers.recv().expect("a welcome");
    let (mut other, _) = Client::connect(&at);
    other.say(&hello(ticket, VERSION)).expect("said");
    while !other.asks.status().peer_gone {
        std::thread::yield_now();
    }
    client.say(&hello(ticket, VERSION)).expect("said");
    client.ends();

    // After it.
    let mut write = Request::new(Op::Write, 0, 4096);
    write.sums = sums(0, &[0; 4096]);
    let head = request(write);
    let whole = 4096u64;
    type Act<'a> = &'a dyn Fn(&mut Client);
    let acts: [Act<'_>; 10] = [
        &|client| client.say(&[9; 40]).expect("said"),
        // Lengths that the buffer has not, and that none has.
        &|client| {
            let buffer = client.buffer(4096, &head).freeze();
            client.asks.send((buffer, 8192)).expect("sent");
        },
        &|client| {
            let buffer = client.buffer(8192, &head).freeze();
            client.asks.send(buffer).expect("sent");
        },
        &|client| {
            let buffer = client.buffer((256 << 10) + 4096, &head).freeze();
            let len = (256 << 10) + 4096;
            client.asks.send((buffer, len)).expect("sent");
        },
        // Pieces that are not two, a first one that is not all of the data, and fields that are none.
        &|client| client.pieces(&[(4096, &[]), (0, &head), (0, &head)], whole),
        &|client| client.pieces(&[(4096, &[])], whole),
        &|client| client.pieces(&[(4095, &[]), (1, &head)], whole),
        &|client| client.pieces(&[(4096, &[]), (0, &[9; 40])], whole),
        &|client| client.pieces(&[(4096, &[]), (64 << 10, &head)], whole),
        // More questions than may be unanswered, of a kind for which the disk takes its time.
        &|client| {
            let mut asked = 0;
            let sync = request(Request::new(Op::Flush, 0, 0));
            while client.say(&sync).is_ok() {
                asked += 1;
                assert!(asked < 1_000_000, "it is let do so");
            }
        },
    ];
    for act in acts {
        let mut client = Client::welcomed(&at);
        act(&mut client);
        client.ends();
    }
    // A request that is only wrong gets an answer.
    let mut client = Client::welcomed(&at);
    let wrong: [&dyn Fn(&mut Client); 4] = [
        // More data, and less, than it says; data with a request that has none; none with one that has some.
        &|client| {
            let buffer = client.buffer(4095, &head).freeze();
            client.asks.send((buffer, 4095)).expect("sent");
        },
        &|client| {
            let buffer = client.buffer(8192, &head).freeze();
            client.asks.send((buffer, 8192)).expect("sent");
        },
        &|client| {
            let flush = request(Request::new(Op::Flush, 0, 0));
            let buffer = client.buffer(4096, &flush).freeze();
            client.asks.send((buffer, 4096)).expect("sent");
        },
        &|client| client.say(&head).expect("said"),
    ];
    let invalid = said(&(2u8, Err::<Vec<u32>, Fault>(Fault::Invalid), None::<u64>));
    for wrong in wrong {
        wrong(&mut client);
        assert_eq!(client.answers.recv().expect("an answer").to_vec(), invalid);
    }
    let too_long = request(Request::new(Op::Read, 0, (256 << 10) + 1));
    client.say(&too_long).expect("said");
    assert_eq!(client.answers.recv().expect("an answer").to_vec(), invalid);
    drop(client.domain);

    let mut read = vec![0; 20_000];
    store.read_at(0, &mut read).expect("reading");
    assert!(read.iter().all(|byte| *byte == 7));
    assert_eq!(honest.connections(), 1, "connected again");
}

/// A client that takes no answers, and one that keeps all that it was sent, wait for themselves.
#[test]
fn whoever_keeps_what_it_got_holds_up_nobody_else_and_has_no_more_by_coming_again() {
    let _dog = kit::watchdog();
    let service = kit::serve("shm", Trust::Producer, SIZE);
    let at = service.at.to_string();
    let mut kept = Vec::new();
    let mut clients: Vec<Client> = (0..4).map(|_| Client::welcomed(&at)).collect();
    let long = request(Request::new(Op::Read, 0, 256 << 10));
    for client in &mut clients {
        for _ in 0..127 {
            client.say(&long).expect("said");
        }
        // All that its pool has: three in each MiB.
        kept.extend((0..48).map(|_| client.answers.recv().expect("an answer")));
    }
    let store = Blocking(kit::connect(&service.at));
    store.write_at(0, &[1; 300_000], true).expect("writing");
    let mut read = vec![0; 300_000];
    store.read_at(0, &mut read).expect("reading");
    assert!(read.iter().all(|byte| *byte == 1));
    for client in &mut clients {
        assert!(client.answers.try_recv().expect("none").is_none());
    }
    // The clients go, and keep their buffers: their places stay taken.
    let stay: Vec<Domain> = clients.into_iter().map(|client| client.domain).collect();
    let domain = kit::member(kit::manager()).expect("a member");
    let answers = format!("{at}.answer");
    let more: Vec<Receiver> = (0..59)
        .map(|_| {
            let mut more = domain
                .open_with::<Receiver>(&answers, options())
                .expect("answers");
            more.recv().expect("a ticket");
            more
        })
        .collect();
    let mut full = domain
        .open_with::<Receiver>(&answers, options())
        .expect("answers");
    full.recv().expect_err("a 65th");
    drop((kept, stay));
    // The clients have given everything back.
    loop {
        let mut free = domain
            .open_with::<Receiver>(&answers, options())
            .expect("answers");
        if free.recv().is_ok() {
            break;
        }
    }
    drop(more);
}

/// A server that sends invalid messages is left, and asked again.
#[test]
fn a_server_that_lies_loses_its_client_and_costs_it_nothing() {
    let _dog = kit::watchdog();
    let at = kit::endpoint("shm", Trust::Producer);
    let remote = tranship_block::Remote::new(&at);
    let liar = kit::member(kit::manager()).expect("a member");
    let asks = liar
        .listen_with::<Receiver>(&format!("{at}.ask"), options())
        .expect("the name");
    let answers = liar
        .listen_with::<Sender>(&format!("{at}.answer"), options())
        .expect("the name");
    let reader = std::thread::spawn({
        let store = Blocking(Arc::clone(&remote));
        move || {
            let mut read = vec![1; 4096];
            store.read_at(0, &mut read).expect("reading");
            read
        }
    });
    let pool = liar.create_pool(PoolOptions::new(1 << 20)).expect("pool");
    let info = said(&(
        1u8,
        Info {
            size: SIZE,
            read_only: false,
            boot: 1,
        },
        None::<u64>,
    ));
    let done = |result: Result<Vec<u32>, Fault>| said(&(2u8, result, None::<u64>));
    // The lies: instead of a ticket, instead of a welcome, and instead of an answer to the number that was asked.
    type Lie<'a> = &'a dyn Fn(&mut Sender, u64);
    let buffer = |data: usize, head: &[u8]| {
        let mut buffer = pool.alloc(data + head.len()).expect("memory");
        buffer.fill(0);
        buffer.write(data, head).expect("in bounds");
        buffer
    };
    let lies: [Lie<'_>; 6] = [
        &|to, _| to.send(&[9; 40]).map(drop).expect("sent"),
        // To a question that was not asked; of no length, and of another one.
        &|to, number| {
            let word = (number + 1) << LEN_BITS;
            to.send((&done(Err(Fault::Invalid))[..], word))
                .expect("sent");
        },
        &|to, number| {
            let word = number << LEN_BITS;
            to.send((&done(Ok(vec![1]))[..], word)).expect("sent");
        },
        &|to, number| {
            let answer = buffer(512, &done(Ok(vec![1]))).freeze();
            to.send((answer, number << LEN_BITS | 512)).expect("sent");
        },
        &|to, number| {
            let answer = buffer(4096, &done(Ok(vec![1]))).freeze();
            to.send((answer, number << LEN_BITS | 8192)).expect("sent");
        },
        &|to, _| to.send(&info[..]).map(drop).expect("sent"),
    ];
    for (when, lie) in [(0, lies[0]), (1, lies[0])]
        .into_iter()
        .chain(lies.into_iter().map(|lie| (2, lie)))
    {
        let mut answer = answers.accept().expect("the client");
        let mut ask = asks.accept().expect("the client");
        if when == 0 {
            lie(&mut answer, 0);
        } else {
            answer.send(&said(&(0u8, 7u128))[..]).expect("a ticket");
            ask.recv().expect("a hello");
            let number = if when == 1 {
                0
            } else {
                answer.send(&info[..]).expect("a welcome");
                ask.recv().expect("a question").word >> LEN_BITS
            };
            lie(&mut answer, number);
        }
        while !answer.status().peer_gone {
            std::thread::yield_now();
        }
    }
    drop((asks, answers));
    let file = kit::file();
    let disk = kit::disk(&file, SIZE, Access::Auto, false);
    let _front = kit::front(&at, disk);
    assert!(reader.join().expect("the reader") == [0; 4096]);
}
