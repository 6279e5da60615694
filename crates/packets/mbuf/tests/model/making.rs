//! Chains made in every way.

use bytes::BufMut as _;
use std::io::IoSlice;
use std::ops::Range;
use tranship_mbuf::{Chain, Error, MCLBYTES, MHLEN, MLEN};

use crate::bench::{Bench, FILE_BYTES, Header, Large, Model, TAG, filled};
use crate::ops::Make;

impl Bench {
    pub(crate) fn make(&mut self, make: &Make) {
        let seed = self.steps;
        let result = self.each_failure(|bench| bench.try_make(make, seed));
        self.chains.push(result.expect("there is memory"));
    }

    pub(crate) fn try_make(&mut self, make: &Make, seed: usize) -> Result<(Chain, Model), Error> {
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
            Make::Mini => (mbufs.mini()?, packet(Vec::new())),
            Make::MiniPlain => {
                let mut chain = mbufs.mini()?;
                chain.demote();
                let model = Model {
                    bytes: Vec::new(),
                    header: None,
                };
                (chain, model)
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

    pub(crate) fn piece(&self, offset: usize, len: usize) -> Range<usize> {
        let offset = offset % FILE_BYTES;
        offset..(offset + len).min(FILE_BYTES)
    }
}
