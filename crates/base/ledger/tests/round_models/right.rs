//! The systems as built: nothing is reused early, nothing is freed twice, nothing leaks.

use crate::config::Config;
use crate::explorer::torture;
use crate::holds;

fn one(name: &'static str) -> Config {
    Config::new(name).with(|c| (c.readers, c.keepers) = (vec![0], 1))
}

/// Two readers that keep nothing.
fn two(name: &'static str) -> Config {
    Config::new(name).with(|c| (c.keepers, c.kept) = (0, 0))
}

#[test]
fn one_reader() {
    holds(one("a window of 1, keeping").with(|c| c.rests = true));
    holds(
        one("the words of a line one by one, withdrawing").with(|c| {
            (c.lines, c.withdraws, c.keepers, c.kept) = (true, true, 0, 0);
        }),
    );
}

#[test]
fn one_reader_that_keeps_more() {
    holds(one("a window of 2, two held, 2 kept").with(|c| {
        (c.window, c.holds, c.kept) = (2, 2, 2);
    }));
    holds(one("a window of 1, keeping, 4 messages").with(|c| c.messages = 4));
    if torture() {
        holds(
            one("a window of 2, two held, 2 kept, 4 messages").with(|c| {
                (c.window, c.holds, c.kept, c.slots, c.messages) = (2, 2, 2, 5, 4);
            }),
        );
    }
}

#[test]
fn sequences_wrap_around() {
    let wraps = |c: &mut Config| (c.first, c.messages) = ((1 << 48) - 2, 4);
    holds(one("sequences around 2^48").with(wraps));
    if torture() {
        holds(one("withdrawn lines around 2^48").with(|c| {
            wraps(c);
            (c.withdraws, c.slots) = (true, 2);
        }));
    }
}

#[test]
fn two_readers() {
    holds(two("two readers"));
    holds(two("two readers, windows of 2").with(|c| (c.window, c.holds) = (2, 2)));
    holds(two("two readers, 4 messages").with(|c| c.messages = 4));
    if torture() {
        holds(two("two readers, windows of 2, 4 messages").with(|c| {
            (c.window, c.holds, c.messages) = (2, 2, 4);
        }));
        holds(two("two readers, more stores wait").with(|c| (c.writers_buffer, c.buffer) = (7, 4)));
    }
}

#[test]
fn two_readers_of_which_one_keeps() {
    holds(Config::new("two readers, one keeps").with(|c| c.keepers = 1));
}

#[test]
fn deaths() {
    holds(two("two readers, deaths of both").with(|c| (c.slots, c.deaths) = (3, 2)));
    holds(one("a reader that keeps, and dies").with(|c| c.deaths = 1));
    holds(one("a table, and a death").with(|c| (c.kept, c.table, c.deaths) = (0, 1, 1)));
    if torture() {
        holds(one("another thread, and a death").with(|c| (c.helper, c.deaths) = (true, 1)));
    }
}

#[test]
fn readers_leave() {
    holds(one("a reader leaves, with a window or an entry").with(|c| {
        (c.leaves, c.rests, c.buffer) = (true, true, 3);
    }));
    holds(one("a reader leaves with a table").with(|c| {
        (c.leaves, c.buffer, c.kept, c.table, c.deaths) = (true, 3, 0, 1, 1);
    }));
}

#[test]
fn late_readers() {
    holds(two("a late reader, a death").with(|c| (c.late, c.deaths) = (2, 1)));
}

#[test]
fn liars() {
    holds(Config::new("one lies").with(|c| (c.keepers, c.liar) = (1, 2)));
    holds(Config::new("one lies about its table").with(|c| {
        (c.keepers, c.kept, c.table, c.liar) = (1, 0, 1, 2);
    }));
}

#[test]
fn tables() {
    holds(one("one entry, and the table").with(|c| (c.table, c.slots) = (1, 4)));
    holds(one("only the table").with(|c| (c.kept, c.table) = (0, 1)));
}

/// A table is read word by word, while its reader goes on.
#[test]
fn an_honest_reader_is_not_reported() {
    holds(one("only the table, a window of 2").with(|c| {
        (c.kept, c.table, c.window, c.holds, c.messages) = (0, 1, 2, 2, 4);
    }));
}

#[test]
fn other_threads() {
    holds(one("another thread lets go").with(|c| c.helper = true));
}

#[test]
fn aggregates() {
    holds(one("two buffers a line").with(|c| {
        (c.pieces, c.kept, c.slots, c.buffer) = (2, 2, 6, 3);
    }));
    if torture() {
        let two = |name| one(name).with(|c| (c.pieces, c.kept, c.buffer) = (2, 2, 3));
        holds(two("two buffers a line, one in the table").with(|c| {
            (c.kept, c.table, c.slots) = (1, 1, 6);
        }));
        holds(two("two buffers a line, and a death").with(|c| (c.slots, c.deaths) = (6, 1)));
        holds(two("two buffers a line, withdrawn").with(|c| {
            (c.slots, c.withdraws, c.messages) = (4, true, 2);
        }));
    }
}

#[test]
fn lines_are_withdrawn() {
    holds(one("withdrawn lines").with(|c| {
        (c.withdraws, c.slots, c.messages) = (true, 2, 3);
    }));
    holds(two("withdrawn lines, one is reliable").with(|c| {
        (c.withdraws, c.reliable, c.slots) = (true, 1, 3);
    }));
}

#[test]
fn reliable_readers() {
    holds(one("a reliable reader").with(|c| c.reliable = 1));
    holds(two("a reliable reader of two").with(|c| c.reliable = 1));
    // Beyond 2^47 a desk of zeros would be one beyond the tail; at 2^48 one that has begun may rest at 0.
    for (name, first) in [
        ("a late reliable reader beyond 2^47", 1 << 47),
        ("a late reliable reader around 2^48", (1 << 48) - 2),
    ] {
        holds(one(name).with(|c| {
            (c.reliable, c.late, c.rests) = (1, 1, true);
            (c.keepers, c.kept) = (0, 0);
            (c.first, c.messages) = (first, 4);
        }));
    }
}

#[test]
fn buffers_found_by_their_ids() {
    holds(one("the writer finds a buffer").with(|c| (c.finds, c.messages) = (true, 4)));
}

#[test]
fn two_rings() {
    let in_two = |name| {
        two(name).with(|c| {
            (c.readers, c.both, c.writers_buffer, c.slots) = (vec![0, 1], true, 6, 3);
        })
    };
    holds(in_two("one buffer in two topics"));
    holds(in_two("one buffer in two topics, one reader lies").with(|c| c.liar = 2));
    if torture() {
        holds(in_two("one buffer in two topics, a death").with(|c| c.deaths = 1));
    }
    let mixed = |name, readers| {
        Config::new(name).with(|c| {
            (c.readers, c.both, c.channels, c.keepers) = (readers, true, 2, 0);
            (c.writers_buffer, c.slots) = (6, 3);
        })
    };
    holds(mixed(
        "one buffer in a channel and a topic without readers",
        vec![1],
    ));
    holds(mixed("one buffer in a topic and a channel", vec![0, 1]));
}

#[test]
fn channels() {
    let channel =
        |name| one(name).with(|c| (c.channels, c.keepers, c.messages, c.slots) = (1, 0, 2, 1));
    holds(channel("a channel of one buffer"));
    holds(channel("a channel of one buffer, a death").with(|c| c.deaths = 1));
    let two = |c: &mut Config| (c.messages, c.slots, c.kept) = (3, 2, 2);
    holds(channel("a channel of two buffers").with(two));
    if torture() {
        holds(channel("a channel, another thread lets go").with(|c| c.helper = true));
        holds(
            channel("a channel of two buffers, another thread").with(|c| {
                two(c);
                c.helper = true;
            }),
        );
    }
}

#[test]
fn forwarding() {
    let forwards = |name| one(name).with(|c| (c.forwards, c.slots, c.messages) = (true, 3, 3));
    holds(forwards("forwarding"));
    holds(forwards("forwarding, deaths").with(|c| c.deaths = 1));
    holds(forwards("a liar forwards").with(|c| (c.liar, c.lies) = (1, 1)));
    if torture() {
        holds(forwards("a liar forwards twice").with(|c| c.liar = 1));
        holds(forwards("forwarding, 4 messages").with(|c| c.messages = 4));
    }
}
