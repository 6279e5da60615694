//! Network buffers: a packet gets a header in front, is cut and shared without copying, crosses to another domain, and
//! gets another header there.

use std::thread;
use tranship::mbuf::{ExtKind, Mbufs};
use tranship::{Domain, PoolOptions, Receiver, Sender};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sender = Domain::builder().name("sender").embedded()?;
    let socket = sender.socket_path().ok_or("no socket")?;

    let receiver = thread::spawn(move || {
        let receiver = Domain::builder().name("receiver").socket(socket).connect();
        let receiver = receiver.expect("connect");
        let mbufs = Mbufs::new().expect("mbufs");
        let mut link = receiver.open::<Receiver>("packets").expect("open");
        let message = link.recv().expect("recv");
        // Mini-mbufs over the sender's memory.
        let mut packet = mbufs.receive(message).expect("mini-mbufs");
        assert!(
            packet
                .iter()
                .all(|mbuf| mbuf.storage() == Some(ExtKind::Buffer))
        );
        // The header is copied out before it is looked at: the sender could still change it.
        let header = packet.pullup(8).expect("8 bytes");
        assert_eq!(header, b"HEADER: ");
        // The own header goes in front, into an mbuf of one's own.
        packet.push_front(b"[received] ").expect("an mbuf");
        String::from_utf8(packet.to_vec().expect("mapped")).expect("text")
    });

    // Clusters out of a pool, so that chains can cross.
    let pool = sender.create_pool(PoolOptions::new(1 << 20).name("packets"))?;
    let mbufs = Mbufs::over_pool(&pool)?;
    let mut packet = mbufs.getcl()?;
    packet.reserve_front(64)?; // room for headers
    packet.append(b"hello, this is the payload")?;
    packet.push_front(b"HEADER: ")?; // in place

    // A copy by reference, and a tail that shares the cluster.
    let retransmit = packet.copypacket()?;
    packet.split_off(8 + 5)?;
    assert_eq!(retransmit.last().references(), 2);

    let mut link = sender.listen::<Sender>("packets")?.accept()?;
    let (aggregate, copied) = packet.to_aggregate(&pool)?;
    assert_eq!(copied, 0);
    link.send(aggregate)?;
    drop(packet);

    let text = receiver.join().map_err(|_| "the receiver panicked")?;
    assert_eq!(text, "[received] HEADER: hello");
    assert_eq!(retransmit.len(), 34);
    drop(retransmit);
    println!("{text}");
    print!("{}", mbufs.stats());
    Ok(())
}
