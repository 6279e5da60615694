//! A process that has as many mappings as the kernel gives: at level `half`, where protecting a buffer's pages takes some, buffers go on changing hands, and
//! only mistakes go unnoticed. Alone in its program, because it uses up what the process may have.

use std::os::fd::AsRawFd;
use tranship_core::{ChannelOptions, Domain, PoolOptions, Receiver, Sender, Trust};
use tranship_sys::{limits, memfd};
use tranship_testkit::Watchdog;
use tranship_testkit::probe::{Access, Probe};

/// As many mappings as the process may have, nearly.
struct Crowd(Vec<*mut libc::c_void>);

impl Crowd {
    fn new() -> Crowd {
        let mut all = Vec::with_capacity(1 << 18);
        let fd = memfd::create("crowd").expect("memfd");
        memfd::fallocate(&fd, 4096).expect("fallocate");
        loop {
            // SAFETY: a new mapping where the kernel likes; each maps the same page, so that no two become one.
            let at = unsafe {
                let (null, len) = (std::ptr::null_mut(), 4096);
                libc::mmap(
                    null,
                    len,
                    libc::PROT_READ,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    0,
                )
            };
            if at == libc::MAP_FAILED || all.len() == all.capacity() {
                break;
            }
            all.push(at);
        }
        assert!(all.len() < all.capacity(), "no end of mappings");
        Crowd(all)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for at in self.0.drain(..) {
            // SAFETY: our own, and nothing points there.
            unsafe { libc::munmap(at, 4096) };
        }
    }
}

fn access(at: *const u8) -> Access {
    Probe::new().touch(at.expose_provenance())
}

#[test]
fn without_mappings_buffers_go_on_changing_hands() {
    let most = limits::max_mappings();
    if most > 1 << 17 {
        return tranship_testkit::skipped(format!("a process may have {most} mappings"));
    }
    let _dog = Watchdog::new();
    let builder = || Domain::builder().helper_thread(true);
    let a = builder().embedded().expect("embedded");
    let socket = a.socket_path().expect("socket");
    let b = builder().socket(socket).connect().expect("connect");
    let listener = a.listen::<Sender>("x").expect("listen");
    let (mut to, mut from) = std::thread::scope(|scope| {
        let options = ChannelOptions::new();
        let receiver = scope.spawn(|| b.open_with::<Receiver>("x", options).expect("open"));
        let sender = listener.accept().expect("accept");
        (sender, receiver.join().expect("no panic"))
    });
    let options = PoolOptions::new(1 << 20).keep(1 << 20).preallocate(1 << 20);
    let pool = a.create_pool(options.trust(Trust::Half)).expect("pool");
    // Both have all of it, and have done everything once.
    let round = |to: &mut tranship_core::Sender, from: &mut tranship_core::Receiver, byte: u8| {
        let mut bufs: Vec<_> = (0..8).map(|_| pool.alloc(4096).expect("alloc")).collect();
        for buf in &mut bufs {
            buf.write(0, &[byte; 4096]).expect("inside");
        }
        let mut moves = true;
        for buf in bufs {
            match moves {
                true => to.send(buf).expect("move"),
                false => to.send(buf.freeze()).expect("send"),
            };
            moves = !moves;
        }
        let mut got: Vec<_> = (0..8).map(|_| from.recv().expect("recv")).collect();
        assert!(got.iter().all(|message| message.to_vec() == [byte; 4096]));
        // Every second one in between goes.
        let mut at = 0;
        got.retain(|_| {
            at += 1;
            at % 3 != 0
        });
        assert!(got.iter().all(|message| message.to_vec() == [byte; 4096]));
        for message in got {
            if let Ok(mut buf) = message.into_buffer_mut() {
                buf.write(0, b"theirs").expect("it is ours to write");
                from.send_back(buf).expect("pass");
            }
        }
        while let Some(back) = to.try_recv_back().expect("no lie") {
            assert_eq!(&back.to_vec()[..6], b"theirs");
        }
    };
    round(&mut to, &mut from, 1);
    let crowd = Crowd::new();
    for byte in 2..20 {
        round(&mut to, &mut from, byte);
    }
    drop(crowd);
    for byte in 20..40 {
        round(&mut to, &mut from, byte);
    }
    // It protects again.
    let mut buf = pool.alloc(4096).expect("alloc");
    buf.write(0, b"text").expect("inside");
    let at = buf.view().as_ptr();
    to.send(buf).expect("move");
    assert_eq!(access(at), Access::None);
    let moved = from.recv().expect("recv").into_buffer_mut().expect("moved");
    let theirs = moved.view().as_ptr();
    assert_eq!(access(theirs), Access::ReadWrite);
    drop(moved);
    assert_eq!(access(theirs), Access::None);
}
