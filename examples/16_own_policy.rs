//! A policy of one's own, in one file of one's own program: it sets the quotas of all pools of a manager, as `tranship
//! policy run` does.

use std::collections::VecDeque;
use std::time::Duration;
use tranship::manager::Config;
use tranship::policy::{self, Governor, Policy, Round, Wish};
use tranship::{BufferMut, Domain, PoolOptions};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 16 * MIB;

/// Everybody as much as it used, and half as much again; pools whose names begin with "video" first.
#[derive(Debug)]
struct VideoFirst;

impl Policy for VideoFirst {
    fn wishes(&mut self, round: &Round<'_>) -> Vec<Wish> {
        let pools = round.pools.iter().enumerate();
        let wish = |(pool, activity): (usize, &policy::Activity<'_>)| {
            let state = activity.state;
            let missing = u64::from(state.waiters) * state.grain_bytes;
            Wish {
                pool,
                rank: u32::from(!state.name.starts_with("video")),
                up_to_bytes: (activity.peak_bytes() + missing) / 2 * 3,
            }
        };
        pools.map(wish).collect()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Elsewhere this is the system's manager, with `policy = "static"`, and a rule [[policy_run]] for this program's
    // user.
    let config = Config {
        total: Some(TOTAL),
        grace: Duration::from_millis(1),
        ..Config::default()
    };
    let app = Domain::builder().name("app").config(config);
    let app = app.helper_thread(true).embedded()?;
    let options = |name| PoolOptions::new(TOTAL).chunk_bytes(MIB).name(name);
    let video = app.create_pool(options("video"))?;
    let log = app.create_pool(options("log"))?;

    // The policy's own domain: two rights are all that it has.
    let socket = app.socket_path().ok_or("a socket")?.to_owned();
    let domain = Domain::builder().name("policy").socket(&socket).connect()?;
    let steering = domain.admin().steer()?;
    let other = Domain::builder().name("other").socket(&socket).connect()?;
    println!(
        "a second one: {}",
        other.admin().steer().expect_err("one at a time")
    );

    // Both programs want all the memory that there is.
    let mut held: [VecDeque<BufferMut>; 2] = Default::default();
    let mut governor = Governor::with(policy::Config::default(), Box::new(VideoFirst));
    let mut periods = 0;
    steering.run(&mut governor, Duration::from_millis(10), |_| {
        for (pool, held) in [&video, &log].into_iter().zip(&mut held) {
            while let Ok(buf) = pool.try_alloc(1 << 20) {
                held.push_back(buf);
            }
            // Memory over its quota is given back as it is released.
            held.pop_front();
        }
        let quotas = [&video, &log].map(|pool| pool.stats().quota_bytes / MIB);
        let done = quotas[0] >= 12 && quotas[0] + quotas[1] <= TOTAL / MIB;
        periods += 1;
        if done {
            println!(
                "{periods} periods: video {} MiB, log {} MiB",
                quotas[0], quotas[1]
            );
        }
        !done
    })?;
    // The policy ends, and its quotas stay.
    drop(steering);
    assert!(video.stats().quota_bytes > log.stats().quota_bytes);
    Ok(())
}
