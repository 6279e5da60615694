//! A cache server whose manager dies, stands still and comes back: values are set all the time. Without a manager the
//! cache goes on up to its own limit; with one both agree in the end on its memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tranship::Domain;
use tranship::admin::StatRecord;
use tranship_cache::{Options, Server};
use tranship_testkit::chaos::Flow;
use tranship_testkit::{Control, child, payload};

use crate::scene::Scene;
use crate::seat::{Broken, Order, ROUND, Seat, broken, patiently};

const MEMORY: u64 = 24 << 20;
const VALUE: usize = 64 << 10;
/// Values of a round: few enough that none of them has to go for another.
const ROUND_OF: u64 = 32;
/// Longest time until the manager and the cache agree. Not a bound on speed: beyond it they do not.
const PATIENCE: Duration = Duration::from_secs(60);

fn serve(domain: Option<&Domain>) -> Result<Server, Broken> {
    let options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 2,
        memory: MEMORY,
        domain: domain.cloned(),
        ..Options::default()
    };
    Server::start(options).map_err(broken)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(server: &Server) -> Result<Client, Broken> {
        let stream = TcpStream::connect(server.address()).map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        Ok(Client(BufReader::new(stream)))
    }

    fn line(&mut self) -> Result<String, Broken> {
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(broken)?;
        Ok(line.trim_end().to_owned())
    }

    fn set(&mut self, key: u64) -> Result<(), Broken> {
        let mut value = vec![0; VALUE];
        payload::fill(&mut value, key, payload::mix(key));
        let parts = [
            format!("set {key} 0 0 {VALUE}\r\n").as_bytes(),
            &value,
            b"\r\n",
        ]
        .concat();
        self.0.get_mut().write_all(&parts).map_err(broken)?;
        match self.line()?.as_str() {
            "STORED" => Ok(()),
            other => Err(format!("set: {other}")),
        }
    }

    /// Returns whether it is there; then its value is the one that was set.
    fn get(&mut self, key: u64) -> Result<bool, Broken> {
        let ask = format!("get {key}\r\n");
        self.0.get_mut().write_all(ask.as_bytes()).map_err(broken)?;
        if self.line()? == "END" {
            return Ok(false);
        }
        let mut value = vec![0; VALUE];
        self.0.read_exact(&mut value).map_err(broken)?;
        payload::verify_seed(&value, key, payload::mix(key)).map_err(broken)?;
        match (self.line()?.as_str(), self.line()?.as_str()) {
            ("", "END") => Ok(true),
            other => Err(format!("behind a value: {other:?}")),
        }
    }
}

/// Sets values and asks for them. Values that are set while no manager is there stay, as far as the cache's own limit
/// goes.
fn round(client: &mut Client, server: &Server, next: &mut u64) -> Result<(), Broken> {
    let heap = server.store().arena().heap().ok_or("no heap")?;
    let (alone, (_, before)) = (heap.is_alone(), server.store().memory());
    let keys = *next..*next + ROUND_OF;
    *next = keys.end;
    for key in keys.clone() {
        client.set(key)?;
    }
    let (_, after) = server.store().memory();
    let mut lost = 0;
    for key in keys {
        lost += u64::from(!client.get(key)?);
    }
    // All the time: memory that a new manager does not admit goes.
    let own = MEMORY - MEMORY / 8;
    let grown = before + ROUND_OF * VALUE as u64;
    // At the limit new values may be the first to go: the others were asked for.
    let is_lost = lost > 0 && grown <= own;
    if alone && heap.is_alone() && (is_lost || after < grown.min(own)) {
        return Err(format!(
            "without a manager: {before} bytes became {after} and not {grown}, {lost} values of a round are gone"
        ));
    }
    Ok(())
}

/// The manager has admitted all that the cache has, and knows it.
fn agrees(seat: &Seat, server: &Server) -> Result<(), Broken> {
    let heap = server.store().arena().heap().ok_or("no heap")?;
    let until = Instant::now() + PATIENCE;
    loop {
        seat.order(ROUND)?;
        let known = patiently(|| seat.domain.admin().stat())?;
        let admitted = known.iter().find_map(|record| match record {
            StatRecord::Heap(known) if known.heap == heap.id() => Some(known.admitted_bytes),
            _ => None,
        });
        let used = server.store().arena().stats().used_bytes;
        let is_known =
            admitted.is_some_and(|admitted| admitted >= used && admitted == heap.held_bytes());
        if !heap.is_alone() && heap.unadmitted_bytes() == 0 && is_known {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!(
                "the manager says {admitted:?} bytes, the cache has {} and uses {used}",
                heap.held_bytes()
            ));
        }
    }
}

child!(
    fn cache(ctl: Control) -> Result<(), Broken> {
        // Descriptors that the library opens once and keeps are there before anything is counted.
        let first = serve(None)?;
        let mut client = Client::new(&first)?;
        client.set(0)?;
        client.get(0)?;
        drop(client);
        first.stop();
        let seat = Seat::take(ctl, "cache")?;
        // No heap is given while the manager is away.
        let until = Instant::now() + PATIENCE;
        let server = loop {
            match serve(Some(&seat.domain)) {
                Ok(server) => break server,
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => _ = seat.order(ROUND)?,
            }
        };
        let mut client = Client::new(&server)?;
        let mut next = 0;
        loop {
            match seat.order(Duration::from_millis(1))? {
                None => {
                    round(&mut client, &server, &mut next)?;
                    seat.gauge.tick(seat.number);
                }
                Some(Order::Quit) => return Ok(()),
                Some(Order::Rest) => {
                    agrees(&seat, &server)?;
                    drop(client);
                    server.stop();
                    return seat.rest_but("resident bytes of memfds");
                }
            }
        }
    }
);

#[test]
fn caches_whose_manager_goes() {
    let mut scene = Scene::new("caches_whose_manager_goes");
    let parties = vec![
        scene.manager(),
        scene.party("cache 1", cache, 1),
        scene.party("cache 2", cache, 2),
    ];
    let flow = |counts, name| Flow {
        name,
        counts,
        needs: vec![counts],
    };
    let flows = vec![flow(1, "values of cache 1"), flow(2, "values of cache 2")];
    scene.plays(parties, flows, (&[1, 2], 0), 12);
}
