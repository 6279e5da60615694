//! The readers as the writer sees them: joining, desks, leaving.

use crate::connection::Names;
use crate::words::{Go, Word};
use std::convert::Infallible;
use std::time::{Duration, Instant};
use tranship_core::error::TypeMismatch;
use tranship_core::topics::{self, AwaitedReaders, Gone, Peer, Readers, Table};
use tranship_core::{Body, Buffer, Error, ErrorKind, Pool, Sender};
use tranship_ledger::rounds::{DeskView, Desks, Rounds};
use tranship_ring::broadcast::{DeskRo, KEPT, Limits, Win};
use tranship_sync::full_fence;
use tranship_sys::crash;

/// The most connections of one user: joining, joined, or ended with buffers that are still held.
const MOST_OF_USER: usize = 256;
/// The most ended connections of one domain whose buffers are still held. With more of them the domain cannot join.
const MOST_LEFT: usize = 16;

/// The time in which a reader joins if nothing delays it. During this time the helper thread looks every millisecond.
pub const BRISK: Duration = Duration::from_millis(100);
/// The time after which the writer gives up a reader that has not said its wish. If the reader lives, it connects
/// again.
pub const HALF_OPEN: Duration = Duration::from_secs(5);

/// The part of a kind of writer in the coming and going of readers.
pub trait Host {
    /// The writer's record of a reader.
    type Of;
    /// The names of the ends.
    const NAMES: Names;
    /// The most connections of all users together.
    const MOST: usize;
    /// Whether a reader says its wish before it joins.
    const WISHES: bool;

    /// Begins to look at a desk. What this gives is said to the reader.
    fn welcome(&mut self, desk: usize, peer: Peer, wish: u64) -> (Self::Of, Go);

    /// Notes that a reader is gone, or was expelled.
    fn leaves(&mut self, desk: usize, seat: &Seat<Self::Of>, view: &View);

    /// Does what is due for a reader that is here.
    fn visit(&mut self, _seat: &mut Seat<Self::Of>) {}
}

/// A reader that has connected, and has no seat yet.
struct Joining {
    sender: Sender,
    desk: DeskRo,
    assigned: bool,
    wish: Option<u64>,
    since: Instant,
}

impl Joining {
    /// Says whether the reader is likely to join at one of the next looks.
    fn is_brisk(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < BRISK
    }

    /// Says whether the reader has said nothing for too long. A reader says its wish as soon as it is connected.
    fn is_silent(&self, now: Instant) -> bool {
        self.wish.is_none() && now.saturating_duration_since(self.since) >= HALF_OPEN
    }

    /// Does the next steps of joining. Returns the reader's table, once the pool is assigned and the reader has said
    /// its wish.
    fn advance(&mut self, pool: &Pool) -> Result<Option<Table>, Error> {
        let sender = &mut self.sender;
        if self.wish.is_none()
            && let Some(message) = sender.try_recv_back()?
            && let Body::Inline(_) = message.body
        {
            self.wish = Some(message.word);
        }
        if !self.assigned {
            self.assigned = sender.try_assign(pool)?;
        }
        if sender.topic_gone() != Gone::No {
            return Err(ErrorKind::PeerGone.into());
        }
        let is_due = self.assigned && self.wish.is_some();
        let table = || topics::table(pool, sender);
        Ok(is_due.then(table).flatten())
    }
}

/// The memory of a reader that the writer reads.
pub struct View {
    desk: DeskRo,
    table: Table,
}

impl View {
    /// Returns the reader's words.
    #[inline(always)]
    pub fn get(&self) -> DeskView<'_> {
        DeskView {
            desk: self.desk.desk(),
            table: self.table.words(),
        }
    }

    /// Returns the desk.
    #[inline(always)]
    pub fn desk(&self) -> &DeskRo {
        &self.desk
    }

    /// Returns how many buffers the reader keeps by its desk, and whether the table has more.
    pub fn kept(&self) -> (u32, bool) {
        let view = self.get();
        let kept = (0..KEPT).filter(|entry| view.kept(*entry) != 0).count();
        (u32::try_from(kept).unwrap_or(u32::MAX), view.more() != 0)
    }

    /// Returns how many buffers the reader holds by its table.
    fn held(&self) -> usize {
        let view = self.get();
        let slots = 0..u32::try_from(view.table.len()).unwrap_or(u32::MAX);
        slots.filter(|slot| view.table(*slot) != 0).count()
    }

    /// Says whether the desk claims nothing, and nothing is held.
    pub fn is_empty(&self) -> bool {
        // `more` comes last: a reader that leaves sets it before it clears `kept`.
        self.has_at_most_a_table() && (self.get().more() == 0 || self.held() == 0)
    }

    /// Says whether the desk claims nothing, and names no buffer.
    fn has_at_most_a_table(&self) -> bool {
        let view = self.get();
        let rests = Win::unpack(view.win()).len == 0;
        rests && !(0..KEPT).any(|entry| view.kept(entry) != 0)
    }
}

/// A reader whose desk the writer reads.
pub struct Seat<T> {
    /// The channel to it.
    pub sender: Sender,
    /// The reader.
    pub peer: Peer,
    /// Whether the connection has ended, or was ended because the reader broke a limit. The desk stays until the reader
    /// holds nothing.
    pub left: bool,
    /// The record of the kind of writer.
    pub of: T,
}

/// The readers: those that join, and, by the numbers of their desks, those whose desks the writer reads.
pub struct Seats<T> {
    joining: Vec<Joining>,
    views: Vec<Option<View>>,
    seats: Vec<Option<Seat<T>>>,
    /// Readers that have not left.
    count: usize,
    /// Whether the last reader that came was refused.
    refuses: bool,
    /// The number of readers that were expelled because they held more buffers than was agreed.
    pub expelled: u64,
    /// The error, if the manager did not give the writer's name back after its restart.
    lost_name: Option<Error>,
}

/// The parts of a writer that a reader joins.
pub struct Joins<'a, H> {
    /// The listener at which readers come.
    pub readers: &'a Readers,
    /// The writer's pool.
    pub pool: &'a Pool,
    /// The rounds that read the desks.
    pub rounds: &'a mut Rounds,
    /// The limits of a reader.
    pub limits: Limits,
    /// The time.
    pub now: Instant,
    /// The part of the kind of writer.
    pub host: &'a mut H,
}

impl<T> Default for Seats<T> {
    fn default() -> Seats<T> {
        Seats {
            joining: Vec::new(),
            views: Vec::new(),
            seats: Vec::new(),
            count: 0,
            refuses: false,
            expelled: 0,
            lost_name: None,
        }
    }
}

impl<T> Desks for Seats<T> {
    type Stop = Infallible;

    #[inline(always)]
    fn win(&self, desk: usize) -> Result<u64, Infallible> {
        Ok(self.view(desk).map_or(0, |view| view.get().win()))
    }
    #[inline(always)]
    fn kept(&self, desk: usize, entry: u8) -> Result<u32, Infallible> {
        Ok(self.view(desk).map_or(0, |view| view.get().kept(entry)))
    }
    #[inline(always)]
    fn more(&self, desk: usize) -> Result<u32, Infallible> {
        Ok(self.view(desk).map_or(0, |view| view.get().more()))
    }
    #[inline(always)]
    fn table(&self, desk: usize, slot: u32) -> Result<u32, Infallible> {
        Ok(self.view(desk).map_or(0, |view| view.get().table(slot)))
    }
    #[inline(always)]
    fn fence_full(&self) -> Result<(), Infallible> {
        // Ordering: partner: the fence of `Reader::claim`, or the locked instruction of `Claims::take`.
        full_fence();
        Ok(())
    }
    #[inline(always)]
    fn prefetch(&self, desk: usize) {
        if let Some(view) = self.view(desk) {
            view.get().prefetch();
        }
    }
}

impl<T> Seats<T> {
    /// Returns the memory that is read for a desk.
    #[inline(always)]
    pub fn view(&self, desk: usize) -> Option<&View> {
        self.views.get(desk)?.as_ref()
    }

    /// Returns the reader of a desk.
    #[inline]
    pub fn seat(&self, desk: usize) -> Option<&Seat<T>> {
        self.seats.get(desk)?.as_ref()
    }

    /// Returns the reader of a desk, to change it.
    pub fn seat_mut(&mut self, desk: usize) -> Option<(&mut Seat<T>, &View)> {
        let seat = self.seats.get_mut(desk)?.as_mut()?;
        Some((seat, self.views.get(desk)?.as_ref()?))
    }

    /// Returns all readers.
    pub fn iter(&self) -> impl Iterator<Item = (&Seat<T>, &View)> {
        let all = self.seats.iter().zip(&self.views);
        all.filter_map(|(seat, view)| Some((seat.as_ref()?, view.as_ref()?)))
    }

    /// Returns all readers, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Seat<T>, &View)> {
        let all = self.seats.iter_mut().zip(&self.views);
        all.filter_map(|(seat, view)| Some((seat.as_mut()?, view.as_ref()?)))
    }

    /// Returns the channels of these readers, for a writer that waits for them.
    pub fn awaited(&self, of: impl Fn(&Seat<T>, &View) -> bool) -> AwaitedReaders {
        let all = self
            .iter()
            .filter(|(seat, view)| !seat.left && of(seat, view));
        AwaitedReaders::of(all.map(|(seat, _)| &seat.sender))
    }

    /// Returns how many readers have joined and not left.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns a number that is larger than the numbers of all desks.
    pub fn desks(&self) -> usize {
        self.seats.len()
    }

    /// Says whether readers have connected a short time ago, and not joined yet.
    pub fn are_joining(&self, now: Instant) -> bool {
        self.joining.iter().any(|joining| joining.is_brisk(now))
    }

    /// Wakes readers that sleep on their descriptors. The caller has published.
    #[cold]
    pub fn wake(&self) {
        // Ordering: partner: the fence with which a reader arms its descriptor, before it looks at the ring.
        full_fence();
        for seat in self.seats.iter().flatten() {
            seat.sender.topic_wake();
        }
    }

    /// Looks whether the processes of readers have ended, because the manager may hang.
    pub fn look_for_deaths(&self) {
        for seat in self.seats.iter().flatten().filter(|seat| !seat.left) {
            seat.sender.topic_is_dead();
        }
    }

    /// Gives all channels up. Readers learn of it by their halves, or by the manager. `buffers` are those that lines
    /// name.
    pub fn end(&mut self, buffers: &[Option<Buffer>]) {
        for seat in self.seats.iter().flatten() {
            seat.sender
                .topic_leave_to(buffers.iter().flatten().cloned());
        }
        self.joining.clear();
        self.seats.clear();
        self.views.clear();
        self.count = 0;
    }

    /// Says whether readers can join.
    ///
    /// # Errors
    /// `NameTaken` if another domain took the name while the manager restarted.
    pub fn check_name(&self) -> Result<(), Error> {
        match &self.lost_name {
            None => Ok(()),
            Some(error) => {
                let text = "no reader can join any more: another domain took the name while the manager restarted";
                Err(Error::new(error.kind(), format!("{text}: {error}")))
            }
        }
    }

    /// Takes new readers in, and removes those that are gone.
    pub fn tend<H: Host<Of = T>>(&mut self, mut joins: Joins<'_, H>) {
        let reader = H::NAMES.reader;
        loop {
            match joins.readers.try_next() {
                Ok(Some(sender)) => self.arrive::<H>(sender, joins.now),
                Ok(None) => {
                    self.lost_name = None;
                    break;
                }
                Err(error) if error == ErrorKind::NameTaken => {
                    if self.lost_name.is_none() {
                        tracing::warn!(%error, "no {reader} can join any more");
                    }
                    self.lost_name = Some(error);
                    break;
                }
                Err(error) if error.find::<TypeMismatch>().is_some() => {
                    tracing::debug!(%error, "a {reader} of another type");
                }
                // The manager is away, or cannot be reached: readers that have joined go on.
                Err(error) => {
                    tracing::debug!(%error, "accepting a {reader}");
                    break;
                }
            }
        }
        for mut joining in std::mem::take(&mut self.joining) {
            match joining.advance(joins.pool) {
                Ok(None) if joining.is_silent(joins.now) => {
                    let peer = joining.sender.topic_peer();
                    tracing::debug!(?peer, "a {reader} that says no wish is given up");
                }
                Ok(None) => self.joining.push(joining),
                Ok(Some(table)) => self.sit(joining, table, &mut joins),
                Err(error) => tracing::warn!(%error, "a {reader} could not join"),
            }
        }
        for desk in 0..self.seats.len() {
            self.look(desk, &mut joins);
        }
    }

    /// Says whether a user, a domain, or all users together have as many connections as they may.
    fn has_enough(&self, of: Peer, most: usize) -> bool {
        let joining = self.joining.iter().map(|it| it.sender.topic_peer());
        let seated = self.seats.iter().flatten();
        let is_left = |seat: &&Seat<T>| seat.left && seat.peer.domain == of.domain;
        let left = seated.clone().filter(is_left).count();
        let all = joining.chain(seated.map(|seat| seat.peer));
        left >= MOST_LEFT
            || all.clone().count() >= most
            || all.filter(|peer| peer.uid == of.uid).count() >= MOST_OF_USER
    }

    fn arrive<H: Host<Of = T>>(&mut self, sender: Sender, now: Instant) {
        let (peer, reader, most) = (sender.topic_peer(), H::NAMES.reader, H::MOST);
        if self.has_enough(peer, most) {
            if !std::mem::replace(&mut self.refuses, true) {
                let Peer { domain, pid, uid } = peer;
                tracing::warn!(
                    %domain, pid, uid,
                    "{reader}s are refused: a user has {MOST_OF_USER} connections, a domain {MOST_LEFT} ended ones of which it holds buffers, or all {most}"
                );
            }
            return;
        }
        self.refuses = false;
        match sender.topic_desk().map(DeskRo::open) {
            Some(Ok(desk)) => self.joining.push(Joining {
                sender,
                desk,
                assigned: false,
                wish: (!H::WISHES).then_some(0),
                since: now,
            }),
            Some(Err(error)) => tracing::warn!(%error, "a {reader}'s desk"),
            None => tracing::warn!("a {reader} has shown no desk"),
        }
    }

    /// Gives a reader a desk: the writer reads the desk from now on, and then lets the reader begin.
    // Crash: before the word is sent the reader claims nothing. Its death removes the desk.
    fn sit<H: Host<Of = T>>(&mut self, joining: Joining, table: Table, joins: &mut Joins<'_, H>) {
        let Joining {
            mut sender,
            desk,
            wish,
            ..
        } = joining;
        let free = self.seats.iter().position(Option::is_none);
        let number = free.unwrap_or(self.seats.len());
        if free.is_none() {
            self.seats.push(None);
            self.views.push(None);
        }
        let peer = sender.topic_peer();
        self.views[number] = Some(View { desk, table });
        joins.rounds.join(number, RING, joins.limits);
        let (of, go) = joins.host.welcome(number, peer, wish.unwrap_or(0));
        crash::point("readers.joined");
        let (bytes, word) = Word::Go(go).pack();
        self.count += 1;
        if let Err(error) = sender.try_send((&bytes, word)) {
            tracing::debug!(error = %error.error, "a {} left while it joined", H::NAMES.reader);
        }
        self.seats[number] = Some(Seat {
            sender,
            peer,
            left: false,
            of,
        });
    }

    /// Sees whether a reader is gone. If a reader has left, its desk stays as long as it shows a hold and the reader's
    /// process lives.
    fn look<H: Host<Of = T>>(&mut self, desk: usize, joins: &mut Joins<'_, H>) {
        let (Some(Some(seat)), Some(Some(view))) = (self.seats.get_mut(desk), self.views.get(desk))
        else {
            return;
        };
        let gone = seat.sender.topic_gone();
        if gone == Gone::No && !seat.left {
            return joins.host.visit(seat);
        }
        if !seat.left {
            seat.left = true;
            self.count -= 1;
            joins.host.leaves(desk, seat, view);
        }
        let is_over = gone == Gone::Died || view.is_empty() || seat.sender.topic_is_dead();
        // A round that has read the table of the other desk may still rely on this desk.
        let has_ended = gone != Gone::No;
        if is_over || has_ended && !joins.rounds.is_under_way() && self.is_shown_twice(desk) {
            crash::point("readers.leaves");
            joins.rounds.leave(desk);
            self.views[desk] = None;
            self.seats[desk] = None;
        }
    }

    /// Says whether another ended connection shows all holds of this one too: both read the table of the same domain.
    fn is_shown_twice(&self, desk: usize) -> bool {
        let (Some(seat), Some(view)) = (self.seat(desk), self.view(desk)) else {
            return false;
        };
        let table = view.get().table.as_ptr();
        let mut others = self.seats.iter().zip(&self.views).enumerate();
        view.has_at_most_a_table()
            && others.any(|(number, pair)| {
                let (Some(other), Some(shown)) = pair else {
                    return false;
                };
                number != desk
                    && other.left
                    && other.sender.topic_gone() != Gone::No
                    && other.peer.domain == seat.peer.domain
                    && shown.get().table.as_ptr() == table
                    && shown.get().more() != 0
            })
    }

    /// Ends the connection of a domain whose table has more buffers than was agreed. The domain holds them as long as
    /// its process lives.
    #[cold]
    pub fn exceeded<H: Host<Of = T>>(&mut self, desk: usize, limits: Limits, host: &mut H) {
        let (Some(seat), Some(view)) = (self.seat(desk), self.view(desk)) else {
            return;
        };
        let domain = seat.peer.domain;
        let of_domain = self.seats.iter().flatten();
        // A domain's table has the holds of all its connections.
        let connections = of_domain.filter(|s| s.peer.domain == domain).count() as u64;
        let held = view.held() as u64;
        let most = connections * u64::from(limits.most_found());
        let (Some(Some(seat)), Some(Some(view))) = (self.seats.get_mut(desk), self.views.get(desk))
        else {
            return;
        };
        if held <= most || seat.left {
            return;
        }
        let (Peer { domain, pid, .. }, reader) = (seat.peer, H::NAMES.reader);
        tracing::warn!(%domain, pid, held, most, "a {reader} holds more buffers than was agreed: it is expelled");
        seat.left = true;
        self.count -= 1;
        self.expelled += 1;
        host.leaves(desk, seat, view);
        let (bytes, word) = Word::Expelled.pack();
        // A reader that breaks rules need not learn of it. The channel stays, because it shows the process's death
        // while the manager is away.
        let _ = seat.sender.try_send((&bytes, word));
    }
}

/// The number of a writer's only ring in the rounds.
const RING: usize = 0;
