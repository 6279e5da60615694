//! Handshake: the offered options, the requested ones, and the name of the export.

use super::wire::{self, info, option, reply};
use crate::Info;
use std::io::{self, ErrorKind, Read, Write};

/// The longest data of an option, bytes.
const MAX_OPTION_BYTES: u32 = 64 << 10;
/// The most options that a client may send before it begins.
const MAX_OPTIONS: u32 = 1024;

/// Result of the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Agreed {
    /// Reads are answered in chunks.
    pub structured: bool,
    /// Requests and replies have lengths of 64 bits, and all replies are chunks.
    pub extended: bool,
    /// The client may ask which bytes are holes.
    pub allocation: bool,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn read<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Does the handshake. None: the client wants nothing.
pub(super) fn shake(
    stream: &mut (impl Read + Write),
    export: &str,
    store: &Info,
) -> io::Result<Option<Agreed>> {
    let flags = wire::FIXED_NEWSTYLE | wire::NO_ZEROES;
    let greeting = [
        &wire::NBD_MAGIC.to_be_bytes()[..],
        &wire::OPTION_MAGIC.to_be_bytes(),
        &flags.to_be_bytes(),
    ];
    stream.write_all(&greeting.concat())?;
    let client = u32::from_be_bytes(read(stream)?);
    if client & !u32::from(flags) != 0 {
        return Err(broken("flags that the server has not offered"));
    }
    let zeroes = client & u32::from(wire::NO_ZEROES) == 0;
    let mut agreed = Agreed::default();
    for _ in 0..MAX_OPTIONS {
        if u64::from_be_bytes(read(stream)?) != wire::OPTION_MAGIC {
            return Err(broken("no option"));
        }
        let kind = u32::from_be_bytes(read(stream)?);
        let len = u32::from_be_bytes(read(stream)?);
        if len > MAX_OPTION_BYTES {
            return Err(broken("an option that is too long"));
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        let mut answer = |code, data: &[u8]| answer(stream, kind, code, data);
        match kind {
            // This option has no answer but the export itself, or the end of the connection.
            option::EXPORT_NAME if is_name(&data, export) => {
                let mut whole = store.size.to_be_bytes().to_vec();
                whole.extend(wire::export_flags(store).to_be_bytes());
                whole.resize(whole.len() + if zeroes { 124 } else { 0 }, 0);
                stream.write_all(&whole)?;
                return Ok(Some(agreed));
            }
            option::EXPORT_NAME => {
                let asked = String::from_utf8_lossy(&data);
                return Err(broken(&format!("no export {asked:.64?}, only {export:?}")));
            }
            option::ABORT => {
                // The client may be gone already.
                let _ = answer(reply::ACK, &[]);
                return Ok(None);
            }
            option::LIST if data.is_empty() => {
                let len = u32::try_from(export.len()).unwrap_or(0);
                let name = [&len.to_be_bytes()[..], export.as_bytes()].concat();
                answer(reply::SERVER, &name)?;
                answer(reply::ACK, &[])?;
            }
            option::STRUCTURED_REPLY if data.is_empty() && agreed.extended => {
                answer(reply::EXTENDED_ALREADY, &[])?;
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                agreed.structured = true;
                answer(reply::ACK, &[])?;
            }
            option::EXTENDED_HEADERS if data.is_empty() && !agreed.extended => {
                (agreed.structured, agreed.extended) = (true, true);
                answer(reply::ACK, &[])?;
            }
            option::LIST_CONTEXTS | option::SET_CONTEXTS => {
                let sets = kind == option::SET_CONTEXTS;
                let asked = contexts_of(&data).filter(|_| agreed.structured);
                // An option that sets takes back what an earlier one has set.
                agreed.allocation &= !sets;
                match asked {
                    None => answer(reply::INVALID, &[])?,
                    Some((name, _)) if !is_name(name, export) => answer(reply::UNKNOWN, &[])?,
                    Some((_, queries)) => {
                        let lists = |query: &&[u8]| !sets && *query == b"base:";
                        let is_asked = !sets && queries.is_empty()
                            || queries
                                .iter()
                                .any(|query| lists(query) || *query == wire::ALLOCATION.as_bytes());
                        if is_asked {
                            let id = if sets { wire::ALLOCATION_ID } else { 0 };
                            let context = [&id.to_be_bytes()[..], wire::ALLOCATION.as_bytes()];
                            answer(reply::META_CONTEXT, &context.concat())?;
                            agreed.allocation |= sets;
                        }
                        answer(reply::ACK, &[])?;
                    }
                }
            }
            option::INFO | option::GO => match asked_for(&data) {
                None => answer(reply::INVALID, &[])?,
                Some(name) if !is_name(name, export) => answer(reply::UNKNOWN, &[])?,
                Some(_) => {
                    answer(reply::INFO, &about(store))?;
                    answer(reply::INFO, &block_sizes())?;
                    answer(reply::ACK, &[])?;
                    if kind == option::GO {
                        return Ok(Some(agreed));
                    }
                }
            },
            option::LIST | option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                answer(reply::INVALID, &[])?;
            }
            _ => answer(reply::UNSUPPORTED, &[])?,
        }
    }
    Err(broken("too many options"))
}

fn answer(to: &mut impl Write, kind: u32, code: u32, data: &[u8]) -> io::Result<()> {
    let len = u32::try_from(data.len()).unwrap_or(0);
    let whole = [
        &wire::OPTION_REPLY_MAGIC.to_be_bytes()[..],
        &kind.to_be_bytes(),
        &code.to_be_bytes(),
        &len.to_be_bytes(),
        data,
    ];
    to.write_all(&whole.concat())
}

/// Returns whether the name is the export's. The empty name is that of the only export, too.
fn is_name(asked: &[u8], export: &str) -> bool {
    asked.is_empty() || asked == export.as_bytes()
}

/// Returns the name in the data of `INFO` and `GO`, if they are whole.
fn asked_for(data: &[u8]) -> Option<&[u8]> {
    let (name, rest) = string(data)?;
    let (count, rest) = rest.split_first_chunk::<2>()?;
    let count = usize::from(u16::from_be_bytes(*count));
    (rest.len() == count * 2).then_some(name)
}

/// Returns a string with its length before it, and the bytes behind it.
fn string(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = data.split_first_chunk::<4>()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    rest.split_at_checked(len)
}

/// Returns the export's name and the queries in the data of an option about contexts, if they are whole.
fn contexts_of(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = string(data)?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut queries = Vec::new();
    // Each takes four bytes at least, so the data limits their number.
    for _ in 0..u32::from_be_bytes(*count) {
        let (query, behind) = string(rest)?;
        queries.push(query);
        rest = behind;
    }
    rest.is_empty().then_some((name, queries))
}

fn about(store: &Info) -> Vec<u8> {
    [
        &info::EXPORT.to_be_bytes()[..],
        &store.size.to_be_bytes(),
        &wire::export_flags(store).to_be_bytes(),
    ]
    .concat()
}

fn block_sizes() -> Vec<u8> {
    let sizes = [1, wire::PREFERRED_BYTES, wire::MAX_BYTES];
    let mut whole = info::BLOCK_SIZE.to_be_bytes().to_vec();
    sizes
        .iter()
        .for_each(|size| whole.extend(size.to_be_bytes()));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_only_in_whole_data() {
        let data = [0, 0, 0, 2, b'a', b'b', 0, 1, 0, 3];
        assert_eq!(asked_for(&data), Some(&b"ab"[..]));
        for cut in 0..data.len() {
            assert_eq!(asked_for(&data[..cut]), None, "{cut}");
        }
        assert_eq!(asked_for(&[255; 12]), None);
        let data = [0, 0, 0, 1, b'a', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, b'q'];
        let whole = Some((&b"a"[..], vec![&b""[..], b"q"]));
        assert_eq!(contexts_of(&data), whole);
        for cut in 0..data.len() {
            assert_eq!(contexts_of(&data[..cut]), None, "{cut}");
        }
        assert_eq!(contexts_of(&[255; 12]), None);
    }
}
