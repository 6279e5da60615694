//! Locks that keep a manager from its place.

use std::path::PathBuf;

use tranship_manager::Listener;
use tranship_sys::own_dir;
use tranship_testkit::{Control, child, is_root, skipped};

use crate::stage::{ATTACKERS, Stage};

child!(
    fn locker(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let file = std::fs::File::open(path.with_added_extension("lock"));
        let locked = file.is_ok_and(|file| {
            let locked = file.try_lock().is_ok();
            std::mem::forget(file);
            locked
        });
        ctl.send(&locked).unwrap();
        let _ = ctl.recv::<()>();
    }
);

/// Any process that can open the lock file can lock it.
#[test]
fn a_lock_on_the_lock_file() {
    let Some(stage) = Stage::new("") else { return };
    let path = stage.path().to_owned();
    stage.manager.kill();
    assert!(path.exists(), "as a killed manager leaves it");
    let locker = stage.attacker(locker(), 0);
    let locked: bool = locker.ask(&path);
    assert!(!locked);
    drop(Listener::bind(&path, 0o666).expect("its place"));
}

child!(
    fn user_dir(ctl: Control) {
        ctl.send(&own_dir::user_dir().ok()).unwrap();
    }
);

/// Somebody else has made the directory in /tmp.
#[test]
fn a_directory_of_somebody_else() {
    if !is_root() {
        return skipped("needs root, to be two users");
    }
    // A user without processes.
    let uid = 64_900 + std::process::id() % 64;
    let taken = PathBuf::from(format!("/tmp/tranship-{uid}"));
    std::fs::create_dir(&taken).unwrap();
    std::os::unix::fs::chown(&taken, Some(ATTACKERS[0]), None).unwrap();
    let home = tranship_testkit::folder().unwrap();
    std::os::unix::fs::chown(home.path(), Some(uid), None).unwrap();
    let privilege = tranship_testkit::Privilege::User { uid, gid: uid };
    let victim = user_dir()
        .privilege(privilege)
        .env("HOME", home.path())
        .env("XDG_RUNTIME_DIR", "")
        .start()
        .unwrap();
    let found: Option<PathBuf> = victim.expect();
    std::fs::remove_dir(&taken).unwrap();
    assert_eq!(found, Some(home.path().join(".tranship")));
}
