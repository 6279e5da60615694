//! Choice of the text by an `Accept` header.

use crate::text::Format;

/// Returns OpenMetrics, unless the client prefers the older text. A browser, which would only save OpenMetrics to a
/// file, gets the older one.
pub(crate) fn format(accept: Option<&str>) -> Format {
    let (mut open, mut plain) = ((0, 0u16), (0, 0u16));
    for item in accept.unwrap_or("*/*").split(',') {
        let mut parts = item.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("").to_ascii_lowercase();
        let mut quality = 1000;
        let mut version = None;
        for part in parts {
            match part
                .split_once('=')
                .map(|(k, v)| (k.trim().to_ascii_lowercase(), v.trim()))
            {
                Some((k, v)) if k == "q" => quality = thousandths(v),
                Some((k, v)) if k == "version" => version = Some(v.trim_matches('"').to_owned()),
                _ => {}
            }
        }
        // The most exact name counts before the quality.
        let known = |versions: &[&str]| version.as_deref().is_none_or(|v| versions.contains(&v));
        let mut wish = |to_open: bool, exact: u8| {
            let at = if to_open { &mut open } else { &mut plain };
            *at = (*at).max((exact, quality));
        };
        match kind.as_str() {
            "application/openmetrics-text" if known(&["1.0.0", "0.0.1"]) => wish(true, 3),
            "text/plain" if known(&["0.0.4"]) => wish(false, 3),
            "application/*" => wish(true, 2),
            "text/*" | "text/html" => wish(false, 2),
            "*/*" => {
                wish(true, 1);
                wish(false, 1);
            }
            _ => {}
        }
    }
    let wished = |(exact, quality): (u8, u16)| if exact == 0 { 0 } else { quality };
    let (open, plain) = ((wished(open), open.0), (wished(plain), plain.0));
    if plain > open {
        Format::Prometheus
    } else {
        Format::OpenMetrics
    }
}

/// Parses `0.5` as 500; a text that is no quality is none at all.
fn thousandths(text: &str) -> u16 {
    let value: f32 = text.parse().unwrap_or(0.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // of 0 to 1000
    let whole = (value.clamp(0.0, 1.0) * 1000.0) as u16;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gets_what_it_asks_for() {
        use Format::{OpenMetrics as O, Prometheus as P};
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let old = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let open = [
            "*/*",
            "",
            prometheus_2,
            "application/openmetrics-text",
            "application/openmetrics-text;version=\"1.0.0\", text/plain;q=0.9",
            "q=;;;,=,*",
        ];
        let plain = [
            old,
            browser,
            "text/plain",
            "TEXT/PLAIN; charset=utf-8",
            "application/openmetrics-text;q=0.2, text/plain;q=0.9",
            "application/openmetrics-text;q=0, text/plain;q=0.1",
            "application/openmetrics-text;version=9.0.0, text/plain",
        ];
        assert_eq!(format(None), O);
        for (accept, wanted) in open
            .map(|a| (a, O))
            .into_iter()
            .chain(plain.map(|a| (a, P)))
        {
            assert_eq!(format(Some(accept)), wanted, "{accept:?}");
        }
    }
}
