//! Reading the kernel's text files.

use std::path::Path;

/// Returns the trimmed text of a file; nothing if it cannot be read.
pub(super) fn text(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// Returns the number that a file holds.
pub(super) fn number(path: impl AsRef<Path>) -> Option<u64> {
    text(path)?.parse().ok()
}

/// Returns the value of `Key:   value unit` in files such as /proc/meminfo and /proc/self/status.
pub(super) fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::trim))
}

/// Returns the chosen word of `always [madvise] never`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?
        .1
        .split_once(']')
        .map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_choices() {
        assert_eq!(
            field("MemTotal:  5 kB\nMemAvailable: 3 kB\n", "MemAvailable"),
            Some("3 kB")
        );
        assert_eq!(field("MemTotal:  5 kB\n", "Mem"), None);
        assert_eq!(chosen("always [never] force"), Some("never"));
        assert_eq!(chosen("never"), None);
    }
}
