//! Two hosts, and a cable between them whose driver leaves sent data in its pages: two network namespaces with a pair
//! of veth(4) devices. The data of the first host waits until it finds the second one, which says nothing by itself.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use tranship_testkit::{is_root, lab};

const MAC: &str = "02:00:00:00:00:02";

pub struct Hosts {
    /// Each namespace lives as long as it is open.
    namespaces: [File; 2],
}

impl Hosts {
    /// Makes `10.79.0.1` and `10.79.0.2`. The error names the feature that is missing here.
    pub fn new() -> Result<Hosts, String> {
        if !is_root() {
            return Err("needs root, to make network namespaces and devices".into());
        }
        let namespace = || {
            std::thread::spawn(|| {
                // SAFETY: a new network namespace for this thread takes nothing from anybody.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "unshare");
                File::open("/proc/thread-self/ns/net").expect("a namespace")
            })
            .join()
            .expect("no panic")
        };
        let hosts = Hosts {
            namespaces: [namespace(), namespace()],
        };
        let other = hosts.path(1).display().to_string();
        hosts.at(0, move || {
            ip(&format!(
                "link add v0 type veth peer name v1 address {MAC} netns {other}"
            ))?;
            ip("address add 10.79.0.1/24 dev v0")?;
            ip("link set v0 up")
        })?;
        hosts.at(1, || {
            ip("address add 10.79.0.2/24 dev v1")?;
            // It answers no request for its address.
            ip("link set v1 up arp off")
        })?;
        // Asks until it gets an answer, and drops no waiting packet meanwhile.
        hosts.at(0, || {
            for (name, to) in [
                ("mcast_solicit", "1000000"),
                ("unres_qlen_bytes", "67108864"),
            ] {
                let path = format!("/proc/sys/net/ipv4/neigh/v0/{name}");
                std::fs::write(&path, to).map_err(|error| format!("{path}: {error}"))?;
            }
            Ok::<(), String>(())
        })?;
        // The kernel drops packets before it has seen that the cable is in. It checks that once a second on a machine
        // with many such devices.
        hosts.at(0, || is_up("v0"))?;
        hosts.at(1, || is_up("v1"))?;
        Ok(hosts)
    }

    fn path(&self, side: usize) -> PathBuf {
        let fd = self.namespaces[side].as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id()).into()
    }

    /// Runs something on that host.
    pub fn at<T: Send + 'static>(
        &self,
        side: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let path = self.path(side);
        std::thread::spawn(move || {
            lab::enter(&path).expect("a host");
            work()
        })
        .join()
        .expect("no panic")
    }

    pub fn bound(&self, side: usize, at: &'static str) -> UdpSocket {
        self.at(side, move || {
            UdpSocket::bind(at.parse::<SocketAddr>().expect("an address")).expect("bind")
        })
    }

    /// Makes the hosts find each other: from here on the first one's packets arrive.
    pub fn found(&self) {
        let said = self.at(0, || {
            ip(&format!(
                "neigh replace 10.79.0.2 lladdr {MAC} nud permanent dev v0"
            ))
        });
        said.expect("a neighbour");
    }
}

/// Waits until a device takes packets.
fn is_up(device: &str) -> Result<(), String> {
    loop {
        let about = ip(&format!("-o link show dev {device}"))?;
        if about.contains("state UP") && !about.contains("qdisc noop ") {
            return Ok(());
        }
        std::thread::yield_now();
    }
}

/// Runs `ip` and returns its output.
fn ip(words: &str) -> Result<String, String> {
    let done = Command::new("ip").args(words.split(' ')).output();
    let done = done.map_err(|error| format!("ip (package iproute2): {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("ip {words}: {}", said.trim()))
}
