//! The huge-page option gives huge pages, where the kernel's setting for shared memory lets it. As the kernel tells it
//! in `/proc/self/smaps`, of the writer's mapping and of a reader's.
use tranship_core::{Buffer, Domain, PoolOptions, Receiver, Sender};
use tranship_testkit::{Watchdog, skipped};

const CHUNK: usize = 4 << 20;

/// Bytes of the mapping around an address that huge pages map.
fn huge_bytes(at: usize) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut inside = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            inside = (address(from)..address(to)).contains(&at);
        } else if inside && first == "ShmemPmdMapped:" {
            let kib = line.split_ascii_whitespace().nth(1).expect("a number");
            return kib.parse::<u64>().expect("a number") << 10;
        }
    }
    panic!("no mapping at {at:#x}");
}

fn address(buf: &Buffer) -> usize {
    buf.view().as_ptr().addr()
}

#[test]
fn a_pool_that_asks_for_huge_pages_has_them() {
    let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let setting = std::fs::read_to_string(setting).unwrap_or_default();
    if !["[always]", "[within_size]", "[advise]", "[force]"]
        .iter()
        .any(|on| setting.contains(on))
    {
        return skipped(format!("huge pages: shmem_enabled is {}", setting.trim()));
    }
    let _dog = Watchdog::new();
    let a = Domain::builder().helper_thread(true).embedded().expect("a");
    let socket = a.socket_path().expect("socket");
    let b = Domain::builder()
        .helper_thread(true)
        .socket(socket)
        .connect();
    let b = b.expect("b");
    let options = PoolOptions::new(4 * CHUNK as u64).chunk_bytes(CHUNK as u64);
    let pool = a.create_pool(options.huge_pages(true)).expect("pool");
    let listener = a.listen::<Sender>("x").expect("listen");
    let (mut sender, mut receiver) = std::thread::scope(|s| {
        let receiver = s.spawn(|| b.open::<Receiver>("x").expect("open"));
        (
            listener.accept().expect("accept"),
            receiver.join().expect("opener"),
        )
    });
    let mut buf = pool.alloc(CHUNK).expect("alloc");
    buf.fill(7);
    let buf = buf.freeze();
    assert_eq!(huge_bytes(address(&buf)), CHUNK as u64, "written");
    sender.send(buf).expect("send");
    let got = receiver
        .recv()
        .expect("recv")
        .into_buffer()
        .expect("a buffer");
    assert_eq!(got.view().read::<u8>(CHUNK - 1), Ok(7));
    assert_eq!(got.view().read::<u8>(0), Ok(7));
    assert_eq!(huge_bytes(address(&got)), CHUNK as u64, "read");
}
