//! Typed channels: what travels, and which ends refuse each other.

use crate::kit::watched;
use std::thread;
use tranship_core::error::TypeMismatch;
use tranship_core::{self as core, ChannelOptions, Domain, ErrorKind, PoolOptions};
use tranship_testkit::{Watchdog, block_on};
use tranship_typed::{Message, Receiver, Sender};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug)]
#[message(crate = tranship_typed)]
#[repr(C)]
pub(crate) struct Pose {
    x: f64,
    y: f64,
}

#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug)]
#[message(crate = tranship_typed)]
#[repr(C)]
struct Frame {
    taken_ns: u64,
    pose: Pose,
    corners: [Pose; 2],
    width: u32,
    height: u32,
}

const FRAME: Frame = Frame {
    taken_ns: 7,
    pose: Pose { x: 1.0, y: 2.0 },
    corners: [Pose { x: 3.0, y: 4.0 }; 2],
    width: 640,
    height: 480,
};

/// A type of that name with another definition.
mod later {
    use super::*;

    #[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[message(crate = tranship_typed)]
    #[repr(C)]
    pub(crate) struct Frame {
        pub(crate) taken_ns: u64,
        pub(crate) pose: Pose,
        pub(crate) corners: [Pose; 2],
        pub(crate) width: u64,
    }
}

#[derive(
    Message, TryFromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug,
)]
#[message(crate = tranship_typed)]
#[repr(u8)]
enum Kind {
    Key = 1,
    Delta = 4,
}

#[derive(
    Message, TryFromBytes, IntoBytes, Immutable, KnownLayout, Clone, Copy, PartialEq, Debug,
)]
#[message(crate = tranship_typed, name = "Mark")]
#[repr(C)]
struct Marked {
    kind: Kind,
    last: bool,
}

/// Both sides' ends, or errors.
fn open<S: core::ChannelEnd + Send, R: core::ChannelEnd + Send>(
    (a, b): &(Domain, Domain),
    address: &str,
) -> (Result<S, core::Error>, Result<R, core::Error>) {
    let listener = a.listen::<S>(address).expect("listen");
    thread::scope(|s| {
        let receiver = s.spawn(|| b.open::<R>(address));
        let sender = listener.accept();
        (sender, receiver.join().expect("opener"))
    })
}

fn both<S: core::ChannelEnd + Send, R: core::ChannelEnd + Send>(
    domains: &(Domain, Domain),
    address: &str,
) -> (S, R) {
    let (sender, receiver) = open(domains, address);
    (sender.expect("accept"), receiver.expect("open"))
}

#[test]
fn a_layout_names_every_field() {
    assert_eq!(
        Frame::layout().to_string(),
        "Frame: 64 bytes, aligned to 8
taken_ns: u64 at 0
pose: Pose at 8
pose.x: f64 at 8
pose.y: f64 at 16
corners: [Pose; 2] at 24
corners[].x: f64 at 0
corners[].y: f64 at 8
width: u32 at 56
height: u32 at 60
"
    );
    assert_eq!(
        Marked::layout().to_string(),
        "Mark: 2 bytes, aligned to 1\nkind: Kind at 0\nkind.Key = 1\nkind.Delta = 4\nlast: bool at 1\n"
    );
}

#[test]
fn a_layout_is_a_header_of_c() {
    let _dog = Watchdog::new();
    let header = Frame::layout().c_header();
    assert!(header.contains("    Pose corners[2];\n"), "{header}");
    assert!(
        header.contains("#define FRAME_MESSAGE_TYPE \\\n    \"Frame: 64 bytes"),
        "{header}"
    );
    let items = Sender::<Frame, [u8]>::layout().c_header();
    assert!(
        items.contains("#define FRAME_MESSAGE_TYPE \\\n    \"Frame + [u8]: 64 bytes"),
        "{items}"
    );
    // The compiler agrees with every place, and the text is the same one.
    let folder = tranship_testkit::folder().expect("a folder");
    std::fs::write(folder.path().join("frame.h"), header).expect("write");
    std::fs::write(folder.path().join("mark.h"), Marked::layout().c_header()).expect("write");
    let program = "#include \"frame.h\"\n#include \"mark.h\"\n#include <stdio.h>\n\
        int main(void) { Mark m = {.kind = Kind_Delta}; printf(\"%s%d\", FRAME_MESSAGE_TYPE, m.kind); return 0; }\n";
    std::fs::write(folder.path().join("main.c"), program).expect("write");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Werror", "main.c", "-o", "main"]);
    let built = cc.current_dir(folder.path()).status().expect("cc");
    assert!(built.success());
    let ran = std::process::Command::new(folder.path().join("main"))
        .output()
        .expect("run");
    let said = String::from_utf8(ran.stdout).expect("text");
    assert_eq!(said, format!("{}4", Frame::layout()));
}

#[test]
fn messages_travel_in_lines_and_in_buffers() {
    let (_dog, domains) = watched();
    for address in ["x", "local:x"] {
        let (mut sender, mut receiver) = both::<Sender<Frame>, Receiver<Frame>>(&domains, address);
        sender.send(&FRAME).expect("send"); // 64 bytes: by a buffer
        let mut draft = sender.alloc().expect("alloc");
        *draft.get_mut().expect("ours") = FRAME;
        draft.get_mut().expect("ours").width = 1;
        sender.send((draft, 9)).expect("send");
        assert_eq!(receiver.recv().expect("recv").read().expect("read"), FRAME);
        let second = receiver.recv().expect("recv");
        assert_eq!((second.word(), second.read().expect("read").width), (9, 1));

        let (mut sender, mut receiver) = both::<Sender<Pose>, Receiver<Pose>>(&domains, address);
        block_on(sender.send_async((&FRAME.pose, 3))).expect("send"); // in the line
        let pose = block_on(receiver.recv_async()).expect("recv");
        assert_eq!((pose.word(), pose.get()), (3, Ok(Some(&FRAME.pose))));
        assert!(receiver.try_recv().expect("nothing").is_none());
    }
}

#[test]
fn items_follow_a_message_in_one_buffer() {
    let (_dog, domains) = watched();
    let (mut sender, mut receiver) =
        both::<Sender<u32, [Pose]>, Receiver<u32, [Pose]>>(&domains, "x");
    for items in [0, 1, 1000] {
        let mut draft = sender.alloc(items).expect("alloc");
        draft.write(&5).expect("write");
        draft.items_mut().expect("ours").fill(FRAME.pose);
        sender.send(draft).expect("send");
        let came = receiver.recv().expect("recv");
        assert_eq!(
            (came.read(), came.len(), came.is_empty()),
            (Ok(5), items, items == 0)
        );
        assert_eq!(came.items_view().len(), 16 * items);
        assert!((0..items).all(|i| came.item(i) == Ok(FRAME.pose)));
        assert_eq!(came.item(items).unwrap_err().kind(), ErrorKind::BadArgument);
        // Its writer may still write.
        assert_eq!((came.get(), came.items()), (Ok(None), Ok(None)));
    }
    // SAFETY: the sender is this test, which writes nothing that it has sent.
    #[expect(unsafe_code, reason = "a promise for the sender")]
    unsafe {
        receiver.untyped().trust_writer()
    };
    let mut draft = sender.alloc(3).expect("alloc");
    draft.write(&5).expect("write");
    draft.items_mut().expect("ours").fill(FRAME.pose);
    let value = draft.freeze();
    sender.send(value).expect("send");
    let came = receiver.recv().expect("recv");
    assert_eq!(came.get(), Ok(Some(&5)));
    assert_eq!(came.items(), Ok(Some(&[FRAME.pose; 3][..])));
}

#[test]
fn different_definitions_refuse_each_other_and_name_the_field() {
    let (_dog, domains) = watched();
    let (sender, receiver) = open::<Sender<Frame>, Receiver<later::Frame>>(&domains, "x");
    let here = Some("Frame: 64 bytes, aligned to 8");
    let differ = [
        Some("width: u32 at 56".to_owned()),
        Some("width: u64 at 56".into()),
    ];
    for (error, [own, theirs]) in [
        (sender.unwrap_err(), differ.clone()),
        (
            receiver.unwrap_err(),
            [differ[1].clone(), differ[0].clone()],
        ),
    ] {
        assert_eq!(error.kind(), ErrorKind::ChannelBind);
        let mismatch = error.find::<TypeMismatch>().expect("figures");
        assert_eq!(
            (mismatch.own.as_deref(), mismatch.theirs.as_deref()),
            (here, here)
        );
        assert_eq!(mismatch.field, Some((own, theirs)));
    }
    // Items belong to the type, and the name does.
    let (sender, receiver) = open::<Sender<Pose, [u8]>, Receiver<Pose>>(&domains, "y");
    let said = receiver.unwrap_err().to_string();
    assert!(sender.is_err() && said.contains("`Pose + [u8]:"), "{said}");
    // The listener goes on.
    let listener = domains.0.listen::<Sender<Frame>>("z").expect("listen");
    thread::scope(|s| {
        let wrong = s.spawn(|| domains.1.open::<Receiver<Pose>>("z"));
        assert!(listener.accept().is_err() && wrong.join().expect("opener").is_err());
        let right = s.spawn(|| domains.1.open::<Receiver<Frame>>("z"));
        assert!(listener.accept().is_ok() && right.join().expect("opener").is_ok());
    });
    // Within a process nobody is connected: the end that opens hears of it.
    let listener = domains
        .0
        .listen::<Sender<Frame>>("local:x")
        .expect("listen");
    let error = domains.1.open::<Receiver<Pose>>("local:x").unwrap_err();
    let mismatch = error.find::<TypeMismatch>().expect("figures");
    let own = Some("Pose: 16 bytes, aligned to 8".to_owned());
    assert_eq!((&mismatch.own, mismatch.theirs.as_deref()), (&own, here));
    assert!(listener.try_accept().expect("nobody").is_none());
}

#[test]
fn an_end_with_a_type_and_one_without_refuse_each_other() {
    let (_dog, domains) = watched();
    let (sender, receiver) = open::<Sender<Frame>, core::Receiver>(&domains, "x");
    let here = Some("Frame: 64 bytes, aligned to 8".to_owned());
    for (error, own, theirs) in [
        (sender.unwrap_err(), &here, &None),
        (receiver.unwrap_err(), &None, &here),
    ] {
        let mismatch = error.find::<TypeMismatch>().expect("figures");
        assert_eq!(
            (&mismatch.own, &mismatch.theirs, &mismatch.field),
            (own, theirs, &None)
        );
    }
    let (sender, receiver) = open::<core::Sender, Receiver<Frame>>(&domains, "y");
    assert!(sender.is_err() && receiver.is_err());
    // The text alone decides, by any author.
    let options = ChannelOptions::new().message_type(&Frame::layout().to_string());
    let listener = domains
        .0
        .listen_with::<core::Sender>("z", options)
        .expect("listen");
    thread::scope(|s| {
        let typed = s.spawn(|| domains.1.open::<Receiver<Frame>>("z"));
        let mut sender = listener.accept().expect("accept");
        let mut typed = typed.join().expect("opener").expect("open");
        // What is no message ends the channel for the receiver.
        sender.send(b"short").expect("send");
        sender.send(&[0; 8]).expect("send");
        for _ in 0..2 {
            let error = typed.recv().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PeerViolation);
            assert!(error.to_string().contains("5 bytes came"), "{error}");
        }
    });
    let long = ChannelOptions::new().message_type(&"x".repeat(3577));
    let error = domains
        .0
        .listen_with::<core::Sender>("w", long)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
}

#[test]
fn bytes_that_are_no_value_are_not_read() {
    let (_dog, domains) = watched();
    let (mut sender, mut receiver) = both::<Sender<Marked>, Receiver<Marked>>(&domains, "x");
    let marked = Marked {
        kind: Kind::Delta,
        last: true,
    };
    sender.send(&marked).expect("send");
    sender.untyped().send(&[4, 2]).expect("send"); // no bool
    sender.untyped().send(&[2, 1]).expect("send"); // no kind
    assert_eq!(receiver.recv().expect("recv").read(), Ok(marked));
    for _ in 0..2 {
        let came = receiver.recv().expect("recv");
        assert_eq!(came.read().unwrap_err().kind(), ErrorKind::PeerViolation);
        assert!(came.get().is_err());
    }
    let pool = domains
        .0
        .create_pool(PoolOptions::new(1 << 20))
        .expect("pool");
    let mut pieces = core::Aggregate::new();
    for _ in 0..2 {
        pieces
            .push_back(pool.alloc(1).expect("alloc").freeze())
            .expect("push");
    }
    sender.untyped().send(pieces).expect("send");
    let error = receiver.recv().unwrap_err();
    assert!(error.to_string().contains("lies in one buffer"), "{error}");
}
