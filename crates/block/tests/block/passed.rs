//! Two hops: what a client writes lies in the client's memory at the server behind a proxy, and what the client reads in
//! the server's.

use crate::kit;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use tranship_block::front::{Forwarding, Front};
use tranship_block::{
    Cache, Data, Endpoint, Fault, Info, Job, Lease, Op, Remote, Request, Store, sums,
};
use tranship_core::admin::StatRecord;
use tranship_core::{Buffer, Domain, Trust};

const SIZE: usize = 1 << 20;
const LEN: usize = 64 << 10;

/// Names of the writer and of the pool of a buffer.
type Place = (String, String);

fn place(buffer: &Buffer) -> Place {
    let all = kit::manager().admin().stat().expect("stat");
    let pool = all.iter().find_map(|record| match record {
        StatRecord::Pool(pool) if pool.pool == buffer.id().pool() => Some(pool),
        _ => None,
    });
    let pool = pool.expect("the buffer's pool");
    let writer = all.iter().find_map(|record| match record {
        StatRecord::Domain(domain) if domain.domain == pool.writer => Some(domain.name.clone()),
        _ => None,
    });
    (writer.expect("the pool's writer"), pool.name.clone())
}

/// A disk in memory that notes where the data of writes lies.
#[derive(Debug)]
struct Seen {
    bytes: Mutex<Vec<u8>>,
    places: Mutex<Vec<Place>>,
}

impl Store for Seen {
    fn info(&self) -> Result<Info, Fault> {
        Ok(Info {
            size: SIZE as u64,
            read_only: false,
            boot: 0,
        })
    }
    fn is_checked(&self) -> bool {
        false
    }
    fn lease(&self) -> Lease {
        Lease::forever()
    }
    fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
        Ok(Data::heap(len))
    }
    fn piece(&self, len: usize) -> usize {
        len
    }
    fn submit(&self, job: Job) {
        let Job {
            request,
            mut data,
            done,
        } = job;
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(request.offset).expect("an offset");
        let bytes = &mut bytes[at..][..request.len as usize];
        let result = match request.op {
            Op::Read => data.write(0, bytes),
            _ => data.read(0, bytes),
        };
        if let Data::Shared(came) = &data {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            places.push(place(came));
        }
        done(data, result.map(|()| Vec::new()));
    }
    fn kick(&self) {}
}

fn member(name: &str) -> Domain {
    let socket = kit::manager().socket_path().expect("its socket");
    let domain = Domain::builder().name(name).socket(socket);
    let domain = domain.connect().expect("a domain");
    tranship_channel::add_to(&domain).expect("carriers");
    domain
}

/// Makes an endpoint at which each domain is that of the side's name.
fn of(at: &Endpoint, domain: &Domain) -> Endpoint {
    let domain = domain.clone();
    Endpoint::new(&at.to_string(), at.trust()).with_domains(move || Ok(domain.clone()))
}

/// The server, a proxy, and a client, which writes and reads. The proxy has one domain, or one on each side.
struct Hops {
    seen: Arc<Seen>,
    client: Arc<Remote>,
    _fronts: [Front; 2],
}

impl Hops {
    fn new(near: &str, far: &str, trust: Trust, domains: [&Domain; 2], cache: bool) -> Hops {
        let seen = Arc::new(Seen {
            bytes: Mutex::new(vec![0; SIZE]),
            places: Mutex::default(),
        });
        let (far, near) = (kit::endpoint(far, trust), kit::endpoint(near, trust));
        let server = kit::front(&of(&far, &member("server")), Arc::clone(&seen) as _);
        let cache = cache.then(|| Cache::new(1 << 20));
        let behind = Arc::new(Forwarding::new(&of(&far, domains[1]), cache.as_ref()));
        let proxy = Front::start(&of(&near, domains[0]), behind).expect("a proxy");
        let client = Remote::new(&of(&near, &member("client")));
        Hops {
            seen,
            client,
            _fronts: [server, proxy],
        }
    }

    fn ask(&self, mut request: Request, data: Data) -> Data {
        if request.op == Op::Write {
            let mut bytes = vec![0; LEN];
            data.read(0, &mut bytes).expect("the data");
            request.sums = sums(request.offset, &bytes);
        }
        let (tell, told) = mpsc::channel();
        self.client.submit(Job {
            request,
            data,
            done: Box::new(move |data, result| drop(tell.send((data, result)))),
        });
        let (data, result) = told.recv().expect("an answer");
        result.expect("done");
        data
    }

    /// Writes and reads; returns the places of what was written, and of what is read.
    fn places(&self) -> (Vec<Place>, Vec<Place>) {
        let mut read = Vec::new();
        for round in 0..4_u8 {
            let offset = u64::from(round) * LEN as u64;
            let len = u32::try_from(LEN).expect("small");
            let mut data = self.client.data(Op::Write, LEN).expect("memory");
            data.write(0, &[round + 1; LEN]).expect("room");
            self.ask(Request::new(Op::Write, offset, len), data);
            let data = self.client.data(Op::Read, LEN).expect("room");
            let data = self.ask(Request::new(Op::Read, offset, len), data);
            let mut bytes = vec![0; LEN];
            data.read(0, &mut bytes).expect("the data");
            assert!(bytes == [round + 1; LEN], "round {round}");
            let Data::Shared(came) = &data else {
                panic!("not as it came: {data:?}");
            };
            read.push(place(came));
        }
        let written = self.seen.places.lock();
        let written = written.unwrap_or_else(PoisonError::into_inner).clone();
        (written, read)
    }
}

fn all(writer: &str, pool: &str) -> Vec<Place> {
    vec![(writer.to_owned(), pool.to_owned()); 4]
}

#[test]
fn a_proxy_passes_the_clients_and_the_servers_memory_on() {
    let dog = kit::watchdog();
    for trust in [Trust::Producer, Trust::Half, Trust::Full] {
        dog.step(trust);
        let proxy = member("proxy");
        let hops = Hops::new("shm", "shm", trust, [&proxy; 2], false);
        let (written, read) = hops.places();
        assert_eq!(written, all("client", "block"), "{trust}");
        assert_eq!(read, all("server", "block"), "{trust}");
    }
}

/// The bytes come over the carried hop once, into memory of the end where they arrive.
#[test]
fn a_proxy_passes_on_what_is_carried() {
    let dog = kit::watchdog();
    for (near, far, read_at) in [
        ("shm", "copy", "proxy"),
        ("copy", "shm", "client"),
        ("copy", "copy", "client"),
    ] {
        dog.step(format_args!("{near}, {far}"));
        let proxy = member("proxy");
        let hops = Hops::new(near, far, Trust::Producer, [&proxy; 2], false);
        let (written, read) = hops.places();
        let written_at = if far == "copy" { "server" } else { "proxy" };
        assert_eq!(written, all(written_at, "block arrivals"), "{near}, {far}");
        assert_eq!(read, all(read_at, "block arrivals"), "{near}, {far}");
    }
}

/// A cache has a copy of what is read. What is written goes on beside the cache.
#[test]
fn a_proxy_with_a_cache_passes_writes_on() {
    let _dog = kit::watchdog();
    let proxy = member("proxy");
    let hops = Hops::new("shm", "shm", Trust::Producer, [&proxy; 2], true);
    let (written, read) = hops.places();
    assert_eq!(written, all("client", "block"));
    assert_eq!(read, all("proxy", "block"));
}

#[test]
fn a_proxy_that_cannot_pass_memory_on_copies_it() {
    let dog = kit::watchdog();
    let two = [&member("proxy"), &member("proxy")];
    let hops = Hops::new("shm", "shm", Trust::Producer, two, false);
    let (written, read) = hops.places();
    assert_eq!(written, all("proxy", "block"));
    assert_eq!(read, all("proxy", "block"));
    dog.step("none");
    let hops = Hops::new("shm", "shm", Trust::None, [two[0]; 2], false);
    drop(hops.places());
}
