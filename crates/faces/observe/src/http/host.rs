//! Check of the page that asks: the defence against names that are made to point here (DNS rebinding).
//!
//! A browser sends a page's scripts only to the place that the page came from, by name. The owner of a name can let it
//! point to this machine once the page is loaded. Then the page is "from here", and reads figures that only this
//! machine's users should read. The owner cannot make the browser call this place by an address. So `Host` must be an
//! address, `localhost`, or a name that the operator has configured.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Returns whether a request that names this host is answered.
pub(crate) fn allowed(host: Option<&str>, names: &[String]) -> bool {
    // Only HTTP/1.0 requests have no host, and no browser speaks that.
    let Some(host) = host else {
        return true;
    };
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.split_once(']');
        return address.is_some_and(|(a, port)| a.parse::<Ipv6Addr>().is_ok() && is_port(port));
    }
    let (name, port) = host.find(':').map_or((host, ""), |at| host.split_at(at));
    if name.is_empty() || !is_port(port) {
        return false;
    }
    let same = |other: &str| name.eq_ignore_ascii_case(other);
    name.parse::<Ipv4Addr>().is_ok() || same("localhost") || names.iter().any(|n| same(n))
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text
            .strip_prefix(':')
            .is_some_and(|p| p.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_named_hosts_only() {
        let names = ["Monitor.example".to_owned()];
        for good in [
            "127.0.0.1",
            "127.0.0.1:8464",
            "localhost",
            "LOCALHOST:1",
            "[::1]:8464",
            "[::1]",
            "10.1.2.3",
            "monitor.example:8464",
        ] {
            assert!(allowed(Some(good), &names), "{good}");
        }
        for bad in [
            "",
            ":1",
            "evil.example",
            "evil.example:8464",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1:x",
            "[::1",
            "[evil]",
            "::1",
            "2130706433",
            "0x7f000001",
            "127.1",
            "localhost:99999",
            "127.0.0.1@evil.example",
            "monitor.example.",
        ] {
            assert!(!allowed(Some(bad), &names), "{bad}");
        }
        assert!(allowed(None, &[]));
    }
}
