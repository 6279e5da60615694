//! Requests and descriptors for a manager: right, wrong, and wild ones.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tranship_proto::{
    ChannelClaim, ChannelId, DomainId, ExportId, PROTOCOL_VERSION, PoolId, Req, Request, Role,
};
use tranship_region::{Opts, make};
use tranship_sys::socket;

use super::raw::{CHUNK, SLOTS};
use crate::Random;

/// Returns descriptors of kinds that the protocol never asks for.
pub fn bestiary() -> Vec<(&'static str, OwnedFd)> {
    let mut all: Vec<(&'static str, OwnedFd)> = Vec::new();
    let memfd = |flags, len| {
        let fd = memfd_create("beast", flags | MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        fd
    };
    let exact = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    all.push(("a pipe", rustix::pipe::pipe().unwrap().0));
    all.push(("a socket", socket::pair().unwrap().0));
    all.push(("a directory", std::fs::File::open("/").unwrap().into()));
    all.push(("a device", std::fs::File::open("/dev/zero").unwrap().into()));
    all.push((
        "a file of /proc",
        std::fs::File::open("/proc/self/maps").unwrap().into(),
    ));
    all.push((
        "a memfd without seals",
        memfd(MemfdFlags::NOEXEC_SEAL, CHUNK),
    ));
    let sparse = memfd(MemfdFlags::NOEXEC_SEAL, CHUNK);
    fcntl_add_seals(&sparse, exact).unwrap();
    all.push(("a sparse memfd", sparse));
    let executable = memfd(MemfdFlags::EXEC | MemfdFlags::ALLOW_SEALING, CHUNK);
    fcntl_add_seals(&executable, exact).unwrap();
    all.push(("an executable memfd", executable));
    let unwritable = memfd(MemfdFlags::NOEXEC_SEAL, CHUNK);
    fcntl_add_seals(&unwritable, exact | SealFlags::WRITE).unwrap();
    all.push(("a memfd sealed against its writer", unwritable));
    all.push((
        "a memfd of a wrong size",
        make("beast", 3 * 4096, Opts::default()).unwrap().0,
    ));
    all.push((
        "a memfd of 16 MiB",
        make("beast", 16 << 20, Opts::default()).unwrap().0,
    ));
    if let Ok(huge) = memfd_create(
        "huge",
        MemfdFlags::HUGETLB | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    ) {
        let _ = ftruncate(&huge, 2 << 20);
        let _ = fcntl_add_seals(&huge, exact);
        all.push(("a memfd of hugetlbfs", huge));
    }
    let path = rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    all.push(("a path", path));
    all
}

pub fn create(req: Req) -> Request {
    Request::CreatePool {
        req,
        name: "pest".into(),
        shape: tranship_proto::PoolShape {
            max_bytes: 4 * CHUNK,
            slots: SLOTS,
            chunk_bytes: CHUNK,
            trust: tranship_proto::Trust::Producer,
        },
    }
}

/// Requests that a fresh domain may make if the descriptor is right.
pub fn with_descriptors() -> Vec<Request> {
    let req = Req(1);
    let name = || "sink".to_owned();
    vec![
        create(req),
        Request::Connect {
            req,
            name: name(),
            role: Role::Source,
            lines: 16,
            wait: false,
        },
        Request::Connect {
            req,
            name: name(),
            role: Role::Source,
            lines: 16,
            wait: true,
        },
        Request::ClaimPool {
            req,
            pool: PoolId(5),
            name: name(),
            shape: tranship_proto::PoolShape {
                max_bytes: 4 * CHUNK,
                slots: SLOTS,
                chunk_bytes: CHUNK,
                trust: tranship_proto::Trust::Producer,
            },
        },
    ]
}

/// Returns everything that could be done with another domain's object.
pub fn thefts(id: u32) -> Vec<Request> {
    let (req, pool, channel) = (Req(1), PoolId(id), ChannelId(id));
    let (index, serial) = (0, 1);
    let claim = |role| ChannelClaim {
        channel,
        name: "stolen".to_owned(),
        role,
        peer: DomainId(id),
        lines: 16,
        peer_inode: 1,
    };
    vec![
        Request::DestroyPool { pool },
        Request::Grant {
            req,
            pool,
            chunks: 1,
        },
        Request::Ungrant { pool, chunks: 1 },
        Request::ShowChunks {
            req,
            pool,
            chunks: vec![(index, 99)],
            least: 1,
        },
        Request::ReturnChunk {
            pool,
            index,
            serial,
        },
        Request::Unmapped {
            pool,
            index,
            serial,
        },
        Request::Resync { req, pool },
        Request::AllowForward {
            req,
            pool,
            domain: DomainId(id),
        },
        Request::Unexport {
            export: ExportId(id),
        },
        Request::Accept {
            req,
            channel,
            lines: 16,
        },
        Request::Reject { channel },
        Request::Assign { req, channel, pool },
        Request::AcceptPool {
            channel,
            pool,
            with_refs: true,
        },
        Request::AcceptPool {
            channel,
            pool,
            with_refs: false,
        },
        Request::VetoPool {
            channel,
            pool,
            levels: None,
        },
        Request::Drained { channel },
        Request::CloseChannel { channel },
        Request::WakeFd { req, channel },
        Request::ClaimPool {
            req,
            pool,
            name: "x".into(),
            shape: tranship_proto::PoolShape {
                max_bytes: 4 * CHUNK,
                slots: SLOTS,
                chunk_bytes: CHUNK,
                trust: tranship_proto::Trust::Producer,
            },
        },
        Request::ClaimChunk {
            req,
            pool,
            index,
            serial,
        },
        Request::ClaimReader {
            req,
            pool,
            slots: SLOTS,
            table: 1,
            trust: tranship_proto::Trust::Producer,
            mapped: vec![(0, 1)],
        },
        Request::ClaimChannel {
            req,
            claim: claim(Role::Source),
        },
        Request::ClaimChannel {
            req,
            claim: claim(Role::Sink),
        },
        Request::ClaimAssign { req, channel, pool },
        Request::Export {
            req,
            name: "honest".into(),
            role: Role::Source,
        },
        Request::Export {
            req,
            name: "sink".into(),
            role: Role::Sink,
        },
    ]
}

/// Returns any request, with numbers that are near, far, or at the limits.
pub fn wild(random: &mut Random) -> Request {
    let mut n = || match random.below(4) {
        0 => random.below(40) as u32,
        1 => random.next() as u32,
        2 => [0, 1, u32::MAX, 1 << 20, 65536, 4096][random.below(6) as usize],
        _ => 1 + random.below(1 << 20) as u32,
    };
    let (req, pool, channel, index, serial) = (Req(n()), PoolId(n()), ChannelId(n()), n(), n());
    let (kind, wide, text) = (n(), u64::from(n()) << (n() % 33), n());
    let name = match text % 4 {
        0 => String::new(),
        1 => "\0\n\u{7f}".to_owned(),
        2 => "x".repeat(text as usize % 3000),
        _ => "honest".to_owned(),
    };
    let role = if wide.is_multiple_of(2) {
        Role::Source
    } else {
        Role::Sink
    };
    let some = thefts(n());
    match kind % 16 {
        0 => Request::CreatePool {
            req,
            name,
            shape: tranship_proto::PoolShape {
                max_bytes: wide,
                slots: serial,
                chunk_bytes: u64::from(index) << 7,
                trust: tranship_proto::Trust::Producer,
            },
        },
        1 => Request::Export { req, name, role },
        2 => Request::Connect {
            req,
            name,
            role,
            lines: index,
            wait: serial.is_multiple_of(2),
        },
        3 => Request::CancelConnect { req },
        4 => Request::ClaimReader {
            req,
            pool,
            slots: index,
            table: u64::from(serial),
            trust: tranship_proto::Trust::Producer,
            mapped: vec![(index, serial); index as usize % 500],
        },
        5 => Request::ClaimPool {
            req,
            pool,
            name,
            shape: tranship_proto::PoolShape {
                max_bytes: wide,
                slots: serial,
                chunk_bytes: u64::from(index),
                trust: tranship_proto::Trust::Producer,
            },
        },
        6 => Request::ClaimDone { req },
        7 => Request::Grant {
            req,
            pool,
            chunks: serial,
        },
        8 => Request::Ungrant {
            pool,
            chunks: serial,
        },
        9 => Request::ShowChunks {
            req,
            pool,
            chunks: vec![(index, serial)],
            least: 1,
        },
        10 => Request::Accept {
            req,
            channel,
            lines: index,
        },
        11 => Request::Hello {
            version: PROTOCOL_VERSION,
            name,
            resume: Some(DomainId(index)),
            dumpable: true,
        },
        _ => some[index as usize % some.len()].clone(),
    }
}
