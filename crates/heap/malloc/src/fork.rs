//! The heap in a forked child: whole, and the child's own.

use crate::inside::Inside;
use crate::{account, helper, huge, meta};
use std::io;
use tranship_sys::fork;

/// Makes every fork take this allocator's locks first, so that in the child no missing thread holds one. Call it before
/// the zones install their own handlers: locks of later handlers are taken first, which is the order in which threads
/// take them.
pub(crate) fn install() -> io::Result<()> {
    fork::at_fork(before, in_parent, in_child)
}

extern "C" fn before() {
    huge::hold();
    account::hold();
    meta::hold();
}

extern "C" fn in_parent() {
    // SAFETY: `before` took them on this thread.
    unsafe {
        meta::release();
        account::release();
        huge::release();
    }
}

extern "C" fn in_child() {
    let _inside = Inside::enter();
    // SAFETY: `before` took them on the thread that this one is a copy of.
    unsafe {
        meta::release();
        account::release_in_child();
        huge::release();
    }
    helper::begin(true);
}
