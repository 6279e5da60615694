//! Sleeps of readers and writers: of a task, and of a writer's thread.

use crate::domain::{DomainCore, Key};
use crate::error::Error;
use crate::link::{LinkShared, Receiver, Registration, Sender, put_task};
use crate::membership::Domain;
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};
use tranship_ring::{MAX_WORDS, Point, TIMED, Waker, sleep_once};

/// The channels of the readers for which a writer waits. A reader tells by its channel that it has let go of memory, or
/// taken a message ([`Receiver::topic_tells`]). It does not fence before: what it did as the sleep began may be seen
/// only by the next look.
#[derive(Clone, Default)]
pub struct AwaitedReaders(Vec<Arc<LinkShared>>);

impl AwaitedReaders {
    /// Returns the channels of these ends.
    pub fn of<'a>(senders: impl Iterator<Item = &'a Sender>) -> AwaitedReaders {
        AwaitedReaders(
            senders
                .map(|sender| Arc::clone(sender.link_arc()))
                .collect(),
        )
    }

    /// Says whether no reader would tell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sleeps once in the calling thread: until a reader tells or the manager has news, at most `most`. Looks before and
    /// after.
    pub fn sleep<T>(&self, most: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
        let news = self.0.first()?.domain.wake_word();
        let readers = self.0.iter().take(MAX_WORDS - 1);
        let points = readers.map(|link| link.ring.point());
        let mut points: Vec<_> = points.chain([Point::always(news)]).collect();
        sleep_once(&TIMED, &mut points, most, look).ok().flatten()
    }
}

impl std::fmt::Debug for AwaitedReaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("AwaitedReaders")
            .field(&self.0.len())
            .finish()
    }
}

/// The longest sleep: a manager that was killed sends no news.
const LOOK: Duration = Duration::from_millis(250);

/// A task's sleep: on the descriptors of channels, on the manager's news, and until a time. It ends with it.
pub struct Sleep {
    domain: DomainCore,
    key: Key,
    on: Vec<Registration>,
}

impl Sleep {
    /// Makes one that has not begun.
    pub fn new(domain: &Domain) -> Sleep {
        let domain = domain.core().clone();
        // A child's tasks are its parent's.
        let key = match domain.fork.is_child() {
            true => 0,
            false => domain.tasks.key(),
        };
        let on = Vec::new();
        Sleep { domain, key, on }
    }

    /// Begins a sleep of at most `most`. What comes from here on wakes the task. The caller looks again after it.
    ///
    /// # Errors
    /// `Forked`; `System` if the thread that wakes tasks, or its descriptors, cannot be made.
    pub fn begin<'a>(
        &mut self,
        receivers: impl Iterator<Item = &'a Receiver>,
        context: &Context<'_>,
        most: Duration,
    ) -> Result<(), Error> {
        self.begin_on(receivers.map(Receiver::link_arc), context, most)
    }

    /// Begins a writer's sleep of at most `most`, as [`begin`](Sleep::begin) does.
    ///
    /// # Errors
    /// As there.
    pub fn begin_for(
        &mut self,
        readers: &AwaitedReaders,
        context: &Context<'_>,
        most: Duration,
    ) -> Result<(), Error> {
        self.begin_on(readers.0.iter(), context, most)
    }

    fn begin_on<'a>(
        &mut self,
        links: impl Iterator<Item = &'a Arc<LinkShared>>,
        context: &Context<'_>,
        most: Duration,
    ) -> Result<(), Error> {
        self.domain.check_fork()?;
        self.on.clear();
        put_task(&self.domain, self.key, context.waker())?;
        let at = Instant::now() + most.min(LOOK);
        self.domain.tasks.wake_at(self.key, at);
        for link in links {
            let mut on = Registration::default();
            on.begin(link, context, Waker::Fences, None)?;
            self.on.push(on);
        }
        Ok(())
    }

    /// Says whether the manager has news. They are taken by the caller.
    pub fn has_news(&self) -> bool {
        self.domain.has_news()
    }

    /// Ends the sleep.
    pub fn end(&mut self) {
        self.on.clear();
        if !self.domain.fork.is_child() {
            self.domain.tasks.forget(self.key);
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Receiver, Sender};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// No timer ends the sleep.
    #[test]
    fn a_reader_that_tells_ends_a_writers_sleep() {
        let _dog = tranship_testkit::Watchdog::new();
        let here = Domain::embedded().expect("a domain");
        let listener = here.listen::<Receiver>("local:told").expect("a name");
        let writer = here.open::<Sender>("local:told").expect("a channel");
        let reader = listener.accept().expect("a channel");
        let awaited = AwaitedReaders::of([&writer].into_iter());
        for _ in 0..100 {
            let is_free = AtomicBool::new(false);
            let look = || is_free.load(Ordering::SeqCst).then_some(());
            std::thread::scope(|scope| {
                scope.spawn(
                    || {
                        while awaited.sleep(Duration::from_secs(3600), look).is_none() {}
                    },
                );
                while writer.link().ring.own().asleep().load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                is_free.store(true, Ordering::SeqCst);
                reader.topic_tells();
            });
        }
    }
}
