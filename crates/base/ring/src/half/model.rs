//! Halves that loom watches: memory of one process.

use super::{Half, Side};
use crate::front::Front;
use crate::line::{Line, Lines};
use std::ptr::NonNull;
use std::sync::Arc;

#[derive(Debug)]
pub struct Memory {
    front: Front,
    lines: Vec<Line>,
}

pub(crate) type HalfRw = Half<Arc<Memory>>;
pub(crate) type HalfRo = HalfRw;

impl HalfRw {
    /// Makes a half as its writer and as its reader sees it.
    pub(crate) fn pair(side: Side, lines: usize) -> (HalfRw, HalfRo) {
        let memory = Arc::new(Memory {
            front: Front::default(),
            lines: (0..lines).map(|_| Line::default()).collect(),
        });
        let see = || Half {
            front: NonNull::from(&memory.front),
            // SAFETY: they stay where they are as long as `map` is there.
            lines: unsafe { Lines::from_raw(NonNull::from(&memory.lines[..]).cast(), lines) }
                .expect("a power of two"),
            side,
            map: Arc::clone(&memory),
        };
        (see(), see())
    }
}
