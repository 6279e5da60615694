//! Chains for people to read (`m_print`).

use crate::chain::{Chain, Mbuf};
use std::fmt;

impl fmt::Debug for Mbuf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mbuf");
        out.field("len", &self.len()).field("flags", &self.flags());
        if let Some(kind) = self.storage() {
            out.field("storage", &kind)
                .field("bytes", &self.size())
                .field("references", &self.references());
        }
        if let Some((fd, offset)) = self.file() {
            out.field("fd", &fd).field("offset", &offset);
        }
        if let Some(buffer) = self.buffer() {
            out.field("buffer", &buffer.id());
        }
        out.finish()
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("len", &self.len())
            .field("header", &self.header())
            .field("mbufs", &self.iter().collect::<Vec<_>>())
            .finish()
    }
}

/// The text of [`Chain::print`].
#[derive(Debug)]
pub struct Print<'a> {
    chain: &'a Chain,
    most: usize,
}

impl Chain {
    /// Prints the chain mbuf by mbuf, with the first `most` bytes in hexadecimal (`m_print`). Bytes that are not mapped
    /// here are not shown.
    #[doc(alias = "m_print")]
    #[must_use]
    pub fn print(&self, most: usize) -> Print<'_> {
        Print { chain: self, most }
    }
}

impl fmt::Display for Print<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chain, mut left) = (self.chain, self.most);
        let packet = if chain.is_packet() { "packet" } else { "chain" };
        writeln!(
            f,
            "{packet} of {} bytes in {} mbufs",
            chain.len(),
            chain.count()
        )?;
        for mbuf in chain.iter() {
            writeln!(f, "  {mbuf:?}")?;
            let len = mbuf.len().min(left);
            let mut copy = vec![0; len];
            if mbuf.file().is_some() || mbuf.seg().read(0, &mut copy).is_err() {
                continue;
            }
            left -= len;
            for line in copy.chunks(16) {
                f.write_str("   ")?;
                line.iter().try_for_each(|byte| write!(f, " {byte:02x}"))?;
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
