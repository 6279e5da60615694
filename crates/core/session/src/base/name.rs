//! Names of pools and channels.

use crate::error::{BadName, Error};
use tranship_proto::{TextFault, check_name, text_fault};

/// Checks a name, and says what is wrong with it.
pub fn checked_name(name: &str) -> Result<(), Error> {
    if check_name(name) {
        return Ok(());
    }
    let bytes = name.len();
    Err(match text_fault(name) {
        Some((at, found, TextFault::Control)) => BadName::Control { found, at },
        Some((at, found, TextFault::Unseen)) => BadName::Unseen { found, at },
        Some((at, _, TextFault::Marks)) => BadName::Marks { at },
        None => BadName::Length { bytes },
    }
    .into())
}
