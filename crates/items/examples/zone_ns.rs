//! Nanoseconds of a cached alloc and free, for several sizes of item and patterns.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;
use tranship_items::{Arena, Bytes, ItemKeg, ItemOptions, ItemZone};
use tranship_zone::{Backend, Zone, ZoneConfig};

/// Numbers counted up; returned ones are forgotten.
struct Endless(std::sync::atomic::AtomicU32);

impl Backend for Endless {
    fn import(&self, out: &mut Vec<u32>, want: usize) {
        for _ in 0..want {
            out.push(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
    }

    fn release(&self, _items: &[u32]) {}
}

const ROUNDS: u32 = 20_000_000;

/// Returns the median of 11 times, in nanoseconds per pair of alloc and free.
fn median(pairs: u32, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..11)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e9 / f64::from(pairs)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[5]
}

fn main() {
    for bytes in [64, 4096, 64 << 10, 1 << 20] {
        let zone = Zone::new(ZoneConfig::for_item(bytes), Endless(0.into()));
        let pair = median(ROUNDS, || {
            for _ in 0..ROUNDS {
                let item = black_box(&zone).alloc().expect("endless");
                zone.free(black_box(item));
            }
        });
        let mut held = [0; 32];
        let batch = median(ROUNDS, || {
            for _ in 0..ROUNDS / 32 {
                for item in &mut held {
                    *item = black_box(&zone).alloc().expect("endless");
                }
                for item in held {
                    zone.free(black_box(item));
                }
            }
        });
        println!(
            "{bytes:>8} B: alloc+free {pair:5.2} ns one at a time, {batch:5.2} ns 32 at a time"
        );
    }
    let arena = Arc::new(Arena::private(1 << 30).expect("arena"));
    for bytes in [64, 256, 4096, 64 << 10] {
        let keg = ItemKeg::new(&arena, bytes, 16).expect("keg");
        let zone = ItemZone::new(&keg, Bytes, ItemOptions::named("items"));
        let pair = median(ROUNDS, || {
            for _ in 0..ROUNDS {
                let item = black_box(&zone).alloc(()).expect("room");
                // SAFETY: once.
                unsafe { zone.free(black_box(item)) };
            }
        });
        let mut held = [NonNull::dangling(); 32];
        let batch = median(ROUNDS, || {
            for _ in 0..ROUNDS / 32 {
                for item in &mut held {
                    *item = black_box(&zone).alloc(()).expect("room");
                }
                for item in held {
                    // SAFETY: once.
                    unsafe { zone.free(black_box(item)) };
                }
            }
        });
        println!(
            "{bytes:>8} B item: alloc+free {pair:5.2} ns one at a time, {batch:5.2} ns 32 at a time"
        );
    }
}
