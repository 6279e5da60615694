//! Memory whose maker is in the middle of a write to it, and so keeps the lock of its inode.

use std::os::fd::AsFd as _;
use std::path::PathBuf;

use tranship_region::{Sealing, verify_as};
use tranship_sys::memfd::{self, Seals};
use tranship_testkit::{Control, child, fuse};

use crate::stage::{Stage, never};

const LEN: usize = 16 << 12;

child!(
    fn writes_to_what_it_shows(ctl: Control) {
        let file: PathBuf = ctl.recv().unwrap().unwrap();
        let fd = memfd::create("held").unwrap();
        memfd::fallocate(&fd, LEN as u64).unwrap();
        memfd::add_seals(&fd, Seals::SHRINK | Seals::GROW | Seals::SEAL).unwrap();
        let (page, held) = (never(&file), fd.try_clone().unwrap());
        std::thread::spawn(move || rustix::io::pwrite(&held, page, 0));
        ctl.send_fds(&(), &[fd.as_fd()]).unwrap();
        let _ = ctl.recv::<()>();
    }
);

child!(
    fn looks_at_it(ctl: Control) {
        while let Some(((), fds)) = ctl.recv_fds::<()>().unwrap() {
            let found = verify_as(&fds[0], LEN, Sealing::Shared);
            ctl.send(&found.map_err(|e| e.to_string())).unwrap();
        }
    }
);

#[test]
fn memory_is_looked_at_while_its_maker_keeps_its_lock() {
    let Some(stage) = Stage::new() else {
        return;
    };
    let maker = stage.attacker(writes_to_what_it_shows());
    maker.send(stage.file.path()).unwrap();
    let ((), fds) = maker.recv_fds::<()>().unwrap();
    stage.file.wait_for(fuse::READ);
    let victim = stage.honest(looks_at_it());
    victim.send_fds(&(), &[fds[0].as_fd()]).unwrap();
    assert_eq!(victim.expect::<Result<(), String>>(), Ok(()));
    victim.kill();
}
