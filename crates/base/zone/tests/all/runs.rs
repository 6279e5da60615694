//! The run allocator against a model that is a vector of pages.

use proptest::prelude::*;
use tranship_zone::{Run, RunAllocator};

const PAGES: usize = 16;
const CHUNKS: usize = 9;

#[derive(Debug, Clone)]
enum Step {
    Add(u32),
    Take(u32),
    Drain(u32, bool),
    Alloc(u32),
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let chunk = 0..u32::try_from(CHUNKS).expect("small");
    prop_oneof![
        2 => chunk.clone().prop_map(Step::Add),
        1 => chunk.clone().prop_map(Step::Take),
        1 => (chunk, any::<bool>()).prop_map(|(index, on)| Step::Drain(index, on)),
        4 => (1u32..20).prop_map(Step::Alloc),
        1 => (1u32..80).prop_map(Step::Alloc),
        4 => any::<usize>().prop_map(Step::Free),
    ]
}

/// A chunk: its pages, true for used ones, and whether it drains.
type Chunk = Option<([bool; PAGES], bool)>;

#[derive(Default)]
struct Model {
    chunks: [Chunk; CHUNKS],
}

impl Model {
    /// Returns the free pages of the chunk that must be used for a short run; `Err` tells whether a long one fits.
    fn best(&self, pages: usize) -> Option<usize> {
        let fits = |chunk: &&[bool; PAGES]| {
            chunk
                .windows(pages)
                .any(|hole| hole.iter().all(|used| !used))
        };
        let usable = self
            .chunks
            .iter()
            .flatten()
            .filter(|(_, draining)| !draining)
            .map(|(used, _)| used);
        usable
            .filter(fits)
            .map(|used| used.iter().filter(|used| !**used).count())
            .min()
    }

    fn wholly_free(&self, index: usize) -> bool {
        self.chunks[index].is_some_and(|(used, draining)| !draining && used == [false; PAGES])
    }

    /// Returns the fewest chunks to be added for a long run.
    fn fewest(&self, chunks: usize) -> Option<usize> {
        if chunks > CHUNKS {
            return None;
        }
        let windows = (0..=CHUNKS - chunks).map(|first| first..first + chunks);
        let usable = |index: usize| self.chunks[index].is_none() || self.wholly_free(index);
        let windows = windows.filter(|window| window.clone().all(usable));
        windows
            .map(|window| window.filter(|&index| self.chunks[index].is_none()).count())
            .min()
    }

    fn mark(&mut self, run: Run, used: bool) {
        for page in run.first_page as usize..(run.first_page + run.pages) as usize {
            let (pages, _) = self.chunks[page / PAGES]
                .as_mut()
                .expect("a run lies in chunks that are present");
            assert_ne!(pages[page % PAGES], used, "page {page} of {run:?}");
            pages[page % PAGES] = used;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn agrees_with_a_vector_of_pages(steps in prop::collection::vec(step(), 1..120), wanted in 1u32..80) {
        let mut runs = RunAllocator::new(u32::try_from(CHUNKS).expect("small"), PAGES as u64 * 4096);
        let mut model = Model::default();
        let mut live: Vec<Run> = Vec::new();
        let mut most = 0;
        for step in steps {
            match step {
                Step::Add(index) => {
                    let place = &mut model.chunks[index as usize];
                    prop_assert_eq!(runs.add_chunk(index), place.is_none());
                    place.get_or_insert(([false; PAGES], false));
                }
                Step::Take(index) => {
                    let place = &mut model.chunks[index as usize];
                    let free = place.is_some_and(|(used, _)| used == [false; PAGES]);
                    prop_assert_eq!(runs.take_chunk(index), free);
                    if free { *place = None }
                }
                Step::Drain(index, on) => {
                    runs.set_draining(index, on);
                    if let Some((_, draining)) = &mut model.chunks[index as usize] { *draining = on }
                }
                Step::Alloc(pages) if pages as usize <= PAGES => {
                    let best = model.best(pages as usize);
                    let run = runs.alloc(pages);
                    prop_assert_eq!(run.is_some(), best.is_some(), "{} pages", pages);
                    let Some(run) = run else { continue };
                    let index = runs.chunks_of(run).start as usize;
                    prop_assert_eq!((run.first_page + pages - 1) as usize / PAGES, index);
                    let (used, draining) = model.chunks[index].expect("present");
                    prop_assert!(!draining);
                    prop_assert_eq!(Some(used.iter().filter(|used| !**used).count()), best, "not the fullest");
                    model.mark(run, true);
                    live.push(run);
                }
                Step::Alloc(pages) => {
                    let chunks = (pages as usize).div_ceil(PAGES);
                    let fits = (0..=CHUNKS.saturating_sub(chunks))
                        .any(|first| (first..first + chunks).all(|index| index < CHUNKS && model.wholly_free(index)));
                    let run = runs.alloc(pages);
                    prop_assert_eq!(run.is_some(), fits, "{} pages", pages);
                    if let Some(run) = run {
                        prop_assert_eq!(runs.chunks_of(run).len(), chunks);
                        model.mark(run, true);
                        live.push(run);
                    }
                }
                Step::Free(at) if !live.is_empty() => {
                    let run = live.swap_remove(at % live.len());
                    runs.free(run);
                    model.mark(run, false);
                }
                Step::Free(_) => {}
            }
            for index in 0..CHUNKS {
                let used = model.chunks[index].map_or(0, |(used, _)| used.iter().filter(|used| **used).count());
                prop_assert_eq!(runs.used_pages(u32::try_from(index).expect("small")) as usize, used);
            }
            let free = |index: &u32| model.chunks[*index as usize].is_some_and(|(used, _)| used == [false; PAGES]);
            let free: Vec<u32> = (0..u32::try_from(CHUNKS).expect("small")).filter(free).collect();
            let present = model.chunks.iter().flatten().count();
            most = most.max(present - free.len());
            prop_assert_eq!(runs.free_chunks().collect::<Vec<_>>(), free);
        }
        prop_assert_eq!(runs.take_most_busy() as usize, most);
        let plan = runs.plan_growth(wanted);
        let pages = wanted as usize;
        let fewest = if pages > PAGES {
            model.fewest(pages.div_ceil(PAGES))
        } else if model.best(pages).is_some() {
            Some(0)
        } else {
            model.chunks.iter().any(Option::is_none).then_some(1)
        };
        prop_assert_eq!(plan.as_ref().map(Vec::len), fewest);
        if let Some(plan) = plan {
            for index in plan {
                prop_assert!(runs.add_chunk(index));
            }
            prop_assert!(runs.alloc(wanted).is_some());
        }
    }
}

#[test]
fn a_long_run_leaves_the_rest_of_its_last_chunk_to_others() {
    let mut runs = RunAllocator::new(4, 64 << 10);
    assert_eq!(runs.plan_growth(20), Some(vec![0, 1]));
    assert!(runs.add_chunk(1) && runs.add_chunk(2));
    assert_eq!(
        runs.alloc(20),
        Some(Run {
            first_page: 16,
            pages: 20
        })
    );
    assert_eq!(
        runs.alloc(12),
        Some(Run {
            first_page: 36,
            pages: 12
        })
    );
    assert_eq!(runs.alloc(1), None);
    runs.free(Run {
        first_page: 16,
        pages: 20,
    });
    assert_eq!(runs.free_chunks().collect::<Vec<_>>(), [1]);
    assert_eq!(runs.emptiest(), Some(1));
}

#[test]
#[should_panic(expected = "was not in use")]
fn a_run_is_not_freed_twice() {
    let mut runs = RunAllocator::new(1, 64 << 10);
    assert!(runs.add_chunk(0));
    let run = runs.alloc(3).expect("one chunk is free");
    runs.free(run);
    runs.free(run);
}

#[test]
fn whole_chunks_are_taken_by_their_places() {
    let mut runs = RunAllocator::new(6, 64 << 10);
    assert_eq!(runs.plan_absent(6), Some(0..6));
    assert_eq!(runs.plan_absent(7), None);
    assert!(runs.add_chunk(3));
    assert_eq!(runs.plan_absent(2), Some(4..6));
    assert_eq!(runs.plan_absent(3), Some(0..3));
    assert_eq!(runs.plan_absent(4), None);
    let run = runs.alloc_chunk(3).expect("it is free");
    assert_eq!((run.offset(), run.bytes()), (3 * (64 << 10), 64 << 10));
    assert_eq!((runs.alloc_chunk(3), runs.alloc_chunk(2)), (None, None));
    assert_eq!((runs.alloc(1), runs.busy()), (None, 1));
    assert!(!runs.take_chunk(3));
    runs.free(run);
    assert!(runs.take_chunk(3));
    // Two side by side, as one run.
    assert!(runs.add_chunk(1) && runs.add_chunk(2));
    let both = [1, 2].map(|index| runs.alloc_chunk(index).expect("it is free"));
    let [first, second] = both;
    runs.free(Run {
        pages: first.pages + second.pages,
        ..first
    });
    assert_eq!(runs.free_chunks().count(), 2);
}
