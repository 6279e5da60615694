//! Filling a chain from a descriptor.

use std::io::{self, IoSliceMut, Read};
use tranship_mbuf::{ClusterSize, Mbufs};

#[test]
fn a_chain_is_filled_in_order_and_keeps_no_empty_mbufs() {
    let mbufs = Mbufs::new().expect("mbufs");
    let bytes: Vec<u8> = (0..251).cycle().take(9000).collect();
    for length in [0, 1, 2048, 2049, 6000, 9000] {
        let mut chain = mbufs.getcl().expect("a packet");
        chain.append(b"before").expect("room");
        chain.reserve(9000).expect("mbufs");
        let read = |slices: &mut [IoSliceMut<'_>]| (&bytes[..length]).read_vectored(slices);
        assert_eq!(chain.fill_with(read).expect("bytes"), length);
        assert_eq!(
            chain.to_vec().expect("bytes"),
            [b"before", &bytes[..length]].concat()
        );
        assert_eq!(chain.len(), length + 6);
        assert!(chain.iter().all(|mbuf| !mbuf.is_empty()), "{length}");
    }
}

#[test]
fn an_error_changes_nothing() {
    let mbufs = Mbufs::new().expect("mbufs");
    let mut chain = mbufs.getjcl(ClusterSize::Jumbo9).expect("a packet");
    chain.append(b"before").expect("room");
    let failed = chain.fill_with(|_| Err(io::ErrorKind::WouldBlock.into()));
    assert_eq!(
        failed.expect_err("as it was told").kind(),
        io::ErrorKind::WouldBlock
    );
    assert_eq!(chain.to_vec().expect("bytes"), b"before");
}
