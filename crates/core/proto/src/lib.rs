//! Messages between a domain and the manager.
//!
//! What it is for: the shapes of all messages over the manager's socket, their encoding (postcard, one message per
//! SEQPACKET datagram), how many descriptors each message carries, and the checks that need no state.
//!
//! NOT here: sockets, descriptors, the manager's state, any decision.

#![forbid(unsafe_code)]

mod choice;
mod codec;
mod event;
mod figures;
mod id;
mod listing;
mod page;
mod refusal;
mod request;
mod shape;
mod stat;
mod text;
mod trust;

pub use choice::{HogAction, NameKind, Pressure};
pub use codec::{
    DecodeError, MAX_ADDRESS_BYTES, MAX_FDS, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, check_name,
    check_text, decode, encode,
};
pub use event::{Event, GoneReason};
pub use figures::{Figure, Kind, Record, Unit, Value};
pub use id::{BufferId, ChannelId, DomainId, ExportId, PoolId, Req, SLOT_LIMIT};
pub use listing::{page_table, python_types, word_of};
pub use page::{decode_page, encode_page};
pub use refusal::{A_QUEUE, A_TOPIC, AccessRule, Limited, Refusal, RefusalCode, SAID_NO};
pub use request::{ALL_READERS, ChannelClaim, LocalChannel, Request, Role};
pub use shape::{
    MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_POOL_BYTES, MIN_CHUNK_BYTES, OutOfRange, PoolShape,
    check_range,
};
pub use stat::{
    ChannelStat, DomainStat, HeapStat, HogStat, HoldStat, ManagerStat, PoolFigures, PoolStat,
    RECORDS, StatRecord,
};
pub use text::{MAX_MARKS, TextFault, as_name, shown, text_fault};
pub use trust::{Levels, Trust};

/// Version of the protocol. A manager refuses another one with both numbers in the error.
pub const PROTOCOL_VERSION: u16 = 6;
