//! A manager's socket that this user may not use is not a manager that is missing.

use crate::kit::*;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tranship_core::error::SocketProblem;
use tranship_core::{Domain, ErrorKind};
use tranship_testkit::{Control, Privilege, child, is_root, skipped};

child!(
    fn outsider(ctl: Control) {
        let path: PathBuf = ctl.recv().unwrap().unwrap();
        let error = Domain::builder().socket(path).connect().unwrap_err();
        let denied = error.find() == Some(&SocketProblem::Access);
        let code = error.kind() as u16;
        ctl.send(&(denied, code, error.to_string())).unwrap();
    }
);

#[test]
fn a_socket_that_this_user_may_not_use_is_an_error_of_its_own() {
    let _dog = dog();
    let (dir, path) = place();
    let manager = Domain::builder().socket(&path).embedded();
    let _manager = manager.expect("embedded");
    // Root may do everything, so somebody else tries; anybody else is kept out by his own folder, too.
    let who = if is_root() {
        Privilege::nobody()
    } else {
        Privilege::Inherit
    };
    if let Some(why) = who.impossible() {
        return skipped(why);
    }
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(dir.path(), mode(0)).expect("its mode");
    let outsider = outsider().privilege(who).start().expect("a child");
    let (denied, code, said): (bool, u16, String) = outsider.ask(&path);
    std::fs::set_permissions(dir.path(), mode(0o700)).expect("its mode");
    assert!(denied, "{said}");
    assert_eq!(code, ErrorKind::Unreachable as u16);
    assert!(said.contains("permission denied"), "{said}");
    assert!(!said.contains("runs one there"), "{said}");
}
