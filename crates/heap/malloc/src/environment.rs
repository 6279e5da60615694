//! The environment's settings of the heap.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use tranship_sys::process;

const SOCKET: &CStr = c"TRANSHIP_SOCKET";
const HEAP_MAX: &CStr = c"TRANSHIP_HEAP_MAX";
const HEAP_IDLE: &CStr = c"TRANSHIP_HEAP_IDLE";

/// The settings, read once: a program may change its environment later, without any lock.
#[derive(Debug)]
pub(crate) struct Environment {
    /// The manager's socket. No manager is started, and no other one is searched for.
    pub(crate) socket: Option<PathBuf>,
    /// The most that the heap may use.
    pub(crate) max_bytes: u64,
}

impl Environment {
    pub(crate) fn read() -> Environment {
        let value = |name| process::early_env(name).filter(|value| !value.is_empty());
        let socket = value(SOCKET).map(|path| OsStr::from_bytes(&path).into());
        Environment {
            socket,
            max_bytes: max_bytes().unwrap_or(u64::MAX),
        }
    }
}

/// Returns the heap's limit in bytes, if the environment sets one. Allocates nothing and takes no lock.
pub(crate) fn max_bytes() -> Option<u64> {
    process::early_env_as(HEAP_MAX, bytes).flatten()
}

/// Says whether a silent program is to keep its free memory, without a thread of the allocator. Allocates nothing and
/// takes no lock.
pub(crate) fn keeps_idle_memory() -> bool {
    process::early_env_as(HEAP_IDLE, |value| value == b"keep").unwrap_or(false)
}

/// Parses a number of bytes, with an optional `KiB`, `MiB` or `GiB`. Any other text means no limit: the error cannot be
/// reported here.
fn bytes(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        b"" | b"B" => 0,
        b"KiB" => 10,
        b"MiB" => 20,
        b"GiB" => 30,
        _ => return None,
    };
    let number: u64 = str::from_utf8(number).ok()?.parse().ok()?;
    number.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes(b"4096"), Some(4096));
        assert_eq!(bytes(b"256MiB"), Some(256 << 20));
        assert_eq!(bytes(b"3GiB"), Some(3 << 30));
        for bad in [&b""[..], b"MiB", b"1 MiB", b"1MB", b"99999999999GiB"] {
            assert_eq!(bytes(bad), None, "{bad:?}");
        }
    }
}
