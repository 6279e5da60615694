//! Services: `include/tranship/service.h`.

use crate::buf::{Buf, place};
use crate::domain::{self, Domain};
use crate::given::{limit, patience, text, text_if_any, there, wrong};
use crate::link::wait;
use crate::open::closed;
use crate::options::{Grows, flag, grown, no_more, set};
use crate::payload::sent_wordless;
use crate::status::{Error, Status, border, making, quietly};
use facade::service::{self, CallError, CallOptions, Services as _};
use facade::{Body, ErrorKind, Message, SendError};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// A service. Any number of threads may take requests, all at the same time: the idle one gets the next.
#[derive(Debug)]
pub struct Service(pub(crate) service::Service);

/// A request that a worker has taken.
#[derive(Debug)]
pub struct Request(service::Request);

/// A client of a service. Any thread may call, all at the same time.
#[derive(Debug)]
pub struct Client {
    pub(crate) client: service::Client,
    pub(crate) name: String,
}

/// A call in flight.
#[derive(Debug)]
pub struct Call {
    /// None: it is over.
    call: Option<service::Call>,
    name: String,
}

/// In `flags` of tranship_service_options: services of other domains may have the name too, if all of them say this. A client is connected to all of them.
pub const SERVICE_SHARED: u32 = 1;

/// A service, or a client of one. Set `size` to `sizeof(struct tranship_service_options)`; all else may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServiceOptions {
    /// sizeof(struct tranship_service_options)
    pub size: usize,
    /// Depth of the channels: a power of two, 4 to 65,536. A client has at most half as many calls in flight. 0: 256.
    pub lines: u32,
    /// TRANSHIP_WAIT_SPIN_THEN_SLEEP, TRANSHIP_WAIT_SPIN, TRANSHIP_WAIT_SLEEP: how this side waits. 0: the first.
    pub wait: u32,
    /// How often it looks before it sleeps. 0: 500.
    pub spins: u32,
    /// The most clients of one user that a service has at a time. 0: 64.
    pub clients_per_user: u32,
    /// The type of requests, as a text that both sides must have alike (docs/types.md). NULL for bytes; with it, `answer_type` is needed.
    pub request_type: *const c_char,
    /// The type of answers.
    pub answer_type: *const c_char,
    /// TRANSHIP_SERVICE_SHARED, or 0. A client says 0.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: of integers and pointers, the size first.
unsafe impl Grows for ServiceOptions {
    const NAME: &str = "tranship_service_options";
}

impl ServiceOptions {
    fn service(self) -> Result<service::ServiceOptions, facade::Error> {
        let mut options = service::ServiceOptions::new().wait(wait(self.wait, self.spins)?);
        no_more("flags", self.flags, SERVICE_SHARED)?;
        no_more("reserved", self.reserved, 0)?;
        options = set(options, self.lines, service::ServiceOptions::lines);
        let clients = self.clients_per_user as usize;
        options = set(options, clients, service::ServiceOptions::clients_per_user);
        let shared = self.flags & SERVICE_SHARED != 0;
        options = flag(options, shared, service::ServiceOptions::shared);
        let request = text_if_any(self.request_type, "request_type")?;
        let answer = text_if_any(self.answer_type, "answer_type")?;
        match (request, answer) {
            (None, None) => Ok(options),
            (Some(request), Some(answer)) => Ok(options.types(request, answer)),
            _ => Err(wrong("request_type and answer_type: give both, or neither")),
        }
    }
}

/// Offers a service at a name. It takes the names NAME and NAME/replies. `options` may be NULL.
///
/// Close it with tranship_service_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_serve(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const ServiceOptions,
    out: Option<&mut MaybeUninit<Option<Box<Service>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let options = grown(options)?.service()?;
        Ok(Service(domain.serve_with(name, options)?))
    })
}

/// Ends the service. A request that was taken can still be answered; other calls fail. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_service_close(service: Option<Box<Service>>) {
    quietly((), || drop(closed(service, "tranship_service_close")));
}

/// The next request, in `out`. Waits for it for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. End it with tranship_request_reply,
/// tranship_request_fail or tranship_request_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_service_recv(
    service: Option<&Service>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Request>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let service = &there(service, "service")?.0;
        Ok(Request(match service.try_recv()? {
            Some(request) => request,
            None => service.recv_timeout(limit(timeout_ns))?,
        }))
    })
}

/// Takes what the client sent, into `out`, as of tranship_recv. A second call gives inline bytes of length 0.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_take(
    request: Option<&mut Request>,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let body = there(request, "request")?.0.take_body();
        out.put_message(Message { word: 0, body });
        Ok(())
    })
}

/// A buffer of `len` bytes for the answer, in `buf`, which only the client can read. Waits at most 5 s for a client that keeps its earlier
/// answers: TRANSHIP_ERR_OUT_OF_MEMORY. `buf` need not be initialised. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_alloc(
    request: Option<&Request>,
    len: usize,
    buf: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = place(buf, "buf")?;
        buf.put_exclusive(there(request, "request")?.0.alloc(len)?);
        Ok(())
    })
}

/// The number of the called method, 0 to 127; 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_method(request: Option<&Request>) -> u32 {
    quietly(0, || request.map_or(0, |request| request.0.method().into()))
}

/// The client's process. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_client_pid(request: Option<&Request>) -> u32 {
    quietly(0, || {
        request.map_or(0, |request| request.0.client().peer_pid)
    })
}

/// 1 if nobody waits for the answer any more: the call was cancelled, its time is over, or its client is gone. 1 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_is_cancelled(request: Option<&Request>) -> i32 {
    quietly(1, || {
        request
            .is_none_or(|request| request.0.is_cancelled())
            .into()
    })
}

/// Ends a request.
fn ended(
    request: Option<Box<Request>>,
    buf: Option<&mut Buf>,
    by: &str,
    end: fn(service::Request, Body) -> Result<(), SendError<Body>>,
) -> Result<(), facade::Error> {
    let request = there(closed(request, by), "request")?.0;
    sent_wordless(there(buf, "buf")?, |body| end(request, body))
}

/// Answers with the contents of `buf`, as of tranship_send, and closes the request, also if this fails: then the client is told that the request was
/// let go, and `buf` is as before. Waits at most 5 s for a client that has to agree to a pool.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_reply(
    request: Option<Box<Request>>,
    buf: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        ended(
            request,
            buf,
            "tranship_request_reply",
            service::Request::reply,
        )
    })
}

/// Answers with an error of the service's own: the contents of `buf`. The client gets TRANSHIP_ERR_REFUSED, and the contents. Else as
/// tranship_request_reply.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_fail(
    request: Option<Box<Request>>,
    buf: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        ended(
            request,
            buf,
            "tranship_request_fail",
            service::Request::fail,
        )
    })
}

/// Sends an item of a call with streams to the client, the contents of `buf`, as of tranship_send. Waits until the client has taken enough of the earlier
/// ones, for `timeout_ns`: TRANSHIP_ERR_TIMED_OUT. TRANSHIP_ERR_PEER_GONE: nobody waits for the call any more. `buf` then holds nothing; on failure it is as
/// before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_send(
    request: Option<&Request>,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let request = &there(request, "request")?.0;
        sent_wordless(there(buf, "buf")?, |body| {
            request.send_timeout(body, limit(timeout_ns))
        })
    })
}

/// The next item that the client sends, in `out`, as of tranship_recv; kind TRANSHIP_BUF_NONE when the client has finished. Waits as tranship_request_send
/// does, and fails as it does.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_recv(
    request: Option<&Request>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        let request = &there(request, "request")?.0;
        if let Some(message) = request.recv_timeout(limit(timeout_ns))? {
            out.put_message(message);
        }
        Ok(())
    })
}

/// Lets a request go: the client gets TRANSHIP_ERR_PEER_DIED. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_request_close(request: Option<Box<Request>>) {
    quietly((), || drop(closed(request, "tranship_request_close")));
}

/// Connects to a service. Waits until it is there and takes this client, for `timeout_ns`. `options` may be NULL.
///
/// Close it with tranship_client_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_open_client(
    domain: Option<&Domain>,
    name: *const c_char,
    options: *const ServiceOptions,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Client>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let (domain, name) = (domain::held(domain)?, text(name, "name")?);
        let mut options = grown(options)?.service()?;
        if let Some(limit) = patience(timeout_ns) {
            options = options.timeout(limit);
        }
        let client = domain.client_with(name, options)?;
        let name = name.to_owned();
        Ok(Client { client, name })
    })
}

/// Closes it. Calls in flight go on. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_client_close(client: Option<Box<Client>>) {
    quietly((), || drop(closed(client, "tranship_client_close")));
}

/// How many processes are connected that serve the name. Looks for further ones of a shared name. 0 of NULL.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_client_workers(client: Option<&Client>) -> usize {
    quietly(0, || client.map_or(0, |client| client.client.workers()))
}

/// A buffer of `len` bytes for a request, in `buf`, which only the service can read. Waits for memory that the service holds. `buf` need not
/// be initialised. On failure it holds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_client_alloc(
    client: Option<&Client>,
    len: usize,
    buf: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let buf = place(buf, "buf")?;
        buf.put_exclusive(there(client, "client")?.client.alloc(len)?);
        Ok(())
    })
}

/// Begins a call.
fn begun(
    client: &Client,
    buf: Option<&mut Buf>,
    method: u32,
    timeout_ns: i64,
    options: CallOptions,
) -> Result<service::Call, facade::Error> {
    let Some(method) = u8::try_from(method).ok().filter(|method| *method < 128) else {
        return Err(wrong(format!("method is {method}: 0 to 127")));
    };
    let mut options = options.method(method);
    if let Some(limit) = patience(timeout_ns) {
        options = options.timeout(limit);
    }
    sent_wordless(there(buf, "buf")?, |body| {
        client.client.begin_with(body, options)
    })
}

/// Puts an answer, or a service's own error, into a buf.
fn answered<T>(answer: Result<Message, CallError<T>>, out: &mut Buf) -> Result<(), facade::Error> {
    match answer {
        Ok(message) => {
            out.put_message(message);
            Ok(())
        }
        Err(CallError::Failed(message)) => {
            let text = "the service answered with an error of its own";
            out.put_message(message);
            Err(facade::Error::new(ErrorKind::Refused, text))
        }
        Err(CallError::Untaken(error) | CallError::Broken(error)) => Err(error),
        Err(CallError::Unsent(failed)) => Err(failed.error),
    }
}

/// Calls method number `method` (0 to 127) with the contents of `buf`, as of tranship_send, and waits for the answer, in `answer`, for `timeout_ns`. The time
/// travels along: no worker takes a request whose time is over. `buf` then holds nothing, also after a failure, unless the request was not sent.
///
/// TRANSHIP_ERR_REFUSED: the service answered with an error of its own, which is in `answer`. TRANSHIP_ERR_PEER_DIED: its process died, or let the
/// request go; TRANSHIP_ERR_PEER_GONE: it has ended; TRANSHIP_ERR_TIMED_OUT: the time is over, and the call is cancelled. `answer` need not be
/// initialised, and then holds nothing.
/// It is another struct than `buf`: else TRANSHIP_ERR_BAD_ARGUMENT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_client_call(
    client: Option<&Client>,
    method: u32,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    answer: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let asked = buf.as_ref().map(|buf| std::ptr::from_ref::<Buf>(buf));
        let into = answer.as_ref().map(|answer| answer.as_ptr());
        if asked.is_some() && asked == into {
            let text = "`answer` is the same struct as `buf`: give another one";
            return Err(facade::Error::new(facade::ErrorKind::BadArgument, text));
        }
        let answer = place(answer, "answer")?;
        let call = begun(
            there(client, "client")?,
            buf,
            method,
            timeout_ns,
            CallOptions::new(),
        )?;
        answered(call.wait(), answer)
    })
}

/// Sends a request as tranship_client_call does, and does not wait for its answer: tranship_call_wait does. Several calls may be in flight.
///
/// Close it with tranship_call_close.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_client_begin(
    client: Option<&Client>,
    method: u32,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Call>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        in_flight(client, buf, method, timeout_ns, CallOptions::new())
    })
}

/// Begins a call that carries any number of messages either way before its answer: tranship_call_send and tranship_call_finish, tranship_call_recv. Else as
/// tranship_client_begin.
///
/// At most 8 items of a direction are on their way, or have come and were not taken: a sender of one more waits.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_client_begin_streams(
    client: Option<&Client>,
    method: u32,
    buf: Option<&mut Buf>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Option<Box<Call>>>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    making(out, error, || {
        let options = CallOptions::new().streams();
        in_flight(client, buf, method, timeout_ns, options)
    })
}

fn in_flight(
    client: Option<&Client>,
    buf: Option<&mut Buf>,
    method: u32,
    timeout_ns: i64,
    options: CallOptions,
) -> Result<Call, facade::Error> {
    let client = there(client, "client")?;
    let call = Some(begun(client, buf, method, timeout_ns, options)?);
    let name = client.name.clone();
    Ok(Call { call, name })
}

/// The call, unless its answer was taken.
fn waiting(call: Option<&Call>) -> Result<&service::Call, facade::Error> {
    let call = there(call, "call")?;
    there(call.call.as_ref(), "the call's answer, which was taken,")
}

/// Sends an item of a call with streams, the contents of `buf`, as of tranship_send. Waits until the service has taken enough of the earlier ones, until the
/// call's own time is over. TRANSHIP_ERR_CHANNEL_STATE: the call is over, and tranship_call_wait says how. `buf` then holds nothing; on failure it is as before.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_call_send(
    call: Option<&Call>,
    buf: Option<&mut Buf>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let call = waiting(call)?;
        sent_wordless(there(buf, "buf")?, |body| call.send(body))
    })
}

/// Says that no further item comes: tranship_request_recv ends. Of NULL, and of a call without streams, it does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_call_finish(call: Option<&Call>) {
    quietly((), || {
        if let Ok(call) = waiting(call) {
            call.finish();
        }
    });
}

/// The next item that the service sends, in `out`, as of tranship_recv; kind TRANSHIP_BUF_NONE when the call is over, and tranship_call_wait says how. Waits for
/// `timeout_ns`: TRANSHIP_ERR_TIMED_OUT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_call_recv(
    call: Option<&Call>,
    timeout_ns: i64,
    out: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let out = place(out, "out")?;
        if let Some(message) = waiting(call)?.recv_timeout(limit(timeout_ns))? {
            out.put_message(message);
        }
        Ok(())
    })
}

/// Waits for the answer of a call, in `answer`, for `timeout_ns`, and fails as tranship_client_call does. After TRANSHIP_ERR_TIMED_OUT it can be waited
/// for again, until the call's own time is over; after anything else TRANSHIP_ERR_BAD_ARGUMENT.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_call_wait(
    call: Option<&mut Call>,
    timeout_ns: i64,
    answer: Option<&mut MaybeUninit<Buf>>,
    error: Option<&mut Option<Box<Error>>>,
) -> Status {
    border(error, || {
        let answer = place(answer, "answer")?;
        let call = there(call, "call")?;
        let waits = there(call.call.take(), "the call's answer, which was taken,")?;
        let Some(limit) = patience(timeout_ns) else {
            return answered(waits.wait(), answer);
        };
        // A century is without end.
        const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
        match waits.wait_until(Instant::now() + limit.min(LONGEST)) {
            Ok(came) => answered(came, answer),
            Err(waits) => {
                call.call = Some(waits);
                let text = format!(
                    "service `{}` has not answered in {} ms",
                    call.name,
                    limit.as_millis()
                );
                Err(facade::Error::new(ErrorKind::TimedOut, text))
            }
        }
    })
}

/// Closes it. A call whose answer was not taken is cancelled: the service is told. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn tranship_call_close(call: Option<Box<Call>>) {
    quietly((), || drop(closed(call, "tranship_call_close")));
}
