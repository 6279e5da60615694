//! Two hosts and the weather between them: network namespaces, joined by a relay in user space that loses, delays,
//! reorders and holds back frames, by a seed. It does the work of `netem`, for kernels without it.
//!
//! ```no_run
//! use tranship_testkit::lab::{Lab, Weather};
//! use tranship_testkit::Random;
//! if let Err(why) = tranship_testkit::lab::possible() {
//!     return tranship_testkit::skipped(why);
//! }
//! let lab = Lab::new(Random::printed("weather")).unwrap();
//! lab.weather(Weather { loss_per_mille: 10, ..Weather::default() });
//! let server = lab.command(0, "my-server").spawn(); // at 10.77.0.1
//! // A child of `child!`: its first call is `lab::enter(&path)`, before it has threads or sockets.
//! let path = lab.namespace(1);
//! ```

use crate::Random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tranship_sys::{eventfd, tun};

const PREFIX: &str = "lab";
/// Ethernet frames at an MTU of 1500, and some room.
const FRAME_BYTES: usize = 2048;
/// Frames that the relay holds; more are lost, as in a router.
const QUEUE: usize = 8192;

/// Treatment of frames on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// Lost frames in a thousand.
    pub loss_per_mille: u32,
    /// Delay of every frame.
    pub delay: Duration,
    /// Largest further delay, for each frame by its own, so that frames overtake each other.
    pub jitter: Duration,
    /// No frame passes.
    pub partition: bool,
}

/// Counts of the relay.
#[derive(Debug, Default)]
struct Counts {
    passed: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    weather: Mutex<Weather>,
    counts: Counts,
    stop: OwnedFd,
}

/// Two hosts, `10.77.0.1` and `10.77.0.2`. Dropping it removes them; the processes in them go first.
#[derive(Debug)]
pub struct Lab {
    names: [String; 2],
    shared: Arc<Shared>,
    relay: Option<std::thread::JoinHandle<()>>,
}

/// Returns whether namespaces and devices can be made here.
///
/// # Errors
/// The missing feature, in words.
pub fn possible() -> Result<(), String> {
    if !crate::is_root() {
        return Err("needs root, to make network namespaces and TAP devices".into());
    }
    std::fs::metadata("/dev/net/tun").map_err(|error| format!("/dev/net/tun: {error}"))?;
    ip(&["netns", "list"])
}

/// Moves the calling thread, and all threads it starts from now on, to a host.
///
/// # Errors
/// The kernel's error.
pub fn enter(namespace: &Path) -> io::Result<()> {
    let file = std::fs::File::open(namespace)?;
    let kind = Some(rustix::thread::LinkNameSpaceType::Network);
    Ok(rustix::thread::move_into_link_name_space(
        file.as_fd(),
        kind,
    )?)
}

impl Lab {
    /// Makes the hosts and the way between them; the weather is fine.
    ///
    /// # Errors
    /// The error of `ip` or of the kernel.
    pub fn new(random: Random) -> Result<Lab, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Ordering: relaxed; only the number itself must be unique.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        sweep();
        let name = |side: usize| format!("{PREFIX}{}n{number}s{side}", std::process::id());
        let failed = |error: io::Error| error.to_string();
        let shared = Arc::new(Shared {
            weather: Mutex::default(),
            counts: Counts::default(),
            stop: eventfd::create().map_err(failed)?,
        });
        let mut lab = Lab {
            names: [name(0), name(1)],
            shared: Arc::clone(&shared),
            relay: None,
        };
        let mut taps = Vec::new();
        for (side, host) in lab.names.iter().enumerate() {
            // The name has at most 15 bytes, and is unique while the device is here.
            let device = format!("l{}x{number}x{side}", std::process::id());
            let tap = tun::tap(&device, false).map_err(|error| format!("{device}: {error}"))?;
            ip(&["netns", "add", host])?;
            ip(&["link", "set", &device, "netns", host])?;
            let at = format!("{}/24", lab.address(side));
            ip(&["-n", host, "link", "set", "lo", "up"])?;
            ip(&["-n", host, "link", "set", &device, "up"])?;
            ip(&["-n", host, "address", "add", &at, "dev", &device])?;
            taps.push(tap);
        }
        let Ok(taps) = <[OwnedFd; 2]>::try_from(taps) else {
            return Err("two devices were made".into());
        };
        let relay = std::thread::Builder::new().name("weather".into());
        let relay = relay.spawn(move || pass(&taps, &shared, random));
        lab.relay = Some(relay.map_err(failed)?);
        Ok(lab)
    }

    /// Returns the address of a host.
    #[must_use]
    pub fn address(&self, side: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, if side == 0 { 1 } else { 2 })
    }

    /// Returns the namespace for [`enter`].
    #[must_use]
    pub fn namespace(&self, side: usize) -> PathBuf {
        Path::new("/run/netns").join(&self.names[side])
    }

    /// Makes a command of a program on a host.
    #[must_use]
    pub fn command(&self, side: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.names[side]])
            .arg(program);
        command.stdin(Stdio::null());
        command
    }

    /// Changes the weather, for frames that are sent from now on.
    pub fn weather(&self, weather: Weather) {
        *self.shared.lock() = weather;
    }

    /// Returns how many frames have passed, and how many were lost.
    #[must_use]
    pub fn frames(&self) -> (u64, u64) {
        let counts = &self.shared.counts;
        // Ordering: relaxed; statistics.
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&counts.passed), of(&counts.lost))
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Weather> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = eventfd::signal(&self.shared.stop);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        for name in &self.names {
            if let Err(why) = ip(&["netns", "delete", name]) {
                eprintln!("lab: {name} stays: {why}");
            }
        }
    }
}

/// Time when a frame is due, its number (so that equals go in order), its destination, its bytes.
type Due = Reverse<(Instant, u64, usize, Vec<u8>)>;

fn pass(taps: &[OwnedFd; 2], shared: &Shared, mut random: Random) {
    let mut due: BinaryHeap<Due> = BinaryHeap::new();
    let mut number = 0;
    let mut frame = [0; FRAME_BYTES];
    loop {
        let now = Instant::now();
        while due.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let Some(Reverse((_, _, to, bytes))) = due.pop() {
                // The device is down, or has no room: the frame is lost.
                let _ = rustix::io::write(&taps[to], &bytes);
            }
        }
        let next = due
            .peek()
            .map(|Reverse((at, ..))| at.saturating_duration_since(now));
        let next = next.map(|next| Timespec {
            tv_sec: i64::try_from(next.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: next.subsec_nanos().into(),
        });
        let mut fds = [
            PollFd::new(&shared.stop, PollFlags::IN),
            PollFd::new(&taps[0], PollFlags::IN),
            PollFd::new(&taps[1], PollFlags::IN),
        ];
        // A signal, or too little memory for the moment: both are looked at again.
        let _ = poll(&mut fds, next.as_ref());
        if !fds[0].revents().is_empty() {
            return;
        }
        let weather = *shared.lock();
        for (from, tap) in taps.iter().enumerate() {
            // A few at a time, so that none waits for the other direction.
            for _ in 0..64 {
                let Ok(len) = rustix::io::read(tap, &mut frame) else {
                    break;
                };
                let lost = random.below(1000) < u64::from(weather.loss_per_mille);
                // Ordering: relaxed; statistics.
                if lost || weather.partition || due.len() >= QUEUE {
                    shared.counts.lost.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                shared.counts.passed.fetch_add(1, Ordering::Relaxed);
                let jitter = u64::try_from(weather.jitter.as_nanos()).unwrap_or(u64::MAX);
                let late = weather.delay + Duration::from_nanos(random.below(jitter));
                due.push(Reverse((
                    Instant::now() + late,
                    number,
                    1 - from,
                    frame[..len].to_vec(),
                )));
                number += 1;
            }
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("ip (Debian: iproute2): {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Removes the hosts of processes that ended without doing so.
fn sweep() {
    let Ok(names) = std::fs::read_dir("/run/netns") else {
        return; // No process has made any yet.
    };
    for name in names
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
    {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let pid = rest.split('n').next().unwrap_or_default();
        let ours = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
        if ours && !Path::new("/proc").join(pid).exists() {
            // Another process may be sweeping too.
            let _ = ip(&["netns", "delete", &name]);
        }
    }
}
