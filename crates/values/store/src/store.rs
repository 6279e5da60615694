//! A store as a program sees it: the same calls in the process that keeps the values and in all others.

use crate::ask::{Ask, LONGEST_KEY, Said, Verb};
use crate::home::{Host, Reply, Spot};
use crate::options::{self, StoreOptions};
use crate::table::Content;
use crate::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tranship_core::{Aggregate, Body, Domain, Error, ErrorKind, INLINE_BYTES, Message};
use tranship_service::{Call, CallError, Client, Services};

/// Time for which a question is repeated if the store could not send the answer. This process may be slow to agree to
/// the value's pool. A store that ends fails the next try.
const UNSENT: Duration = Duration::from_secs(120);
/// The longest pause between two tries.
const LONG_PAUSE: Duration = Duration::from_millis(128);
/// How long a wait that is given up looks whether a value came meanwhile.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Stores of a [`Domain`].
pub trait Stores {
    /// Makes a store under a name. It ends with its last handle in this process.
    ///
    /// # Errors
    /// `NameTaken`, `Access`: the name is not to be had; and as [`Domain::create_pool`].
    fn create_store(&self, name: &str, options: StoreOptions) -> Result<Store, Error>;

    /// Joins the store of that name, and waits until there is one.
    ///
    /// # Errors
    /// As [`Services::client`].
    fn store(&self, name: &str) -> Result<Store, Error>;

    /// Joins the store of that name, or fails with `TimedOut` after `timeout`.
    ///
    /// # Errors
    /// As [`store`](Stores::store), and `TimedOut`.
    fn store_timeout(&self, name: &str, timeout: Duration) -> Result<Store, Error>;

    /// Joins the store of that name, for awaiting in any runtime.
    ///
    /// # Errors
    /// As [`store`](Stores::store).
    fn store_async(&self, name: &str) -> impl Future<Output = Result<Store, Error>> + Send;
}

impl Stores for Domain {
    fn create_store(&self, name: &str, options: StoreOptions) -> Result<Store, Error> {
        let home = Host::new(self, name, &options)?;
        Ok(Store::new(name, Side::Home(home)))
    }

    fn store(&self, name: &str) -> Result<Store, Error> {
        let client = self.client_with(name, options::ends())?;
        Store::away(name, client)
    }

    fn store_timeout(&self, name: &str, timeout: Duration) -> Result<Store, Error> {
        let options = options::ends().timeout(timeout);
        let client = self.client_with(name, options)?;
        Store::away(name, client)
    }

    async fn store_async(&self, name: &str) -> Result<Store, Error> {
        let client = self.client_async(name, options::ends()).await?;
        Store::away(name, client)
    }
}

/// Values by key, and queues of values, which one process keeps for many. Clones are handles of one store.
///
/// A value travels by reference: all readers see the same pages, read-only. A value is as immutable as its writer is honest.
///
/// Crash: values of a process that died stay, unless [`StoreOptions::end_with_owner`] says otherwise. If the process that
/// keeps the store dies, every call fails with `PeerDied` or `PeerGone`; values that a reader holds stay readable.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    side: Side,
    marks: AtomicU32,
}

#[derive(Debug)]
enum Side {
    Home(Host),
    Away(
        Client,
        #[expect(dead_code, reason = "held: its end tells the store")] Call,
    ),
}

/// The answer to a question.
#[derive(Debug)]
pub enum Got {
    /// It is done. The number is the length or the bytes that were asked for, or 0.
    Done(u64),
    /// The value.
    Value(Value),
}

impl Store {
    fn new(name: &str, side: Side) -> Store {
        let inner = Inner {
            name: name.into(),
            side,
            marks: AtomicU32::new(1),
        };
        Store {
            inner: Arc::new(inner),
        }
    }

    fn away(name: &str, client: Client) -> Result<Store, Error> {
        let here = Ask::new(Verb::Presence, b"").to_bytes();
        let here = client.begin(&here[..]).map_err(|failed| failed.error)?;
        Ok(Store::new(name, Side::Away(client, here)))
    }

    /// Returns the name that it was made with.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Whether this process keeps the values.
    pub fn is_home(&self) -> bool {
        matches!(self.inner.side, Side::Home(_))
    }

    /// Keeps a value under a key that has none, until it is deleted or evicted.
    pub fn put(&self, key: &[u8], value: &Value) -> Wait {
        self.ask(Ask::new(Verb::Put, key), Some(value))
    }

    /// Keeps a value for one taker. No quota evicts it; 60 s after its process ended it goes.
    pub fn park(&self, key: &[u8], value: &Value) -> Wait {
        self.ask(Ask::new(Verb::Park, key), Some(value))
    }

    /// Returns the value of a key, and waits for it, `None` for ever.
    pub fn get(&self, key: &[u8], wait: Option<Duration>) -> Wait {
        self.waiting(Verb::Get, key, wait)
    }

    /// Returns the value of a key and forgets it, and waits for it, `None` for ever.
    pub fn take(&self, key: &[u8], wait: Option<Duration>) -> Wait {
        self.waiting(Verb::Take, key, wait)
    }

    /// Forgets a value. Its readers keep it.
    pub fn delete(&self, key: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Delete, key), None)
    }

    /// Keeps a value from being evicted, or ends that.
    pub fn pin(&self, key: &[u8], pinned: bool) -> Wait {
        let verb = if pinned { Verb::Pin } else { Verb::Unpin };
        self.ask(Ask::new(verb, key), None)
    }

    /// Asks for the bytes that values under keys have.
    pub fn bytes(&self) -> Wait {
        self.ask(Ask::new(Verb::Bytes, b""), None)
    }

    /// Appends a value to a queue of at most `most` items, 0 for any number, and waits for room.
    pub fn push(&self, queue: &[u8], value: &Value, most: u32, wait: Option<Duration>) -> Wait {
        let number = u64::from(most) << 32 | self.mark();
        let ask = Ask {
            wait,
            number,
            ..Ask::new(Verb::Push, queue)
        };
        self.ask(ask, Some(value))
    }

    /// Takes the first item of a queue, and waits for one.
    pub fn pop(&self, queue: &[u8], wait: Option<Duration>) -> Wait {
        self.waiting(Verb::Pop, queue, wait)
    }

    /// Says that an item of a queue is finished.
    pub fn finish(&self, queue: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Finish, queue), None)
    }

    /// Waits until all items that a queue ever had are finished. An item whose taker ended before it finished the item
    /// counts as finished; the next wait for the queue that ends then fails with `PeerDied`, once.
    pub fn join(&self, queue: &[u8]) -> Wait {
        self.waiting(Verb::Join, queue, None)
    }

    /// Asks how many items a queue has.
    pub fn length(&self, queue: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Length, queue), None)
    }

    /// Opens a queue, which stays while a domain has it open, and 60 s longer.
    pub fn open(&self, queue: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Open, queue), None)
    }

    /// Closes a queue.
    pub fn close(&self, queue: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Close, queue), None)
    }

    /// Makes a block of `len` zeros that every client may write, and opens it. The last domain that detaches it frees it.
    pub fn block(&self, key: &[u8], len: u64) -> Wait {
        let ask = Ask {
            number: len,
            ..Ask::new(Verb::Block, key)
        };
        self.ask(ask, None)
    }

    /// Opens a block.
    pub fn attach(&self, key: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Attach, key), None)
    }

    /// Closes a block.
    pub fn detach(&self, key: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Detach, key), None)
    }

    /// Forgets a block's name. The domains that have it open keep it.
    pub fn unlink(&self, key: &[u8]) -> Wait {
        self.ask(Ask::new(Verb::Unlink, key), None)
    }

    fn mark(&self) -> u64 {
        u64::from(self.inner.marks.fetch_add(1, Ordering::Relaxed)) // a number: any that is new
    }

    fn waiting(&self, verb: Verb, key: &[u8], wait: Option<Duration>) -> Wait {
        let number = self.mark();
        let ask = Ask {
            wait,
            number,
            ..Ask::new(verb, key)
        };
        self.ask(ask, None)
    }

    fn ask(&self, ask: Ask<'_>, value: Option<&Value>) -> Wait {
        let mut wait = Wait {
            store: self.clone(),
            ask: ask.to_bytes(),
            value: value.cloned(),
            state: Waiting::Over,
            tries: 0,
            unsent_since: None,
            mark: ask.number & u64::from(u32::MAX),
        };
        wait.state = match ask.key.len() {
            ..=LONGEST_KEY => wait.begin(),
            long => {
                let text = format!("a key of {long} bytes: it has at most {LONGEST_KEY}");
                Waiting::Failed(Error::new(ErrorKind::BadArgument, text))
            }
        };
        wait
    }
}

impl Inner {
    /// Sends a question, in the message itself if it is short and brings no value.
    fn call(&self, client: &Client, head: &[u8], value: Option<&Value>) -> Result<Call, Error> {
        if value.is_none() && head.len() <= INLINE_BYTES {
            return client.begin(head).map_err(|failed| failed.error);
        }
        let mut first = client.alloc(head.len())?;
        first.write(0, head)?;
        let mut message = Aggregate::new();
        message
            .push_back(first.freeze())
            .map_err(|failed| failed.error)?;
        if let Some(value) = value {
            value.lay(&mut message)?;
        }
        client.begin(message).map_err(|failed| failed.error)
    }
}

#[derive(Debug)]
enum Waiting {
    Here(Arc<Spot>),
    Far(Call),
    Failed(Error),
    Over,
}

/// A question whose answer is waited for. Dropping it ends the wait: an item that comes all the same goes back.
#[derive(Debug)]
#[must_use = "a question that is dropped is given up"]
pub struct Wait {
    store: Store,
    ask: Vec<u8>,
    value: Option<Value>,
    state: Waiting,
    tries: u32,
    /// When the store first could not send the answer.
    unsent_since: Option<Instant>,
    mark: u64,
}

impl Wait {
    fn begin(&self) -> Waiting {
        let inner = &self.store.inner;
        match &inner.side {
            Side::Home(Host { home, .. }) => {
                let spot = Arc::new(Spot::default());
                let caller = (home.who, Reply::Here(Arc::clone(&spot)));
                if let Some(ask) = Ask::read(&self.ask) {
                    home.ask(&ask, self.value.clone(), caller);
                }
                Waiting::Here(spot)
            }
            Side::Away(client, _) => {
                let begun = inner.call(client, &self.ask, self.value.as_ref());
                begun.map_or_else(Waiting::Failed, Waiting::Far)
            }
        }
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// `NoSuchName`: no value, block or item in the time given. `Full`: the queue stayed full. `NameTaken`: the key has a
    /// value. `Quota`: pinned values leave no room. `BadArgument`: more items were finished than there were, or the key is too
    /// long. `PeerDied`, `PeerGone`: the process that keeps the store ended; and as a channel's send.
    pub fn wait(mut self) -> Result<Got, Error> {
        loop {
            let soon = Instant::now() + Duration::from_secs(3600);
            if let Some(got) = self.wait_until(soon)? {
                return Ok(got);
            }
        }
    }

    /// Waits for the answer until then. `None`: it has not come yet.
    ///
    /// # Errors
    /// As [`wait`](Wait::wait).
    pub fn wait_until(&mut self, until: Instant) -> Result<Option<Got>, Error> {
        loop {
            let answer = match std::mem::replace(&mut self.state, Waiting::Over) {
                Waiting::Over => return Err(ErrorKind::Stale.into()),
                Waiting::Failed(error) => return Err(error),
                Waiting::Here(spot) => match self.here(&spot, until) {
                    Some(content) => Some(of_content(content)),
                    None => {
                        self.state = Waiting::Here(spot);
                        return Ok(None);
                    }
                },
                Waiting::Far(call) => match call.wait_until(until) {
                    Ok(answer) => self.far(answer),
                    Err(call) => {
                        self.state = Waiting::Far(call);
                        return Ok(None);
                    }
                },
            };
            match answer {
                Some(answer) => return self.got(answer).map(Some),
                None => {
                    std::thread::sleep(self.pause(until));
                    self.state = self.begin();
                }
            }
        }
    }

    fn here(&self, spot: &Spot, until: Instant) -> Option<Content<Value>> {
        match &self.store.inner.side {
            Side::Home(host) => host.home.wait(spot, until),
            Side::Away(..) => None,
        }
    }

    /// Returns how long to wait before the store is asked again: the longer the more often it was.
    fn pause(&self, until: Instant) -> Duration {
        let pause = Duration::from_micros(1 << (9 + self.tries.min(8)));
        let left = until.saturating_duration_since(Instant::now());
        pause.min(LONG_PAUSE).min(left)
    }

    /// Reads an answer. `None`: the store could not send it, and is asked again.
    fn far(
        &mut self,
        answer: Result<Message, CallError<std::convert::Infallible>>,
    ) -> Option<Answer> {
        self.tries += 1;
        match answer {
            Ok(message) => of_message(message),
            Err(CallError::Broken(error))
                if error == ErrorKind::PeerDied && self.only_reads() && self.may_try_again() =>
            {
                None
            }
            Err(failed) => Some(Answer::Failed(failed.into())),
        }
    }

    fn may_try_again(&mut self) -> bool {
        let since = self.unsent_since.get_or_insert_with(Instant::now);
        since.elapsed() < UNSENT
    }

    fn got(&self, answer: Answer) -> Result<Got, Error> {
        let of_key = || match Ask::read(&self.ask) {
            Some(ask) => format!("{:?}", String::from_utf8_lossy(ask.key)),
            None => String::new(),
        };
        let store = &self.store.inner.name;
        let (kind, text) = match answer {
            Answer::Value(value) => return Ok(Got::Value(value)),
            Answer::Failed(error) => return Err(error),
            Answer::Said(said) => match said {
                Said::Done(number) => return Ok(Got::Done(number)),
                Said::Absent => (
                    ErrorKind::NoSuchName,
                    format!("store {store:?} has nothing under {}", of_key()),
                ),
                Said::Full(items) => (
                    ErrorKind::Full,
                    format!("queue {} stayed full with {items} items", of_key()),
                ),
                Said::Exists => (
                    ErrorKind::NameTaken,
                    format!(
                        "store {store:?} has a value under {}: delete it before another is put",
                        of_key()
                    ),
                ),
                Said::Cancelled => (ErrorKind::Stale, "the wait was given up".into()),
                Said::NoRoom(quota) => (
                    ErrorKind::Quota,
                    format!(
                        "store {store:?} may keep {quota} bytes, and what is pinned or in use leaves no room for {}",
                        of_key()
                    ),
                ),
                Said::Finished => (
                    ErrorKind::BadArgument,
                    format!(
                        "more items of queue {} were finished than were put",
                        of_key()
                    ),
                ),
                Said::Left { items, pid } => (
                    ErrorKind::PeerDied,
                    format!(
                        "{items} items of queue {} were taken and not finished by processes that have ended, the last of them process {pid}: they count as finished, and can be put again",
                        of_key()
                    ),
                ),
                Said::Bad => (
                    ErrorKind::BadArgument,
                    format!(
                        "store {store:?} does not know the question, or has as many keys as it takes"
                    ),
                ),
            },
        };
        Err(Error::new(kind, text))
    }

    /// Puts back what came for a wait that was given up.
    fn put_back(&self, value: &Value) {
        let Some(ask) = Ask::read(&self.ask) else {
            return;
        };
        let verb = match ask.verb {
            Verb::Pop => Verb::Unpop,
            Verb::Take => Verb::Park,
            _ => return,
        };
        let mut back = self.store.ask(Ask::new(verb, ask.key), Some(value));
        // Without the store there is no queue to put it back to.
        let _ = back.wait_until(Instant::now() + LAST_LOOK);
        back.state = Waiting::Over;
    }

    fn give_up(&mut self) -> Option<Value> {
        let mut cancel = self.store.ask(
            Ask {
                number: self.mark,
                ..Ask::new(Verb::Cancel, b"")
            },
            None,
        );
        let last = Instant::now() + LAST_LOOK;
        let _ = cancel.wait_until(last); // without the store nothing comes
        cancel.state = Waiting::Over;
        match self.wait_until(last) {
            Ok(Some(Got::Value(value))) => Some(value),
            _ => None,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if matches!(self.state, Waiting::Here(_) | Waiting::Far(_))
            && self.waits()
            && let Some(value) = self.give_up()
        {
            self.put_back(&value);
        }
        self.state = Waiting::Over;
    }
}

impl Wait {
    fn waits(&self) -> bool {
        self.is_one_of(&[Verb::Get, Verb::Take, Verb::Push, Verb::Pop, Verb::Join])
    }

    /// Whether it may be asked again, if the answer did not come.
    fn only_reads(&self) -> bool {
        self.is_one_of(&[Verb::Get, Verb::Take, Verb::Pop])
    }

    fn is_one_of(&self, verbs: &[Verb]) -> bool {
        Ask::read(&self.ask).is_some_and(|ask| verbs.contains(&ask.verb))
    }
}

enum Answer {
    Value(Value),
    Said(Said),
    Failed(Error),
}

fn of_content(content: Content<Value>) -> Answer {
    match content {
        Content::Said(said) => Answer::Said(said),
        Content::Value(value, _) => Answer::Value(value),
    }
}

fn of_message(mut message: Message) -> Option<Answer> {
    let empty = Body::Released(None);
    let answer = match std::mem::replace(&mut message.body, empty) {
        Body::Inline(bytes) => Said::read(&bytes).map(Answer::Said),
        body => Value::of(body).map(Answer::Value),
    };
    let lie = || Error::new(ErrorKind::PeerViolation, "the store's answer is none");
    Some(answer.unwrap_or_else(|| Answer::Failed(lie())))
}
