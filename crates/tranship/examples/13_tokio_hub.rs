//! A hub under tokio: clients come over TCP, and behind channels there are workers that do what they ask for. Channels and sockets are
//! awaited together, with `select!` as ever; the library brings no runtime, and needs none.
//!
//! ```text
//! client ══ TCP ══╗             ╔══ jobs ══► worker 0 ══ results ══╗
//! client ══ TCP ══╬═ task per ══╣                                  ╠═ the same task
//! client ══ TCP ══╝   worker    ╚══ jobs ══► worker 1 ══ results ══╝
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tranship::{Domain, Pool, PoolOptions, Receiver, Role, Sender};

type Any = Box<dyn std::error::Error + Send + Sync>;

const WORKERS: usize = 2;
const CLIENTS: usize = 20;

/// Another process, most of the time; it may as well be written without tasks.
fn worker(number: usize, socket: PathBuf) {
    let builder = Domain::builder().name("worker").socket(socket);
    let domain = builder.connect().expect("connect");
    let pool = domain.create_pool(PoolOptions::new(1 << 20)).expect("pool");
    let mut jobs = domain
        .open_receiver(&format!("jobs {number}"))
        .expect("jobs");
    let mut results = domain
        .open_sender(&format!("results {number}"))
        .expect("results");
    // Until the hub drops its end.
    while let Ok(job) = jobs.recv() {
        let loud = job.to_vec().to_ascii_uppercase();
        let result = pool.alloc_from(&loud).expect("alloc").freeze();
        // The word says which client it is for.
        results.send_with(result, job.meta).expect("send");
    }
}

/// Serves one worker: takes clients in while it is at work for others.
async fn serve(
    pool: Pool,
    mut jobs: Sender,
    mut results: Receiver,
    clients: Arc<TcpListener>,
) -> Result<(), Any> {
    let mut asking: HashMap<u64, TcpStream> = HashMap::new();
    for number in 0.. {
        tokio::select! {
            client = clients.accept() => {
                let (mut client, _) = client?;
                let mut text = [0; 256];
                let length = client.read(&mut text).await?;
                let job = pool.alloc_from(&text[..length])?.freeze();
                // Waits for the worker if it is far behind: then clients wait in the socket's queue.
                jobs.send_with_async(job, number).await?;
                asking.insert(number, client);
            }
            // Whichever branch comes second is dropped, and has taken nothing.
            result = results.recv_async() => {
                let result = result?;
                if let Some(mut client) = asking.remove(&result.meta) {
                    client.write_all(&result.to_vec()).await?;
                }
            }
        }
    }
    Ok(())
}

async fn client(number: usize, address: std::net::SocketAddr) -> Result<(), Any> {
    let mut hub = TcpStream::connect(address).await?;
    hub.write_all(format!("client {number} says hello").as_bytes())
        .await?;
    let mut answer = String::new();
    hub.read_to_string(&mut answer).await?;
    assert_eq!(answer, format!("CLIENT {number} SAYS HELLO"));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Any> {
    let hub = Domain::builder().name("hub").embedded()?;
    let socket = hub.socket_path().ok_or("no socket")?;
    let tcp = Arc::new(TcpListener::bind("127.0.0.1:0").await?);
    let address = tcp.local_addr()?;
    let pool = hub.create_pool(PoolOptions::new(1 << 20))?;

    let (mut workers, mut serving) = (Vec::new(), JoinSet::new());
    for number in 0..WORKERS {
        let jobs = hub.listen(&format!("jobs {number}"), Role::Source)?;
        let results = hub.listen(&format!("results {number}"), Role::Sink)?;
        let socket = socket.clone();
        workers.push(thread::spawn(move || worker(number, socket)));
        let jobs = jobs.accept_sender_async().await?;
        let results = results.accept_receiver_async().await?;
        serving.spawn(serve(pool.clone(), jobs, results, tcp.clone()));
    }

    let mut clients: JoinSet<_> = (0..CLIENTS).map(|number| client(number, address)).collect();
    for _ in 0..CLIENTS {
        tokio::select! {
            Some(answered) = clients.join_next() => answered??,
            Some(ended) = serving.join_next() => ended??,
        }
    }
    // The tasks go, with them their channels, and so the workers come to their end.
    serving.shutdown().await;
    for worker in workers {
        worker.join().map_err(|_| "a worker panicked")?;
    }
    println!("{CLIENTS} clients answered by {WORKERS} workers");
    Ok(())
}
