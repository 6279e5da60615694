//! Refusals, and requests that are refused for every client.

use super::types::{Done, Fail};
use tranship_proto::{AccessRule, Refusal, RefusalCode, check_name};

pub(crate) fn refusal(code: RefusalCode, asked: u64, available: u64) -> Refusal {
    Refusal {
        code,
        asked,
        available,
    }
}

/// Makes the refusal of an access rule that keeps a user out.
pub(crate) fn barred(uid: u32, rule: AccessRule) -> Refusal {
    refusal(RefusalCode::Access, uid.into(), rule as u64)
}

pub(crate) fn no_such(id: u32) -> Fail {
    refusal(RefusalCode::NoSuchId, u64::from(id), 0).into()
}

pub(crate) fn not_yours(id: u32) -> Fail {
    refusal(RefusalCode::NotYours, u64::from(id), 0).into()
}

pub(crate) fn check_spelling(name: &str) -> Done {
    match check_name(name) {
        true => Ok(()),
        false => Err(refusal(RefusalCode::BadName, name.len() as u64, 64).into()),
    }
}

pub(crate) fn check_lines(lines: u32) -> Done {
    if !lines.is_power_of_two() || !(2..=65536).contains(&lines) {
        return Err(refusal(RefusalCode::BadArgument, u64::from(lines), 65536).into());
    }
    Ok(())
}
