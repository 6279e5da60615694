//! Cutting packets and putting fragments together (RFC 791, 3.2) by splitting and joining chains: no payload is copied.

use super::trouble::Trouble;
use crate::wire::{self, ETHERNET, Ipv4};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tranship_mbuf::Chain;

/// Most packets that may be incomplete at a time. A sender of endless first fragments loses its own.
const MOST: usize = 64;
/// The longest wait for the rest of a packet. RFC 1122, 3.3.2 says 60 to 120 s; here fragments are lost after 30.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest IPv4 packet, bytes.
const LONGEST: usize = 65535;

/// Cuts a frame into frames whose packets are at most `mtu` bytes long.
pub(super) fn cut(frame: Chain, ip: &Ipv4, mtu: usize) -> Result<Vec<Chain>, Trouble> {
    let step = mtu.saturating_sub(ip.header) / 8 * 8;
    if step == 0 {
        return Err(Trouble::Refused);
    }
    let headers = ETHERNET + ip.header;
    let mut head = vec![0; headers];
    frame.copydata(0, &mut head)?;
    let end = ip.total - ip.header;
    let mut pieces = Vec::with_capacity(end.div_ceil(step));
    let (mut rest, mut offset) = (Some(frame), 0);
    while let Some(mut piece) = rest.take() {
        let bytes = (end - offset).min(step);
        if offset + bytes < end {
            rest = Some(piece.split_off(if offset == 0 { headers } else { 0 } + bytes)?);
        }
        if offset > 0 {
            piece.push_front(&head)?;
        }
        let header = piece.pulldown(0..headers)?;
        let more = rest.is_some() || ip.more;
        let total = ip.header + bytes;
        wire::cut(
            &mut header[ETHERNET..],
            ip.header,
            total,
            ip.offset + offset,
            more,
        );
        offset += bytes;
        pieces.push(piece);
    }
    Ok(pieces)
}

/// The packet of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    source: [u8; 4],
    destination: [u8; 4],
    id: u16,
    protocol: u8,
}

/// A fragment. The one at offset 0 still has its headers.
#[derive(Debug)]
struct Piece {
    offset: usize,
    end: usize,
    frame: Chain,
}

/// The fragments of a packet that have come.
#[derive(Debug)]
struct Partial {
    begun: Instant,
    /// The received fragments, in order.
    pieces: Vec<Piece>,
    /// Bytes of the first fragment's IPv4 header, which becomes the whole packet's.
    header: usize,
    /// Length of the payload, once the last fragment has come.
    total: Option<usize>,
}

/// Incomplete packets.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    partial: HashMap<Key, Partial>,
}

impl Fragments {
    /// Takes a fragment; returns the whole packet if this was the last missing one. Overlapping fragments are refused
    /// (the reason is in RFC 5722), with all fragments of their packet.
    pub(super) fn add(&mut self, ip: &Ipv4, mut frame: Chain) -> Result<Option<Chain>, Trouble> {
        let key = Key {
            source: ip.source,
            destination: ip.destination,
            id: ip.id,
            protocol: ip.protocol,
        };
        let bytes = ip.total - ip.header;
        let end = ip.offset + bytes;
        if bytes == 0 || (ip.more && !bytes.is_multiple_of(8)) || end + ip.header > LONGEST {
            self.partial.remove(&key);
            return Err(Trouble::Refused);
        }
        if !self.partial.contains_key(&key) && self.partial.len() == MOST {
            let oldest = self.partial.iter().min_by_key(|(_, partial)| partial.begun);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.partial.remove(&oldest);
            }
        }
        let partial = self.partial.entry(key).or_insert_with(|| Partial {
            begun: Instant::now(),
            pieces: Vec::new(),
            header: 0,
            total: None,
        });
        if ip.offset > 0 {
            frame.trim_front(ETHERNET + ip.header);
        } else {
            partial.header = ip.header;
        }
        let at = partial
            .pieces
            .partition_point(|piece| piece.offset < ip.offset);
        let before = at.checked_sub(1).map_or(0, |at| partial.pieces[at].end);
        let after = partial
            .pieces
            .get(at)
            .map_or(usize::MAX, |piece| piece.offset);
        let beyond = partial.total.is_some_and(|total| end > total || !ip.more);
        if before > ip.offset || end > after || beyond || (!ip.more && after != usize::MAX) {
            self.partial.remove(&key);
            return Err(Trouble::Refused);
        }
        if !ip.more {
            partial.total = Some(end);
        }
        let offset = ip.offset;
        partial.pieces.insert(at, Piece { offset, end, frame });
        let mut there = 0;
        for piece in &partial.pieces {
            if piece.offset != there {
                return Ok(None);
            }
            there = piece.end;
        }
        if partial.total != Some(there) {
            return Ok(None);
        }
        let Some(partial) = self.partial.remove(&key) else {
            return Ok(None);
        };
        join(partial, there).map(Some)
    }

    /// Gives up packets whose rest has not come in time.
    pub(super) fn forget_old(&mut self) {
        if !self.partial.is_empty() {
            self.partial
                .retain(|_, partial| partial.begun.elapsed() < PATIENCE);
        }
    }
}

fn join(partial: Partial, payload: usize) -> Result<Chain, Trouble> {
    let header = partial.header;
    let mut pieces = partial.pieces.into_iter().map(|piece| piece.frame);
    let mut whole = pieces.next().ok_or(Trouble::Refused)?;
    pieces.for_each(|piece| whole.cat(piece));
    let bytes = whole.pulldown(0..ETHERNET + header)?;
    wire::cut(&mut bytes[ETHERNET..], header, header + payload, 0, false);
    Ok(whole)
}
