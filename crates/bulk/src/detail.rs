//! In words, why the last thing that this thread asked for was refused: beside a [`Code`], as `errno` has `strerror`.

use crate::Code;
use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<Option<(Code, String)>> = const { RefCell::new(None) };
}

/// Remembers why.
pub(crate) fn say(code: Code, why: String) -> Code {
    LAST.with_borrow_mut(|last| *last = Some((code, why)));
    code
}

/// In words, why the last call of this thread failed that had more to say than its [`Code`]: addresses, certificates.
#[must_use]
pub fn last_detail() -> Option<String> {
    LAST.with_borrow(|last| last.as_ref().map(|(_, why)| why.clone()))
}

/// In words, what the last call of this thread failed for with this code: as it said, or else as the code says. What was said is
/// forgotten, so that a later failure is not explained with it.
#[must_use]
pub fn explain(code: Code) -> String {
    match LAST.take() {
        Some((of, why)) if of == code => why,
        _ => code.to_string(),
    }
}
