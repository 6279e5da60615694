//! After a peak, memory goes back without a call: no code calls `reclaim` here.

use std::sync::mpsc::{channel, sync_channel};
use std::thread;
use std::time::Duration;
use tranship_items::reaper;
use tranship_mbuf::{Chain, Limits, MbufOptions, Mbufs};
use tranship_testkit::Watchdog;

const SPIKE: usize = 16384;

fn packet(mbufs: &Mbufs) -> Chain {
    let mut packet = mbufs.getcl().expect("packet");
    packet.append(&[7; 2048]).expect("room in place");
    packet
}

/// Runs at several steady loads, each with its own allocator; a thread that then only sleeps frees half of the peak.
#[test]
fn memory_goes_back_by_itself() {
    let _dog = Watchdog::new();
    reaper::set_period(Duration::from_millis(5));
    for steady in [256, 1024, 8192] {
        let options = MbufOptions::new().limits(Limits::NONE);
        let mbufs = options.window_bytes(1 << 30).build().expect("allocator");
        let memory = || mbufs.stats().memory_bytes;
        let held: Vec<_> = (0..steady).map(|_| packet(&mbufs)).collect();
        let before = memory();
        let (send, receive) = channel::<Chain>();
        let (freed, wait) = sync_channel::<()>(1);
        let (over, sleep) = sync_channel::<()>(0);
        thread::scope(|scope| {
            scope.spawn(move || {
                receive.into_iter().for_each(drop);
                freed.send(()).expect("awaited");
                let _ = sleep.recv();
            });
            let spike: Vec<_> = (0..SPIKE).map(|_| packet(&mbufs)).collect();
            assert!(memory() > before + (SPIKE * 2048) as u64);
            for (number, packet) in spike.into_iter().enumerate() {
                if number % 2 == 0 {
                    send.send(packet).expect("it listens");
                }
            }
            drop(send);
            wait.recv().expect("all freed");
            // A twentieth, and an empty slab that each of two kegs may keep.
            let most = before + before / 20 + (256 << 10);
            while memory() > most {
                thread::yield_now();
            }
            drop(over);
        });
        drop(held);
        // All memory goes with the last packet.
        while memory() > 0 {
            thread::yield_now();
        }
    }
}
