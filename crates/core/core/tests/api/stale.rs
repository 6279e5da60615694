//! Collection while the manager's news of readers are under way.

use crate::kit::*;
use std::thread;

/// A writer that has not heard yet that a reader left can collect nothing: it finds all of it as soon as it has.
#[test]
fn what_could_not_be_judged_is_not_forgotten() {
    let (_dog, a, b) = bare_pair();
    let pool = pool(&a, 1);
    let (mut sender, mut receiver) = link(&a, &b, "x");
    thread::scope(|s| {
        let takes = s.spawn(|| (0..4).for_each(|_| drop(receiver.recv().expect("recv"))));
        for i in 0..4 {
            sender.send(filled(&pool, CHUNK / 4, i)).expect("send");
        }
        takes.join().expect("a reader");
    });
    drop(receiver);
    // The manager answers another request only after that.
    drop(crate::kit::pool(&b, 1));
    let got: Vec<_> = (0..4).map(|_| pool.alloc_now(CHUNK / 4)).collect();
    let n = got.iter().filter(|buf| buf.is_ok()).count();
    assert_eq!(n, 4, "all were dead");
}
