//! The components of the web server, each by a subcommand, and all of them in one process.

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranship::{Domain, PoolOptions};
use tranship_web::front::{Channels, Front, Options, Streams};
use tranship_web::one::Calls;
use tranship_web::{
    Cache, Dynamic, Ends, Example, Files, Guard, Http, Limits, Log, Route, To, device, fastcgi,
    serve, tcpip, tls,
};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "A web server of isolated components; `tranship run web.toml` starts it."
)]
struct Arguments {
    #[command(subcommand)]
    component: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Connections: bytes in, replies out.
    Front(FrontArguments),
    /// TLS before the connections.
    Tls(TlsArguments),
    /// HTTP/1.1: bytes in, checked requests out.
    Http(HttpArguments),
    /// Rules that hold for every request.
    Guard,
    /// The table of paths.
    Route(RouteArguments),
    /// Files of a folder.
    Static(StaticArguments),
    /// The example handler.
    Dynamic(DynamicArguments),
    /// Replies that are kept.
    Cache(CacheArguments),
    /// A bridge to applications that speak FastCGI.
    Fastcgi(FastcgiArguments),
    /// The access log.
    Log(LogArguments),
    /// TCP/IP, where the clients' connections are not the kernel's.
    Tcpip(TcpipArguments),
    /// The network device below it: a TAP device, which the component's `listen` names.
    Device,
    /// All of them in one process, without channels.
    One(OneArguments),
}

#[derive(Debug, Args)]
struct FrontArguments {
    /// Most connections; one more is answered with 503.
    #[arg(long, default_value_t = 4096)]
    connections: usize,
    /// Most requests under way; one more is answered with 503.
    #[arg(long, default_value_t = 512)]
    requests: usize,
    /// Milliseconds for an answer; then the client gets 504.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    answer: u64,
    /// Milliseconds for the rest of a request; then the client gets 408.
    #[arg(long, value_name = "MS", default_value_t = 20_000)]
    request: u64,
    /// Milliseconds for the next request; then the connection ends.
    #[arg(long, value_name = "MS", default_value_t = 60_000)]
    idle: u64,
    /// Milliseconds for the client to take more of a reply; then the connection is cut.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    taken: u64,
    /// Bytes of replies that clients have not taken; beyond it the slowest connection is cut.
    #[arg(long, default_value_t = 64 << 20)]
    unsent: usize,
}

impl FrontArguments {
    fn options(&self) -> Options {
        Options {
            connections: self.connections.clamp(1, 50_000),
            requests: self.requests,
            answer: Duration::from_millis(self.answer),
            request: Duration::from_millis(self.request),
            idle: Duration::from_millis(self.idle),
            taken: Duration::from_millis(self.taken),
            unsent: self.unsent,
        }
    }
}

#[derive(Debug, Args)]
struct TlsArguments {
    /// File of the certificate, and of those between it and its authority (PEM).
    #[arg(long)]
    certificate: PathBuf,
    /// File of its key (PEM).
    #[arg(long)]
    key: PathBuf,
    /// Unix socket at which the front takes plain connections.
    #[arg(long)]
    front: PathBuf,
    /// Most connections. One more takes the place of the oldest handshake, or is closed.
    #[arg(long, default_value_t = 4096)]
    connections: usize,
}

#[derive(Debug, Args)]
struct HttpArguments {
    /// Most bytes of a request's head.
    #[arg(long, default_value_t = Limits::default().head)]
    head: usize,
    /// Most bytes of a request's body.
    #[arg(long, default_value_t = Limits::default().body)]
    body: u64,
}

impl HttpArguments {
    fn limits(&self) -> Limits {
        Limits {
            head: self.head.min(Limits::default().head),
            body: self.body,
        }
    }
}

#[derive(Debug, Args)]
struct RouteArguments {
    /// PREFIX=COMPONENT: which component answers a path. The longest prefix counts.
    #[arg(long = "rule", default_values_t = ["/=static".to_owned(), "/dynamic=cache".to_owned()])]
    rules: Vec<String>,
}

#[derive(Debug, Args)]
struct StaticArguments {
    /// Folder of the files.
    #[arg(long, default_value = "site")]
    root: PathBuf,
}

#[derive(Debug, Args)]
struct DynamicArguments {
    /// Milliseconds that a handler may take; then its process ends, and another one is started.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    answer: u64,
}

#[derive(Debug, Args)]
struct CacheArguments {
    /// Most bytes of kept bodies.
    #[arg(long, default_value_t = 16 << 20)]
    most: usize,
}

#[derive(Debug, Args)]
struct FastcgiArguments {
    /// An IP address and a port, or the path of a Unix socket.
    #[arg(long)]
    at: String,
    /// Folder of the scripts, as the applications see it.
    #[arg(long, default_value = "")]
    root: String,
    /// Most connections to the applications.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Milliseconds for an answer.
    #[arg(long, value_name = "MS", default_value_t = 30_000)]
    answer: u64,
    /// Most bytes of an answer.
    #[arg(long, default_value_t = 32 << 20)]
    most: usize,
}

#[derive(Debug, Args)]
struct LogArguments {
    /// File that lines are added to; the default is standard output.
    #[arg(long)]
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct TcpipArguments {
    /// Address of the server, and bits of its network.
    #[arg(long, default_value = "10.77.1.1/24")]
    address: String,
    /// Router to other networks.
    #[arg(long)]
    gateway: Option<Ipv4Addr>,
    /// Port of the server.
    #[arg(long, default_value_t = 80)]
    port: u16,
    /// Bytes of payload of a frame.
    #[arg(long, default_value_t = 1500)]
    mtu: usize,
    /// Most connections, those that are ending included; one more is refused.
    #[arg(long, default_value_t = 1024)]
    connections: usize,
}

#[derive(Debug, Args)]
struct OneArguments {
    /// Address and port.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    front: FrontArguments,
    #[command(flatten)]
    http: HttpArguments,
    #[command(flatten)]
    route: RouteArguments,
    #[command(flatten)]
    files: StaticArguments,
}

fn main() -> Result<()> {
    match Arguments::parse().component {
        What::Front(given) => front(given.options()),
        What::Tls(given) => tls::run(
            &tls::Options {
                certificate: given.certificate,
                key: given.key,
                front: given.front,
                connections: given.connections,
            },
            passed_sockets()?,
        ),
        What::Http(given) => serve("http", |ends| {
            Ok(Http::new(ends.pool.clone(), given.limits()))
        }),
        What::Guard => serve("guard", |ends| Ok(Guard::new(ends.has(To::Log)))),
        What::Route(given) => serve("route", |_| Route::new(&given.rules)),
        What::Static(given) => serve("static", |ends| Files::new(ends.pool.clone(), &given.root)),
        What::Dynamic(given) => serve("dynamic", |ends| {
            let handler = Example::new(ends.domain.clone());
            Ok(Dynamic::new(ends.pool.clone(), handler)
                .limit(Duration::from_millis(given.answer))?)
        }),
        What::Cache(given) => serve("cache", |ends| {
            Ok(Cache::new(ends.pool.clone(), given.most))
        }),
        What::Fastcgi(given) => fastcgi::run(fastcgi::Options {
            at: given.at,
            root: given.root,
            connections: given.connections,
            answer: Duration::from_millis(given.answer),
            most: given.most,
        }),
        What::Log(given) => serve("log", |_| Ok(Log::new(log_file(given.file.as_deref())?))),
        What::Tcpip(given) => tcpip(&given),
        What::Device => match passed_sockets()?.pop() {
            Some(device) => device::run(device),
            None => bail!("no device: the component has `listen = [\"tap:NAME\"]`"),
        },
        What::One(given) => one(&given),
    }
}

fn log_file(path: Option<&Path>) -> Result<Box<dyn std::io::Write>> {
    let Some(path) = path else {
        return Ok(Box::new(std::io::stdout()));
    };
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    let file = opened.with_context(|| format!("the access log {}", path.display()))?;
    Ok(Box::new(file))
}

fn front(options: Options) -> Result<()> {
    let mut ends = Ends::connect(To::Front)?;
    ends.meet();
    let streams = Streams::of(&mut ends);
    let listeners = match (passed_sockets(), &streams) {
        (Err(_), Some(_)) => Vec::new(),
        (listeners, _) => listeners?,
    };
    let pool = ends.pool.clone();
    let mut front = Front::new(Channels::new(ends), pool, listeners, streams, options)?;
    front.run().context("serving connections")
}

/// Returns the sockets that the supervisor listens at (sd_listen_fds(3)).
#[allow(unsafe_code)]
fn passed_sockets() -> Result<Vec<OwnedFd>> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let count = number("LISTEN_FDS").filter(|count| (1..=64).contains(count));
    let count =
        count.context("no socket to listen at: the component has `listen = [\"ADDRESS\"]`")?;
    if number("LISTEN_PID") != Some(std::process::id()) {
        bail!("LISTEN_FDS is meant for another process");
    }
    let take = |fd: i32| {
        // SAFETY: the supervisor opened these for this process, and nothing else here has them.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    Ok((3..).take(count as usize).map(take).collect())
}

fn tcpip(given: &TcpipArguments) -> Result<()> {
    let wrong = || format!("{:?} is no address like 10.77.1.1/24", given.address);
    let (ip, prefix) = given.address.split_once('/').with_context(wrong)?;
    let ip: Ipv4Addr = ip.parse().with_context(wrong)?;
    tcpip::run(tcpip::Options {
        address: tcpip::address(ip),
        prefix: prefix.parse().with_context(wrong)?,
        gateway: given.gateway.map(|gateway| gateway.octets()),
        port: given.port,
        mtu: given.mtu.clamp(576, 9216),
        connections: given.connections.clamp(1, 50_000),
    })
}

fn one(given: &OneArguments) -> Result<()> {
    let domain = Domain::builder().name("web").embedded()?;
    let pool = domain.create_pool(PoolOptions::new(256 << 20).slots(1 << 16))?;
    let listener = TcpListener::bind(given.listen)
        .with_context(|| format!("listening at {}", given.listen))?;
    rustix::net::listen(&listener, 4096).context("listen(2)")?;
    let mut stages = Calls::default();
    stages.add(To::Http, Http::new(pool.clone(), given.http.limits()));
    stages.add(To::Guard, Guard::new(false));
    stages.add(To::Route, Route::new(&given.route.rules)?);
    stages.add(To::Cache, Cache::new(pool.clone(), 16 << 20));
    stages.add(To::Static, Files::new(pool.clone(), &given.files.root)?);
    stages.add(
        To::Dynamic,
        Dynamic::new(pool.clone(), Example::new(domain)),
    );
    let listeners = vec![listener.into()];
    let mut front = Front::new(stages, pool, listeners, None, given.front.options())?;
    front.run().context("serving connections")
}
