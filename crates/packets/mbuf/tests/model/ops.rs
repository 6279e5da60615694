//! The operations, and how they are chosen.

use proptest::prelude::*;
use tranship_mbuf::ClusterSize;

use crate::bench::FILE_BYTES;

#[derive(Clone, Debug)]
pub(crate) enum Make {
    Plain(usize),
    Header(usize),
    Cluster(usize),
    Jumbo(ClusterSize, usize),
    Devget(usize, usize),
    Slices(Vec<usize>, usize),
    Get2(usize),
    Getm(usize),
    Owned(usize),
    OwnedLarge(usize),
    OwnedMut(usize),
    Clget(usize),
    File(usize, usize),
    FileUnit(usize, usize),
    Tagged(usize),
    /// A mini-mbuf without storage: it has no room at all.
    Mini,
    /// A mini-mbuf without a header.
    MiniPlain,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Make(Make),
    Drop,
    FreeFirst,
    Prepend(usize),
    Pullup(usize),
    Copyup(usize, usize),
    Pulldown(usize, usize),
    Split(usize),
    Cat,
    TrimFront(usize),
    TrimBack(usize),
    Defrag,
    Collapse(usize),
    Unshare,
    Fragment(usize),
    Copyback(usize, usize),
    Append(usize),
    Copym(usize, usize),
    Copypacket,
    Dup,
    MakePacket,
    Demote,
    MakeReadable,
    CompressUnmapped,
    MoveToFile,
    MakeWritable(usize, usize),
    MoveHeader,
    DupHeader,
    AddTag(u16),
    Flow(u32),
    Protocol(bool),
    Reserve(usize),
    Writer(usize),
    WriteInPlace,
    Queue,
}

pub(crate) fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..80, 0usize..400, 0usize..5000]
}

pub(crate) fn make() -> impl Strategy<Value = Make> {
    let size = prop::sample::select(&ClusterSize::ALL[..]);
    prop_oneof![
        length().prop_map(Make::Plain),
        length().prop_map(Make::Header),
        length().prop_map(Make::Cluster),
        (size, length()).prop_map(|(size, len)| Make::Jumbo(size, len)),
        (length(), 0usize..60).prop_map(|(len, space)| Make::Devget(len, space)),
        (prop::collection::vec(0usize..700, 0..6), 0usize..100)
            .prop_map(|(lens, space)| Make::Slices(lens, space)),
        (0usize..=4096).prop_map(Make::Get2),
        length().prop_map(Make::Getm),
        length().prop_map(Make::Owned),
        length().prop_map(Make::OwnedLarge),
        length().prop_map(Make::OwnedMut),
        length().prop_map(Make::Clget),
        (0..FILE_BYTES, length()).prop_map(|(offset, len)| Make::File(offset, len)),
        (0..FILE_BYTES, length()).prop_map(|(offset, len)| Make::FileUnit(offset, len)),
        length().prop_map(Make::Tagged),
        Just(Make::Mini),
        Just(Make::MiniPlain),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let l = length;
    prop_oneof![
        8 => make().prop_map(Op::Make),
        1 => Just(Op::Drop),
        1 => Just(Op::FreeFirst),
        3 => (0usize..260).prop_map(Op::Prepend),
        3 => (0usize..200).prop_map(Op::Pullup),
        2 => (0usize..170, 0usize..60).prop_map(|(len, space)| Op::Copyup(len, space)),
        3 => (l(), 0usize..2100).prop_map(|(at, len)| Op::Pulldown(at, len)),
        3 => l().prop_map(Op::Split),
        4 => Just(Op::Cat),
        2 => l().prop_map(Op::TrimFront),
        2 => l().prop_map(Op::TrimBack),
        1 => Just(Op::Defrag),
        2 => (1usize..8).prop_map(Op::Collapse),
        1 => Just(Op::Unshare),
        1 => (50usize..3000).prop_map(Op::Fragment),
        3 => (l(), l()).prop_map(|(at, len)| Op::Copyback(at, len)),
        3 => l().prop_map(Op::Append),
        3 => (l(), l()).prop_map(|(at, len)| Op::Copym(at, len)),
        2 => Just(Op::Copypacket),
        1 => Just(Op::Dup),
        1 => Just(Op::MakePacket),
        1 => Just(Op::Demote),
        1 => Just(Op::MakeReadable),
        1 => Just(Op::CompressUnmapped),
        1 => Just(Op::MoveToFile),
        1 => (l(), l()).prop_map(|(at, len)| Op::MakeWritable(at, len)),
        1 => Just(Op::MoveHeader),
        1 => Just(Op::DupHeader),
        1 => (0u16..100).prop_map(Op::AddTag),
        1 => any::<u32>().prop_map(Op::Flow),
        1 => any::<bool>().prop_map(Op::Protocol),
        1 => l().prop_map(Op::Reserve),
        2 => l().prop_map(Op::Writer),
        2 => Just(Op::WriteInPlace),
        1 => Just(Op::Queue),
    ]
}
