//! Text chosen by another user: the part that may be a name, and how any of it is shown.
//!
//! The rule is that of Rust's own `{:?}`: no control or format characters (those of bidirectional text and of zero
//! width are among them), no separators but the space, nothing private or unassigned. To it come characters that have a
//! category of letters or marks and show nothing, and a bound on marks ([UTS
//! #39](https://www.unicode.org/reports/tr39/#Optional_Detection), 5.4).

use std::borrow::Cow;
use std::fmt::Write;

/// Most combining marks in a row: more of them would run into the lines above and below.
pub const MAX_MARKS: usize = 4;

/// A reason why a text is unfit as a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextFault {
    /// A control character.
    Control,
    /// A character that shows nothing, or that changes how its neighbours are shown.
    Unseen,
    /// One combining mark more than [`MAX_MARKS`] in a row.
    Marks,
}

/// Returns the first fault of a text: its place in bytes, its character, its kind.
pub fn text_fault(text: &str) -> Option<(usize, char, TextFault)> {
    faults(text).find_map(|(at, c, fault)| fault.map(|fault| (at, c, fault)))
}

/// Returns a text as a terminal, a log or a page may show it: each fault is written as Rust writes it in a literal,
/// `\u{202e}`.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    if text_fault(text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut tame = String::with_capacity(text.len() + 16);
    for (_, c, fault) in faults(text) {
        match fault {
            None => tame.push(c),
            Some(_) => _ = write!(tame, "{}", c.escape_unicode()),
        }
    }
    Cow::Owned(tame)
}

/// Makes a name from any text, such as a process's name: without faults, with at most `most_chars` characters.
#[must_use]
pub fn as_name(text: &str, most_chars: usize) -> String {
    let fit = faults(text).filter(|(_, _, fault)| fault.is_none());
    fit.map(|(_, c, _)| c).take(most_chars).collect()
}

fn faults(text: &str) -> impl Iterator<Item = (usize, char, Option<TextFault>)> {
    let mut marks = 0;
    text.char_indices().map(move |(at, c)| {
        marks = if is_mark(c) { marks + 1 } else { 0 };
        let fault = if c.is_control() {
            Some(TextFault::Control)
        } else if is_unseen(c) {
            Some(TextFault::Unseen)
        } else {
            (marks > MAX_MARKS).then_some(TextFault::Marks)
        };
        (at, c, fault)
    })
}

fn is_unseen(c: char) -> bool {
    if c.is_ascii() {
        return c.is_control();
    }
    match c {
        // Fillers, an empty pattern of Braille, variation selectors, the joiner of graphemes: letters, symbols or marks
        // by category.
        '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{e0100}'..='\u{e01ef}' => true,
        // After another character `escape_debug` leaves marks alone: a character that it escapes is not printable.
        _ => {
            let mut bytes = [b'x'; 5];
            let len = c.encode_utf8(&mut bytes[1..]).len();
            str::from_utf8(&bytes[..=len]).is_ok_and(|text| text.escape_debug().count() > 2)
        }
    }
}

/// Says whether the character is shown on or at the character before it.
fn is_mark(c: char) -> bool {
    !c.is_ascii() && !is_unseen(c) && c.escape_debug().count() > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_no_name_may_hold() {
        use TextFault::{Control, Marks, Unseen};
        let unseen = [
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{202e}',
            '\u{2028}',
            '\u{2029}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fff9}',
            '\u{a0}',
            '\u{3000}',
            '\u{3164}',
            '\u{2800}',
            '\u{fe0f}',
            '\u{e0041}',
            '\u{e000}',
            '\u{10ffff}',
            '\u{34f}',
        ];
        for c in unseen {
            assert_eq!(text_fault(&format!("a{c}b")), Some((1, c, Unseen)), "{c:?}");
            assert_eq!(text_fault(&c.to_string()), Some((0, c, Unseen)), "{c:?}");
        }
        for c in ['\0', '\n', '\u{1b}', '\u{7f}', '\u{85}', '\u{9b}'] {
            assert_eq!(
                text_fault(&format!("a{c}b")),
                Some((1, c, Control)),
                "{c:?}"
            );
        }
        let flood = format!("a{}b", "\u{301}".repeat(9));
        assert_eq!(text_fault(&flood), Some((9, '\u{301}', Marks)));
    }

    #[test]
    fn names_of_all_languages_are_names() {
        for name in [
            "camera",
            "it's \"7\" \\",
            "Grüße",
            "e\u{301}te\u{301}",
            "видео",
            "カメラ",
            "비디오",
            "हिन्दी",
            "ไม้เอกที่",
            "עברית",
            "العربية",
            "Tiê\u{301}ng Viê\u{323}t",
            "📷",
        ] {
            assert_eq!(text_fault(name), None, "{name}");
            assert_eq!(shown(name), name);
            assert_eq!(as_name(name, 64), name);
        }
    }

    #[test]
    fn what_is_shown_is_escaped() {
        assert_eq!(shown("a\u{202e}b\u{1b}[31m"), r"a\u{202e}b\u{1b}[31m");
        let flood = format!("a{}", "\u{301}".repeat(6));
        assert_eq!(
            shown(&flood),
            format!("a{}{}", "\u{301}".repeat(4), r"\u{301}\u{301}")
        );
        assert_eq!(as_name("a\u{202e}b\nc", 2), "ab");
    }

    proptest! {
        /// Any text is shown without a fault.
        #[test]
        fn what_is_shown_has_no_fault(text in any::<String>()) {
            prop_assert_eq!(text_fault(&shown(&text)), None);
            prop_assert_eq!(text_fault(&as_name(&text, 16)), None);
        }
    }
}
