//! What every backend must do, through the handles: the report's programs, ends of operations, letting go, closing,
//! deaths, refusals. One test a backend, so that none is forgotten.

#[path = "suite/cases.rs"]
mod cases;

use std::sync::Arc;
use tranship_bulk::backend::{Backend, Local};

#[test]
fn local() {
    cases::all(|| Arc::new(Local) as Arc<dyn Backend>);
}
