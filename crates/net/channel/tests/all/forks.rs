//! A child of a process that listens: objects that it drops are its parent's.

use tranship_core::{Domain, Receiver, Sender};
use tranship_testkit::{Control, Exit, child};

child!(
    fn forks(ctl: Control) {
        let domain = Domain::embedded().expect("embedded");
        tranship_channel::add_to(&domain).expect("carriers");
        let copy = format!("copy:forked-{}", std::process::id());
        let addresses = ["local:forked".to_owned(), copy];
        let listeners: Vec<_> = addresses
            .iter()
            .map(|address| domain.listen::<Receiver>(address).expect("listen"))
            .collect();
        // SAFETY: the child's other threads are gone; glibc keeps malloc usable, and the child ends by _exit.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            // SAFETY: a limit for the child, which no watchdog sees.
            unsafe { libc::alarm(100) };
            drop(listeners);
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = -1;
        // SAFETY: `status` outlives the call.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert_eq!(status, 0, "the child has dropped them");
        for (address, listener) in addresses.iter().zip(&listeners) {
            let mut to = domain.open::<Sender>(address).expect("open");
            let mut from = listener.accept().expect("accept");
            to.send(b"still").expect("send");
            assert_eq!(from.recv().expect("recv").to_vec(), b"still", "{address}");
        }
        ctl.send(&"listens").expect("control");
    }
);

#[test]
fn a_child_that_drops_its_parents_listeners() {
    let _dog = crate::kit::dog();
    let peer = forks().start().expect("start");
    assert_eq!(peer.expect::<String>(), "listens");
    assert_eq!(peer.wait(), Exit::Code(0));
}
