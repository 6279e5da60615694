//! Connections whose handshake is under way. Their number is limited: a new client takes the place of one that is in
//! the way.
//!
//! Victims are chosen in this order:
//! 1. clients that have been silent for long;
//! 2. clients of the address that has the most, the silent ones before the others, and the oldest first;
//! 3. clients that have shown a certificate.
//!
//! Thus no number of other clients keeps out a client that comes from elsewhere and follows the protocol.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Most connections whose handshake is under way; as many more may be on their way out.
pub(super) const MOST: usize = 64;
/// Time of silence after which a client is the first to be sent away.
const LONG: Duration = Duration::from_secs(1);

/// Progress of one handshake.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU8>);

impl Progress {
    const SILENT: u8 = 0;
    const SPOKE: u8 = 1;
    const CERTIFIED: u8 = 2;
    const WELCOME: u8 = 3;
    const SENT_AWAY: u8 = 4;

    // Ordering: relaxed everywhere; it says nothing of anything else.
    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the handshake. False: it had to make room meanwhile.
    fn reach(&self, step: u8) -> bool {
        let relaxed = Ordering::Relaxed;
        let further = |now: u8| (now != Progress::SENT_AWAY).then(|| now.max(step));
        self.0.fetch_update(relaxed, relaxed, further).is_ok()
    }

    /// Notes that the client has sent something.
    pub(super) fn spoke(&self) {
        self.reach(Progress::SPOKE);
    }

    /// Notes that the client has shown a certificate.
    pub(super) fn certified(&self) {
        self.reach(Progress::CERTIFIED);
    }

    /// Notes that the client is let in: it is no longer sent away to make room. Returns false if it was sent away
    /// before.
    pub(super) fn welcome(&self) -> bool {
        self.reach(Progress::WELCOME)
    }

    /// Sends the client away, unless it was welcomed meanwhile.
    fn send_away(&self) -> bool {
        let relaxed = Ordering::Relaxed;
        let away = |now: u8| (now < Progress::WELCOME).then_some(Progress::SENT_AWAY);
        self.0.fetch_update(relaxed, relaxed, away).is_ok()
    }

    /// Returns whether the client had to make room.
    pub(super) fn is_sent_away(&self) -> bool {
        self.get() == Progress::SENT_AWAY
    }
}

#[derive(Debug)]
struct Handshake {
    place: IpAddr,
    since: Instant,
    progress: Progress,
    socket: TcpStream,
}

/// Handshakes of a port, by their number: the oldest first.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    all: BTreeMap<u64, Handshake>,
    next: u64,
}

impl Handshakes {
    /// Lets a connection in, for which another one may be closed. `None`: no other can be closed.
    pub(super) fn admit(
        &mut self,
        from: IpAddr,
        socket: TcpStream,
        now: Instant,
    ) -> Option<(u64, Progress)> {
        let leaving = |handshake: &&Handshake| handshake.progress.is_sent_away();
        let leaving = self.all.values().filter(leaving).count();
        if self.all.len() - leaving >= MOST {
            let victim = self.victim(now).filter(|_| leaving < MOST)?;
            let victim = self.all.get(&victim)?;
            // A client that was just welcomed leaves the handshakes anyway.
            if victim.progress.send_away() {
                // The client's thread comes back from wherever it waits.
                let _ = victim.socket.shutdown(Shutdown::Both);
            }
        }
        let progress = Progress::default();
        let handshake = Handshake {
            place: place(from),
            since: now,
            progress: progress.clone(),
            socket,
        };
        self.next += 1;
        self.all.insert(self.next, handshake);
        Some((self.next, progress))
    }

    /// Removes a handshake that is over.
    pub(super) fn dismiss(&mut self, number: u64) {
        self.all.remove(&number);
    }

    fn victim(&self, now: Instant) -> Option<u64> {
        let here = |handshake: &&Handshake| !handshake.progress.is_sent_away();
        let mut of: HashMap<IpAddr, usize> = HashMap::new();
        for handshake in self.all.values().filter(here) {
            *of.entry(handshake.place).or_default() += 1;
        }
        let candidates = self.all.iter().filter_map(|(number, handshake)| {
            let progress = handshake.progress.get();
            let long = now.saturating_duration_since(handshake.since) >= LONG;
            let rank = match progress {
                Progress::SILENT if long => 0,
                Progress::SILENT | Progress::SPOKE => 1,
                _ => 2,
            };
            let crowd = of.get(&handshake.place).copied().unwrap_or(0);
            let order = (rank, Reverse(crowd), progress, *number);
            (progress < Progress::WELCOME).then_some(order)
        });
        candidates.min().map(|(.., number)| number)
    }
}

/// Returns the origin of a client: of an IPv6 address the first 64 bits, because the client can choose the rest.
fn place(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(network.into())
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    struct World {
        listener: TcpListener,
        handshakes: Handshakes,
        now: Instant,
    }

    impl World {
        fn new() -> World {
            World {
                listener: TcpListener::bind("127.0.0.1:0").expect("a port"),
                handshakes: Handshakes::default(),
                now: Instant::now(),
            }
        }

        fn comes(&mut self, host: u8) -> Option<(u64, Progress)> {
            let at = self.listener.local_addr().expect("its address");
            let _client = TcpStream::connect(at).expect("connecting");
            let (socket, _) = self.listener.accept().expect("accepting");
            self.handshakes
                .admit([10, 0, 0, host].into(), socket, self.now)
        }

        /// Lets in that many clients.
        fn come(&mut self, host: u8, count: usize) -> Vec<(u64, Progress)> {
            (0..count)
                .map(|_| self.comes(host).expect("let in"))
                .collect()
        }

        fn sent_away(&self) -> Vec<u64> {
            let all = self.handshakes.all.iter();
            let gone = all.filter(|(_, handshake)| handshake.progress.is_sent_away());
            gone.map(|(number, _)| *number).collect()
        }
    }

    #[test]
    fn whoever_chooses_among_addresses_is_one() {
        let at = |text: &str| place(text.parse().expect("address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:2"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("10.0.0.1"), at("10.0.0.2"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
    }

    #[test]
    fn the_oldest_of_where_most_are_makes_room_and_first_who_says_nothing() {
        let mut world = World::new();
        let many = world.come(1, MOST - 2);
        let few = world.come(2, 2);
        many.iter().chain(&few).for_each(|(_, it)| it.spoke());
        world.come(3, 1);
        assert_eq!(world.sent_away(), [many[0].0]);
        // Of the address that has the most clients, a silent client leaves before those that are not.
        let silent = world.come(1, 1);
        assert_eq!(world.sent_away(), [many[0].0, many[1].0]);
        world.come(3, 1);
        assert_eq!(world.sent_away(), [many[0].0, many[1].0, silent[0].0]);
        // The new one of that place is the one that most newly came: others of its place go first.
        assert!(few.iter().all(|(_, it)| !it.is_sent_away()));
    }

    #[test]
    fn who_says_nothing_for_long_goes_before_all_others() {
        let mut world = World::new();
        let quiet = world.come(2, 1);
        let many = world.come(1, MOST - 1);
        world.now += LONG;
        many.iter().for_each(|(_, it)| it.spoke());
        world.come(3, 1);
        assert_eq!(world.sent_away(), [quiet[0].0]);
    }

    #[test]
    fn who_has_shown_a_certificate_goes_last_and_who_is_welcome_stays() {
        let mut world = World::new();
        let known = world.come(1, MOST - 1);
        known.iter().for_each(|(_, it)| it.certified());
        let silent = world.come(2, 1);
        let last = world.come(2, 1);
        assert_eq!(world.sent_away(), [silent[0].0]);
        assert!(last[0].1.welcome() && !silent[0].1.welcome());
        world.come(3, 1);
        assert_eq!(world.sent_away(), [known[0].0, silent[0].0]);
        let mut world = World::new();
        let welcome = world.come(1, MOST);
        assert!(welcome.iter().all(|(_, it)| it.welcome()));
        assert!(world.comes(2).is_none());
    }

    #[test]
    fn there_are_so_many_at_most() {
        // The threads of these clients do not end: there must be no more of them than that.
        let mut world = World::new();
        world.come(1, 2 * MOST);
        assert!(world.comes(2).is_none());
        world.handshakes.dismiss(1);
        assert!(world.comes(2).is_some());
    }
}
