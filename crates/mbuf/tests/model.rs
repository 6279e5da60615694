//! Every chain routine against a vector of bytes, over random sequences of operations, with every allocation of each
//! operation made to fail in turn.
//!
//! NOT here: other domains, threads, speed.

use bytes::{Buf as _, BufMut as _};
use proptest::prelude::*;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tranship_mbuf::{
    Chain, ClusterSize, Error, FileZone, Flags, Limits, MCLBYTES, MHLEN, MLEN, MbufOptions, Mbufs,
    PacketQueue, Tag, TaggedZone, inject,
};

/// What a chain should be.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    bytes: Vec<u8>,
    header: Option<Header>,
}

#[derive(Clone, Debug, PartialEq, Default)]
struct Header {
    flow: u32,
    tags: Vec<u16>,
    protocol: bool,
}

#[derive(Clone, Debug)]
enum Make {
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
}

#[derive(Clone, Debug)]
enum Op {
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

/// A byte that tells where it is from.
fn pattern(seed: usize, at: usize) -> u8 {
    (seed.wrapping_mul(31) + at.wrapping_mul(7)).to_le_bytes()[0]
}

fn filled(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| pattern(seed, at)).collect()
}

/// Counts how often it is dropped.
struct Counted<T>(T, Arc<AtomicUsize>);
impl<T: AsRef<[u8]>> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}
impl<T: AsMut<[u8]>> AsMut<[u8]> for Counted<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut()
    }
}
impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// Does not fit into an mbuf.
struct Large(Vec<u8>, #[allow(dead_code)] [u64; 8]);
impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

const FILE_BYTES: usize = 20_000;
const TAG: (u32, u16) = (0x7a6, 9);

struct Bench {
    mbufs: Mbufs,
    tagged: TaggedZone,
    pieces: FileZone,
    file: Arc<File>,
    contents: Vec<u8>,
    made: usize,
    dropped: Arc<AtomicUsize>,
    chains: Vec<(Chain, Model)>,
    steps: usize,
}

impl Bench {
    fn new() -> Bench {
        let mbufs = MbufOptions::new()
            .limits(Limits::NONE)
            .window_bytes(256 << 20)
            .build()
            .expect("allocator");
        let contents = filled(77, FILE_BYTES);
        let mut file = tempfile();
        file.write_all(&contents).expect("write");
        let file = Arc::new(file);
        Bench {
            tagged: mbufs.tagged_zone(TAG.0, TAG.1, 16),
            pieces: mbufs.file_zone(file.clone(), "model"),
            mbufs,
            file,
            contents,
            made: 0,
            dropped: Arc::default(),
            chains: Vec::new(),
            steps: 0,
        }
    }

    /// Runs `work`, making each of its allocations fail in turn; a failure must leave everything as it was.
    fn each_failure<T>(
        &mut self,
        mut work: impl FnMut(&mut Bench) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for n in 1.. {
            assert!(n < 1000, "an operation with 1000 allocations");
            inject::fail_at(n);
            let result = work(self);
            let reached = inject::asked() >= n;
            inject::fail_at(0);
            match result {
                Err(Error::NoBuffers(_)) if reached => self.check(),
                other => return other,
            }
        }
        unreachable!()
    }

    fn check(&self) {
        for (chain, model) in &self.chains {
            compare(chain, model);
        }
    }

    fn counted<T>(&mut self, value: T) -> Counted<T> {
        self.made += 1;
        Counted(value, self.dropped.clone())
    }

    fn make(&mut self, make: &Make) {
        let seed = self.steps;
        let result = self.each_failure(|bench| bench.try_make(make, seed));
        self.chains.push(result.expect("there is memory"));
    }

    fn try_make(&mut self, make: &Make, seed: usize) -> Result<(Chain, Model), Error> {
        let packet = |bytes| Model {
            bytes,
            header: Some(Header::default()),
        };
        let fill = |chain: &mut Chain, len: usize| {
            let bytes = filled(seed, len);
            chain.writer().put_slice(&bytes);
            packet(bytes)
        };
        let mbufs = self.mbufs.clone();
        Ok(match make {
            Make::Plain(len) => {
                let mut chain = mbufs.get()?;
                let bytes = fill(&mut chain, *len % (MLEN + 1)).bytes;
                let model = Model {
                    bytes,
                    header: None,
                };
                (chain, model)
            }
            Make::Header(len) => {
                let mut chain = mbufs.gethdr()?;
                let model = fill(&mut chain, *len % (MHLEN + 1));
                (chain, model)
            }
            Make::Cluster(len) => {
                let mut chain = mbufs.getcl()?;
                chain.reserve_front(*len % 100).expect("empty");
                let model = fill(&mut chain, *len % (MCLBYTES - 100));
                (chain, model)
            }
            Make::Jumbo(size, len) => {
                let mut chain = mbufs.getjcl(*size)?;
                let model = fill(&mut chain, *len % size.bytes());
                (chain, model)
            }
            Make::Devget(len, space) => {
                let bytes = filled(seed, *len);
                (mbufs.devget(&bytes, *space)?, packet(bytes))
            }
            Make::Slices(lens, space) => {
                let parts: Vec<_> = lens.iter().map(|len| filled(seed, *len)).collect();
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                (mbufs.from_slices(&slices, *space)?, packet(parts.concat()))
            }
            Make::Get2(len) => {
                let mut chain = mbufs.get2(*len)?;
                assert_eq!(chain.count(), 1);
                let model = fill(&mut chain, *len);
                (chain, model)
            }
            Make::Getm(len) => {
                let mut chain = mbufs.getm2(*len)?;
                let model = fill(&mut chain, *len);
                (chain, model)
            }
            Make::Owned(len) => {
                let mut chain = mbufs.mini()?;
                let owner = self.counted(filled(seed, *len));
                chain.attach(owner).map_err(|(error, _)| error)?;
                (chain, packet(filled(seed, *len)))
            }
            Make::OwnedLarge(len) => {
                let mut chain = mbufs.gethdr()?;
                let owner = self.counted(Large(filled(seed, *len), [0; 8]));
                chain.attach(owner).map_err(|(error, _)| error)?;
                (chain, packet(filled(seed, *len)))
            }
            Make::OwnedMut(len) => {
                let mut chain = mbufs.mini()?;
                let owner = self.counted(vec![0; *len + 100]);
                chain.attach_mut(owner).map_err(|(error, _)| error)?;
                chain.truncate(0);
                let model = fill(&mut chain, *len);
                (chain, model)
            }
            Make::Clget(len) => {
                let mut chain = mbufs.gethdr()?;
                chain.clget()?;
                let model = fill(&mut chain, *len % MCLBYTES);
                (chain, model)
            }
            Make::File(offset, len) => {
                let mut chain = mbufs.mini()?;
                let range = self.piece(*offset, *len);
                chain
                    .attach_file(self.file.clone(), range.start as u64, range.len())
                    .map_err(|(error, _)| error)?;
                (chain, packet(self.contents[range].to_vec()))
            }
            Make::FileUnit(offset, len) => {
                let range = self.piece(*offset, *len);
                let chain = self.pieces.get(range.start as u64, range.len())?;
                (chain, packet(self.contents[range].to_vec()))
            }
            Make::Tagged(len) => {
                let mut chain = self.tagged.gethdr()?;
                let header = chain.header().expect("a packet");
                let tag = header.tags.find(TAG.0, TAG.1).expect("its tag");
                assert_eq!(tag.data(), [0; 16]);
                let mut model = fill(&mut chain, *len % (MHLEN + 1));
                model.header.as_mut().expect("packet").tags.push(TAG.1);
                let header = chain.header_mut().expect("a packet");
                let tag = header.tags.find_mut(TAG.0, TAG.1).expect("its tag");
                tag.data_mut().fill(1);
                (chain, model)
            }
        })
    }

    fn piece(&self, offset: usize, len: usize) -> Range<usize> {
        let offset = offset % FILE_BYTES;
        offset..(offset + len).min(FILE_BYTES)
    }

    /// One operation on the last chain, or on the last two.
    fn step(&mut self, op: &Op) {
        self.steps += 1;
        let seed = self.steps;
        if let Op::Make(make) = op {
            return self.make(make);
        }
        let Some(at) = self.chains.len().checked_sub(1) else {
            return;
        };
        let total = self.chains[at].1.bytes.len();
        match op {
            Op::Make(_) => {}
            Op::Drop => drop(self.chains.pop()),
            Op::FreeFirst => {
                let (chain, model) = self.chains.pop().expect("there is one");
                let first = chain.iter().next().expect("one").len();
                if let Some(rest) = chain.free_first() {
                    let model = Model {
                        bytes: model.bytes[first..].to_vec(),
                        header: None,
                    };
                    self.chains.push((rest, model));
                }
            }
            Op::Prepend(len) => {
                let limit = if self.chains[at].0.is_packet() {
                    MHLEN
                } else {
                    MLEN
                };
                let before = self.chains[at].0.leading_space();
                let result = self.each_failure(|bench| {
                    let room = bench.chains[at].0.prepend(*len)?;
                    assert!(room.iter().all(|byte| *byte == 0));
                    room.copy_from_slice(&filled(seed, *len));
                    Ok(())
                });
                match result {
                    Ok(()) => {
                        let bytes = &mut self.chains[at].1.bytes;
                        bytes.splice(0..0, filled(seed, *len));
                    }
                    Err(Error::TooLong { .. }) => assert!(*len > limit && *len > before),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Pullup(len) => {
                let result = self.each_failure(|bench| {
                    let (chain, model) = &mut bench.chains[at];
                    let bytes = chain.pullup(*len)?;
                    assert_eq!(bytes, &model.bytes[..*len]);
                    Ok(())
                });
                expect_range(result, *len, total, MHLEN);
            }
            Op::Copyup(len, space) => {
                let result = self.each_failure(|bench| {
                    let (chain, model) = &mut bench.chains[at];
                    let bytes = chain.copyup(*len, *space)?;
                    assert_eq!(bytes, &model.bytes[..*len]);
                    let first = chain.iter().next().expect("one");
                    assert_eq!(first.leading_space(), *space);
                    Ok(())
                });
                expect_range(result, *len, total, MHLEN.saturating_sub(*space));
            }
            Op::Pulldown(offset, len) => {
                let end = offset + len;
                let result = self.each_failure(|bench| {
                    let (chain, model) = &mut bench.chains[at];
                    let bytes = chain.pulldown(*offset..end)?;
                    assert_eq!(bytes, &model.bytes[*offset..end]);
                    bytes.fill(3);
                    model.bytes[*offset..end].fill(3);
                    Ok(())
                });
                match result {
                    Ok(()) => assert!(end <= total && *len <= MCLBYTES),
                    Err(Error::TooShort { .. }) => assert!(end > total),
                    Err(Error::TooLong { .. }) => assert!(*len > MCLBYTES),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Split(place) => {
                let result = self.each_failure(|bench| bench.chains[at].0.split_off(*place));
                match result {
                    Ok(tail) => {
                        let model = &mut self.chains[at].1;
                        let bytes = model.bytes.split_off(*place);
                        let header = model.header.clone().map(|header| Header {
                            tags: Vec::new(),
                            ..header
                        });
                        self.chains.push((tail, Model { bytes, header }));
                    }
                    Err(Error::TooShort { .. }) => assert!(*place > total),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Cat => {
                if at > 0 {
                    let (chain, model) = self.chains.pop().expect("there is one");
                    let (front, front_model) = &mut self.chains[at - 1];
                    front.cat(chain);
                    front_model.bytes.extend(model.bytes);
                }
            }
            Op::TrimFront(count) => {
                let (chain, model) = &mut self.chains[at];
                chain.trim_front(*count);
                model.bytes.drain(..(*count).min(total));
            }
            Op::TrimBack(count) => {
                let (chain, model) = &mut self.chains[at];
                chain.trim_back(*count);
                model.bytes.truncate(total.saturating_sub(*count));
            }
            Op::Defrag => {
                let result = self.each_failure(|bench| bench.chains[at].0.defrag());
                result.expect("memory");
                assert!(self.chains[at].0.is_writable());
            }
            Op::Collapse(limit) => {
                let result = self.each_failure(|bench| bench.chains[at].0.collapse(*limit));
                match result {
                    Ok(()) => assert!(self.chains[at].0.count() <= *limit),
                    Err(Error::TooMany { needed, .. }) => assert!(needed > *limit),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Unshare => {
                let result = self.each_failure(|bench| bench.chains[at].0.unshare());
                result.expect("memory");
                assert!(self.chains[at].0.is_writable());
            }
            Op::Fragment(size) => {
                let result = self.each_failure(|bench| bench.chains[at].0.fragment(*size));
                result.expect("memory");
                let size = (*size).clamp(1, MCLBYTES);
                let chain = &self.chains[at].0;
                assert_eq!(chain.count(), total.div_ceil(size).max(1));
            }
            Op::Copyback(offset, len) => {
                let bytes = filled(seed, *len);
                let result =
                    self.each_failure(|bench| bench.chains[at].0.copyback(*offset, &bytes));
                result.expect("memory");
                let model = &mut self.chains[at].1;
                let end = offset + len;
                model.bytes.resize(total.max(end), 0);
                model.bytes[*offset..end].copy_from_slice(&bytes);
            }
            Op::Append(len) => {
                let bytes = filled(seed, *len);
                let result = self.each_failure(|bench| bench.chains[at].0.append(&bytes));
                result.expect("memory");
                self.chains[at].1.bytes.extend(bytes);
            }
            Op::Copym(start, len) => {
                let range = *start..start + len;
                let result = self.each_failure(|bench| bench.chains[at].0.copym(range.clone()));
                match result {
                    Ok(copy) => {
                        let model = &self.chains[at].1;
                        let copy_model = Model {
                            bytes: model.bytes[range].to_vec(),
                            header: model.header.clone().filter(|_| *start == 0),
                        };
                        self.chains.push((copy, copy_model));
                    }
                    Err(Error::TooShort { .. }) => assert!(range.end > total),
                    Err(error) => panic!("{error}"),
                }
            }
            Op::Copypacket => {
                let copy = self.each_failure(|bench| bench.chains[at].0.copypacket());
                let model = self.chains[at].1.clone();
                self.chains.push((copy.expect("memory"), model));
            }
            Op::Dup => {
                let copy = self.each_failure(|bench| bench.chains[at].0.dup());
                let (copy, model) = (copy.expect("memory"), self.chains[at].1.clone());
                assert!(copy.is_writable());
                self.chains.push((copy, model));
            }
            Op::MakePacket => {
                let result = self.each_failure(|bench| Ok(bench.chains[at].0.make_packet()?));
                result.expect("memory");
                self.chains[at].1.header.get_or_insert_default();
            }
            Op::Demote => {
                let (chain, model) = &mut self.chains[at];
                chain.demote();
                model.header = None;
            }
            Op::MakeReadable => {
                let result = self.each_failure(|bench| bench.chains[at].0.make_readable());
                result.expect("memory");
                let (chain, model) = &self.chains[at];
                let slices = chain.io_slices().expect("readable");
                let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
                assert_eq!(bytes, model.bytes);
                let mut reader = chain.reader().expect("readable");
                assert_eq!(reader.copy_to_bytes(total), model.bytes);
            }
            Op::MakeWritable(offset, len) => {
                let range = *offset..offset + len;
                let result =
                    self.each_failure(|bench| bench.chains[at].0.make_writable(range.clone()));
                result.expect("memory");
            }
            Op::MoveHeader => {
                if at > 0 && self.chains[at].0.is_packet() {
                    let result = self.each_failure(|bench| {
                        let (front, back) = bench.chains.split_at_mut(at);
                        Ok(back[0].0.move_header(&mut front[at - 1].0)?)
                    });
                    result.expect("memory");
                    self.chains[at - 1].1.header = self.chains[at].1.header.take();
                }
            }
            Op::DupHeader => {
                if at > 0 && self.chains[at].0.is_packet() {
                    let result = self.each_failure(|bench| {
                        let (front, back) = bench.chains.split_at_mut(at);
                        Ok(back[0].0.dup_header(&mut front[at - 1].0)?)
                    });
                    result.expect("memory");
                    self.chains[at - 1].1.header = self.chains[at].1.header.clone();
                }
            }
            Op::AddTag(id) => {
                let (chain, model) = &mut self.chains[at];
                if let (Some(header), Some(model)) = (chain.header_mut(), &mut model.header) {
                    header
                        .tags
                        .prepend(Tag::new(1, *id, usize::from(*id) % 40).expect("memory"));
                    model.tags.insert(0, *id);
                }
            }
            Op::Flow(flow) => {
                let (chain, model) = &mut self.chains[at];
                if let (Some(header), Some(model)) = (chain.header_mut(), &mut model.header) {
                    header.flow_id = *flow;
                    model.flow = *flow;
                }
            }
            Op::Protocol(set) => {
                let (chain, model) = &mut self.chains[at];
                if let Some(header) = &mut model.header {
                    if *set {
                        chain.insert_flags(Flags::PROTO3);
                    } else {
                        chain.clear_protocol_flags();
                    }
                    header.protocol = *set;
                }
            }
            Op::Reserve(len) => {
                let result = self.each_failure(|bench| bench.chains[at].0.reserve(*len));
                result.expect("memory");
                assert!(self.chains[at].0.writer().remaining_mut() >= *len);
            }
            Op::Writer(len) => {
                let (chain, model) = &mut self.chains[at];
                let mut writer = chain.writer();
                let bytes = filled(seed, (*len).min(writer.remaining_mut()));
                writer.put_slice(&bytes);
                model.bytes.extend(bytes);
            }
            Op::WriteInPlace => {
                let (chain, model) = &mut self.chains[at];
                let lens: Vec<_> = chain.iter().map(|mbuf| mbuf.len()).collect();
                let mut offset = 0;
                for (bytes, len) in chain.iter_mut().zip(lens) {
                    if let Some(bytes) = bytes {
                        bytes.fill(5);
                        model.bytes[offset..offset + len].fill(5);
                    }
                    offset += len;
                }
            }
            Op::Queue => self.through_a_queue(),
        }
    }

    fn through_a_queue(&mut self) {
        let count = self.chains.len();
        let mut models = Vec::new();
        let mut queue = PacketQueue::new(count - 1);
        let mut rest = None;
        for (chain, model) in self.chains.drain(..) {
            models.push(model);
            rest = queue.enqueue(chain).err();
        }
        let rest = rest.expect("the last did not fit");
        assert!(queue.is_full() && queue.len() == count - 1);
        queue.prepend(rest);
        models.rotate_right(1);
        assert!(
            queue
                .iter()
                .zip(&models)
                .all(|(c, m)| c.len() == m.bytes.len())
        );
        assert_eq!(
            queue.bytes(),
            models.iter().map(|m| m.bytes.len()).sum::<usize>()
        );
        let mut other = queue.flush();
        assert!(queue.is_empty());
        queue.concat(&mut other);
        for model in models {
            self.chains.push((queue.dequeue().expect("all"), model));
        }
        assert!(queue.dequeue().is_none() && queue.first().is_none() && queue.last().is_none());
    }

    fn finish(self) {
        let Bench {
            mbufs,
            tagged,
            pieces,
            file,
            made,
            dropped,
            chains,
            ..
        } = self;
        drop(chains);
        assert_eq!(
            dropped.load(Ordering::SeqCst),
            made,
            "each owner dropped once"
        );
        // The zones' own thread may have items in its hands just now.
        let _dog = tranship_testkit::Watchdog::new(std::time::Duration::from_secs(60));
        while mbufs.stats().outstanding() > 0 || mbufs.stats().memory_bytes > 0 {
            mbufs.reclaim();
            std::thread::yield_now();
        }
        drop((tagged, pieces, mbufs));
        drop(file);
    }
}

fn expect_range(result: Result<(), Error>, len: usize, total: usize, limit: usize) {
    match result {
        Ok(()) => assert!(len <= total),
        Err(Error::TooShort { .. }) => assert!(len > total && len <= limit),
        Err(Error::TooLong { .. }) => assert!(len > limit),
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn compare(chain: &Chain, model: &Model) {
    chain
        .sanity()
        .unwrap_or_else(|error| panic!("{error}: {chain:?}"));
    assert_eq!(chain.len(), model.bytes.len());
    let bytes = chain.to_vec().expect("readable");
    assert!(
        bytes == model.bytes,
        "{}",
        difference(chain, &bytes, &model.bytes)
    );
    let mut applied = Vec::new();
    let all = 0..bytes.len();
    let done = chain.apply(all, |piece| {
        applied.extend_from_slice(piece);
        ControlFlow::<()>::Continue(())
    });
    assert!(done.expect("readable").is_continue() && applied == model.bytes);
    let mut halves = (vec![0; bytes.len() / 2], vec![0; bytes.len()]);
    let mut slices = [
        IoSliceMut::new(&mut halves.0),
        IoSliceMut::new(&mut halves.1),
    ];
    let copied = chain.to_slices(1, &mut slices).expect("readable");
    assert_eq!(copied, bytes.len().saturating_sub(1));
    assert!(
        halves
            .0
            .iter()
            .chain(&halves.1)
            .zip(model.bytes.iter().skip(1))
            .all(|(a, b)| a == b)
    );
    let header = chain.header().map(|header| Header {
        flow: header.flow_id,
        tags: header.tags.iter().map(Tag::id).collect(),
        protocol: chain.flags().contains(Flags::PROTO3),
    });
    assert_eq!(header, model.header);
}

fn difference(chain: &Chain, bytes: &[u8], model: &[u8]) -> String {
    let at = bytes.iter().zip(model).position(|(a, b)| a != b);
    format!("byte {at:?} differs in {chain:?}")
}

fn tempfile() -> File {
    let fd = rustix::fs::memfd_create("model", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    File::from(fd)
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..80, 0usize..400, 0usize..5000]
}

fn make() -> impl Strategy<Value = Make> {
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
    ]
}

fn op() -> impl Strategy<Value = Op> {
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

fn cases() -> u32 {
    if std::env::var_os("TRANSHIP_TORTURE").is_some() {
        5_000
    } else {
        300
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn chains_are_vectors_of_bytes(ops in prop::collection::vec(op(), 1..30)) {
        let mut bench = Bench::new();
        for op in &ops {
            bench.step(op);
            bench.check();
            // Not for ever more.
            if bench.chains.len() > 6 || bench.chains.iter().any(|(c, _)| c.len() > 60_000) {
                bench.chains.remove(0);
            }
        }
        bench.finish();
    }
}
