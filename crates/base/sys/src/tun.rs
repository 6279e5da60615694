//! TAP and TUN devices: Linux `Documentation/networking/tuntap.rst`.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl};
use std::io;

/// Longest name of a device, without the zero.
pub const MAX_NAME: usize = 15;
const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const IFF_TUN: u16 = 0x0001;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;

/// `struct ifreq`, up to the part that `TUNSETIFF` reads.
#[repr(C)]
struct Request {
    name: [u8; MAX_NAME + 1],
    flags: u16,
    rest: [u8; 22],
}

/// Makes a TAP device in the calling thread's network namespace; the device ends with its descriptor, which does not
/// block. With `segments`, a `struct virtio_net_hdr` (10 bytes) is in front of each frame, checksums may be partial,
/// and TCP segments over IPv4 are up to 64 KiB long. Needs CAP_NET_ADMIN.
pub fn tap(name: &str, segments: bool) -> io::Result<OwnedFd> {
    device(name, IFF_TAP, segments)
}

/// Opens a network device without link headers, for IP packets.
pub fn tun(name: &str, segments: bool) -> io::Result<OwnedFd> {
    device(name, IFF_TUN, segments)
}

fn device(name: &str, kind: u16, segments: bool) -> io::Result<OwnedFd> {
    if name.is_empty() || name.len() > MAX_NAME {
        let bytes = name.len();
        let text = format!("device name {name:?} has {bytes} bytes, allowed are 1 to {MAX_NAME}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let mut request = Request {
        name: [0; MAX_NAME + 1],
        flags: kind | IFF_NO_PI | if segments { IFF_VNET_HDR } else { 0 },
        rest: [0; 22],
    };
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: TUNSETIFF reads a `struct ifreq`, which `Request` is as far as it is read.
    unsafe { ioctl(&fd, Setter::<TUNSETIFF, Request>::new(request)) }?;
    if segments {
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        unsafe {
            ioctl(
                &fd,
                IntegerSetter::<TUNSETOFFLOAD>::new_usize(TUN_F_CSUM | TUN_F_TSO4),
            )
        }?;
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_that_are_too_long_are_refused() {
        let problem = super::tap("sixteen-letters-", false).expect_err("too long");
        assert!(problem.to_string().contains("16 bytes"), "{problem}");
        assert!(super::tap("", false).is_err());
    }
}
