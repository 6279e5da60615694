//! Chains beside their expected contents.

use std::fs::File;
use std::io::{IoSliceMut, Write as _};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tranship_mbuf::{
    Chain, Error, FileZone, Flags, Limits, MbufOptions, Mbufs, Tag, TaggedZone, inject,
};

/// The expected contents of a chain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: Option<Header>,
}

#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Header {
    pub(crate) flow: u32,
    pub(crate) tags: Vec<u16>,
    pub(crate) protocol: bool,
}

/// Returns a byte that shows its position.
pub(crate) fn pattern(seed: usize, at: usize) -> u8 {
    (seed.wrapping_mul(31) + at.wrapping_mul(7)).to_le_bytes()[0]
}

pub(crate) fn filled(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| pattern(seed, at)).collect()
}

/// A value that counts its drops.
pub(crate) struct Counted<T>(T, Arc<AtomicUsize>);
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

/// A value that does not fit into an mbuf.
pub(crate) struct Large(pub(crate) Vec<u8>, #[allow(dead_code)] pub(crate) [u64; 8]);
impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

pub(crate) const FILE_BYTES: usize = 20_000;
pub(crate) const TAG: (u32, u16) = (0x7a6, 9);

pub(crate) struct Bench {
    pub(crate) mbufs: Mbufs,
    pub(crate) tagged: TaggedZone,
    pub(crate) pieces: FileZone,
    pub(crate) file: Arc<File>,
    pub(crate) contents: Vec<u8>,
    pub(crate) made: usize,
    pub(crate) dropped: Arc<AtomicUsize>,
    pub(crate) chains: Vec<(Chain, Model)>,
    pub(crate) steps: usize,
}

impl Bench {
    pub(crate) fn new() -> Bench {
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
    pub(crate) fn each_failure<T>(
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

    pub(crate) fn check(&self) {
        for (chain, model) in &self.chains {
            compare(chain, model);
        }
    }

    pub(crate) fn counted<T>(&mut self, value: T) -> Counted<T> {
        self.made += 1;
        Counted(value, self.dropped.clone())
    }

    pub(crate) fn finish(self) {
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
        // The zones' own thread may still hold items.
        let _dog = tranship_testkit::Watchdog::new();
        while mbufs.stats().outstanding() > 0 || mbufs.stats().memory_bytes > 0 {
            mbufs.reclaim();
            std::thread::yield_now();
        }
        drop((tagged, pieces, mbufs));
        drop(file);
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

pub(crate) fn tempfile() -> File {
    let fd = rustix::fs::memfd_create("model", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    File::from(fd)
}
