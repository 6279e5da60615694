//! Names of pools and channels.

use crate::error::{BadName, Error};
use tranship_proto::check_name;

/// Says what is wrong with a name that cannot be one.
pub fn checked_name(name: &str) -> Result<(), Error> {
    if check_name(name) {
        return Ok(());
    }
    let mut chars = name.char_indices();
    let bytes = name.len();
    Err(match chars.find(|(_, c)| c.is_control()) {
        Some((at, found)) => BadName::Control { found, at },
        None => BadName::Length { bytes },
    }
    .into())
}
