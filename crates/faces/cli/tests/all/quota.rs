//! `tranship quota`, against a domain in this process whose memory it limits.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tranship::error::{Limit, Shortage};
use tranship::heap::{Heap, HeapOptions};
use tranship::{Domain, Pool, PoolOptions};
use tranship_testkit::Watchdog;

const MIB: u64 = 1 << 20;

fn quota(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranship"))
        .arg("quota")
        .args(arguments)
        .arg("--socket")
        .arg(socket)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .expect("running the program")
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
fn fails(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(output.stdout.is_empty() && said.contains(why), "{said}");
}

fn pool(domain: &Domain, name: &str) -> Pool {
    let options = PoolOptions::new(8 * MIB).chunk_bytes(MIB).name(name);
    domain.create_pool(options).expect("pool")
}

#[test]
fn a_running_programs_quotas_are_shown_and_set() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let builder = Domain::builder().name("camera").socket(&socket);
    let domain = builder.helper_thread(true).embedded().expect("embedded");
    let pools = [
        pool(&domain, "frames"),
        pool(&domain, "twice"),
        pool(&domain, "twice"),
    ];
    let heap = Heap::create(&domain, HeapOptions::new(4 * MIB).name("bytes")).expect("heap");
    let frames = &pools[0];
    let held = frames.alloc(3 << 20).expect("alloc");

    let all = json(&quota(&socket, &["show", "--json"]));
    assert_eq!(all["quotas"].as_array().expect("a list").len(), 4);
    let one = json(&quota(&socket, &["show", "frames", "--json"]));
    let one = &one["quotas"][0];
    assert_eq!(one["id"], frames.id().0);
    assert_eq!(
        (&one["kind"], &one["domain_name"]),
        (&"pool".into(), &"camera".into())
    );
    assert_eq!(one["has_bytes"], 3 * MIB);
    assert_eq!(
        (&one["quota_bytes"], &one["max_bytes"]),
        (&(8 * MIB).into(), &(8 * MIB).into())
    );
    let table = String::from_utf8(quota(&socket, &["show"]).stdout).expect("text");
    assert!(
        table.contains("frames") && table.contains("heap"),
        "{table}"
    );

    // Set by the pool's name, and then by its number.
    let set = json(&quota(&socket, &["set", "frames", "2MiB", "--json"]));
    assert_eq!(
        (&set["before_bytes"], &set["quota_bytes"]),
        (&(8 * MIB).into(), &(2 * MIB).into())
    );
    while frames.stats().quota_bytes != 2 * MIB {
        std::thread::yield_now();
    }
    let error = frames.try_alloc(1 << 20).expect_err("the quota");
    assert!(
        matches!(
            error.find(),
            Some(&Shortage {
                limit: Limit::Quota | Limit::Late,
                ..
            })
        ),
        "{error}"
    );
    let id = heap.id().0.to_string();
    let said = String::from_utf8(quota(&socket, &["set", &id, "1MiB"]).stdout).expect("text");
    let expected = format!(
        "heap {id} (`bytes` of camera): 1.0 MiB, before 4.0 MiB, used now 0 B; camera gets 1.0 MiB more, and then no memory\n"
    );
    assert_eq!(said, expected);
    while heap.quota_bytes() != MIB {
        std::thread::yield_now();
    }
    let said = quota(&socket, &["set", "frames", "1MiB"]);
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(
        said.ends_with(
            ", used now 3.0 MiB; it is asked to give 2.0 MiB back; `alloc` of camera waits for more memory until buffers are released or the quota is raised\n"
        ),
        "{said}"
    );
    // No caller waits at the maximum.
    let said = quota(&socket, &["set", "frames", "8MiB"]);
    let said = String::from_utf8(said.stdout).expect("text");
    assert!(said.ends_with(", used now 3.0 MiB\n"), "{said}");

    fails(
        &quota(&socket, &["set", "twice", "1MiB"]),
        "2 are called `twice`",
    );
    fails(
        &quota(&socket, &["set", "nothing", "1MiB"]),
        "there is no pool or heap `nothing`",
    );
    fails(
        &quota(&socket, &["show", "nothing"]),
        "lists the 4 that there are",
    );
    fails(
        &quota(&socket, &["set", "frames", "9MiB"]),
        "can never have more than 8388608 bytes",
    );
    fails(
        &quota(&socket, &["set", "frames", "much"]),
        "a size is a whole number",
    );
    drop(held);
}

#[test]
fn without_a_manager_there_are_no_quotas() {
    let dir = tranship_testkit::folder().expect("a folder");
    let output = quota(&dir.path().join("m.sock"), &["show"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}
