//! An operation on chains, and the corresponding one on the expected contents.

use bytes::{Buf as _, BufMut as _};
use std::sync::Arc;
use tranship_mbuf::{Error, Flags, MCLBYTES, MHLEN, MLEN, Mbuf, PacketQueue, Tag};

use crate::bench::{Bench, Header, Model, filled, tempfile};
use crate::ops::Op;

impl Bench {
    /// Does one operation on the last chain, or on the last two.
    pub(crate) fn step(&mut self, op: &Op) {
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
            Op::CompressUnmapped => {
                let small = |bench: &Bench| {
                    let own = |mbuf: &Mbuf<'_>| mbuf.file().is_some() && mbuf.references() == 1;
                    let chain = &bench.chains[at].0;
                    chain.iter().filter(|m| own(m) && m.len() <= MHLEN).count()
                };
                let result = self.each_failure(|bench| bench.chains[at].0.compress_unmapped());
                result.expect("memory");
                assert_eq!(small(self), 0);
            }
            Op::MoveToFile => {
                let file = Arc::new(tempfile());
                let result =
                    self.each_failure(|bench| bench.chains[at].0.move_to_file(file.clone(), 100));
                result.expect("memory");
                let chain = &self.chains[at].0;
                assert_eq!((chain.count(), Arc::strong_count(&file)), (1, 2));
                assert_eq!(chain.last().file().expect("a piece").1, 100);
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
                        back[0].0.move_header(&mut front[at - 1].0)
                    });
                    result.expect("memory");
                    self.chains[at - 1].1.header = self.chains[at].1.header.take();
                }
            }
            Op::DupHeader => {
                if at > 0 && self.chains[at].0.is_packet() {
                    let result = self.each_failure(|bench| {
                        let (front, back) = bench.chains.split_at_mut(at);
                        back[0].0.dup_header(&mut front[at - 1].0)
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
}

fn expect_range(result: Result<(), Error>, len: usize, total: usize, limit: usize) {
    match result {
        Ok(()) => assert!(len <= total),
        Err(Error::TooShort { .. }) => assert!(len > total && len <= limit),
        Err(Error::TooLong { .. }) => assert!(len > limit),
        Err(error) => panic!("{error}"),
    }
}
