//! The aggregates of a world's domains, and what is mapped of them.

use crate::probe::Probe;
use crate::world::{BUFFER, Done};
use std::collections::BTreeMap;
use tranship_bulk::raw::{self, Raw};
use tranship_bulk::spec::{BufferId, Domain, Model, Piece};
use tranship_bulk::{Access, Error, Kind, Mapping};

type Key = (Domain, u8);

#[derive(Default)]
pub struct Gathered {
    all: BTreeMap<Key, raw::Aggregate>,
    maps: BTreeMap<Key, Vec<Mapping>>,
}

impl Gathered {
    pub fn get(&self, key: Key) -> raw::Aggregate {
        self.all.get(&key).cloned().unwrap_or_default()
    }

    pub fn at(&mut self, key: Key) -> &mut raw::Aggregate {
        self.all.entry(key).or_default()
    }

    pub fn map(&mut self, key: Key, raw: &Raw) -> Result<(), Error> {
        let mapping = raw.map(&self.get(key))?;
        self.maps.entry(key).or_default().push(mapping);
        Ok(())
    }

    pub fn unmap(&mut self, key: Key) -> Result<(), Error> {
        let all = self.maps.get_mut(&key).filter(|all| !all.is_empty());
        drop(all.ok_or(Kind::BadArgument)?.remove(0));
        Ok(())
    }

    pub fn end_of(&mut self, domain: Domain) {
        self.all.retain(|(of, _), _| *of != domain);
        self.maps.retain(|(of, _), _| *of != domain);
    }

    /// What a domain must be told of one that has arrived.
    pub fn event(
        &self,
        copies: bool,
        pieces: &[Piece],
        meta: u8,
        real: impl Fn(BufferId) -> raw::Buffer,
    ) -> raw::Event {
        let mut buffers: Vec<BufferId> = Vec::new();
        let mut numbered = Vec::new();
        for piece in pieces {
            let known = buffers.iter().position(|id| *id == piece.buffer);
            let number = known.unwrap_or_else(|| {
                buffers.push(piece.buffer);
                buffers.len() - 1
            });
            numbered.push((number, piece.offset, piece.len));
        }
        raw::Event::Aggregate {
            copies,
            buffers: buffers.into_iter().map(real).collect(),
            pieces: numbered
                .into_iter()
                .map(|(number, offset, len)| tranship_bulk::Piece {
                    buffer: u32::try_from(number).expect("few"),
                    offset,
                    len,
                })
                .collect(),
            meta: vec![meta; crate::world::META].into(),
        }
    }

    /// An event as [`Gathered::event`] makes it: buffers in the order in which they appear.
    pub fn normal(event: raw::Event) -> raw::Event {
        let raw::Event::Aggregate {
            copies,
            buffers,
            mut pieces,
            meta,
        } = event
        else {
            return event;
        };
        let mut order: Vec<u32> = Vec::new();
        for piece in &mut pieces {
            let known = order.iter().position(|old| *old == piece.buffer);
            let number = known.unwrap_or_else(|| {
                order.push(piece.buffer);
                order.len() - 1
            });
            piece.buffer = u32::try_from(number).expect("few");
        }
        let all = order.into_iter().map(|old| buffers[old as usize]);
        raw::Event::Aggregate {
            copies,
            buffers: all.collect(),
            pieces,
            meta,
        }
    }

    /// Bytes of aggregates and mappings; and that mappings can only be read.
    pub fn compare(&self, domain: Domain, raw: &Raw, model: &Model, probe: &Probe) -> Done {
        for ((of, number), pieces) in &model.aggregates {
            let here = |p: &Piece| model.access(p.buffer, domain) != Access::None;
            if *of == domain && pieces.iter().all(here) {
                let got = raw.read_all(&self.get((*of, *number)));
                let got = got.map_err(|e| format!("aggregate {number} of {of}: {e:?}"))?;
                same(&got, pieces, model)
                    .map_err(|e| format!("aggregate {number} of {of}: {e}"))?;
            }
        }
        for ((of, number), all) in &model.mappings {
            if *of != domain {
                continue;
            }
            let maps = self.maps.get(&(*of, *number)).ok_or("no mapping")?;
            for (pieces, mapping) in all.iter().zip(maps) {
                let got = mapping.view().map_err(|e| format!("{e:?}"))?.to_vec();
                same(&got, pieces, model).map_err(|e| format!("mapping {number} of {of}: {e}"))?;
                let touched = probe.touch(mapping.address());
                if touched != Access::Read {
                    return Err(format!("mapping {number} of {of}: {touched:?}"));
                }
            }
        }
        Ok(())
    }
}

/// The bytes that the model knows, one piece after the other.
fn same(got: &[u8], pieces: &[Piece], model: &Model) -> Done {
    let mut rest = got;
    for piece in pieces {
        let len = usize::try_from(piece.len).expect("small");
        if rest.len() < len || len > BUFFER {
            return Err(format!("{} bytes are left for {piece:?}", rest.len()));
        }
        let (bytes, after) = rest.split_at(len);
        rest = after;
        let data = model.buffers.get(&piece.buffer).and_then(|b| b.data);
        if let Some(data) = data
            && let Some(other) = bytes.iter().find(|byte| **byte != data)
        {
            return Err(format!("a byte of {piece:?} is {other}, expected {data}"));
        }
    }
    match rest.len() {
        0 => Ok(()),
        n => Err(format!("{n} bytes too many")),
    }
}
