//! Stable codes of all that can go wrong.

/// Why an operation was refused. The numbers are stable.
///
/// Those of the original interface that have a meaning here, under names of our own, and seven more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u16)]
pub enum Code {
    #[error("no memory")]
    Memory = 1,
    #[error("the endpoint cannot be made: the system refused")]
    ChannelCreate = 3,
    #[error("the two ends cannot agree on role, trust or constraints")]
    ChannelBind = 4,
    #[error("the channel is not in a state that allows this")]
    ChannelState = 6,
    #[error("the trust levels differ")]
    ChannelTrust = 7,
    #[error("there is no such endpoint, or it is taken")]
    InvalidEndpoint = 8,
    #[error("this is the wrong end of the channel")]
    ChannelDirection = 9,
    #[error("the pool is not known here")]
    PoolInvalid = 10,
    #[error("the pool is not assigned to the channel")]
    PoolNotAssigned = 11,
    #[error("the other end does not want the pool")]
    PoolVeto = 12,
    #[error("the pool's memory cannot be mapped, or is not what it should be")]
    PoolMap = 13,
    #[error("the pool is assigned to the channel already, or about to be")]
    PoolAlreadyAssigned = 15,
    #[error("the buffer belongs to another domain")]
    BufferNotOwned = 17,
    #[error("the buffer is not here")]
    BufferInvalid = 18,
    #[error(
        "the buffer's state does not allow this: copies of it are out, or its memory is read-only here"
    )]
    BufferState = 20,
    #[error("copies that were passed on have not come back")]
    BufferRefcount = 21,
    #[error("no copy of the buffer came over this channel")]
    BufferNotACopy = 22,
    #[error("the buffer's bytes cannot be brought here")]
    BufferMap = 23,
    #[error("a buffer size that cannot be")]
    AllocSize = 25,
    #[error("no buffer is free, or a number of buffers that cannot be")]
    AllocCount = 26,
    #[error("an argument that cannot be")]
    InvalidArgument = 27,
    /// The pool's buffers, or copies of them, are still out.
    #[error("the pool is in use over the channel")]
    PoolInUse = 64,
    #[error("its creator gave no right to pass the pool on")]
    NotForwardable = 65,
    #[error("the channel is full")]
    Full = 66,
    #[error("the other end is gone")]
    PeerGone = 67,
    #[error("the other end broke the protocol")]
    PeerViolation = 68,
    #[error("the system refused")]
    System = 69,
    #[error(
        "the manager admits no more memory to this process: its quota, or the total, is used up"
    )]
    Quota = 70,
    #[error("there is no manager: start `tranship manager`, or name its socket in TRANSHIP_SOCKET")]
    NoManager = 71,
    #[error("the manager's rules do not let this user create, or bind to, that name")]
    Access = 72,
    /// A buffer that is protected by itself is a mapping, and one that is sealed a descriptor: fewer and larger buffers
    /// need fewer, and both limits can be raised.
    #[error(
        "buffers need more mappings (vm.max_map_count) or descriptors (RLIMIT_NOFILE) than there are for them"
    )]
    Limit = 73,
}

impl Code {
    /// All of them.
    pub const ALL: [Code; 31] = [
        Code::Memory,
        Code::ChannelCreate,
        Code::ChannelBind,
        Code::ChannelState,
        Code::ChannelTrust,
        Code::InvalidEndpoint,
        Code::ChannelDirection,
        Code::PoolInvalid,
        Code::PoolNotAssigned,
        Code::PoolVeto,
        Code::PoolMap,
        Code::PoolAlreadyAssigned,
        Code::BufferNotOwned,
        Code::BufferInvalid,
        Code::BufferState,
        Code::BufferRefcount,
        Code::BufferNotACopy,
        Code::BufferMap,
        Code::AllocSize,
        Code::AllocCount,
        Code::InvalidArgument,
        Code::PoolInUse,
        Code::NotForwardable,
        Code::Full,
        Code::PeerGone,
        Code::PeerViolation,
        Code::System,
        Code::Quota,
        Code::NoManager,
        Code::Access,
        Code::Limit,
    ];

    /// The code of a number that a peer sent.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Code> {
        Code::ALL.into_iter().find(|code| *code as u16 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_apart_and_come_back() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code as u16), Some(code));
        }
        assert_eq!(Code::from_number(0), None);
    }
}
