//! Sealed memfds, windows, bounds-checked views, shared layouts.
//!
//! What it is for: memory that exactly one domain can write and others can read, made, verified, mapped and given a
//! form (`docs/format.md`).
//!
//! NOT here: which domain may have which memory (`manager`), the meaning of counters (`ledger`), rings, their layout
//! included (`ring`).

mod kinds;
pub mod layout;
pub mod make;
pub mod mapping;
pub mod mappings;
pub mod verify;
pub mod view;
pub mod window;

pub use make::{Headroom, MakeError, Opts, make};
pub use mapping::{RoMapping, RwMapping};
pub use mappings::{Mappings, NoMappings};
pub use verify::{Sealing, VerifyError, backed, verify, verify_as};
pub use view::{OutOfBounds, View};
pub use window::{Window, WindowError};
