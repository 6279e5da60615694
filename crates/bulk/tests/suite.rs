//! What every backend must do, through the handles: the report's programs, ends of operations, letting go, closing,
//! deaths, refusals. One test a backend, so that none is forgotten.

#[path = "suite/cases.rs"]
mod cases;
#[path = "suite/ends.rs"]
mod ends;
#[path = "suite/late.rs"]
mod late;
#[path = "suite/left.rs"]
mod left;
#[path = "suite/parts.rs"]
mod parts;
#[path = "suite/placed.rs"]
mod placed;
#[path = "suite/prompt.rs"]
mod prompt;
#[path = "suite/terms.rs"]
mod terms;

use std::sync::Arc;
use tranship_bulk::Shm;
use tranship_transport::{Backend, Copying, Local};

#[test]
fn local() {
    cases::all(|| Arc::new(Local) as Arc<dyn Backend>);
}

#[test]
fn shm() {
    let manager = tranship_core::Domain::embedded().expect("a manager");
    cases::all(|| Arc::new(Shm::over(&manager).expect("joined")) as Arc<dyn Backend>);
}

#[test]
fn copy() {
    cases::all(|| Arc::new(Copying) as Arc<dyn Backend>);
}

#[test]
fn late_and_out_of_order() {
    let late = Arc::new(late::Late::default());
    cases::all(|| Arc::clone(&late) as Arc<dyn Backend>);
    assert!(late.is_proven(), "{late:?}");
}

#[test]
fn tcp_plain() {
    cases::all(|| Arc::new(prompt::Prompt::plain()) as Arc<dyn Backend>);
}

#[test]
fn tcp_tls() {
    cases::all(|| Arc::new(prompt::Prompt::tls()) as Arc<dyn Backend>);
}
