//! The message type of a channel: each end writes its own into its half, and compares.

use crate::error::{Error, TypeMismatch};
use crate::options::ChannelOptions;
use tranship_ring::HalfRo;

/// The most characters that an error quotes of one line.
const MOST_QUOTED: usize = 200;

/// Compares the message type of this end with the text in the other end's half. No type is a type, too: bytes.
pub(super) fn compare(options: &ChannelOptions, theirs: &HalfRo) -> Result<(), Error> {
    compare_texts(options, &theirs.description())
}

/// Compares the message type of this end with that of an end in this process, which waits for this one.
pub(super) fn compare_within(
    options: &ChannelOptions,
    theirs: &ChannelOptions,
) -> Result<(), Error> {
    compare_texts(options, theirs.message_type.as_deref().unwrap_or(""))
}

fn compare_texts(options: &ChannelOptions, theirs: &str) -> Result<(), Error> {
    let own = options.message_type.as_deref().unwrap_or("");
    match own == theirs {
        true => Ok(()),
        false => Err(mismatch(own, theirs).into()),
    }
}

fn mismatch(own: &str, theirs: &str) -> TypeMismatch {
    let (mut ours, mut others) = (own.lines(), theirs.lines());
    let heads = (ours.next(), others.next());
    TypeMismatch {
        own: quoted(heads.0),
        theirs: quoted(heads.1),
        field: match heads {
            (Some(_), Some(_)) => first_difference(ours, others),
            _ => None,
        },
    }
}

fn first_difference<'a>(
    mut ours: impl Iterator<Item = &'a str>,
    mut others: impl Iterator<Item = &'a str>,
) -> Option<(Option<String>, Option<String>)> {
    loop {
        match (ours.next(), others.next()) {
            (None, None) => return None,
            (here, there) if here != there => return Some((quoted(here), quoted(there))),
            _ => {}
        }
    }
}

/// Makes a line of a peer's text fit to be printed: it may have control characters of terminals.
fn quoted(line: Option<&str>) -> Option<String> {
    line.map(|line| line.escape_debug().take(MOST_QUOTED).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_that_differs_is_named() {
        let said = |own, theirs| mismatch(own, theirs).to_string();
        let a = "Frame: 8 bytes\nwidth: u32 at 0\nheight: u32 at 4";
        let b = "Frame: 12 bytes\nwidth: u32 at 0\nheight: u64 at 4";
        assert_eq!(
            said(a, b),
            "messages are `Frame: 8 bytes` here and `Frame: 12 bytes` at the other end; the first difference: \
             `height: u32 at 4` here, `height: u64 at 4` there"
        );
        let shorter = "Frame: 4 bytes\nwidth: u32 at 0";
        assert!(said(a, shorter).ends_with("`height: u32 at 4` here, nothing there"));
        assert!(said(shorter, a).ends_with("nothing here, `height: u32 at 4` there"));
        let bytes = "messages are `Frame: 8 bytes` here and bytes without a type at the other end";
        assert_eq!(said(a, ""), bytes);
        let bytes = "messages are bytes without a type here and `Frame: 8 bytes` at the other end";
        assert_eq!(said("", a), bytes);
        let renamed = a.replace("Frame", "\u{1b}[2JPicture");
        assert_eq!(
            said(a, &renamed),
            "messages are `Frame: 8 bytes` here and `\\u{1b}[2JPicture: 8 bytes` at the other end; their fields are equal"
        );
    }
}
