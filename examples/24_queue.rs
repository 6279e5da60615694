//! Jobs for several workers over a queue: each job is done by one of them. Each part is a program of its own. Start
//! `24_queue jobs` and `24_queue worker` as often as you like. Kill any worker: its job goes to another one.
//! Without arguments it shows this, with three workers of which one is killed at its work.
//!
//! ```text
//! jobs ──► ring ──┐ ┌── worker     each worker is connected to each program that has jobs,
//!                 ├─┤              and takes the next one by one compare-and-swap
//! jobs ──► ring ──┘ └── worker     a worker that dies gives its job back
//! ```

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tranship::Domain;
use tranship::queue::Queues;

type Any = Box<dyn std::error::Error>;

const JOBS: u64 = 60;
const BYTES: usize = 256 << 10;

/// Sends the jobs so many times, and waits each time until all are done.
fn jobs(domain: &Domain, times: u64) -> Result<(), Any> {
    let mut jobs = domain.produce("jobs")?;
    for _ in 0..times {
        for number in 0..JOBS {
            let mut image = jobs.alloc(BYTES)?; // waits for workers when there is no memory left
            image.fill(number.to_le_bytes()[0]);
            jobs.send((image, number))?; // waits for workers when the queue is full
        }
        jobs.wait_done(None)?;
        println!(
            "jobs: {JOBS} jobs done, {} given again",
            jobs.status().redelivered
        );
    }
    Ok(())
}

/// Does jobs until it is killed.
fn worker(domain: &Domain) -> Result<(), Any> {
    let mut jobs = domain.consume("jobs")?;
    loop {
        let job = jobs.recv()?;
        let sum: u64 = job.to_vec().iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, (job.word & 0xff) * BYTES as u64);
        std::thread::sleep(Duration::from_millis(5)); // work
        if job.redelivered() {
            println!("job {} again", job.word);
        }
        job.ack()?; // from here on it is done; before, it would go back to the queue
    }
}

fn again(role: &str, times: u64, socket: &std::path::Path) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args([role, &times.to_string()])
        .env("TRANSHIP_SOCKET", socket)
        .stdin(Stdio::null())
        .spawn()
}

fn main() -> Result<(), Any> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next();
    let times = arguments.next().map_or(Ok(u64::MAX), |n| n.parse())?;
    match role.as_deref() {
        Some("jobs") => return jobs(&Domain::connect()?, times),
        Some("worker") => return worker(&Domain::connect()?),
        Some(other) => return Err(format!("{other}: jobs or worker, please").into()),
        None => {}
    }
    let home = Domain::builder().name("home").embedded()?;
    let socket = home.socket_path().ok_or("no socket")?;
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(again("worker", 1, &socket)?);
    }
    let mut from = [again("jobs", 1, &socket)?, again("jobs", 1, &socket)?];
    std::thread::sleep(Duration::from_millis(100));
    workers[0].kill()?;
    for jobs in &mut from {
        assert!(jobs.wait()?.success());
    }
    for worker in &mut workers {
        worker.kill()?;
        worker.wait()?;
    }
    Ok(())
}
