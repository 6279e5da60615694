//! Typed messages between Rust, C and Python: on a topic, a queue and a service. Programs whose definitions differ refuse each other, and
//! the field is named.

use super::{C, Language, Python, World, here, said};
use crate::stage::compiled_with;
use std::fmt::Debug;
use std::thread;
use tranship::queue::{ConsumerOptions, QueueOptions, Queues as _};
use tranship::service::{ServiceOptions, Services as _};
use tranship::topic::{SubscriberOptions, TopicOptions, Topics as _};
use tranship::typed::{Layout, Message};
use tranship::{Domain, Error, ErrorKind};
use tranship_testkit::Running;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout};

const WAYS: [&str; 3] = ["topic", "queue", "service"];
const BYTES: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 128, 2, 0, 0, 224, 1, 0, 0];

#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Frame {
    taken_ns: u64,
    width: u32,
    height: u32,
}

/// The definition that has changed.
#[derive(Message, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[message(name = "Frame")]
struct Later {
    taken_ns: u64,
    width: u32,
    depth: u32,
}

fn layout(third: &str) -> Layout {
    match third {
        "height" => Frame::layout(),
        _ => Later::layout(),
    }
}

impl World {
    /// Starts a program of a language, whose definition has that third field.
    fn typed(&self, language: Language, third: &str, arguments: [&str; 3]) -> Running {
        let mut command = match language {
            C => {
                let folder = self.folder.path().join(third);
                std::fs::create_dir_all(&folder).expect("a folder");
                let header = layout(third).c_header();
                std::fs::write(folder.join("frame.h"), header).expect("a header");
                let include = format!("-I{}", folder.display());
                let third = format!("-DTHIRD={third}");
                let source = "tests/languages/typed.c";
                std::process::Command::new(compiled_with(source, &folder, &[&include, &third]))
            }
            Python => {
                let mut command = self.python(&here("tests/languages/typed.py"));
                command.arg(third);
                command
            }
        };
        self.spawn(command.args(arguments))
    }
}

/// Offers frames in this process, in threads of their own that end with the process.
fn offer(world: &World, way: &str, name: &str) {
    let text = layout("height").to_string();
    match way {
        "topic" => {
            let options = TopicOptions::new().history(1).message_type(&text);
            let mut publisher = world.domain.publish_with(name, options).expect("a topic");
            publisher.send(&BYTES).expect("published");
            std::mem::forget(publisher);
        }
        "queue" => {
            let options = QueueOptions::new().message_type(&text);
            let mut producer = world.domain.produce_with(name, options).expect("a queue");
            thread::spawn(move || {
                loop {
                    producer.send(&BYTES).expect("sent");
                    producer.wait_done(None).expect("done");
                }
            });
        }
        _ => {
            let options = ServiceOptions::new().types(&text, &text);
            let service = world.domain.serve_with(name, options).expect("a service");
            thread::spawn(move || {
                while let Ok(request) = service.recv() {
                    let came = request.to_vec();
                    request.reply(&came[..]).expect("answered");
                }
            });
        }
    }
}

/// Takes a frame in this process.
fn take(domain: &Domain, third: &str, way: &str, name: &str) -> Result<Vec<u8>, Error> {
    let text = layout(third).to_string();
    match way {
        "topic" => {
            let options = SubscriberOptions::new().message_type(&text);
            let message = domain.subscribe_with(name, options)?.recv()?;
            Ok(message.to_vec())
        }
        "queue" => {
            let options = ConsumerOptions::new().message_type(&text);
            let mut consumer = domain.consume_with(name, options)?;
            let item = consumer.recv()?;
            Ok(item.ack()?.to_vec())
        }
        _ => {
            let options = ServiceOptions::new().types(&text, &text);
            let client = domain.client_with(name, options)?;
            Ok(client.call(&BYTES)?.to_vec())
        }
    }
}

fn check_refused(said: impl Debug, here: &str, there: &str) {
    let field = format!("`{here}: u32 at 12` here, `{there}: u32 at 12` there");
    let said = format!("{said:?}");
    assert!(said.contains(&field), "{said}: {field}");
}

#[test]
fn each_language_refuses_a_changed_definition_and_names_the_field() {
    let Some(world) = World::new() else { return };
    let another = Domain::builder().socket(&world.socket).connect();
    let another = another.expect("a domain");
    for way in WAYS {
        offer(&world, way, way);
        for language in [C, Python] {
            let refused = said(world.typed(language, "depth", ["take", way, way]));
            check_refused(&refused, "depth", "height");
            let taken = said(world.typed(language, "height", ["take", way, way]));
            assert_eq!(taken, "1 640 480\n", "{way}");

            let name = format!("{way}-of-another");
            let _offers = world.typed(language, "height", ["offer", way, &name]);
            let refused = take(&another, "depth", way, &name).expect_err("another type");
            assert_eq!(refused, ErrorKind::ChannelBind);
            check_refused(refused.to_string(), "depth", "height");
            assert_eq!(take(&another, "height", way, &name).expect(way), BYTES);
        }
    }
}
