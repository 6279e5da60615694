//! Files at the place where a manager wants to listen, and beside it.

use crate::common::*;
use std::os::unix::fs::MetadataExt;
use tranship_error::ErrorKind;
use tranship_manager::{Config, Embedded};

/// Whatever the socket's name, other files in its folder stay.
#[test]
fn files_of_others_beside_the_socket_stay() {
    let _dog = watchdog();
    let dir = tranship_testkit::folder().unwrap();
    let at = |name: &str| dir.path().join(name);
    let start = |name: &str| Embedded::start(Config::default(), Some(&at(name)));
    std::fs::write(at("ids"), "of somebody").unwrap();
    std::fs::write(at("Cargo.lock"), "precious").unwrap();
    std::os::unix::fs::symlink(at("ids"), at("link.lock")).unwrap();
    let modes = || ["ids", "Cargo.lock"].map(|name| at(name).metadata().unwrap().mode());
    let before = modes();
    let managers = ["one", "two"].map(|name| start(name).unwrap());
    for name in ["one", "two"] {
        Client::join(&at(name), "x").sync();
    }
    for name in ["Cargo", "link"] {
        let error = start(name).err().unwrap();
        assert_eq!(error, ErrorKind::System);
    }
    drop(managers);
    assert_eq!(std::fs::read(at("ids")).unwrap(), b"of somebody");
    assert_eq!(std::fs::read(at("Cargo.lock")).unwrap(), b"precious");
    assert_eq!(modes(), before);
    assert!(at("one.ids").exists() && at("two.ids").exists());
}

#[test]
fn a_living_socket_of_another_program_stays() {
    let _dog = watchdog();
    let dir = tranship_testkit::folder().unwrap();
    let path = dir.path().join("other.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = Embedded::start(Config::default(), Some(&path)).unwrap_err();
    assert_eq!(error, ErrorKind::System);
    std::os::unix::net::UnixStream::connect(&path).unwrap();
    listener.accept().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
