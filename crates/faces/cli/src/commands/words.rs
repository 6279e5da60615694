//! Numbers for people.

/// Returns a rate: `0`, `950`, `12.3k`, `4.5M`, each second.
#[allow(clippy::cast_precision_loss)] // for people
pub(in crate::commands) fn rate(per_second: f64) -> String {
    let mut value = per_second;
    for unit in ["", "k", "M", "G"] {
        if value < 999.5 {
            return match unit.is_empty() && !(0.05..9.95).contains(&value) {
                true => format!("{value:.0}"),
                false => format!("{value:.1}{unit}"),
            };
        }
        value /= 1e3;
    }
    format!("{value:.0}T")
}

/// Returns a time: `-` for none, `12 us`, `3.4 ms`, `5.0 s`, `12 m`, `3.1 h`.
#[allow(clippy::cast_precision_loss)] // for people
pub(in crate::commands) fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0 => "-".to_owned(),
        1..1_000_000 => format!("{:.0} us", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 600.0 => format!("{seconds:.1} s"),
        _ if seconds < 36_000.0 => format!("{:.0} m", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Returns a count in words: `1 buffer`, `2 buffers`.
pub(in crate::commands) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Returns in words how many callers of a blocking call wait.
#[cfg(feature = "top")]
pub(in crate::commands) fn waiting(callers: u64) -> String {
    match callers {
        1 => "1 caller waits".to_owned(),
        n => format!("{n} callers wait"),
    }
}

/// Returns a share of one.
pub(in crate::commands) fn share(of: f64) -> String {
    format!("{:.0} %", of * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rates = [
            (0.0, "0"),
            (0.5, "0.5"),
            (9.94, "9.9"),
            (950.0, "950"),
            (12_345.0, "12.3k"),
            (4.5e6, "4.5M"),
        ];
        for (value, text) in rates {
            assert_eq!(rate(value), text);
        }
        let times = [
            (0, "-"),
            (900, "1 us"),
            (3_400_000, "3.4 ms"),
            (5_000_000_000, "5.0 s"),
            (720_000_000_000, "12 m"),
        ];
        for (value, text) in times {
            assert_eq!(time(value), text);
        }
        assert_eq!(share(0.125), "12 %");
        let counted = [0, 1, 2].map(|n| count(n, "pool"));
        assert_eq!(counted, ["0 pools", "1 pool", "2 pools"]);
    }
}
