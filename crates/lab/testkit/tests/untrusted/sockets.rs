//! Sockets that two parties share: of the one that an untrusted peer has too, it keeps the lock.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags};
use tranship_core::{ChannelOptions, Receiver, Role, Sender, WhenFull};
use tranship_proto::{Event, Request};
use tranship_testkit::{Control, child, fuse};

use crate::stage::{Stage, join, never};
use tranship_testkit::hostile::raw::{Channel, Raw};

/// The longest single wait.
const ROUND: Duration = Duration::from_millis(5);

// Sends to all receivers that want it, without end.
child!(
    fn feed(ctl: Control) {
        let domain = join("feed");
        let options = ChannelOptions::new().lines(16).when_full(WhenFull::DropNew);
        let listener = domain.listen_with::<Sender>("feed", options).unwrap();
        ctl.send(&()).unwrap();
        let mut all = Vec::new();
        loop {
            if let Ok(sender) = listener.accept_timeout(ROUND) {
                all.push(sender);
            }
            all.retain_mut(|sender| sender.send(b"news").is_ok());
        }
    }
);

child!(
    fn is_fed(ctl: Control) {
        let domain = join("fed");
        let mut receiver = domain.open::<Receiver>("feed").unwrap();
        while ctl.recv::<()>().unwrap().is_some() {
            receiver.recv().unwrap();
            ctl.send(&()).unwrap();
        }
    }
);

child!(
    fn keeps_the_lock_of_what_it_is_woken_by(ctl: Control) {
        let file: PathBuf = ctl.recv().unwrap().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let (page, rest) = never(&file).split_at_mut(2048);
        let held = far.try_clone().unwrap();
        std::thread::spawn(move || rustix::net::send(&held, page, SendFlags::empty()));
        ctl.recv::<()>().unwrap();
        let mut raw = Raw::join("taker");
        let mut channel = raw.connect("feed", Role::Sink);
        let wake = |raw: &mut Raw, channel: &Channel| Request::WakeFd {
            req: raw.req(),
            channel: channel.id,
        };
        let request = wake(&mut raw, &channel);
        raw.send(&request, &[far.as_fd()]);
        if raw.expelled().is_some() {
            // The channel is then of the manager's making.
            raw = Raw::again("taker");
            channel = raw.connect("feed", Role::Sink);
            let request = wake(&mut raw, &channel);
            raw.send(&request, &[]);
            let (_, mut fds) = raw.wait(|e| matches!(e, Event::WakeEnd { .. }).then_some(()));
            let near = fds.remove(0);
            std::thread::spawn(move || rustix::net::recv(&near, rest, RecvFlags::empty()));
        }
        channel.own.asleep().store(2, Ordering::SeqCst);
        // Until the peer wakes us, or has given us up.
        let seen = channel.theirs.wake().load(Ordering::SeqCst);
        while channel.theirs.wake().load(Ordering::SeqCst) == seen
            && channel.theirs.closed().load(Ordering::SeqCst) == 0
        {
            std::thread::yield_now();
        }
        ctl.send(&()).unwrap();
        let _ = ctl.recv::<()>();
    }
);

#[test]
fn a_descriptor_to_wake_an_untrusted_peer_by_keeps_nobody_waiting() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let feed = stage.honest(feed());
    feed.expect::<()>();
    let honest = stage.honest(is_fed());
    honest.ask::<()>(&());
    let taker = stage.attacker(keeps_the_lock_of_what_it_is_woken_by());
    taker.send(stage.file.path()).unwrap();
    stage.file.wait_for(fuse::READ);
    taker.ask::<()>(&());
    for _ in 0..100 {
        honest.ask::<()>(&());
    }
    feed.kill();
}
