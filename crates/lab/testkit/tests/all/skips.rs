//! A skip is heard outside of the test that skips, and can be forbidden.

use tranship_testkit::{Exit, Launch, Watchdog, child, folder, skipped};

child!(
    fn skips(_ctl: Control) {
        skipped("no\n  luck");
    }
);

use tranship_testkit::Control;

fn watchdog() -> Watchdog {
    Watchdog::new()
}

#[test]
fn a_skip_is_said_and_written_down() {
    let _dog = watchdog();
    let dir = folder().expect("a folder");
    let file = dir.path().join("skips");
    for n in 1..=2 {
        let run = skips().capture_stderr().env("TRANSHIP_SKIPS", &file);
        let peer = run.env("TRANSHIP_NO_SKIP", "0").start().expect("a child");
        assert_eq!(peer.wait(), Exit::Code(0));
        let written = std::fs::read_to_string(&file).expect("the file");
        assert_eq!(written.lines().count(), n, "{written}");
        let last = written.lines().last().expect("a line");
        assert!(
            last.starts_with("skipped: ") && last.ends_with(": no luck"),
            "{last}"
        );
        assert!(last.contains("tests/all/skips.rs:"), "{last}");
        assert_eq!(peer.stderr().trim_end(), last);
    }
}

#[test]
fn where_nothing_may_be_skipped_a_skip_fails() {
    let _dog = watchdog();
    let run: Launch = skips().capture_stderr().env("TRANSHIP_NO_SKIP", "1");
    let peer = run.start().expect("a child");
    assert_eq!(peer.wait(), Exit::Code(101));
    assert!(peer.stderr().contains("no luck"), "{}", peer.stderr());
}
