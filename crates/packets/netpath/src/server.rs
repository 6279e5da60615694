//! The echo server: TCP and UDP echo (RFC 862) and iperf3's server, on smoltcp over any device.

use crate::iperf::{Iperf, Moved, tcp_socket, udp_socket};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::Device;
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, IpCidr};

/// Port of the echo service.
pub const ECHO: u16 = 7;
/// TCP connections that are echoed at a time.
const CONNECTIONS: usize = 16;
/// Bytes of each TCP buffer.
const WINDOW: usize = 1 << 20;

/// A host with one interface.
#[allow(missing_debug_implementations, reason = "smoltcp's interface has none")]
pub struct Server {
    interface: Interface,
    sockets: SocketSet<'static>,
    tcp: Vec<SocketHandle>,
    udp: SocketHandle,
    iperf: Iperf,
}

impl Server {
    /// Makes a host with this Ethernet and IPv4 address.
    pub fn new(device: &mut impl Device, ethernet: [u8; 6], address: IpCidr, seed: u64) -> Self {
        let interface = interface(device, ethernet, address, seed);
        let mut sockets = SocketSet::new(Vec::new());
        let tcp = (0..CONNECTIONS)
            .map(|_| sockets.add(tcp_socket(WINDOW / 4, WINDOW / 4)))
            .collect();
        let udp = sockets.add(udp_socket(256, 1 << 20));
        let iperf = Iperf::new(&mut sockets, WINDOW);
        let mut server = Self {
            interface,
            sockets,
            tcp,
            udp,
            iperf,
        };
        // All ports are open before the first packet is taken: a packet that is there already would be refused.
        server.answer();
        server
    }

    /// Takes the device's packets, answers, and returns how long to wait for the device at most.
    pub fn turn(&mut self, device: &mut impl Device) -> Option<Duration> {
        self.interface
            .poll(Instant::now(), device, &mut self.sockets);
        self.answer();
        // The answers go out.
        self.interface
            .poll(Instant::now(), device, &mut self.sockets);
        self.interface.poll_delay(Instant::now(), &self.sockets)
    }

    /// Listens on every free socket, and answers.
    fn answer(&mut self) {
        self.echo_tcp();
        self.echo_udp();
        self.iperf.serve(&mut self.sockets);
    }

    /// Takes the iperf3 tests that have ended since the last call.
    pub fn finished(&mut self) -> Vec<Moved> {
        self.iperf.finished()
    }

    fn echo_tcp(&mut self) {
        for &handle in &self.tcp {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
            if !socket.is_open() {
                // Fails only for port 0 or an open socket.
                let _ = socket.listen(ECHO);
            }
            while socket.can_recv() && socket.can_send() {
                let room = socket.send_capacity() - socket.send_queue();
                let mut taken = Vec::new();
                let got = socket.recv(|data| {
                    let bytes = data.len().min(room);
                    taken.extend_from_slice(&data[..bytes]);
                    (bytes, bytes)
                });
                if !matches!(got, Ok(1..)) || socket.send_slice(&taken) != Ok(taken.len()) {
                    break;
                }
            }
            if !socket.may_recv() && socket.may_send() && !socket.can_recv() {
                socket.close();
            }
        }
    }

    fn echo_udp(&mut self) {
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.udp);
        if !socket.is_open() {
            // Fails only for port 0.
            let _ = socket.bind(ECHO);
        }
        while socket.can_send() {
            let Ok((data, from)) = socket.recv() else {
                break;
            };
            let data = data.to_vec();
            if socket.send_slice(&data, from).is_err() {
                break;
            }
        }
    }
}

/// Makes an interface with this Ethernet and IPv4 address.
pub(crate) fn interface(
    device: &mut impl Device,
    ethernet: [u8; 6],
    address: IpCidr,
    seed: u64,
) -> Interface {
    let mut config = Config::new(EthernetAddress(ethernet).into());
    config.random_seed = seed;
    let mut interface = Interface::new(config, device, Instant::now());
    // One address: the list has room for at least one.
    interface.update_ip_addrs(|list| _ = list.push(address));
    interface
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::phy::{Loopback, Medium};

    #[test]
    fn ports_are_open_before_the_first_turn() {
        let mut device = Loopback::new(Medium::Ethernet);
        let address = "10.0.0.1/24".parse().expect("an address");
        let server = Server::new(&mut device, [2, 0, 0, 0, 0, 1], address, 1);
        let open = |socket: &smoltcp::socket::Socket<'_>| match socket {
            smoltcp::socket::Socket::Tcp(tcp) => tcp.is_listening(),
            smoltcp::socket::Socket::Udp(udp) => udp.is_open(),
        };
        assert!(server.sockets.iter().all(|(_, socket)| open(socket)));
    }
}
