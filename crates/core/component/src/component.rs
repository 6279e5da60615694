//! A process of a program that `tranship run` started.

use crate::brief::{Brief, End, Part};
use crate::{Receiver, Sender};
use std::time::{Duration, Instant};
use tranship_core::{
    ChannelOptions, Domain, Error, ErrorKind, Listener, Opening, Pool, PoolOptions,
};
use tranship_queue::{Consumer, Producer, QueueOptions, Queues};
use tranship_sandbox::Sandbox;
use tranship_service::{Client, Service, ServiceOptions, Services};
use tranship_sys::service::Notifier;
use tranship_topic::{Publisher, Subscriber, SubscriberOptions, TopicOptions, Topics};

/// Memory of an end's pool whose size the file does not say.
const POOL_BYTES: u64 = 64 << 20;

/// How long a manager that has died is waited for, and the pause between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process of a program that `tranship run` started, in the manager's eyes a [`Domain`].
///
/// ```no_run
/// # mod tranship { pub use tranship_component as component; pub use tranship_core::Error; }
/// use tranship::component::Component;
///
/// let component = Component::connect()?;
/// let mut frames = component.receiver("frames")?;
/// let frame = frames.recv()?;
/// # Ok::<(), tranship::Error>(())
/// ```
///
/// An end that the program's file does not give to the component is `BadArgument`.
#[derive(Clone, Debug)]
pub struct Component {
    domain: Domain,
    brief: Brief,
}

impl Component {
    /// Joins the program's manager, with what the environment says about this component.
    ///
    /// Waits for the manager as [`Domain::connect`] does, and at most 10 s for one that is being started again.
    ///
    /// # Errors
    /// `BadArgument` in a process that `tranship run` did not start; those of [`Domain::connect`].
    pub fn connect() -> Result<Component, Error> {
        Component::join(true)
    }

    /// Joins the program's manager without the domain's helper thread, which wakes ten times a second.
    ///
    /// The program calls [`Domain::turn`] when the domain's descriptor is readable, and while it works a few times a
    /// second. Without work it then sleeps.
    ///
    /// # Errors
    /// As [`connect`](Component::connect).
    pub fn connect_alone() -> Result<Component, Error> {
        Component::join(false)
    }

    fn join(helper: bool) -> Result<Component, Error> {
        let brief = Brief::from_environment()?;
        let name = match brief.replica {
            0 => brief.name.clone(),
            replica => format!("{}.{replica}", brief.name),
        };
        // A thread that runs before the lock-down would keep its files: such a component does without.
        let helper = helper && !brief.locks;
        let join = || {
            let builder = Domain::builder().name(&name).helper_thread(helper);
            builder.autostart(false).connect()
        };
        let given_up = Instant::now() + PATIENCE;
        loop {
            match join() {
                // The supervisor is starting it again.
                Err(error) if error == ErrorKind::NoManager && Instant::now() < given_up => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                joined => {
                    return Ok(Component {
                        domain: joined?,
                        brief,
                    });
                }
            }
        }
    }

    /// Returns the component's domain, for all that the file does not say.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Returns what the supervisor told this component.
    #[must_use]
    pub fn brief(&self) -> &Brief {
        &self.brief
    }

    /// Offers a channel of which this component is the sender. It does not wait for the receiver.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Domain::listen`] and [`Domain::create_pool`].
    pub fn sender(&self, end: &str) -> Result<Sender, Error> {
        let told = self.brief.end(end, Part::Send)?;
        Sender::new(&self.domain, told, pool(told)?)
    }

    /// Gives a channel of which this component is the receiver. The first `recv` waits for the sender.
    ///
    /// # Errors
    /// `BadArgument`.
    pub fn receiver(&self, end: &str) -> Result<Receiver, Error> {
        let told = self.brief.end(end, Part::Receive)?;
        Ok(Receiver::new(self.domain.clone(), told.clone()))
    }

    /// Offers a channel of which this component is the sender, for a program that waits for many things at once. Each receiver that comes is
    /// a connection of its own, which ends with that receiver. A connection's own pool is as the file says.
    ///
    /// It does not wait.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Domain::listen`].
    pub fn listener(&self, end: &str) -> Result<Listener<tranship_core::Sender>, Error> {
        let told = self.brief.end(end, Part::Send)?;
        let options = told.channel().pool(pool(told)?);
        self.domain.listen_with(&told.name, options)
    }

    /// Opens a channel of which this component is the receiver, for a program that waits for many things at once. The receiver ends with its
    /// sender. Waits for the sender's component for at most `timeout`; `None` waits for ever.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Domain::open_with`], `TimedOut` among them.
    pub fn open(
        &self,
        end: &str,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<tranship_core::Receiver, Error> {
        let told = self.brief.end(end, Part::Receive)?;
        let options = ChannelOptions::new();
        let options = match timeout.into() {
            Some(timeout) => options.timeout(timeout),
            None => options,
        };
        self.domain.open_with(&told.name, options)
    }

    /// Opens a channel as [`open`](Component::open) does. It does not wait: the result is awaited, or looked at.
    ///
    /// # Errors
    /// `BadArgument`.
    pub fn opening(&self, end: &str) -> Result<Opening<tranship_core::Receiver>, Error> {
        let told = self.brief.end(end, Part::Receive)?;
        let options = ChannelOptions::new();
        Ok(self.domain.open_async(&told.name, options))
    }

    /// Makes the pool that the file describes for a channel of which this component is the sender.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Domain::create_pool`].
    pub fn create_pool(&self, end: &str) -> Result<Pool, Error> {
        let told = self.brief.end(end, Part::Send)?;
        self.domain.create_pool(pool(told)?)
    }

    /// Publishes a topic.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Topics::publish_with`].
    pub fn publisher(&self, end: &str) -> Result<Publisher, Error> {
        let told = self.brief.end(end, Part::Publish)?;
        let mut options = TopicOptions::new().pool(pool(told)?);
        if let Some(depth) = told.depth {
            options = options.depth(depth);
        }
        self.domain.publish_with(&told.name, options)
    }

    /// Subscribes to a topic.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Topics::subscribe_with`].
    pub fn subscriber(&self, end: &str) -> Result<Subscriber, Error> {
        let told = self.brief.end(end, Part::Subscribe)?;
        self.domain
            .subscribe_with(&told.name, SubscriberOptions::new())
    }

    /// Produces items of a queue.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Queues::produce_with`].
    pub fn producer(&self, end: &str) -> Result<Producer, Error> {
        let told = self.brief.end(end, Part::Produce)?;
        let mut options = QueueOptions::new().pool(pool(told)?);
        if let Some(depth) = told.depth {
            options = options.depth(depth);
        }
        self.domain.produce_with(&told.name, options)
    }

    /// Consumes items of a queue.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Queues::consume`].
    pub fn consumer(&self, end: &str) -> Result<Consumer, Error> {
        let told = self.brief.end(end, Part::Consume)?;
        self.domain.consume(&told.name)
    }

    /// Serves a service. Replicas serve it together.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Services::serve_with`].
    pub fn service(&self, end: &str) -> Result<Service, Error> {
        let told = self.brief.end(end, Part::Serve)?;
        let options = ServiceOptions::new().pool(pool(told)?).shared();
        self.domain.serve_with(&told.name, options)
    }

    /// Opens a client of a service.
    ///
    /// Waits until the service is there.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Services::client_with`].
    pub fn client(&self, end: &str) -> Result<Client, Error> {
        let told = self.brief.end(end, Part::Call)?;
        let options = ServiceOptions::new().pool(pool(told)?);
        self.domain.client_with(&told.name, options)
    }

    /// Opens a client of a service, for awaiting in any runtime.
    ///
    /// # Errors
    /// `BadArgument`; those of [`Services::client_async`].
    pub async fn client_async(&self, end: &str) -> Result<Client, Error> {
        let told = self.brief.end(end, Part::Call)?;
        let options = ServiceOptions::new().pool(pool(told)?);
        self.domain.client_async(&told.name, options).await
    }

    /// Says that this component is ready, so that components that depend on it are started. If the file says `lock`,
    /// the process is locked down first ([`Sandbox`]): call it when everything is open, before other threads start.
    ///
    /// It does not block.
    ///
    /// # Errors
    /// Those of [`Sandbox::lock_down`]; `System` if the supervisor cannot be told.
    pub fn ready(&self) -> Result<(), Error> {
        let cannot = |error| tranship_core::error::system("telling the supervisor")(error);
        // A process that is locked down makes no socket.
        let supervisor = Notifier::from_environment(false).map_err(cannot)?;
        if self.brief.locks {
            Sandbox::new().lock_down()?;
        }
        match supervisor {
            Some(supervisor) => supervisor.say("READY=1").map_err(cannot),
            None => Ok(()),
        }
    }
}

fn pool(told: &End) -> Result<PoolOptions, Error> {
    let options = PoolOptions::new(told.pool.unwrap_or(POOL_BYTES)).name(&told.name);
    Ok(match told.trust()? {
        Some(trust) => options.trust(trust),
        None => options,
    })
}
