//! Checks that do not run here. Each is printed and noted for the run's report. Where nothing may be skipped, it is a
//! failure.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::Location;

/// The file that gets a line for every skip; `scripts/stages.sh` shows it at its end.
pub const FILE: &str = "TRANSHIP_SKIPS";
/// Set to anything but `0`, a skip is a failure.
pub const FORBIDDEN: &str = "TRANSHIP_NO_SKIP";

/// Says that a check, or a part of one, did not run here, and why. Use as `return skipped("not root")`.
///
/// # Panics
/// When `TRANSHIP_NO_SKIP` forbids skips.
#[track_caller]
pub fn skipped(reason: impl Display) {
    let line = line(Location::caller(), &reason);
    // Straight to the descriptor: the test harness keeps the output of a test that passes. SAFETY: reads `line`.
    let _ = unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    if let Some(path) = std::env::var_os(FILE) {
        // One write to the end of the file: lines of tests side by side stay whole.
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
    let forbidden = std::env::var_os(FORBIDDEN).is_some_and(|v| v != "0");
    assert!(!forbidden, "{FORBIDDEN} is set, and this was {line}");
}

/// Returns one line, whatever the reason looks like.
fn line(place: &Location<'_>, reason: &dyn Display) -> String {
    let thread = std::thread::current();
    // Harnesses that run one test at a time do so in the main thread.
    let test = thread.name().filter(|name| *name != "main");
    let test = test.map_or_else(String::new, |name| format!(" ({name})"));
    let reason = reason.to_string();
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(
        "skipped: {}:{}{test}: {reason}\n",
        place.file(),
        place.line()
    )
}
