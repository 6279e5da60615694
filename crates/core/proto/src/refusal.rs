//! The manager's reasons for a refusal: a stable code and two numbers.

use crate::choice::NameKind;
use crate::codec::MAX_NAME_BYTES;
use serde::{Deserialize, Serialize};
use tranship_error::{Cause, ErrorKind};

/// Stable codes: C and Python faces see the same numbers.
#[non_exhaustive]
#[repr(u16)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum RefusalCode {
    /// The two sides speak different versions.
    #[error("protocol version differs")]
    Version = 1,
    /// The access rules do not allow the request.
    #[error("the access rules of the manager do not allow it")]
    Access = 2,
    /// A limit per uid or per client is reached.
    #[error("a limit per user or per client is reached")]
    Limit = 3,
    /// The pool's quota is too small.
    #[error("the pool's quota does not cover it")]
    Quota = 4,
    /// The manager's total is too small at present.
    #[error("the manager's total memory does not cover it at present")]
    Total = 5,
    /// Another domain offers the name.
    #[error("the name is taken")]
    NameTaken = 6,
    /// No domain exports that name.
    #[error("nothing is exported under that name")]
    NoSuchName = 7,
    /// The exporter offers the same role; a link needs one source and one sink.
    #[error("both sides want the same role")]
    Role = 8,
    /// The other side refused or went away.
    #[error("the other side refused or went away")]
    PeerGone = 9,
    /// Pool, channel or export does not exist (any more).
    #[error("no such pool, channel or export")]
    NoSuchId = 10,
    /// The domain has no right to do that with this pool or channel.
    #[error("no right to do that with this pool or channel")]
    NotYours = 11,
    /// A descriptor does not have the form that its kind prescribes (seals, size, file system).
    #[error("a descriptor does not have the form that its kind prescribes")]
    BadDescriptor = 12,
    /// A number is outside its range.
    #[error("a number is outside its range")]
    BadArgument = 13,
    /// The request does not fit the client's state.
    #[error("the request does not fit the state")]
    State = 14,
    /// The claimed id is taken, or the two sides' claims differ.
    #[error("the claimed id is taken, or the claims of the two sides differ")]
    Claim = 15,
    /// A name is empty, too long, or has characters in it that no name may hold ([`text_fault`](crate::text_fault)).
    #[error("a name has 1 to {MAX_NAME_BYTES} bytes and only visible characters")]
    BadName = 16,
    /// The manager has no descriptors left; later it may have.
    #[error("the manager has no descriptors left for it")]
    NoDescriptors = 17,
    /// The receiver does not take pools of that level of trust.
    #[error("the receiver does not take a pool of this level of trust")]
    Trust = 18,
    /// The memory of other domains' pools that the domain holds counts against its limit, and leaves too little of it.
    #[error(
        "the memory of others' pools that the domain holds leaves too little of its limit, or of its user's"
    )]
    Charged = 19,
    /// The domain holds more memory of others than the manager's rules allow, for longer than they allow.
    #[error("the domain holds more memory of others than the manager's [[hog]] rules allow")]
    Hog = 20,
    /// Another policy sets quotas.
    #[error("another policy sets quotas")]
    Steered = 21,
    /// The domain itself offers the name.
    #[error("the domain that connects to the name offers it itself")]
    OwnName = 22,
    /// A channel's, a topic's or a queue's name was asked for as one of the others.
    #[error("the name is one of another kind")]
    Kind = 23,
    /// The domains that have the name do not agree with the asking domain whether they share it.
    #[error("the domains that have the name share it, or keep it, otherwise than was asked")]
    Shared = 24,
}

/// A refusal: its code, and the two numbers that explain it (bytes, counts, ids or versions, by the code).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{code}{}", numbers(*code, *asked, *available))]
pub struct Refusal {
    /// The code.
    pub code: RefusalCode,
    /// The requested amount.
    pub asked: u64,
    /// The available amount.
    pub available: u64,
}

/// With [`RefusalCode::PeerGone`], as `available`: the other side is there, and refused.
pub const SAID_NO: u64 = 1;

/// With [`RefusalCode::Kind`], as `available`: a topic has the name. 0: a channel has it.
pub const A_TOPIC: u64 = 1;
/// With [`RefusalCode::Kind`], as `available`: a queue has the name.
pub const A_QUEUE: u64 = 2;

/// Numbers that have a text each.
macro_rules! texts {
    ($(
        $(#[$about:meta])+
        $name:ident: $repr:ident {
            $( $(#[$doc:meta])+ $item:ident = $number:literal, $text:literal; )+
        }
    )+) => { $(
        $(#[$about])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr($repr)]
        pub enum $name {
            $( $(#[$doc])+ $item = $number, )+
        }

        impl $name {
            fn text_of(number: u64) -> Option<&'static str> {
                match number {
                    $( $number => Some($text), )+
                    _ => None,
                }
            }
        }
    )+ };
}

texts! {
    /// The rule that a refusal with [`RefusalCode::Access`] names in `available`. 0: a rule without a name. `asked` is a
    /// user's id, or what the rule says.
    AccessRule: u64 {
        /// `[[connect]]`: the users that may join.
        Connect = 1, "no [[connect]] rule lets uid {uid} join";
        /// `[[export]]`: the users that may offer a name.
        Export = 2, "no [[export]] rule lets uid {uid} offer that name";
        /// `[[bind]]`: the users that may connect to a name.
        Bind = 3, "no [[bind]] rule lets uid {uid} connect to that name";
        /// `[[reserved]]`: the owner of a name.
        Reserved = 4, "a [[reserved]] rule keeps that name from uid {uid}";
        /// `[[policy_run]]`: the users that may divide memory.
        PolicyRun = 5, "no [[policy_run]] rule names uid {uid}";
        /// No rule: only root and the manager's own user may.
        Owner = 6, "only root and the manager's own user may, not uid {uid}";
        /// `[[given]]`: the components that have a name. `asked` is the line of the name in the program's file.
        Given = 7, "line {uid} of the program's file gives that name to other components";
        /// No `[[given]]` rule has the name.
        Ungiven = 8, "the program's file gives that name to no component";
        /// `operator_key`: with `[[given]]` rules only domains with that key set quotas, or trace pools of others.
        Operator = 9, "components of the program may not, only a domain that shows the operator's key (manager.key beside the socket)";
    }

    /// The limited resource of a [`RefusalCode::Limit`]: in the upper 8 bits of `asked`; 0: it has no name.
    Limited: u8 {
        /// Connections and domains of a user.
        Connections = 1, "connections and domains of this user (limits.connections)";
        /// Pools and heaps of a user.
        Pools = 2, "pools and heaps of this user (limits.pools)";
        /// Ends of channels of a user.
        Channels = 3, "ends of channels of this user (limits.channels)";
        /// Names of a user: exported ones, and awaited ones.
        Names = 4, "names that this user exports or waits for (limits.names)";
        /// Descriptors that the manager holds for a user.
        Descriptors = 5, "descriptors that the manager holds for this user";
        /// Entries of the manager's tables for a user.
        Records = 6, "entries of the manager's tables for this user";
        /// Bytes of a user.
        Bytes = 7, "bytes of this user";
        /// Domains of a user that record histories.
        Traces = 8, "traced domains of this user";
        /// Pools of a domain.
        PoolsOfDomain = 9, "pools of this domain";
        /// Pools and heaps of all.
        PoolIds = 10, "pools and heaps of all users";
        /// Domains that may forward a pool.
        Forwarders = 11, "domains that may forward this pool";
        /// Channels and readers of a pool.
        Queues = 12, "channels and readers of this pool";
        /// Channels inside a process that a domain shows.
        Registered = 13, "channels that this domain has inside its process";
        /// Domains that follow a pool's trace.
        Followers = 14, "domains that follow this trace";
        /// Messages that wait for a client that does not read.
        Messages = 15, "messages for a client that does not read them";
        /// A domain's claims after a restart of the manager.
        Claims = 16, "claims of this domain after a restart of the manager";
        /// Chunks that a reader claims.
        Mapped = 17, "chunks that this reader claims, or its pool is another one";
        /// A reader's questions for chunks that it misses.
        Resyncs = 18, "questions of this reader for chunks that it misses";
        /// Requests to another domain that has not taken the earlier ones.
        Backlog = 19, "requests to a domain that has not taken the ones before";
        /// Domains that share a name.
        Sharers = 20, "domains that share this name, of this user or of all";
    }
}

impl Limited {
    const SHIFT: u32 = 56;

    /// Makes the refusal: this would be number `number` of at most `most`.
    pub fn refuse(self, number: u64, most: u64) -> Refusal {
        let number = number.min((1 << Limited::SHIFT) - 1);
        Refusal {
            code: RefusalCode::Limit,
            asked: (self as u64) << Limited::SHIFT | number,
            available: most,
        }
    }

    /// Returns the numbers of such a refusal as text, with the resource's name.
    fn text(asked: u64, most: u64) -> String {
        let (what, number) = (asked >> Limited::SHIFT, asked & ((1 << Limited::SHIFT) - 1));
        match (Limited::text_of(what), most) {
            (Some(what), 0) => format!(": too many {what}"),
            (Some(what), _) => {
                format!(": {what}: this would be number {number}, allowed are {most}")
            }
            (None, _) => format!(": this would be number {number}, allowed are {most}"),
        }
    }
}

impl Refusal {
    /// Says whether the other side went away, or just lost the manager: it did not refuse.
    pub fn went_away(&self) -> bool {
        self.code == RefusalCode::PeerGone && self.available != SAID_NO
    }

    /// Returns the refusal of a name that is of this kind, and not of the one that was asked for.
    pub fn other_kind(kind: NameKind) -> Refusal {
        let available = match kind {
            NameKind::Channel => 0,
            NameKind::Topic => A_TOPIC,
            NameKind::Queue => A_QUEUE,
        };
        Refusal {
            code: RefusalCode::Kind,
            asked: 0,
            available,
        }
    }
}

impl Cause for Refusal {
    fn kind(&self) -> ErrorKind {
        match self.code {
            RefusalCode::Version => ErrorKind::Version,
            RefusalCode::Access => ErrorKind::Access,
            RefusalCode::Limit | RefusalCode::NoDescriptors => ErrorKind::Limit,
            RefusalCode::Quota | RefusalCode::Total | RefusalCode::Charged | RefusalCode::Hog => {
                ErrorKind::Quota
            }
            RefusalCode::NameTaken | RefusalCode::Shared => ErrorKind::NameTaken,
            RefusalCode::NoSuchName => ErrorKind::NoSuchName,
            RefusalCode::Role => ErrorKind::SameRole,
            RefusalCode::Trust => ErrorKind::ChannelTrust,
            RefusalCode::BadArgument
            | RefusalCode::BadName
            | RefusalCode::OwnName
            | RefusalCode::Kind => ErrorKind::BadArgument,
            RefusalCode::PeerGone if self.went_away() => ErrorKind::PeerGone,
            RefusalCode::NoSuchId | RefusalCode::Claim => ErrorKind::Stale,
            RefusalCode::BadDescriptor => ErrorKind::BadArgument,
            RefusalCode::State => ErrorKind::ChannelState,
            // A right is missing, or the consent of another program.
            RefusalCode::PeerGone | RefusalCode::NotYours | RefusalCode::Steered => {
                ErrorKind::Refused
            }
        }
    }
}

/// Returns the numbers as text, with their meaning; empty if they mean nothing.
fn numbers(code: RefusalCode, asked: u64, available: u64) -> String {
    use RefusalCode as C;
    match code {
        C::Version => format!(": this side speaks {asked}, the manager {available}"),
        C::Access => barred(asked, available),
        C::Limit => Limited::text(asked, available),
        C::Charged => {
            format!(
                ": asked {asked} bytes, {available} are available; dropping buffers of others makes room, and `tranship stat` shows the pools that they are in"
            )
        }
        C::Hog => format!(
            ": {asked} bytes are charged to it, {available} are allowed; dropped buffers of others no longer count"
        ),
        C::Quota | C::Total => format!(": asked {asked} bytes, {available} are available"),
        C::NameTaken => format!(
            " (by process {asked}, domain {available}): use another name, or end that process"
        ),
        C::NoSuchName | C::Role => String::new(),
        C::Kind if available == A_TOPIC => ": a topic has it, to which one subscribes".into(),
        C::Kind if available == A_QUEUE => ": a queue has it, of which one is a consumer".into(),
        C::Kind => ": a channel has it, which one opens".into(),
        C::Shared if asked == 1 => format!(
            ": domain {available} has it for itself; all that have a name must ask to share it"
        ),
        C::Shared => {
            format!(": domain {available} shares it with others; ask to share it, or use another name")
        }
        C::OwnName => {
            ": a shared-memory channel joins two domains; within one, use an address that begins with `local:`".into()
        }
        C::PeerGone if available == SAID_NO => format!(" (it does not take pool {asked})"),
        C::PeerGone | C::NoSuchId | C::NotYours | C::Claim => format!(" (id {asked})"),
        C::Steered if available == 0 => {
            ": the one in the manager's configuration; there, `policy = \"static\"` leaves it to others".into()
        }
        C::Steered => format!(" (that of domain {asked}); it can be ended, and its quotas stay"),
        C::Trust => crate::trust::refused(asked, available),
        C::NoDescriptors => format!(": it holds {asked}, and may hold {available}"),
        C::BadName if (1..=MAX_NAME_BYTES as u64).contains(&asked) => {
            "; this one has a control, invisible or direction character, or too many marks".into()
        }
        C::BadName => format!("; this one has {asked} bytes"),
        C::BadDescriptor | C::BadArgument | C::State => {
            format!(" (asked {asked}, allowed {available})")
        }
    }
}

/// Returns the text of the rule that keeps a user out.
fn barred(uid: u64, rule: u64) -> String {
    match AccessRule::text_of(rule) {
        Some(text) => format!(": {}", text.replace("{uid}", &uid.to_string())),
        None => format!(" (uid {uid})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Levels, Trust};

    /// A listener that ends, or an id that is gone, takes no right from any domain.
    #[test]
    fn refused_means_a_right_that_is_missing() {
        let kind = |code, available| {
            let refusal = Refusal {
                code,
                asked: 1,
                available,
            };
            refusal.kind()
        };
        assert_eq!(kind(RefusalCode::PeerGone, 0), ErrorKind::PeerGone);
        assert_eq!(kind(RefusalCode::NoSuchId, 0), ErrorKind::Stale);
        assert_eq!(kind(RefusalCode::Claim, 0), ErrorKind::Stale);
        assert_eq!(kind(RefusalCode::BadDescriptor, 0), ErrorKind::BadArgument);
        assert_eq!(kind(RefusalCode::State, 0), ErrorKind::ChannelState);
        for (code, available) in [
            (RefusalCode::PeerGone, SAID_NO),
            (RefusalCode::NotYours, 0),
            (RefusalCode::Steered, 0),
        ] {
            assert_eq!(kind(code, available), ErrorKind::Refused, "{code:?}");
        }
    }

    #[test]
    fn numbers_come_with_what_they_are() {
        let text = |code, asked, available| {
            let refusal = Refusal {
                code,
                asked,
                available,
            };
            refusal.to_string()
        };
        assert_eq!(
            text(RefusalCode::Quota, 8192, 4096),
            "the pool's quota does not cover it: asked 8192 bytes, 4096 are available"
        );
        assert_eq!(
            text(RefusalCode::BadName, 70, 64),
            "a name has 1 to 64 bytes and only visible characters; this one has 70 bytes"
        );
        assert_eq!(
            text(RefusalCode::BadName, 5, 64),
            "a name has 1 to 64 bytes and only visible characters; this one has a control, invisible or direction character, or too many marks"
        );
        assert_eq!(
            text(RefusalCode::Access, 7, AccessRule::Export as u64),
            "the access rules of the manager do not allow it: no [[export]] rule lets uid 7 offer that name"
        );
        assert_eq!(
            text(RefusalCode::Access, 12, AccessRule::Given as u64),
            "the access rules of the manager do not allow it: line 12 of the program's file gives that name to other components"
        );
        let taken: Levels = [Trust::Producer, Trust::None].into_iter().collect();
        assert_eq!(
            text(RefusalCode::Trust, Trust::Full as u64, taken.bits()),
            "the receiver does not take a pool of this level of trust: it is `full`, taken are `none`, `producer`"
        );
        assert_eq!(
            text(RefusalCode::NoSuchName, 0, 0),
            "nothing is exported under that name"
        );
    }
}
