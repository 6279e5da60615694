//! Connecting to names: what a connect does while its listener goes, and what an error says of a name.

use crate::kit::*;
use std::time::Duration;
use tranship_core::error::{Awaited, TimedOut};
use tranship_core::{ChannelOptions, Domain, ErrorKind, Listener, Opening, Receiver, Sender};

/// The manager has handled what the domain asked, and the listener's domain has heard of it.
fn settle(listens: &Domain, opens: &[&Domain]) {
    for domain in opens {
        domain.admin().stat().expect("the manager's answer");
    }
    listens.admin().stat().expect("the manager's answer");
}

fn opening(domain: &Domain, name: &str) -> Opening<Receiver> {
    let mut opening = domain.open_async::<Receiver>(name, ChannelOptions::new());
    assert!(opening.try_open().expect("waits").is_none());
    opening
}

/// Accepts one and sends it a word.
fn serve(listener: &Listener<Sender>, word: u64) -> Sender {
    let mut sender = listener.accept().expect("accept");
    sender.send((b"", word)).expect("send");
    sender
}

fn opened(opening: &mut Opening<Receiver>) -> Receiver {
    let mut end = None;
    until(|| {
        end = opening.try_open().expect("open");
        end.is_some()
    });
    end.expect("an end")
}

#[test]
fn a_connect_waits_for_the_next_listener_when_the_one_it_came_to_goes() {
    let (_dog, a, b) = pair();
    let mut video = opening(&b, "video");
    for _ in 0..3 {
        let listener = a.listen::<Sender>("video").expect("listen");
        settle(&a, &[&b]);
        drop(listener);
        settle(&a, &[&b]);
        assert!(video.try_open().expect("waits on").is_none());
        // The next look asks again.
        assert!(video.try_open().expect("waits on").is_none());
    }
    let listener = a.listen::<Sender>("video").expect("listen");
    std::thread::scope(|s| {
        let sender = s.spawn(|| serve(&listener, 7));
        assert_eq!(opened(&mut video).recv().expect("recv").word, 7);
        drop(sender.join().expect("sender"));
    });
}

#[test]
fn a_listener_that_accepts_one_leaves_the_others_to_the_next() {
    let (_dog, a, b) = pair();
    let c = join(&a, "c");
    let mut waiting = [opening(&b, "file"), opening(&c, "file")];
    for word in 0..2 {
        let listener = a.listen::<Sender>("file").expect("listen");
        settle(&a, &[&b, &c]);
        let mut taken = 0;
        let mut look = || {
            for opening in &mut waiting {
                if let Some(mut end) = opening.try_open().expect("open") {
                    taken += 1;
                    assert_eq!(end.recv().expect("the one that was taken").word, word);
                }
            }
            taken
        };
        let sender = std::thread::scope(|s| {
            let served = s.spawn(|| {
                let sender = serve(&listener, word);
                drop(listener);
                sender
            });
            until(|| look() > 0 && served.is_finished());
            served.join().expect("sender")
        });
        settle(&a, &[&b, &c]);
        assert_eq!(look(), 1, "one was accepted");
        drop(sender);
    }
}

/// An `open` that timed out says whether nobody listens at the name, or the listener does not accept.
#[test]
fn the_time_is_over_says_whether_anybody_listens() {
    let (_dog, a, b) = pair();
    let soon = ChannelOptions::new().timeout(Duration::from_millis(30));
    let nobody = b
        .open_with::<Receiver>("x", soon.clone())
        .expect_err("nobody");
    assert!(
        matches!(nobody.find(), Some(TimedOut { awaited: Awaited::Offer(name), .. }) if name == "x"),
        "{nobody}"
    );
    let _listener = a.listen::<Sender>("x").expect("listen");
    let busy = b
        .open_with::<Receiver>("x", soon)
        .expect_err("not accepted");
    assert_eq!(busy.kind(), ErrorKind::TimedOut);
    let text = busy.to_string();
    assert!(
        text.contains("listens at `x`") && text.contains("accepted"),
        "{text}"
    );
}

#[test]
fn a_name_of_the_domain_itself_is_said_to_be_that() {
    let (_dog, a) = watched();
    let _listener = a.listen::<Sender>("mine").expect("listen");
    let error = a.open::<Receiver>("mine").expect_err("its own");
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    let text = error.to_string();
    assert!(text.contains("`local:`"), "{text}");
}

/// Somebody waits for the name, and then takes it.
#[test]
fn a_name_that_the_domain_takes_while_it_waits_for_it_is_its_own() {
    let (_dog, a) = watched();
    let mut opening = opening(&a, "mine");
    let _listener = a.listen::<Sender>("mine").expect("listen");
    let mut said = None;
    until(|| {
        said = opening.try_open().err();
        said.is_some()
    });
    assert_eq!(said.expect("an error").kind(), ErrorKind::BadArgument);
}

/// Nobody else is there to accept what it opens.
#[test]
fn one_thread_listens_opens_and_accepts() {
    let (_dog, a, b) = pair();
    let listener = a.listen::<Sender>("x").expect("listen");
    let mut receiver = b.open::<Receiver>("x").expect("open");
    let mut sender = listener.accept().expect("accept");
    sender.send((b"", 3)).expect("send");
    assert_eq!(receiver.recv().expect("recv").word, 3);
}
