//! Typed services: a trait whose methods are called in another process.

use crate::answer::{Answer, came, with};
use crate::message::Message;
use crate::pass::{Packed, Parcel, Pass};
use crate::streams::Streaming;
use crate::value::Draft;
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tranship_core::{Domain, Error, ErrorKind};
use tranship_service::{self as service, CallOptions, Request, ServiceOptions, Services};

/// A trait with `#[tranship::service]`, as `dyn Trait`.
///
/// The attribute implements this trait, and defines a trait `TraitClient` with the methods of [`Client<dyn
/// Trait>`](Client).
pub trait Interface: Send + Sync + 'static {
    /// Returns the texts that both sides compare: one for all arguments, one for all results.
    #[doc(hidden)]
    fn texts() -> [String; 2];

    /// Calls the method that the request names, and answers.
    #[doc(hidden)]
    fn dispatch(&self, request: Request) -> Result<(), Error>;
}

/// Unpacks the arguments of a request. A request of this method has `buffers` buffers, and bytes if `bytes` says so.
#[doc(hidden)]
pub fn arguments(request: &mut Request, buffers: usize, bytes: bool) -> Result<Parcel, Error> {
    Parcel::unpack(request.take_body(), buffers, bytes)
}

/// Makes the error for a method number that no method has. The two sides' texts were equal, so the client breaks the
/// protocol.
#[doc(hidden)]
pub fn no_method(request: &Request) -> Error {
    let text = format!(
        "method {} was called, which the service does not have",
        request.method()
    );
    Error::new(ErrorKind::PeerViolation, text)
}

/// A client of the service `S`, which is `dyn Trait` of a trait with `#[tranship::service]`. The trait `TraitClient`
/// gives the client its methods.
///
/// Each method waits for its result; `method_async` awaits it. Clones share the connection. Any thread and any task may call.
pub struct Client<S: ?Sized> {
    client: service::Client,
    options: CallOptions,
    kind: PhantomData<fn(&S)>,
}

impl<S: ?Sized> Clone for Client<S> {
    fn clone(&self) -> Self {
        Client {
            client: self.client.clone(),
            options: self.options,
            kind: PhantomData,
        }
    }
}

impl<S: ?Sized> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.fmt(f)
    }
}

fn typed<S: Interface + ?Sized>(options: ServiceOptions) -> ServiceOptions {
    let [arguments, results] = S::texts();
    options.types(&arguments, &results)
}

impl<S: Interface + ?Sized> Client<S> {
    /// Connects to a service. Waits until the service exists and takes this client.
    ///
    /// # Errors
    /// As [`Services::client`]. `ChannelBind`: the two sides' definitions differ; the text names the method and its argument, or its result.
    pub fn open(domain: &Domain, address: &str) -> Result<Client<S>, Error> {
        Client::open_with(domain, address, ServiceOptions::new())
    }

    /// Connects to a service, with options.
    ///
    /// # Errors
    /// As [`open`](Client::open), and as [`Services::client_with`].
    pub fn open_with(
        domain: &Domain,
        address: &str,
        options: ServiceOptions,
    ) -> Result<Client<S>, Error> {
        let client = domain.client_with(address, typed::<S>(options))?;
        Ok(Client::of(client))
    }

    /// Connects to a service without blocking the thread, in any runtime.
    ///
    /// # Errors
    /// As [`open_with`](Client::open_with).
    pub async fn open_async(
        domain: &Domain,
        address: &str,
        options: ServiceOptions,
    ) -> Result<Client<S>, Error> {
        let client = domain.client_async(address, typed::<S>(options)).await?;
        Ok(Client::of(client))
    }

    fn of(client: service::Client) -> Client<S> {
        Client {
            client,
            options: CallOptions::new(),
            kind: PhantomData,
        }
    }

    /// Returns a client each of whose calls may take `timeout`. It shares this client's connection.
    pub fn with_timeout(&self, timeout: Duration) -> Client<S> {
        let mut client = self.clone();
        client.options = client.options.timeout(timeout);
        client
    }

    /// Allocates a struct with `items` items behind it, for a [`Value`](crate::Value) argument. The memory is of a pool
    /// that only the service can read.
    ///
    /// # Errors
    /// As [`service::Client::alloc`]; `TooLarge`: the message would have more bytes than an address can count.
    pub fn draft<M: Message, T: Message>(&self, items: usize) -> Result<Draft<M, [T]>, Error> {
        Draft::new(items, |bytes| self.client.alloc(bytes))
    }

    /// Returns the client without its types, for [`alloc`](service::Client::alloc).
    pub fn untyped(&self) -> &service::Client {
        &self.client
    }

    /// Calls a method.
    #[doc(hidden)]
    pub fn call<R: Answer>(&self, method: u8, arguments: Result<Parcel, Error>) -> R::Got {
        let options = self.options.method(method);
        let packed = arguments.and_then(|parcel| parcel.pack(|len| self.client.alloc(len)));
        R::got(packed.and_then(|packed| {
            with!(packed, |payload| came(
                self.client.call_with(payload, options)
            ))
        }))
    }

    /// Begins a call of a method with streams.
    #[doc(hidden)]
    pub fn begin<In: Pass, Out: Pass, R: Answer>(
        &self,
        method: u8,
        arguments: Result<Parcel, Error>,
    ) -> Result<Streaming<In, Out, R>, Error> {
        let options = self.options.method(method).streams();
        let packed = arguments?.pack(|len| self.client.alloc(len))?;
        let call = with!(packed, |payload| {
            let begun = self.client.begin_with(payload, options);
            begun.map_err(|failed| failed.error)
        });
        Ok(Streaming::new(call?, self.client.clone()))
    }

    /// Begins a call of a method without blocking the thread.
    async fn begun(
        &self,
        options: CallOptions,
        arguments: Result<Parcel, Error>,
    ) -> Result<service::Call, Error> {
        let packed = arguments?.pack(|len| self.client.alloc(len))?;
        with!(packed, |payload| {
            let begun = self.client.begin_async(payload, options).await;
            begun.map_err(|failed| failed.error)
        })
    }

    /// Begins a call of a method with streams, without blocking the thread.
    #[doc(hidden)]
    pub async fn begin_async<In: Pass, Out: Pass, R: Answer>(
        &self,
        method: u8,
        arguments: Result<Parcel, Error>,
    ) -> Result<Streaming<In, Out, R>, Error> {
        let options = self.options.method(method).streams();
        let call = self.begun(options, arguments).await?;
        Ok(Streaming::new(call, self.client.clone()))
    }

    /// Calls a method without blocking the thread.
    #[doc(hidden)]
    pub async fn call_async<R: Answer>(
        &self,
        method: u8,
        arguments: Result<Parcel, Error>,
    ) -> R::Got {
        let options = self.options.method(method);
        R::got(match self.begun(options, arguments).await {
            Ok(call) => came(call.wait_async().await),
            Err(error) => Err(error),
        })
    }
}

/// Allocates a struct with `items` items behind it, for a [`Value`](crate::Value) result. The memory is of a pool that
/// only the request's client can read.
///
/// # Errors
/// As [`Request::alloc`]; `TooLarge`: the message would have more bytes than an address can count.
pub fn reply_draft<M: Message, T: Message>(
    request: &Request,
    items: usize,
) -> Result<Draft<M, [T]>, Error> {
    Draft::new(items, |bytes| request.alloc(bytes))
}

/// A service that calls the methods of an `S`, which is `dyn Trait` of a trait with `#[tranship::service]`. Clones are workers of the same service.
///
/// A client whose definition differs is refused when it connects. If a client passes arguments that its definition does
/// not allow, the service drops the request.
pub struct Service<S: ?Sized> {
    service: service::Service,
    methods: Arc<S>,
}

impl<S: ?Sized> Clone for Service<S> {
    fn clone(&self) -> Self {
        Service {
            service: self.service.clone(),
            methods: Arc::clone(&self.methods),
        }
    }
}

impl<S: ?Sized> fmt::Debug for Service<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.service.fmt(f)
    }
}

impl<S: Interface + ?Sized> Service<S> {
    /// Offers a service at an address, whose requests call `methods`.
    ///
    /// # Errors
    /// As [`Services::serve`].
    pub fn serve(domain: &Domain, address: &str, methods: Arc<S>) -> Result<Service<S>, Error> {
        Service::serve_with(domain, address, methods, ServiceOptions::new())
    }

    /// Offers a service at an address, with options.
    ///
    /// # Errors
    /// As [`Services::serve_with`].
    pub fn serve_with(
        domain: &Domain,
        address: &str,
        methods: Arc<S>,
        options: ServiceOptions,
    ) -> Result<Service<S>, Error> {
        let service = domain.serve_with(address, typed::<S>(options))?;
        Ok(Service { service, methods })
    }

    /// Answers requests until an error ends the service.
    ///
    /// # Errors
    /// As [`service::Service::recv`].
    pub fn run(&self) -> Result<Infallible, Error> {
        loop {
            self.next()?;
        }
    }

    /// Waits for the next request, and answers it.
    ///
    /// # Errors
    /// As [`service::Service::recv`]. A client that is gone, or that passes wrong arguments, does not make this
    /// function fail.
    pub fn next(&self) -> Result<(), Error> {
        self.answer(self.service.recv()?);
        Ok(())
    }

    /// Answers the next request, or fails with `TimedOut` if none comes within `timeout`.
    ///
    /// # Errors
    /// As [`next`](Service::next), and `TimedOut`.
    pub fn next_timeout(&self, timeout: Duration) -> Result<(), Error> {
        self.answer(self.service.recv_timeout(timeout)?);
        Ok(())
    }

    /// Awaits the next request, and answers it. The task runs the method itself.
    ///
    /// # Errors
    /// As [`next`](Service::next).
    pub async fn next_async(&self) -> Result<(), Error> {
        self.answer(self.service.recv_async().await?);
        Ok(())
    }

    /// Answers a request. If the answer cannot be sent, the request is dropped, and this tells the client.
    fn answer(&self, request: Request) {
        let _ = self.methods.dispatch(request);
    }

    /// Returns the service without its types, for its status.
    pub fn untyped(&self) -> &service::Service {
        &self.service
    }
}
