//! The subscribers as the publisher sees them: joining, desks, leaving.

use crate::bells::Bells;
use crate::line::{Wish, Word};
use crate::options::{TopicOptions, WhenBehind};
use std::convert::Infallible;
use tranship_core::topics::{self, Gone, Peer, Table};
use tranship_core::{Body, DomainId, Error, Listener, Pool, Sender};
use tranship_ledger::rounds::{DeskView, Desks, Published, Reliable, Rounds};
use tranship_ring::broadcast::{DeskRo, KEPT, Limits, Win, ahead, sequence};
use tranship_sync::full_fence;
use tranship_sys::crash;

/// Subscriptions that one user may have: joining, joined, or left with buffers that are still held.
const MOST_OF_USER: usize = 256;
/// Ended subscriptions of one domain of which buffers are still held. With more of them the domain cannot join.
const MOST_LEFT: usize = 16;

/// A subscriber, as its publisher sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberSeen {
    /// The subscriber's domain.
    pub domain: DomainId,
    /// The number of its process.
    pub pid: u32,
    /// The user as whom its process runs.
    pub uid: u32,
    /// Whether the publisher waits for it.
    pub reliable: bool,
    /// Messages that it has still to take, at most the depth of the ring.
    pub behind: u64,
    /// Buffers that its desk says it keeps, and whether its table has more.
    pub kept: u32,
    /// Whether its table has holds, too.
    pub more: bool,
    /// Whether the subscription has ended, and buffers of it are still held.
    pub left: bool,
}

/// A subscriber that has connected, and has no seat yet.
struct Joining {
    sender: Sender,
    desk: DeskRo,
    assigned: bool,
    wish: Option<Wish>,
}

/// What a round reads of a subscriber.
struct View {
    desk: DeskRo,
    table: Table,
}

impl View {
    #[inline(always)]
    fn get(&self) -> DeskView<'_> {
        DeskView {
            desk: self.desk.desk(),
            table: self.table.words(),
        }
    }

    /// Says whether the desk claims nothing, and nothing is held.
    fn is_empty(&self) -> bool {
        let view = self.get();
        let slots = 0..u32::try_from(view.table.len()).unwrap_or(u32::MAX);
        let is_clear = || slots.map(|slot| view.table(slot)).all(|count| count == 0);
        // `more` comes last: a subscriber that leaves sets it before it clears `kept`.
        self.has_at_most_a_table() && (view.more() == 0 || is_clear())
    }

    /// Says whether the desk claims nothing, and names no buffer.
    fn has_at_most_a_table(&self) -> bool {
        let view = self.get();
        let rests = Win::unpack(view.win()).len == 0;
        rests && !(0..KEPT).any(|entry| view.kept(entry) != 0)
    }
}

/// A subscriber whose desk is looked at.
struct Seat {
    sender: Sender,
    peer: Peer,
    reliable: bool,
    /// The subscription has ended, or was ended for breaking a limit; the desk stays until nothing is held.
    left: bool,
}

/// The subscribers: those that join, and those whose desks are looked at, by the numbers of their desks.
#[derive(Default)]
pub(crate) struct Seats {
    joining: Vec<Joining>,
    views: Vec<Option<View>>,
    seats: Vec<Option<Seat>>,
    /// Subscribers that have not left.
    count: usize,
    /// Whether the last one that came was refused.
    refuses: bool,
    pub(crate) demoted: u64,
    pub(crate) expelled: u64,
}

/// The parts of a publisher that a subscriber joins.
pub(crate) struct Joins<'a> {
    pub(crate) listener: &'a Listener<Sender>,
    pub(crate) pool: &'a Pool,
    pub(crate) rounds: &'a mut Rounds,
    pub(crate) published: &'a Published,
    pub(crate) reliable: &'a mut Reliable,
    pub(crate) bells: &'a Bells,
    pub(crate) options: &'a TopicOptions,
    /// The ring's number in the rounds.
    pub(crate) ring: usize,
}

impl Desks for Seats {
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
        // Ordering: partner: the fence of `Reader::claim`.
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

impl Seats {
    #[inline(always)]
    fn view(&self, desk: usize) -> Option<&View> {
        self.views.get(desk)?.as_ref()
    }

    /// Returns how many subscribers have joined and not left.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes new subscribers in, and takes leave of those that are gone.
    pub(crate) fn tend(&mut self, mut joins: Joins<'_>) {
        loop {
            match joins.listener.try_accept() {
                Ok(Some(sender)) => self.arrive(sender),
                Ok(None) => break,
                // The manager is away, or cannot be reached: subscribers that are here go on.
                Err(error) => {
                    tracing::debug!(%error, "accepting a subscriber");
                    break;
                }
            }
        }
        for mut joining in std::mem::take(&mut self.joining) {
            match advance(&mut joining, joins.pool) {
                Ok(None) => self.joining.push(joining),
                Ok(Some(table)) => self.seat(joining, table, &mut joins),
                Err(error) => tracing::warn!(%error, "a subscriber could not join"),
            }
        }
        for desk in 0..self.seats.len() {
            self.look(desk, &mut joins);
        }
    }

    /// Says whether a user or a domain has as many subscriptions as it may.
    fn has_enough(&self, of: Peer) -> bool {
        let joining = self
            .joining
            .iter()
            .map(|joining| joining.sender.topic_peer());
        let seated = self.seats.iter().flatten();
        let left = seated
            .clone()
            .filter(|seat| seat.left && seat.peer.domain == of.domain);
        let all = joining.chain(seated.map(|seat| seat.peer));
        left.count() >= MOST_LEFT || all.filter(|peer| peer.uid == of.uid).count() >= MOST_OF_USER
    }

    fn arrive(&mut self, sender: Sender) {
        let peer = sender.topic_peer();
        if self.has_enough(peer) {
            if !std::mem::replace(&mut self.refuses, true) {
                let Peer { domain, pid, uid } = peer;
                tracing::warn!(
                    %domain, pid, uid,
                    "subscribers are refused: a user has {MOST_OF_USER} subscriptions, or a domain {MOST_LEFT} ended ones of which it holds buffers"
                );
            }
            return;
        }
        self.refuses = false;
        let desk = sender.topic_desk().map(DeskRo::open);
        match desk {
            Some(Ok(desk)) => self.joining.push(Joining {
                sender,
                desk,
                assigned: false,
                wish: None,
            }),
            Some(Err(error)) => tracing::warn!(%error, "a subscriber's desk"),
            None => tracing::warn!("a subscriber has shown no desk"),
        }
    }

    /// Looks at a desk from now on, and then lets its subscriber begin.
    // Crash: before the word is sent the subscriber claims nothing. Its death takes the desk off.
    fn seat(&mut self, joining: Joining, table: Table, joins: &mut Joins<'_>) {
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
        let (tail, first) = (joins.published.tail(), joins.published.first());
        let there = tail.wrapping_sub(first);
        let position = tail.wrapping_sub(there.min(joins.options.history.into()));
        let peer = sender.topic_peer();
        let takes_rank = joins.options.when_behind != WhenBehind::Overwrite;
        let reliable = takes_rank && wish.unwrap_or_default().reliable;
        self.views[number] = Some(View { desk, table });
        // A domain's table has the holds of all its subscriptions: what is too much is judged in `exceeded`.
        let limits = Limits::new(joins.options.keep.saturating_add(KEPT.into()));
        joins.rounds.join(number, joins.ring, limits);
        if reliable {
            joins.reliable.join(number, position);
        }
        crash::point("topic.joined");
        let (bytes, word) = Word::Go {
            position,
            pool: joins.pool.id(),
            keep: joins.options.keep,
            reliable,
        }
        .pack();
        joins.bells.admit(peer.uid, true);
        self.count += 1;
        if let Err(error) = sender.try_send((&bytes, word)) {
            tracing::debug!(error = %error.error, "a subscriber left while it joined");
        }
        self.seats[number] = Some(Seat {
            sender,
            peer,
            reliable,
            left: false,
        });
    }

    /// Sees whether a subscriber is gone. The desk of one that has left stays as long as it shows that something is
    /// held and its process lives.
    fn look(&mut self, desk: usize, joins: &mut Joins<'_>) {
        let (Some(Some(seat)), Some(Some(view))) = (self.seats.get_mut(desk), self.views.get(desk))
        else {
            return;
        };
        let gone = seat.sender.topic_gone();
        if gone == Gone::No && !seat.left {
            return;
        }
        if !seat.left {
            seat.left = true;
            self.count -= 1;
            joins.bells.admit(seat.peer.uid, false);
            joins.reliable.leave(desk);
        }
        let is_over = gone == Gone::Died || view.is_empty() || seat.sender.topic_is_dead();
        // A round that has read the table of the other desk may still rely on this one.
        let has_ended = gone != Gone::No;
        if is_over || has_ended && !joins.rounds.is_under_way() && self.is_shown_twice(desk) {
            crash::point("topic.leaves");
            joins.rounds.leave(desk);
            self.views[desk] = None;
            self.seats[desk] = None;
        }
    }

    /// Says whether all that an ended subscription shows is also shown by another ended one: both read the table of one
    /// domain.
    fn is_shown_twice(&self, desk: usize) -> bool {
        let (Some(Some(seat)), Some(Some(view))) = (self.seats.get(desk), self.views.get(desk))
        else {
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

    /// Ends the subscription of a domain whose table has more than was agreed. What it holds stays held while its process lives.
    #[cold]
    pub(crate) fn exceeded(
        &mut self,
        desk: usize,
        keep: u32,
        reliable: &mut Reliable,
        bells: &Bells,
    ) {
        let (Some(Some(seat)), Some(Some(view))) = (self.seats.get(desk), self.views.get(desk))
        else {
            return;
        };
        let domain = seat.peer.domain;
        let of_domain = self.seats.iter().flatten();
        let subscriptions = of_domain.filter(|s| s.peer.domain == domain).count() as u64;
        let words = view.get().table.len() as u64;
        let slots = 0..u32::try_from(words).unwrap_or(u32::MAX);
        let held = slots.filter(|slot| view.get().table(*slot) != 0).count() as u64;
        let limits = Limits::new(keep.saturating_add(KEPT.into()));
        let most = subscriptions * u64::from(limits.most_found());
        let Some(Some(seat)) = self.seats.get_mut(desk) else {
            return;
        };
        if held <= most || seat.left {
            return;
        }
        let Peer { domain, pid, .. } = seat.peer;
        tracing::warn!(%domain, pid, held, most, "a subscriber holds more buffers than was agreed: it is expelled");
        seat.left = true;
        self.count -= 1;
        self.expelled += 1;
        bells.admit(seat.peer.uid, false);
        reliable.leave(desk);
        let (bytes, word) = Word::Expelled.pack();
        // A subscriber that keeps no rule need not hear it. The channel stays: by it the process's death is seen while
        // the manager is away.
        let _ = seat.sender.try_send((&bytes, word));
    }

    /// Takes the rank of a reliable subscriber, and tells it.
    #[cold]
    pub(crate) fn demote(&mut self, desk: usize) {
        let Some(Some(seat)) = self.seats.get_mut(desk) else {
            return;
        };
        let Peer { domain, pid, .. } = seat.peer;
        tracing::warn!(%domain, pid, "a reliable subscriber was behind for too long: it may miss messages from now on");
        seat.reliable = false;
        self.demoted += 1;
        let (bytes, word) = Word::Demoted.pack();
        // A subscriber that does not even read this word sees its rank end by what it misses.
        let _ = seat.sender.try_send((&bytes, word));
    }

    /// Returns what the desks show. `depth` is the ring's.
    pub(crate) fn seen(&self, tail: u64, depth: u32) -> Vec<SubscriberSeen> {
        let all = self.seats.iter().zip(&self.views);
        let both = all.filter_map(|(seat, view)| Some((seat.as_ref()?, view.as_ref()?)));
        let seen = both.map(|(seat, view)| {
            let desk = view.get();
            let win = Win::unpack(desk.win());
            let kept = (0..KEPT).map(|entry| desk.kept(entry));
            let kept = kept.filter(|slot| *slot != 0).count();
            let behind = ahead(win.low, sequence(tail) - 1).max(0);
            SubscriberSeen {
                domain: seat.peer.domain,
                pid: seat.peer.pid,
                uid: seat.peer.uid,
                reliable: seat.reliable,
                // A liar's desk shows any position.
                behind: behind.unsigned_abs().min(depth.into()),
                kept: u32::try_from(kept).unwrap_or(u32::MAX),
                more: desk.more() != 0,
                left: seat.left,
            }
        });
        seen.collect()
    }

    /// Gives all channels up. Subscribers learn it by their halves, or by the manager.
    pub(crate) fn end(&mut self) {
        self.joining.clear();
        self.seats.clear();
        self.views.clear();
        self.count = 0;
    }
}

/// Does what is due for a subscriber that joins. Its table, once the pool is assigned and it has said what it wishes.
fn advance(joining: &mut Joining, pool: &Pool) -> Result<Option<Table>, Error> {
    let sender = &mut joining.sender;
    if joining.wish.is_none()
        && let Some(message) = sender.try_recv_back()?
        && let Body::Inline(bytes) = message.body
    {
        joining.wish = Wish::parse(&bytes);
    }
    if !joining.assigned {
        joining.assigned = sender.try_assign(pool)?;
    }
    if sender.topic_gone() != Gone::No {
        return Err(tranship_core::ErrorKind::PeerGone.into());
    }
    Ok((joining.assigned && joining.wish.is_some())
        .then(|| topics::table(pool, sender.topic_peer().domain))
        .flatten())
}
