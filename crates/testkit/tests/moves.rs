//! Moved buffers between processes, at every level of trust: whoever has one when it is killed, its memory comes back to the pool that it is of.

use std::path::PathBuf;

use tranship_core::{
    Body, CbufMut, Domain, LinkOptions, Pool, PoolOptions, Receiver, Sender, Trust,
};
use tranship_testkit::{Control, Peer, Watchdog, child};

const CHUNK: usize = 64 << 10;
const LEVELS: [Trust; 3] = [Trust::Producer, Trust::Half, Trust::Full];

fn join(path: PathBuf) -> Domain {
    Domain::builder()
        .name("other")
        .socket(path)
        .connect()
        .unwrap()
}

fn moved(from: &mut Receiver) -> CbufMut {
    match from.recv().unwrap().body {
        Body::Moved(buf) => buf,
        other => panic!("{other:?}"),
    }
}

child!(
    /// Takes one, writes it if it may, says what it has, and keeps it.
    fn keeper(ctl: Control) {
        let domain = join(ctl.recv().unwrap().unwrap());
        let mut from = domain.open_receiver("x").unwrap();
        let mut buf = moved(&mut from);
        let writes = buf.write(0, &[2; CHUNK]).is_ok();
        ctl.send(&(writes, buf.to_vec()[CHUNK - 1])).unwrap();
        let _: Option<()> = ctl.recv().unwrap();
    }
);

child!(
    /// Agrees to the pool, and takes nothing.
    fn idler(ctl: Control) {
        let domain = join(ctl.recv().unwrap().unwrap());
        let from = domain.open_receiver("x").unwrap();
        while !from.is_ready() {
            domain.turn().unwrap();
        }
        ctl.send(&(false, 0u8)).unwrap();
        let _: Option<()> = ctl.recv().unwrap();
    }
);

child!(
    /// Takes one, writes it if it may, and moves it back.
    fn returner(ctl: Control) {
        let domain = join(ctl.recv().unwrap().unwrap());
        let mut from = domain.open_receiver("x").unwrap();
        let mut back = domain.open_sender("back").unwrap();
        let mut buf = moved(&mut from);
        let writes = buf.write(0, &[2; CHUNK]).is_ok();
        let byte = buf.to_vec()[CHUNK - 1];
        back.move_buffer(buf).unwrap();
        ctl.send(&(writes, byte)).unwrap();
        let _: Option<()> = ctl.recv().unwrap();
    }
);

/// A domain with a pool of one buffer, which it has moved to another process.
struct Stage {
    domain: Domain,
    pool: Pool,
    to: Option<Sender>,
    peer: Peer,
}

impl Stage {
    fn new(trust: Trust, peer: Peer, also: impl FnOnce(&Domain, &Pool, &Sender)) -> Stage {
        let builder = Domain::builder().name("writer").helper_thread(true);
        let domain = builder.embedded().unwrap();
        let options = PoolOptions::new(CHUNK as u64).chunk_bytes(CHUNK as u64);
        let pool = domain.create_pool(options.trust(trust)).unwrap();
        let listener = domain.listen_with("x", tranship_core::Role::Source, LinkOptions::new());
        let listener = listener.unwrap();
        peer.send(&domain.socket_path().unwrap()).unwrap();
        let mut to = listener.accept_sender().unwrap();
        also(&domain, &pool, &to);
        let mut buf = pool.alloc(CHUNK).unwrap();
        buf.write(0, &[1; CHUNK]).unwrap();
        to.move_buffer(buf).unwrap();
        Stage {
            domain,
            pool,
            to: Some(to),
            peer,
        }
    }

    fn says(&self, trust: Trust) {
        let said: (bool, u8) = self.peer.expect();
        let byte = u8::from(trust.all_write()) + 1;
        assert_eq!(said, (trust.all_write(), byte), "{trust}");
    }
}

#[test]
fn who_has_it_is_killed() {
    for trust in LEVELS {
        let _dog = Watchdog::new();
        let stage = Stage::new(trust, keeper().start().unwrap(), |_, _, _| {});
        stage.says(trust);
        assert!(stage.pool.try_alloc(CHUNK).is_err(), "it has all there is");
        stage.peer.kill();
        let again = stage.pool.alloc(CHUNK).unwrap();
        let byte = u8::from(trust.all_write()) + 1;
        assert!(again.to_vec() == [byte; CHUNK], "{trust}: as it was left");
    }
}

#[test]
fn who_is_to_take_it_is_killed() {
    for trust in LEVELS {
        for closed in [false, true] {
            let _dog = Watchdog::new();
            let mut stage = Stage::new(trust, idler().start().unwrap(), |_, _, _| {});
            let _: (bool, u8) = stage.peer.expect();
            assert!(stage.pool.try_alloc(CHUNK).is_err(), "it is on its way");
            if closed {
                stage.to = None;
            }
            stage.peer.kill();
            let mut again = stage.pool.alloc(CHUNK).unwrap();
            again.write(0, &[3; CHUNK]).unwrap();
        }
    }
}

#[test]
fn who_moved_it_back_is_killed() {
    for trust in LEVELS {
        let _dog = Watchdog::new();
        let mut back = None;
        let peer = returner().start().unwrap();
        let stage = Stage::new(trust, peer, |domain, pool, to| {
            pool.allow_forward(to.peer()).unwrap();
            let sink = domain.listen("back", tranship_core::Role::Sink).unwrap();
            back = Some(sink.accept_receiver().unwrap());
        });
        stage.says(trust);
        stage.peer.kill();
        let got = moved(back.as_mut().unwrap());
        let byte = u8::from(trust.all_write()) + 1;
        assert!(got.to_vec() == [byte; CHUNK] && !got.is_writable());
        assert!(stage.pool.try_alloc(CHUNK).is_err(), "we have it");
        let id = got.id();
        drop(got);
        assert_ne!(stage.pool.alloc(CHUNK).unwrap().id(), id);
        drop(stage.domain);
    }
}
