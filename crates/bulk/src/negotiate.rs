//! What the two ends of a channel agree on: a pure function of what each says.

use crate::{Error, Kind, Role, Trust};
use serde::{Deserialize, Serialize};
use tranship_sys::map::Within;

/// What a channel asks of the pools assigned to it, and a domain of one that it makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Constraints {
    /// A pool's buffers start at multiples of it, bytes; a power of two.
    pub align_bytes: u64,
    /// The smallest buffers.
    pub min_buffer_bytes: u64,
    /// The largest buffers.
    pub max_buffer_bytes: u64,
    /// Pools lie at or above this address, at both ends.
    pub min_address: u64,
    /// Pools end at or below this address, at both ends.
    pub max_address: u64,
}

impl Default for Constraints {
    /// Any pool will do.
    fn default() -> Constraints {
        Constraints {
            align_bytes: 1,
            min_buffer_bytes: 1,
            max_buffer_bytes: u64::MAX,
            min_address: 0,
            max_address: u64::MAX,
        }
    }
}

impl Constraints {
    /// What satisfies both, if something can.
    #[must_use]
    pub fn and(self, other: Constraints) -> Option<Constraints> {
        let both = Constraints {
            align_bytes: self.align_bytes.max(other.align_bytes),
            min_buffer_bytes: self.min_buffer_bytes.max(other.min_buffer_bytes),
            max_buffer_bytes: self.max_buffer_bytes.min(other.max_buffer_bytes),
            min_address: self.min_address.max(other.min_address),
            max_address: self.max_address.min(other.max_address),
        };
        let possible = self.align_bytes.is_power_of_two()
            && other.align_bytes.is_power_of_two()
            && both.min_buffer_bytes <= both.max_buffer_bytes
            && both.min_address < both.max_address;
        possible.then_some(both)
    }

    /// Where pools have to lie; addresses that there are not here are none.
    pub(crate) fn within(&self) -> Within {
        let address = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Within {
            align: address(self.align_bytes),
            from: address(self.min_address),
            to: address(self.max_address),
        }
    }

    /// Do buffers of this size at this address fit?
    #[must_use]
    pub fn allow(&self, base: u64, buffers: u64, buffer_bytes: u64) -> bool {
        let end = buffers
            .checked_mul(buffer_bytes)
            .and_then(|len| base.checked_add(len));
        (self.min_buffer_bytes..=self.max_buffer_bytes).contains(&buffer_bytes)
            && base.is_multiple_of(self.align_bytes)
            && buffer_bytes.is_multiple_of(self.align_bytes)
            && base >= self.min_address
            && end.is_some_and(|end| end <= self.max_address)
    }
}

/// What one end wants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Wish {
    pub role: Role,
    pub trust: Trust,
    pub constraints: Constraints,
}

/// What both then have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Agreement {
    pub creator_role: Role,
    pub trust: Trust,
    pub constraints: Constraints,
}

/// The agreement of the one who created the channel with the one who binds, or [`Kind::ChannelBind`].
///
/// Two generic ends make the creator the master. Equal fixed roles, unequal trust and constraints that nothing
/// satisfies are refused.
pub fn negotiate(creator: Wish, binder: Wish) -> Result<Agreement, Error> {
    let creator_role = match (creator.role, binder.role) {
        (Role::Generic, Role::Generic) => Role::Master,
        (Role::Generic, fixed) => fixed.other(),
        (fixed, other) if other != fixed => fixed,
        (both, _) => {
            let text = format!(
                "both ends want the role {both:?}: one of them has to be generic, or the other's"
            );
            return Err(Error::new(Kind::ChannelBind, text));
        }
    };
    if creator.trust != binder.trust {
        let text = format!(
            "the creator wants trust {:?}, the binder {:?}: they have to be the same",
            creator.trust, binder.trust
        );
        return Err(Error::new(Kind::ChannelBind, text));
    }
    Ok(Agreement {
        creator_role,
        trust: creator.trust,
        constraints: creator.constraints.and(binder.constraints).ok_or_else(|| {
            let text = format!(
                "nothing satisfies both the creator's {:?} and the binder's {:?}",
                creator.constraints, binder.constraints
            );
            Error::new(Kind::ChannelBind, text)
        })?,
    })
}

/// Can `negotiate` have given this to one who asked for that? What a creator says is not believed without it.
pub(crate) fn is_answer(binder: Wish, agreed: Agreement) -> bool {
    let role = agreed.creator_role.other();
    role != Role::Generic
        && (binder.role == role || binder.role == Role::Generic)
        && agreed.trust == binder.trust
        && binder.constraints.and(agreed.constraints) == Some(agreed.constraints)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(role: Role, trust: Trust) -> Wish {
        Wish {
            role,
            trust,
            constraints: Constraints::default(),
        }
    }

    #[test]
    fn the_whole_matrix() {
        use Role::{Generic, Master, Slave};
        for creator_trust in Trust::ALL {
            for binder_trust in Trust::ALL {
                for (creator, binder, outcome) in [
                    (Master, Master, None),
                    (Master, Slave, Some(Master)),
                    (Master, Generic, Some(Master)),
                    (Slave, Master, Some(Slave)),
                    (Slave, Slave, None),
                    (Slave, Generic, Some(Slave)),
                    (Generic, Master, Some(Slave)),
                    (Generic, Slave, Some(Master)),
                    (Generic, Generic, Some(Master)),
                ] {
                    let got = negotiate(wish(creator, creator_trust), wish(binder, binder_trust));
                    let want = outcome.filter(|_| creator_trust == binder_trust);
                    assert_eq!(
                        got.map(|a| a.creator_role),
                        want.ok_or(Kind::ChannelBind.into())
                    );
                }
            }
        }
    }

    #[test]
    fn only_what_was_asked_for_is_an_answer() {
        for binder_role in Role::ALL {
            for creator_role in Role::ALL {
                for trust in Trust::ALL {
                    let asked = wish(binder_role, Trust::None);
                    let agreed = negotiate(wish(creator_role, trust), asked);
                    assert!(agreed.is_err() || is_answer(asked, agreed.expect("just seen")));
                    let said = Agreement {
                        creator_role,
                        trust,
                        constraints: Constraints::default(),
                    };
                    let fits = trust == Trust::None
                        && creator_role != Role::Generic
                        && creator_role != binder_role;
                    assert_eq!(is_answer(asked, said), fits, "{asked:?}, {said:?}");
                }
            }
        }
        let small = Constraints {
            max_buffer_bytes: 4096,
            ..Constraints::default()
        };
        let asked = Wish {
            constraints: small,
            ..wish(Role::Slave, Trust::Full)
        };
        let mut said = Agreement {
            creator_role: Role::Master,
            trust: Trust::Full,
            constraints: small,
        };
        assert!(is_answer(asked, said));
        said.constraints.max_buffer_bytes = 8192;
        assert!(!is_answer(asked, said));
    }

    #[test]
    fn constraints_must_leave_something() {
        let any = Constraints::default();
        let big = Constraints {
            min_buffer_bytes: 1 << 20,
            align_bytes: 4096,
            ..any
        };
        let small = Constraints {
            max_buffer_bytes: 4096,
            ..any
        };
        assert_eq!(any.and(big), Some(big));
        assert_eq!(big.and(small), None);
        assert!(big.allow(4096, 2, 1 << 20) && !big.allow(4097, 2, 1 << 20));
        assert!(!big.allow(4096, 2, 4096) && !small.allow(0, u64::MAX, 4096));
        let crooked = Constraints {
            align_bytes: 3,
            ..any
        };
        assert_eq!(any.and(crooked), None);
        let low = Constraints {
            max_address: 1 << 20,
            ..any
        };
        let high = Constraints {
            min_address: 1 << 20,
            ..any
        };
        assert_eq!(low.and(high), None);
        assert!(low.allow(0, 1, 1 << 20) && !low.allow(1, 1, 1 << 20) && !high.allow(0, 1, 8));
    }
}
