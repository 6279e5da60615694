//! One loop for many channels and everything else: the domain is one descriptor for poll, epoll or an async runtime.

use rustix::event::{PollFd, PollFlags, poll};
use std::thread;
use tranship::{Domain, ErrorKind, Receiver, Sender};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hub = Domain::builder().name("hub").embedded()?;
    let socket = hub.socket_path().ok_or("no socket")?;
    let listener = hub.listen::<Receiver>("events")?;

    // Three senders, each of its own domain.
    let senders: Vec<_> = (0..3u64)
        .map(|who| {
            let socket = socket.clone();
            thread::spawn(move || {
                let domain = Domain::builder().name("source").socket(socket).connect();
                let mut sender = domain
                    .expect("connect")
                    .open::<Sender>("events")
                    .expect("open");
                for n in 0..100 {
                    sender.send((&who.to_le_bytes()[..], n)).expect("send");
                }
            })
        })
        .collect();
    let mut links = Vec::new();
    for _ in 0..3 {
        links.push(listener.accept()?);
    }

    let (mut got, mut wakeups) = (0, 0);
    while !links.is_empty() {
        // Take the messages that are there; a channel that ended leaves.
        links.retain_mut(|link| {
            loop {
                match link.try_recv() {
                    Ok(Some(message)) => {
                        assert_eq!(message.len(), 8);
                        got += 1;
                    }
                    Ok(None) => return true,
                    Err(error) if error == ErrorKind::PeerGone => return false,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        // Say that we are about to sleep; if something came meanwhile, look again instead.
        let mut may_sleep = !links.is_empty();
        for link in &mut links {
            may_sleep &= link.arm()?;
        }
        if may_sleep {
            // Other descriptors (sockets, timers) would stand here beside it.
            poll(&mut [PollFd::new(&hub, PollFlags::IN)], None)?;
            wakeups += 1;
        }
        links.iter_mut().for_each(|link| link.disarm());
        hub.turn()?; // the manager's news
    }
    for sender in senders {
        sender.join().map_err(|_| "a sender panicked")?;
    }
    assert_eq!(got, 300);
    println!("{got} messages over 3 links, slept {wakeups} times");
    Ok(())
}
