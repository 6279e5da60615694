//! A hub under tokio: clients come over TCP, and behind channels there are workers that do the clients' requests.
//! Channels and sockets are awaited together, with `select!` as ever; the library brings no runtime, and needs none.
//!
//! ```text
//! client ══ TCP ══╗             ╔══ jobs ══► worker ══ results ══╗
//! client ══ TCP ══╬═ task per ══╣                                ╠═ the same task
//! client ══ TCP ══╝   worker    ╚══ jobs ══► worker ══ results ══╝
//! ```
//!
//! Each is a program of its own, and any of them can be killed and started again, the manager too: `13_tokio_hub hub
//! 127.0.0.1:7800`, `13_tokio_hub worker` as often as you like, `13_tokio_hub client 127.0.0.1:7800`. A client whose
//! worker dies loses its connection, and asks again. Without arguments all of them are parts of one process, and end
//! when every client was answered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tranship::{ChannelOptions, Domain, ErrorKind, Pool, PoolOptions, Receiver, Sender};

type Any = Box<dyn std::error::Error + Send + Sync>;

const WORKERS: usize = 2;
const CLIENTS: usize = 20;

/// Longest time until a worker that has announced itself is there.
const MOMENT: Duration = Duration::from_secs(5);

/// A worker. It may as well be written without tasks.
fn worker(domain: &Domain) -> Result<(), Any> {
    let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
    // A name of its own, for the jobs; the hub learns it by the first word of the results.
    let name = format!("jobs {}", domain.id().0);
    let listener = domain.listen::<Receiver>(&name)?;
    let mut results = domain.open::<Sender>("results")?;
    results.send(name.as_bytes())?;
    let mut jobs = listener.accept_timeout(MOMENT)?;
    // Until the hub drops its end.
    while let Ok(job) = jobs.recv() {
        let loud = job.to_vec().to_ascii_uppercase();
        // The word says which client it is for.
        results.send((pool.copy(&loud)?.freeze(), job.word))?;
    }
    Ok(())
}

/// Introduces a worker that has come by this channel: opens the other channel to it, too.
async fn introduce(hub: Domain, mut results: Receiver) -> Result<(Sender, Receiver), Any> {
    let name = tokio::time::timeout(MOMENT, results.recv_async()).await??;
    let name = String::from_utf8(name.to_vec())?;
    let options = ChannelOptions::new().timeout(MOMENT);
    Ok((hub.open_async::<Sender>(&name, options).await?, results))
}

/// Serves one worker: takes clients in while it is at work for others.
async fn serve(
    hub: Domain,
    pool: Pool,
    results: Receiver,
    clients: Arc<TcpListener>,
) -> Result<(), Any> {
    let (mut jobs, mut results) = introduce(hub, results).await?;
    let mut asking: HashMap<u64, TcpStream> = HashMap::new();
    for number in 0.. {
        tokio::select! {
            client = clients.accept() => {
                let (mut client, _) = client?;
                let mut text = [0; 256];
                // A client that says nothing holds up this worker's others, and no longer than that.
                let read = tokio::time::timeout(MOMENT, client.read(&mut text)).await;
                let Ok(Ok(length @ 1..)) = read else { continue };
                let mut job = pool.alloc_async(length).await?;
                job.write(0, &text[..length])?;
                // Waits for the worker if it is far behind: then clients wait in the socket's queue.
                jobs.send_async((job.freeze(), number)).await?;
                asking.insert(number, client);
            }
            // Whichever branch comes second is dropped, and has taken nothing.
            result = results.recv_async() => {
                let result = result?;
                if let Some(mut client) = asking.remove(&result.word) {
                    // The client may have gone meanwhile.
                    let _ = client.write_all(&result.to_vec()).await;
                }
            }
        }
    }
    Ok(())
}

/// Takes in any worker that comes. A worker that dies, or makes an error, ends the task that served it and nothing
/// else.
async fn hub(domain: Domain, tcp: TcpListener) -> Result<(), Any> {
    let tcp = Arc::new(tcp);
    let pool = domain.create_pool(PoolOptions::new(1 << 20))?;
    let workers = domain.listen::<Receiver>("results")?;
    let mut serving = JoinSet::new();
    loop {
        tokio::select! {
            worker = workers.accept_async() => match worker {
                Ok(results) => {
                    serving.spawn(serve(domain.clone(), pool.clone(), results, tcp.clone()));
                }
                // Workers that are there are served on; the name is there again when the manager is.
                Err(error) if error.kind() == ErrorKind::ManagerAway => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.into()),
            },
            Some(ended) = serving.join_next() => {
                if let Err(error) = ended? {
                    println!("hub: {error}");
                }
            }
        }
    }
}

/// Returns an answer; none if the hub or the worker was gone before it was there.
async fn ask(question: &str, hub: SocketAddr) -> Option<String> {
    let mut hub = TcpStream::connect(hub).await.ok()?;
    hub.write_all(question.as_bytes()).await.ok()?;
    let mut answer = String::new();
    hub.read_to_string(&mut answer).await.ok()?;
    Some(answer).filter(|answer| !answer.is_empty())
}

/// Asks until it is answered.
async fn client(number: usize, address: SocketAddr) {
    let question = format!("client {number} says hello");
    let answer = loop {
        match ask(&question, address).await {
            Some(answer) => break answer,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    assert_eq!(answer, question.to_ascii_uppercase());
}

/// Runs all of it in one process.
async fn together() -> Result<(), Any> {
    let domain = Domain::builder().name("hub").embedded()?;
    let socket = domain.socket_path().ok_or("no socket")?;
    let tcp = TcpListener::bind("127.0.0.1:0").await?;
    let address = tcp.local_addr()?;
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let builder = Domain::builder().name("worker").socket(&socket);
            thread::spawn(move || worker(&builder.connect()?))
        })
        .collect();
    let mut clients: JoinSet<_> = (0..CLIENTS).map(|number| client(number, address)).collect();
    let hub = tokio::spawn(hub(domain, tcp));
    while let Some(answered) = clients.join_next().await {
        answered?;
    }
    // The tasks go, with them their channels, and so the workers come to their end.
    hub.abort();
    let _ = hub.await;
    for worker in workers {
        // A worker that was not needed any more before it was known ends with an error.
        let _ended = worker.join().map_err(|_| "a worker panicked")?;
    }
    println!("{CLIENTS} clients answered by {WORKERS} workers");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Any> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hub", address] => {
            let domain = Domain::builder().name("hub").connect()?;
            hub(domain, TcpListener::bind(address).await?).await
        }
        ["worker"] => worker(&Domain::builder().name("worker").connect()?),
        ["client", address] => {
            let address = address.parse()?;
            for answers in 1.. {
                client(answers, address).await;
                if answers % 60 == 0 {
                    println!("client: 60 answers");
                }
            }
            Ok(())
        }
        _ => together().await,
    }
}
