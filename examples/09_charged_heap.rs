//! A program whose whole heap is charged to it, limited, and seen like its buffers: one line in the program, and a
//! manager that its environment names. `tranship run --quota 64MiB -- PROGRAM` sets that environment, also for programs
//! in C.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use tranship::Domain;
use tranship::admin::StatRecord;
use tranship::malloc::{Tranship, usage};

#[global_allocator]
static HEAP: Tranship = Tranship;

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

fn main() -> Result {
    match std::env::var_os("EXAMPLE_WORKER") {
        None => supervisor(),
        Some(_) => worker(),
    }
}

fn supervisor() -> Result {
    let domain = Domain::embedded()?;
    let socket = domain.socket_path().ok_or("it has a manager")?;
    let mut worker = Command::new(std::env::current_exe()?)
        .env("EXAMPLE_WORKER", "1")
        .env("TRANSHIP_SOCKET", socket)
        .env("TRANSHIP_HEAP_MAX", "64MiB")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = BufReader::new(worker.stdout.take().ok_or("it is piped")?).lines();
    println!("worker: {}", said.next().ok_or("it said nothing")??);

    let stat = domain.admin().stat()?;
    let heap = stat.iter().find_map(|record| match record {
        StatRecord::Heap(heap) => Some(heap),
        _ => None,
    });
    let heap = heap.ok_or("the worker's heap is not here")?;
    println!("manager: {} has {} bytes", heap.name, heap.admitted_bytes);
    assert!((32 << 20..=64 << 20).contains(&heap.admitted_bytes));

    drop(worker.stdin.take()); // it may end
    assert!(worker.wait()?.success());
    Ok(())
}

fn worker() -> Result {
    let kept = vec![1u8; 32 << 20];
    let now = usage();
    assert!(now.managed && now.used_bytes >= 32 << 20 && now.admitted_bytes >= now.used_bytes);

    // Beyond the limit an allocation fails; a program that can handle that goes on.
    let refused = Vec::<u8>::new().try_reserve(64 << 20);
    let refused = refused.expect_err("32 of 64 MiB are in use");
    println!("64 MiB more: {refused}");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(kept);
    Ok(())
}
