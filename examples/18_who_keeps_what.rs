//! A viewer keeps frames that it should have dropped: the manager charges it for them and reports it, and the viewer
//! itself names them.

use std::time::Duration;
use tranship::admin::{DomainStat, Leaks, StatRecord};
use tranship::manager::Config;
use tranship::{Domain, PoolOptions, Receiver, Sender};

const FRAME: usize = 256 << 10;

/// Returns the manager's record of a domain.
fn record(of: &Domain) -> Result<DomainStat, Box<dyn std::error::Error>> {
    let records = of.admin().stat()?.into_iter();
    let mut domains = records.filter_map(|record| match record {
        StatRecord::Domain(d) if d.domain == of.id() => Some(d),
        _ => None,
    });
    Ok(domains.next().ok_or("the manager does not know it")?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rules =
        "linger = \"100ms\"\n[[hog]]\nname = \"viewer\"\nover = \"512KiB\"\nfor = \"200ms\"\n";
    let camera = Domain::builder()
        .name("camera")
        .config(Config::parse(rules)?)
        .embedded()?;
    let socket = camera.socket_path().ok_or("no socket")?;
    // This does the same as `TRANSHIP_LEAKS=1`.
    let viewer = Domain::builder()
        .name("viewer")
        .socket(socket)
        .leaks(Leaks::Report)
        .helper_thread(true)
        .connect()?;
    let pool = camera.create_pool(PoolOptions::new(16 << 20).name("frames"))?;
    let listener = camera.listen::<Sender>("film")?;
    let opened = std::thread::spawn({
        let viewer = viewer.clone();
        move || viewer.open::<Receiver>("film")
    });
    let mut sender = listener.accept()?;
    let mut receiver = opened.join().map_err(|_| "the viewer panicked")??;

    let mut kept = Vec::new();
    for n in 0..8u64 {
        let mut frame = pool.alloc(FRAME)?;
        frame[..8].copy_from_slice(&n.to_le_bytes());
        sender.send(frame.freeze())?;
        let message = receiver.recv()?;
        // Forgotten in a list: every second one.
        kept.extend((n % 2 == 0).then_some(message));
    }
    let seen = loop {
        let record = record(&viewer)?;
        if record.hog.is_some() {
            break record;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let hog = seen.hog.as_ref().ok_or("it is one")?;
    println!(
        "{} holds {} KiB for longer than it may, allowed are {} KiB: {}",
        seen.name,
        seen.lingering_bytes >> 10,
        hog.over_bytes >> 10,
        hog.action
    );
    assert!(seen.lingering_bytes >= 4 * FRAME as u64);

    let report = viewer.admin().leaks();
    println!("{report}");
    assert_eq!(report.held.len(), 4);
    drop(kept);
    assert!(viewer.close().is_empty(), "nothing is left");
    Ok(())
}
