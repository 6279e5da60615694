//! In words, why the last thing that this thread asked for was refused: beside a [`Code`], as `errno` has `strerror`.

use crate::Code;
use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Remembers why.
pub(crate) fn say(code: Code, why: String) -> Code {
    LAST.with_borrow_mut(|last| *last = Some(why));
    code
}

/// In words, why the last call of this thread failed that had more to say than its [`Code`]: addresses, certificates.
#[must_use]
pub fn last_detail() -> Option<String> {
    LAST.with_borrow(Clone::clone)
}
