//! What an NBD client can send: to the handshake, and after it. The export answers each whole request once, asks its store for
//! nothing that is not there, and comes to an end with the connection.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tranship_block::nbd::{Address, Export};
use tranship_block::{Data, Fault, Info, Job, Lease, Op, Store};

const SIZE: usize = 64 << 10;

/// Something broke on a thread of the export.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// Blocks in memory. A request beyond them panics.
#[derive(Debug)]
struct Memory(Mutex<Vec<u8>>);

impl Store for Memory {
    fn info(&self) -> Result<Info, Fault> {
        Ok(Info {
            size: SIZE as u64,
            read_only: false,
            boot: 0,
        })
    }
    fn is_checked(&self) -> bool {
        false
    }
    fn lease(&self) -> Lease {
        Lease::forever()
    }
    fn data(&self, _: Op, len: usize) -> Result<Data, Fault> {
        assert!(len <= SIZE, "memory for {len} bytes");
        Ok(Data::heap(len))
    }
    fn piece(&self, len: usize) -> usize {
        len.min(4096)
    }
    fn submit(&self, job: Job) {
        let Job {
            request,
            mut data,
            done,
        } = job;
        let at = usize::try_from(request.offset).expect("inside");
        let range = at..at + request.len as usize;
        let mut all = self.0.lock().expect("no panic");
        // Whatever is out of bounds panics here.
        let bytes = &mut all[range];
        match request.op {
            Op::Read => data.write(0, bytes).expect("room"),
            Op::Write => data.read(0, bytes).expect("bytes"),
            Op::Zero { .. } | Op::Trim => bytes.fill(0),
            Op::Flush => assert!(bytes.is_empty() && at == 0),
        }
        drop(all);
        done(data, Ok(Vec::new()));
    }
    fn kick(&self) {}
}

/// The export's socket, by a descriptor: nobody takes a static away at the end, and so its name goes at once.
fn export() -> String {
    static SERVED: OnceLock<(Export, File)> = OnceLock::new();
    let (_, socket) = SERVED.get_or_init(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            BROKEN.store(true, Ordering::SeqCst);
            usual(panic);
        }));
        let path = std::env::temp_dir().join(format!("tranship-fuzz-{}", std::process::id()));
        let store = Arc::new(Memory(Mutex::new(vec![7; SIZE])));
        let export = Export::start(&Address::Unix(path.clone()), "films", store);
        let socket = File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(&path);
        std::fs::remove_file(path).expect("a socket");
        (export.expect("an export"), socket.expect("a socket"))
    });
    format!("/proc/self/fd/{}", socket.as_raw_fd())
}

/// Sends it all and hangs up; gives all that came back.
fn say(data: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(export()).expect("connecting");
    let mut to = stream.try_clone().expect("a descriptor");
    let mut came = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The export may have hung up.
            let _ = to.write_all(data);
            let _ = to.shutdown(Shutdown::Write);
        });
        // What it says before it hangs up is all there, though a reset may follow.
        let _ = stream.read_to_end(&mut came);
    });
    assert!(!BROKEN.load(Ordering::SeqCst), "a thread of the export");
    came
}

/// Anything, from the first byte on.
pub fn handshake(data: &[u8]) {
    let came = say(data);
    assert!(came.starts_with(b"NBDMAGICIHAVEOPT"), "the greeting");
}

fn four(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().expect("four"))
}

fn eight(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().expect("eight"))
}

/// The requests that came whole: of each number, how many, and the length of the last read.
fn asked(mut data: &[u8]) -> (HashMap<u64, usize>, HashMap<u64, usize>) {
    let (mut whole, mut reads) = (HashMap::new(), HashMap::new());
    while data.len() >= 28 && four(data) == 0x2560_9513 {
        let (command, cookie, len) = (data[7], eight(&data[8..]), four(&data[24..]) as usize);
        let command = u16::from(data[6]) << 8 | u16::from(command);
        data = &data[28..];
        match command {
            2 => break,
            1 if len > 32 << 20 || data.len() < len => break,
            1 => data = &data[len..],
            0 => drop(reads.insert(cookie, len)),
            _ => {}
        }
        *whole.entry(cookie).or_default() += 1;
    }
    (whole, reads)
}

/// The first byte says in which form replies go; then requests, whole and right or not.
pub fn requests(data: &[u8]) {
    let Some((form, data)) = data.split_first() else {
        return;
    };
    let chunks = form % 2 == 1;
    let mut all = 3u32.to_be_bytes().to_vec();
    if chunks {
        all.extend(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
    }
    all.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
    let before = 18 + if chunks { 20 } else { 0 } + 10;
    all.extend(data);
    let came = say(&all);
    let (mut whole, reads) = asked(data);
    // Numbers that are used twice at a time cannot be told apart.
    if whole.values().any(|count| *count > 1) {
        return;
    }
    let mut came = &came[before..];
    while !came.is_empty() {
        let cookie = eight(&came[8..]);
        let last = match four(came) {
            0x6744_6698 => {
                let error = four(&came[4..]);
                let bytes = match reads.get(&cookie) {
                    Some(len) if error == 0 => *len,
                    _ => 0,
                };
                came = &came[16 + bytes..];
                true
            }
            0x668e_33ef => {
                assert!(chunks && reads.contains_key(&cookie));
                let (last, len) = (came[5] & 1 == 1, four(&came[16..]) as usize);
                came = &came[20 + len..];
                last
            }
            other => panic!("{other:#x} is no reply"),
        };
        // A write that did not come whole may be answered, too: with an error, and then it is the last.
        if last && whole.remove(&cookie).is_none() {
            assert!(came.is_empty(), "nobody asked for {cookie}");
        }
    }
    assert!(whole.is_empty(), "no answer to {whole:?}");
}
