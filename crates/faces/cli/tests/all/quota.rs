//! `tranship quota`, against a domain in this process whose memory it limits.

use super::kit::{MIB, embedded, place};
use std::path::Path;
use tranship::error::{Limit, Shortage};
use tranship::heap::{Heap, HeapOptions};
use tranship_testkit::{Said, Watchdog, folder, has, tranship, until};

fn quota(socket: &Path, arguments: &[&str]) -> Said {
    let mut command = tranship(&["quota"]);
    Said::of(command.args(arguments).arg("--socket").arg(socket))
}

#[test]
fn a_running_programs_quotas_are_shown_and_set() {
    let _dog = Watchdog::new();
    let (_dir, socket) = place();
    let quota = |arguments: &[&str]| quota(&socket, arguments);
    let domain = embedded("camera", &socket, "");
    let pools =
        ["frames", "twice", "twice"].map(|name| super::kit::pool(&domain, name, 8 * MIB, MIB));
    let heap = Heap::create(&domain, HeapOptions::new(4 * MIB).name("bytes")).expect("heap");
    let frames = &pools[0];
    let held = frames.alloc(3 << 20).expect("alloc");

    let all = quota(&["show", "--json"]).json();
    assert_eq!(all["quotas"].as_array().expect("a list").len(), 4);
    let one = quota(&["show", "frames", "--json"]).json();
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
    let table = quota(&["show"]).well();
    has(&table, &["frames", "heap"]);

    // Set by the pool's name, and then by its number.
    let set = quota(&["set", "frames", "2MiB", "--json"]).json();
    assert_eq!(
        (&set["before_bytes"], &set["quota_bytes"]),
        (&(8 * MIB).into(), &(2 * MIB).into())
    );
    until(|| frames.stats().quota_bytes == 2 * MIB);
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
    let said = quota(&["set", &id, "1MiB"]).well();
    let expected = format!(
        "heap {id} (`bytes` of camera): 1.0 MiB, before 4.0 MiB, used now 0 B; camera gets 1.0 MiB more, and then no memory\n"
    );
    assert_eq!(said, expected);
    until(|| heap.quota_bytes() == MIB);
    let said = quota(&["set", "frames", "1MiB"]).well();
    assert!(
        said.ends_with(
            ", used now 3.0 MiB; it is asked to give 2.0 MiB back; `alloc` of camera waits for more memory until buffers are released or the quota is raised\n"
        ),
        "{said}"
    );
    // No caller waits at the maximum.
    let said = quota(&["set", "frames", "8MiB"]).well();
    assert!(said.ends_with(", used now 3.0 MiB\n"), "{said}");

    for (arguments, why) in [
        (&["set", "twice", "1MiB"][..], "2 are called `twice`"),
        (
            &["set", "nothing", "1MiB"],
            "there is no pool or heap `nothing`",
        ),
        (&["show", "nothing"], "lists the 4 that there are"),
        (
            &["set", "frames", "9MiB"],
            "can never have more than 8388608 bytes",
        ),
        (&["set", "frames", "much"], "a size is a whole number"),
    ] {
        let said = quota(arguments);
        said.ends(2, &[why]);
        assert!(said.out.is_empty(), "{said:?}");
    }
    drop(held);
}

#[test]
fn without_a_manager_there_are_no_quotas() {
    let dir = folder().expect("a folder");
    quota(&dir.path().join("m.sock"), &["show"]).ends(3, &[]);
}
