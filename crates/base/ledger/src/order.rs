//! The orders on which liveness rests, as data.
//!
//! The functions of this crate and the models in `tests/` run through the same constants.

/// One phase of the collector's pass: it reads every word of one kind that counts for the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// All `rcvd`, one per queue.
    Received,
    /// All `ref`, one per reading domain, and the writer's private one.
    References,
    /// All `sent`, one per queue.
    Sent,
    /// The writer's private reference, where it is read apart from the others ([`PASS_DIRECT`]).
    Own,
}

/// The order of a pass.
///
/// Both neighbours matter. `rcvd` before `ref`: a collector that saw the receipt counted sees its reference. `ref`
/// before `sent`: a collector that saw a forwarder's reference dropped sees its earlier sends.
pub const PASS_ORDER: [Phase; 3] = [Phase::Received, Phase::References, Phase::Sent];

/// The order of the pass where the writer is the source of every queue. `rcvd` is compared with `sent` at once, both
/// times.
///
/// A thread without one of the writer's handles cannot send, nor, under the collector's lock, get one: after
/// [`Phase::Own`] `sent` stays as it is. The first `rcvd` comes before `ref` as in [`PASS_ORDER`]. The second comes
/// after it for buffers that are passed back: a collector that saw the reference go sees that the receipt was taken
/// back before.
pub const PASS_DIRECT: [Phase; 4] = [
    Phase::Own,
    Phase::Received,
    Phase::References,
    Phase::Received,
];

/// Steps of the collector around and after its pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CollectStep {
    /// The reader set's epoch must be the control page's.
    CheckEpoch,
    /// One pass in [`PASS_ORDER`]; buffers that are alive drop out.
    Pass,
    /// The generation becomes odd.
    Bump,
    /// Sequentially consistent fence; partner of [`ReceiptStep::Fence`].
    Fence,
    /// The pass once more; buffers that are alive now get their even generation back. Looking at the references alone
    /// is not enough: a reader that got one from a liar may have sent the buffer on, properly, and released it since.
    LookAgain,
}

/// The whole collection.
///
/// The epoch is checked three times. The first saves a useless pass. The second keeps an honest receipt over a
/// queue that the reader set does not have yet from meeting an odd generation. The third keeps a reader that the
/// reader set does not have yet from holding what a liar sent it.
pub const COLLECTION: [CollectStep; 7] = [
    CollectStep::CheckEpoch,
    CollectStep::Pass,
    CollectStep::CheckEpoch,
    CollectStep::Bump,
    CollectStep::Fence,
    CollectStep::LookAgain,
    CollectStep::CheckEpoch,
];

/// The whole collection where the writer is the source of every queue: one pass ([`PASS_DIRECT`]).
///
/// The second look of [`COLLECTION`] is for buffers that a liar has sent on meanwhile, and a liar without a queue can
/// send nothing on. It may get a queue. A reader that takes from it looks at the generation after the epoch was raised,
/// and the collector looks at the epoch after it has made the generation odd. The fence is between the two, so that at
/// least one side sees the other.
pub const COLLECTION_DIRECT: [CollectStep; 6] = [
    CollectStep::CheckEpoch,
    CollectStep::Pass,
    CollectStep::CheckEpoch,
    CollectStep::Bump,
    CollectStep::Fence,
    CollectStep::CheckEpoch,
];

/// Steps of a receiver with one reference that it took from a ring, before it moves the ring's cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReceiptStep {
    /// `ref++`.
    Hold,
    /// Sequentially consistent fence; partner of [`CollectStep::Fence`].
    Fence,
    /// The table's generation must be the id's; otherwise the reference is given up.
    Check,
    /// `rcvd++`.
    Count,
}

/// Receipt from the pool's writer itself.
pub const RECEIPT_DIRECT: [ReceiptStep; 2] = [ReceiptStep::Hold, ReceiptStep::Count];

/// Receipt from anyone else, the pool's writer receiving its own buffer back included.
pub const RECEIPT_FORWARDED: [ReceiptStep; 4] = [
    ReceiptStep::Hold,
    ReceiptStep::Fence,
    ReceiptStep::Check,
    ReceiptStep::Count,
];

/// Steps of a sender. Unless the handle itself is given away it holds a reference during all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendStep {
    /// The writer's only handle goes, with a plain store: while the generation is odd nobody else can take another one.
    LetGo,
    /// The generation becomes even.
    Open,
    /// `sent++`.
    Count,
    /// The id goes onto the ring.
    Publish,
    /// The slot goes where the collector finds it.
    Queue,
}

/// The writer's first send of a buffer, by the thread that gives its only handle away.
///
/// The handle goes first: once the generation is even any thread of the writer may find the buffer by its id and count
/// another handle, which a plain store would undo. Nothing is collected meanwhile, as the slot is queued last.
pub const SEND_FIRST: [SendStep; 5] = [
    SendStep::LetGo,
    SendStep::Open,
    SendStep::Count,
    SendStep::Publish,
    SendStep::Queue,
];

/// The writer's first send of a buffer of which there are more handles, or that goes along in an aggregate. The handle goes
/// after it, if at all, as any other one.
pub const SEND_KEPT: [SendStep; 3] = [SendStep::Open, SendStep::Count, SendStep::Publish];

/// Every later send, and a forwarder's. (To open what is open changes nothing.)
pub const SEND_AGAIN: [SendStep; 2] = [SendStep::Count, SendStep::Publish];

/// Steps of a queue's sink that passes a buffer back to the queue's source, which is the pool's writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassStep {
    /// `rcvd--`: on the data queue the buffer is on its way again.
    Uncount,
    /// The id goes onto the ring that leads back.
    Publish,
    /// `ref--`.
    Release,
}

/// A pass takes the receipt back, so the way back needs no counters of its own.
///
/// The receipt goes before the reference: in between the buffer would look dead. A pass of the collector that has read `rcvd` before and `ref`
/// after all this finds it dead nevertheless; its second one reads `rcvd` anew. Until that has put the generation right nobody
/// is refused: only the writer can take what is passed to it, and it needs the collector's lock for it.
pub const PASS_BACK: [PassStep; 3] = [PassStep::Uncount, PassStep::Publish, PassStep::Release];

/// Steps of the pool's writer with a buffer that is passed back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnStep {
    /// A handle is counted, under the collector's lock, if the id names the slot's present buffer.
    Hold,
    /// `sent--`: the buffer is on its way no more.
    Uncount,
}

/// The order of it: else nobody has the buffer in between.
pub const RETURN: [ReturnStep; 2] = [ReturnStep::Hold, ReturnStep::Uncount];
