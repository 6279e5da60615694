//! The table of all kinds of errors.

use std::fmt;

macro_rules! kinds {
    ($($kind:ident = $number:literal, $errno:ident, $meaning:literal, $advice:literal;)+) => {
        /// The kind of an error. A number never changes its meaning; new kinds get new numbers.
        #[non_exhaustive]
        // The kind is a whole word, because results of fast paths share its place. The processor cannot forward a word
        // from its store buffer if parts of that word were written one by one.
        #[repr(u64)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ErrorKind {
            $(#[doc = concat!($meaning, ". What to do: ", $advice, ".")] $kind = $number,)+
        }

        impl ErrorKind {
            /// All of them, by number.
            pub const ALL: &[ErrorKind] = &[$(ErrorKind::$kind),+];

            /// Returns the kind's name in this library.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(ErrorKind::$kind => stringify!($kind),)+
                }
            }

            /// Returns a sentence that says what the kind means.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self {
                    $(ErrorKind::$kind => $meaning,)+
                }
            }

            /// Returns a sentence that says what the caller should do about it.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self {
                    $(ErrorKind::$kind => $advice,)+
                }
            }

            /// Returns the nearest number of the kernel.
            pub(crate) fn errno(self) -> i32 {
                match self {
                    $(ErrorKind::$kind => libc::$errno,)+
                }
            }

            /// Returns the kernel's name of that number, for the pages that list the kinds.
            #[doc(hidden)]
            pub fn errno_name(self) -> &'static str {
                match self {
                    $(ErrorKind::$kind => stringify!($errno),)+
                }
            }
        }
    };
}

impl ErrorKind {
    /// Returns the kind's stable number.
    #[doc(hidden)]
    #[must_use]
    pub fn number(self) -> u16 {
        self as u16
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.meaning())
    }
}

/// Lets a kind be the cause of an error, for kinds that another component found.
impl std::error::Error for ErrorKind {}

kinds! {
    // Everywhere.
    System = 1, EIO, "a system call failed", "look at the cause: it names the call, and what the kernel said";
    NoManager = 2, ECONNREFUSED, "no manager answers, and none could be started", "start `tranship manager`, or name its socket in TRANSHIP_SOCKET";
    ManagerAway = 3, ENOTCONN, "the manager is away: existing channels go on, nothing new can be had until it is back", "try again later, or wait with a timeout";
    Refused = 4, EPERM, "a right, or the consent of the other end, is missing", "look at the refusal: it names the request, and the end that refused";
    TimedOut = 5, ETIMEDOUT, "the time given is over", "wait again, or give up; what was waited for may still happen";
    Forked = 6, EOWNERDEAD, "this object belongs to the parent process: after fork(), connect a domain of your own", "connect a domain in the child";
    TooLarge = 7, E2BIG, "larger than the pool can ever hold", "ask for less, or make a larger pool";
    OutOfMemory = 8, ENOMEM, "no memory is free now", "free something, wait with a timeout, or look at the domains that hold it";
    Full = 9, EAGAIN, "the channel is full", "wait for the receiver, or drop the message";
    PeerGone = 10, EPIPE, "the other end is gone", "close the channel; connect again if it is expected back";
    PeerViolation = 11, EPROTO, "the other end broke the protocol", "nothing: the channel is closed; distrust that peer";
    ChunkPending = 12, ENODATA, "the memory of the next message was not shown to this process, and no manager can be reached for it", "let the process reach a manager; the message stays the next one";
    Stale = 13, ESTALE, "the id names nothing that is alive", "look the id up again at the domain that it came from";
    BadArgument = 14, EINVAL, "an argument is outside its range", "correct it: the text says what is allowed";
    PeerDied = 15, ECONNRESET, "the other end died, or gave up, before it closed the channel", "what came may not be all: discard it, or ask for the rest";
    Lost = 16, EIO, "messages went with the memory that they were in", "connect again, and ask for them again";
    Unreachable = 17, EHOSTUNREACH, "what is at the place of the manager's socket cannot be used", "name another socket, or correct the modes of this one";
    CutOff = 18, ENETUNREACH, "the manager is gone, and this process cannot reach another one", "let the process connect, or restart it; existing channels go on";
    NotConnected = 19, ENOTCONN, "the connection was not made after all; nothing was sent", "connect again";
    Access = 20, EACCES, "the manager's rules do not allow it", "change the rules, or act as another user";
    Quota = 21, EDQUOT, "the manager admits no more memory: a quota, or the total, is used up", "free something, or raise the quota";
    NameTaken = 22, EADDRINUSE, "the name is taken", "use another name, or stop the program that has it";
    NoSuchName = 23, ENOENT, "nothing is exported under that name", "start the program that exports it, or wait for it";
    Limit = 24, EMFILE, "a limit on numbers is reached: of connections or names at the manager, of mappings or descriptors in this process", "close something, use fewer and larger buffers, or raise the limit (vm.max_map_count, RLIMIT_NOFILE, the manager's configuration)";
    Version = 25, EPROTONOSUPPORT, "the two sides speak different versions of the protocol", "use the same version on both sides";
    SameRole = 26, EPROTOTYPE, "both sides want the same end of the channel", "let one side send and the other receive";
    PoolPending = 27, EAGAIN, "the receiver has not agreed to the pool yet, which it does when it next calls the library", "send again later; the request goes on";
    ManagerRunning = 28, EADDRINUSE, "another manager is running there", "use that one, or name another socket";
    Internal = 29, ENOTRECOVERABLE, "the library failed at something of its own", "do not use the object any more, and report it: the text says where";
    Credentials = 30, EKEYREJECTED, "the credentials cannot be used: a certificate, a key or an authority", "correct the file that the text names; `tranship cert` makes credentials";

    // Channels that move ownership.
    ChannelBind = 204, EPROTOTYPE, "the two ends cannot agree on role, trust or constraints", "let the two wishes overlap";
    ChannelState = 206, EISCONN, "the channel is not in a state that allows this", "wait for the event that leads there; over is over";
    ChannelTrust = 207, EACCES, "the trust levels differ", "use a pool of the level that the channel has";
    InvalidEndpoint = 208, EADDRNOTAVAIL, "there is no such endpoint, or it is taken", "correct the address, or wait for its owner";
    ChannelDirection = 209, EOPNOTSUPP, "this is the wrong end of the channel", "do it at the other end";
    PoolNotAssigned = 211, ENOTCONN, "the pool does not travel on this channel", "use the channel by which the buffer came, or drop the buffer";
    PoolMap = 213, EADDRNOTAVAIL, "the pool's memory cannot be mapped where it is to be", "give a larger range of addresses, or a smaller maximum";
    BufferNotOwned = 217, EPERM, "the buffer belongs to another domain", "use the domain, or the end, that it came from";
    BufferInvalid = 218, EBADF, "the buffer is not here", "it was sent, or came back elsewhere: use the handle that is left";
    BufferState = 220, EBUSY, "the buffer's state does not allow this: copies of it are out, or its memory is read-only here", "wait for the releases, or copy it";
    BufferNotACopy = 222, EINVAL, "no copy of the buffer came over this channel", "release over the channel that it came by";

    // Network buffers.
    NoBuffers = 300, ENOBUFS, "no mbuf: memory or a limit is exhausted", "drop the packet, or wait";
    TooShort = 301, EINVAL, "the chain has fewer bytes than that", "look at its length first";
    TooLong = 302, EINVAL, "more bytes than the operation can do at once", "do it in parts";
    TooMany = 303, EFBIG, "it cannot be made of that few mbufs", "allow more of them";
    Occupied = 304, EBUSY, "the mbuf has data or storage already", "use an empty one";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_apart_and_rise() {
        assert!(ErrorKind::ALL.is_sorted_by(|a, b| a.number() < b.number()));
        for kind in ErrorKind::ALL {
            assert_eq!(format!("{kind:?}"), kind.name());
        }
    }
}
