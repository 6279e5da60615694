use super::*;
use std::cell::Cell;

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

#[test]
fn a_buffer_goes_there_and_is_released() {
    let [table, sent] = [1, u32::MAX].map(AtomicU32::new);
    let (mut id, handles) = (0, Handles::default());
    handles.begin();
    let (mut steps, mut queued) = (Vec::new(), false);
    struct First<'a> {
        words: (&'a AtomicU32, &'a AtomicU32, &'a Handles),
        id: &'a mut u32,
        queued: &'a mut bool,
        steps: &'a mut Vec<(SendStep, bool, u32)>,
    }
    impl FirstSend for First<'_> {
        fn publish(&mut self, generation: u32) {
            let text = "sent++ comes before the publication, modulo 2^32";
            assert_eq!(get(self.words.1), 0, "{text}");
            *self.id = generation;
        }
        fn queue(&mut self) {
            *self.queued = true;
        }
        fn reached(&mut self, step: SendStep) {
            let (table, _, handles) = self.words;
            let seen = (step, handles.is_private(table), get(table));
            self.steps.push(seen);
        }
    }
    let first = First {
        words: (&table, &sent, &handles),
        id: &mut id,
        queued: &mut queued,
        steps: &mut steps,
    };
    send_first(&handles, &table, &sent, first);
    assert_eq!((id, get(&table)), (2, 2));
    // Queued once, and marked so: nobody else queues it.
    assert!(queued && handles.count() == 0 && handles.stays_queued());
    // The handle goes while the generation is odd.
    assert_eq!(steps[0], (SendStep::LetGo, false, 1));
    assert!(steps.iter().map(|step| step.0).eq(SEND_FIRST));
}

/// View of a send at each step: the step, the generation, the count, and whether the line is published.
fn shown(own: bool) -> Vec<(SendStep, u32, u32, bool)> {
    let [table, sent] = [1, u32::MAX].map(AtomicU32::new);
    let (published, mut steps, released) = (Cell::new(false), Vec::new(), Cell::new(false));
    let words = Sent {
        generation: own.then_some(&table),
        sent: &sent,
    };
    let release = || {
        assert!(published.get(), "the reference goes last");
        released.set(true);
    };
    send_again(
        words,
        || published.set(true),
        release,
        |step| {
            assert!(!released.get());
            steps.push((step, get(&table), get(&sent), published.get()));
        },
    );
    assert!(released.get());
    steps
}

#[test]
fn what_is_kept_or_sent_again_is_counted_before_it_is_published() {
    let [open, count, publish] = SEND_KEPT;
    let kept = [
        (open, 2, u32::MAX, false),
        (count, 2, 0, false),
        (publish, 2, 0, true),
    ];
    assert_eq!(shown(true), kept);
    let [count, publish] = SEND_AGAIN;
    let again = [(count, 1, 0, false), (publish, 1, 0, true)];
    assert_eq!(shown(false), again, "nobody else's generation is changed");
    let table = AtomicU32::new(4);
    assert_eq!((open_again(&table), get(&table)), (4, 4));
}

fn open_again(table: &AtomicU32) -> u32 {
    super::open(table)
}

#[test]
fn pieces_are_counted_before_their_list_goes_and_let_go_of_after_it() {
    let words = [1, 0, 0, 0].map(AtomicU32::new);
    let (listed, released) = (Cell::new(false), Cell::new(false));
    let send_list = |words: &mut &[AtomicU32; 4]| {
        let list = Sent {
            generation: None,
            sent: &words[3],
        };
        assert!(!released.get());
        let publish = || {
            assert_eq!(words.each_ref().map(get), [2, 1, 1, 1]);
            listed.set(true);
        };
        send_again(list, publish, || {}, |_| {});
    };
    let release = |_: &mut &_| {
        assert!(listed.get());
        released.set(true);
    };
    let mut steps = Vec::new();
    send_all(
        &mut &words,
        [(Some(0), 1), (None, 2)],
        |words, (generation, sent): (Option<usize>, usize)| {
            let generation = generation.map(|at| &words[at]);
            let sent = &words[sent];
            Some(Sent { generation, sent })
        },
        send_list,
        release,
        |step| steps.push(step),
    );
    use SendStep::{Count, Open};
    assert_eq!(steps, [Open, Count, Count]);
    assert!(released.get());
}
