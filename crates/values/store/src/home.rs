//! The process that keeps the values: a thread that answers, and the table that it and this process's own calls share.

use crate::ask::{Ask, Said, Verb};
use crate::desk::{Desk, Seat};
use crate::options::{self, StoreOptions};
use crate::table::{Answer, Content, Table};
use crate::value::Value;
use crate::wait::Who;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tranship_core::error::{Limit, Shortage, system};
use tranship_core::{
    Aggregate, Body, Buffer, BufferMut, Domain, Error, ErrorKind, Pool, PoolId, PoolOptions,
    SendError, Trust,
};
use tranship_service::{Request, Service, Services};

/// Time between two looks at which clients are gone.
const LOOK: Duration = Duration::from_secs(1);

/// Time for the manager to grant the memory of a block. Clients are not answered meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks whether memory is short, or the manager is late.
const LATE: Duration = Duration::from_millis(50);

/// Most refused pools that are known. Without them an answer fails once more.
const MOST_REFUSED: usize = 4096;
/// Most copies, and most blocks.
const SLOTS: u32 = 16_384;
/// Memory of both comes in such pieces.
const CHUNK: u64 = 4 << 20;

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Reply {
    Far(Box<Request>),
    Here(Arc<Spot>),
}

/// Where a caller of this process finds its answer.
#[derive(Debug, Default)]
pub(crate) struct Spot(Mutex<Option<Content<Value>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Spot {
    fn take(&self) -> Option<Content<Value>> {
        lock(&self.0).take()
    }
}

#[derive(Debug)]
struct State {
    table: Table<Value, Reply>,
    /// A question of each client that is answered when it is gone.
    present: HashMap<Who, Vec<Request>>,
    /// Pools of dead writers that clients were refused.
    refused: HashSet<(Who, PoolId)>,
    looked: Instant,
}

/// The side of a store that keeps the values.
#[derive(Debug)]
pub(crate) struct Home {
    state: Mutex<State>,
    pub(crate) desk: Desk,
    service: Service,
    pub(crate) who: Who,
    /// For lists of pieces, and copies of values whose writer is gone.
    copies: Pool,
    /// For blocks, which all may write.
    blocks: Pool,
}

impl Home {
    fn new(domain: &Domain, name: &str, options: &StoreOptions) -> Result<Home, Error> {
        let desk = Desk::new()?;
        let service = options::ends().clients_per_user(options.clients);
        let service = domain.serve_with(name, service.bell(desk.bell()))?;
        let pool = |name: &str| {
            let options = PoolOptions::new(options.pool_bytes).name(name);
            options.slots(SLOTS).chunk_bytes(CHUNK)
        };
        Ok(Home {
            state: Mutex::new(State {
                table: Table::new(options.quota, options.end_with_owner),
                present: HashMap::new(),
                refused: HashSet::new(),
                looked: Instant::now(),
            }),
            desk,
            service,
            who: domain.id().0,
            copies: domain.create_pool(pool("store").allow_forward(true))?,
            blocks: domain.create_pool(pool("blocks").trust(Trust::Full))?,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Answers a question.
    pub(crate) fn ask(&self, ask: &Ask<'_>, value: Option<Value>, caller: (Who, Reply)) {
        let value = match ask.verb {
            Verb::Block => match self.block(ask) {
                Ok(block) => Some(block),
                Err(said) => return self.deliver(vec![plain(caller.1, said)]),
            },
            _ => value,
        };
        let value = value.map(|value| {
            let bytes = value.bytes();
            (value, bytes)
        });
        let mut out = Vec::new();
        let now = Instant::now();
        self.state().table.ask(now, ask, value, caller, &mut out);
        self.deliver(out);
    }

    /// Makes a block of zeros, unless its key has a value.
    fn block(&self, ask: &Ask<'_>) -> Result<Value, Said> {
        if self.state().table.has(ask.key) {
            return Err(Said::Exists);
        }
        // Whatever keeps a block from being made, its caller may ask for a smaller one.
        let no_room = Said::NoRoom(self.blocks.max_bytes());
        let block = usize::try_from(ask.number).ok();
        let block = block.and_then(|len| zeros(&self.blocks, len).ok());
        Value::new(vec![block.ok_or(no_room)?]).ok_or(Said::Bad)
    }

    /// Says what was decided. A value that does not arrive goes back, and may be answered to the next.
    fn deliver(&self, mut out: Vec<Answer<Value, Reply>>) {
        while !out.is_empty() {
            let mut more = Vec::new();
            for Answer { to, what } in out {
                self.say(to, what, &mut more);
            }
            out = more;
        }
    }

    fn say(&self, to: Reply, what: Content<Value>, more: &mut Vec<Answer<Value, Reply>>) {
        match (to, what) {
            (Reply::Here(spot), what) => {
                *lock(&spot.0) = Some(what);
                self.desk.ring();
            }
            (Reply::Far(request), Content::Said(said)) => {
                // A client that is gone needs no answer.
                let _ = request.reply(&said.to_bytes()[..]);
            }
            (Reply::Far(request), Content::Value(value, place)) => {
                let who = request.client().peer.0;
                let value = self.fit_for(who, value);
                if let Err(error) = answer(*request, &value, &self.copies) {
                    let value = self.kept(who, value, &error);
                    let bytes = value.bytes();
                    let mut state = self.state();
                    let now = Instant::now();
                    state.table.take_back(now, (value, bytes), place, more);
                }
            }
        }
    }

    /// Returns the value to answer with: a copy, if the client was refused a pool that the value lies in. Else each further value of a
    /// dead writer would fail once, and a client that is unlucky would get none while others take the copies.
    fn fit_for(&self, who: Who, value: Value) -> Value {
        let is_refused = {
            let refused = &self.state().refused;
            let mut pieces = value.pieces().iter();
            !refused.is_empty() && pieces.any(|piece| refused.contains(&(who, piece.id().pool())))
        };
        match is_refused {
            true => value.copy_to(&self.copies).unwrap_or(value),
            false => value,
        }
    }

    /// Returns the value to keep after an answer failed: a copy, if the reason may lie in the value's pool.
    fn kept(&self, who: Who, value: Value, error: &Error) -> Value {
        let about_peer = [
            ErrorKind::PeerGone,
            ErrorKind::PeerDied,
            ErrorKind::PeerViolation,
            ErrorKind::Full,
            ErrorKind::PoolPending,
        ];
        if about_peer.contains(&error.kind()) {
            return value;
        }
        // The pool went with its writer, and its number is never used again.
        if *error == ErrorKind::Stale {
            let mut state = self.state();
            if state.refused.len() >= MOST_REFUSED {
                state.refused.clear();
            }
            let pools = value.pieces().iter().map(|piece| piece.id().pool());
            let others = pools.filter(|pool| *pool != self.copies.id());
            state.refused.extend(others.map(|pool| (who, pool)));
        }
        value.copy_to(&self.copies).unwrap_or(value)
    }

    /// Takes a client's question.
    fn take(&self, mut request: Request) {
        let who = request.client().peer.0;
        let (head, value) = match request.take_body() {
            Body::Inline(bytes) => (bytes.to_vec(), None),
            body => match Value::of(body).map(Value::into_pieces) {
                Some(mut pieces) => {
                    let head = pieces.remove(0).to_vec();
                    (head, Value::new(pieces))
                }
                None => (Vec::new(), None),
            },
        };
        match Ask::read(&head) {
            Some(ask) if ask.verb == Verb::Presence => {
                self.state().present.entry(who).or_default().push(request);
            }
            Some(ask) => self.ask(&ask, value, (who, Reply::Far(Box::new(request)))),
            None => self.deliver(vec![plain(Reply::Far(Box::new(request)), Said::Bad)]),
        }
    }

    /// Ends what is late, and once in a while what clients had that are gone.
    fn tick(&self, now: Instant) {
        let mut out = Vec::new();
        let mut state = self.state();
        let look = now >= state.looked + LOOK;
        if look {
            state.table.expire(now, &mut out);
            state.looked = now;
            for gone in gone(&mut state.present) {
                state.table.gone(gone, now, &mut out);
                state.refused.retain(|(who, _)| *who != gone.0);
            }
        }
        drop(state);
        self.deliver(out);
    }

    /// Ends what is late: a caller at home does not wait for the thread.
    pub(crate) fn end_late(&self) {
        let mut out = Vec::new();
        let now = Instant::now();
        let mut state = self.state();
        if state.table.soonest().is_some_and(|soonest| now >= soonest) {
            state.table.expire(now, &mut out);
        }
        drop(state);
        self.deliver(out);
    }

    /// Takes and answers what clients ask, until then at the latest. The caller has the desk.
    fn attend(&self, until: Instant) -> Result<(), Error> {
        let now = Instant::now();
        let soonest = self.state().table.soonest();
        let until = soonest.map_or(until, |soonest| soonest.min(until));
        let asked = self
            .service
            .recv_timeout(until.saturating_duration_since(now).min(LOOK));
        self.desk.rise();
        match asked {
            Ok(request) => self.take(request),
            Err(error) if error == ErrorKind::TimedOut => {}
            Err(error) => return Err(error),
        }
        self.end_late();
        self.tick(Instant::now());
        Ok(())
    }

    /// Waits for the answer to a question of this process until then. The caller answers clients meanwhile, if no other thread does:
    /// so a client's item wakes one thread and not two.
    pub(crate) fn wait(&self, spot: &Spot, until: Instant) -> Option<Content<Value>> {
        if let Some(answer) = spot.take() {
            return Some(answer);
        }
        let mut visit = self.desk.visit();
        loop {
            let answer = spot.take();
            if answer.is_some() || Instant::now() >= until {
                return answer;
            }
            match visit.sit_or_wait(until, || lock(&spot.0).is_some()) {
                // Without clients the store goes on for this process.
                Seat::Taken => drop(self.attend(until)),
                Seat::Waited => self.end_late(),
            }
        }
    }
}

/// Allocates without waiting for releases. It waits for a manager that has not answered yet: memory is not short there.
fn alloc_now(pool: &Pool, len: usize) -> Result<BufferMut, Error> {
    let until = Instant::now() + PATIENCE;
    let mut tried = pool.try_alloc(len);
    while tried.as_ref().is_err_and(is_late) && Instant::now() < until {
        tried = pool.alloc_timeout(len, LATE);
    }
    tried
}

/// Whether an allocation waits for the manager, or for another allocation that does.
fn is_late(error: &Error) -> bool {
    let shortage = error.find::<Shortage>();
    shortage.is_some_and(|short| matches!(short.limit, Limit::Late | Limit::Queue))
}

/// A buffer of zeros, written piece by piece: others can write its pool, so there is no slice of it.
fn zeros(pool: &Pool, len: usize) -> Result<Buffer, Error> {
    let mut block = alloc_now(pool, len)?;
    let zeros = [0; 1 << 14];
    for at in (0..len).step_by(zeros.len()) {
        let part = zeros.get(..zeros.len().min(len - at)).unwrap_or_default();
        block.write(at, part)?;
    }
    Ok(block.freeze())
}

/// Removes the clients that are gone. Returns them, and their processes.
fn gone(present: &mut HashMap<Who, Vec<Request>>) -> Vec<(Who, u32)> {
    let mut gone = Vec::new();
    present.retain(|who, requests| {
        let pid = requests.first().map(|request| request.client().peer_pid);
        requests.retain(|request| !request.is_cancelled());
        if requests.is_empty() {
            gone.push((*who, pid.unwrap_or(0)));
        }
        !requests.is_empty()
    });
    gone
}

fn plain(to: Reply, said: Said) -> Answer<Value, Reply> {
    Answer {
        to,
        what: Content::Said(said),
    }
}

/// Answers with a value. The list of several pieces lies in `lists`: the pieces' pools are other domains'.
fn answer(request: Request, value: &Value, lists: &Pool) -> Result<(), Error> {
    if let [piece] = value.pieces() {
        let sent = request.reply(piece.clone());
        return sent.map_err(|failed: SendError<_>| failed.error);
    }
    let mut message = Aggregate::new();
    message.set_list_pool(lists);
    value.lay(&mut message)?;
    request.reply(message).map_err(|failed| failed.error)
}

/// Answers until the store is closed, while no caller of this process does. A service that fails now may go on when the manager does.
fn serve(home: &Home) {
    while home.desk.sit() {
        match home.attend(Instant::now() + LOOK) {
            Ok(()) => {}
            Err(error) if error == ErrorKind::CutOff || error == ErrorKind::Forked => return,
            Err(_) => thread::sleep(LATE),
        }
    }
}

/// A home with its thread, which ends with it.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) home: Arc<Home>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Host {
    pub(crate) fn new(domain: &Domain, name: &str, options: &StoreOptions) -> Result<Host, Error> {
        let home = Arc::new(Home::new(domain, name, options)?);
        let thread = thread::Builder::new().name("tranship-store".into());
        let its = Arc::clone(&home);
        let thread = thread
            .spawn(move || serve(&its))
            .map_err(system("a thread"))?;
        Ok(Host {
            home,
            thread: Some(thread),
            process: std::process::id(),
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A forked child has no such thread, and another thread may have had the lock.
        if self.process != std::process::id() {
            return;
        }
        self.home.desk.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was reported where it happened
        }
    }
}
