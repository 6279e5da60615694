//! gRPC over a Unix socket, by tonic: one unary method, whose argument and result are a protobuf message with bytes.
//!
//! Each side drives a runtime in its own thread. No code is generated: the message is derived, the method named by hand.

use std::convert::Infallible;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context as Turn, Poll};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prost::bytes::Bytes;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::http;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::case::{Case, Touch};
use crate::party::{Party, folder};
use crate::peer::{Peer, Role};

const METHOD: &str = "/tranship.Bench/Call";
/// The stamp of the last call, which nobody answers, and how long its request may take to go out.
const LAST: (u64, Duration) = (u64::MAX, Duration::from_millis(100));

/// The stamp, and bytes of which the library copies each on its way.
#[derive(Clone, PartialEq, prost::Message)]
struct Parcel {
    #[prost(fixed64, tag = "1")]
    stamp: u64,
    #[prost(bytes = "bytes", tag = "2")]
    payload: Bytes,
}

type Asked = (Parcel, oneshot::Sender<Parcel>);

/// The service: it hands each request to the side that is measured.
#[derive(Clone)]
struct Desk(mpsc::UnboundedSender<Asked>);

impl NamedService for Desk {
    const NAME: &'static str = "tranship.Bench";
}

type Answering<R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send>>;

impl Service<Request<Parcel>> for Desk {
    type Response = Response<Parcel>;
    type Error = Status;
    type Future = Answering<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Turn<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Parcel>) -> Self::Future {
        let (answer, answered) = oneshot::channel();
        let sent = self.0.send((request.into_inner(), answer));
        Box::pin(async move {
            sent.map_err(|_| Status::unavailable("the run is over"))?;
            let parcel = answered.await;
            parcel
                .map(Response::new)
                .map_err(|_| Status::aborted("let go"))
        })
    }
}

impl Service<http::Request<Body>> for Desk {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Turn<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let desk = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Parcel, Parcel>::default());
            Ok(grpc.unary(desk, request).await)
        })
    }
}

enum Side {
    Caller(Grpc<Channel>, Option<Parcel>),
    Worker(
        mpsc::UnboundedReceiver<Asked>,
        Option<oneshot::Sender<Parcel>>,
    ),
}

pub struct Tonic {
    runtime: Runtime,
    side: Side,
    payload: Bytes,
}

fn socket(run: u64) -> PathBuf {
    folder(run).join("grpc.sock")
}

impl Peer for Tonic {
    const NAME: &'static str = "grpc";

    fn refuses(case: &Case) -> Option<String> {
        (case.touch != Touch::Word).then(|| "it carries its stamp beside the bytes".to_owned())
    }

    fn open(case: &Case, role: Role, party: &Party) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let path = socket(party.run);
        let side = if role == Role::Pong {
            std::fs::create_dir_all(folder(party.run))?;
            let _inside = runtime.enter();
            let listener = UnixListener::bind(&path)?;
            let (desk, asked) = mpsc::unbounded_channel();
            runtime.spawn(async move {
                let (stream, _) = listener.accept().await?;
                let incoming = tokio_stream::once(Ok::<_, std::io::Error>(stream));
                let server = Server::builder();
                server.serve_with_incoming(Desk(desk), incoming).await?;
                anyhow::Ok(())
            });
            party.barrier()?;
            Side::Worker(asked, None)
        } else {
            party.barrier()?;
            let endpoint = Endpoint::from_shared(format!("unix:{}", path.display()))?;
            let channel = runtime.block_on(endpoint.connect())?;
            Side::Caller(Grpc::new(channel), None)
        };
        Ok(Self {
            runtime,
            side,
            payload: Bytes::from(vec![0; case.payload]),
        })
    }

    fn send(&mut self, stamp: u64) -> Result<()> {
        let is_last = stamp == LAST.0;
        let payload = if is_last {
            Bytes::new()
        } else {
            self.payload.clone()
        };
        let parcel = Parcel { stamp, payload };
        match &mut self.side {
            Side::Caller(grpc, _) if is_last => {
                let sent = self
                    .runtime
                    .block_on(async { tokio::time::timeout(LAST.1, call(grpc, parcel)).await });
                ensure!(sent.is_err(), "the last call was answered");
            }
            Side::Caller(_, next) => *next = Some(parcel),
            Side::Worker(_, answer) => {
                let answer = answer.take().context("no request to be answered")?;
                answer.send(parcel).ok().context("the call is gone")?;
            }
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<u64> {
        match &mut self.side {
            Side::Caller(grpc, next) => {
                let parcel = next.take().context("no call in flight")?;
                Ok(self.runtime.block_on(call(grpc, parcel))?.stamp)
            }
            Side::Worker(asked, kept) => {
                let (parcel, answer) = self
                    .runtime
                    .block_on(asked.recv())
                    .context("the server ended")?;
                *kept = Some(answer);
                Ok(parcel.stamp)
            }
        }
    }
}

async fn call(grpc: &mut Grpc<Channel>, parcel: Parcel) -> Result<Parcel> {
    grpc.ready().await?;
    let method = http::uri::PathAndQuery::from_static(METHOD);
    let codec = ProstCodec::<Parcel, Parcel>::default();
    let answer = grpc.unary(Request::new(parcel), method, codec).await?;
    Ok(answer.into_inner())
}
