//! Disks that are full, broken, cut or not to be written, and rows of proxies: the client is told, and its connection
//! goes on.

use crate::kit::{have, home, mounted, run, start, started};
use crate::nbd::{Client, FLUSH, READ, TRIM, WRITE, ZERO};
use std::process::{Command, Stdio};
use tranship_testkit::skipped;

const PIECE: u32 = 64 << 10;

/// Writes everywhere; returns the answer to each write.
fn fill(client: &mut Client) -> Vec<u32> {
    let pieces = client.size / u64::from(PIECE);
    (0..pieces)
        .map(|piece| {
            let bytes = vec![piece.to_le_bytes()[0] | 1; PIECE as usize];
            let offset = piece * u64::from(PIECE);
            client
                .ask(WRITE, offset, PIECE, &bytes)
                .expect("the connection")
        })
        .collect()
}

#[test]
fn a_full_disk_is_an_error_of_the_writes_that_do_not_fit() {
    if !have(&["unshare", "mount"]) {
        return;
    }
    let possible = Command::new("unshare")
        .args(["-rm", "mount", "-t", "tmpfs", "none", "/tmp"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skipped("no file system of one's own here");
    }
    let home = home();
    std::fs::create_dir(home.path("small")).expect("a folder");
    let mut server = home.command(&[]);
    let program = server.get_program().to_owned();
    server = Command::new("unshare");
    server
        .args(["-rm", "sh", "-c"])
        .arg("mount -t tmpfs -o size=2m none small && exec \"$@\"")
        .arg("sh")
        .arg(program)
        .args(["block", "serve", "local:x", "small/disk.img"])
        .args(["--size", "8MiB", "--nbd", "unix:s"])
        .current_dir(home.path(""))
        .stdin(Stdio::null());
    let _server = started(&mut server);
    let mut client = Client::connect(&home.path("s")).expect("connecting");
    let told = fill(&mut client);
    let full = told.iter().filter(|told| **told == 28).count();
    let fine = told.iter().filter(|told| **told == 0).count();
    assert!(
        fine > 0 && full > 0 && fine + full == told.len(),
        "{told:?}"
    );
    assert_eq!(client.ask(FLUSH, 0, 0, &[]).expect("a flush"), 0);
    for (piece, told) in (0u64..).zip(&told) {
        let mut read = vec![0; PIECE as usize];
        let offset = piece * u64::from(PIECE);
        assert_eq!(client.read(offset, &mut read).expect("reading"), 0);
        let wants = piece.to_le_bytes()[0] | 1;
        assert!(*told != 0 || read.iter().all(|byte| *byte == wants));
    }
    // Room again.
    assert_eq!(client.ask(TRIM, 0, 1 << 20, &[]).expect("a trim"), 0);
    let last = client.size - 4096;
    assert_eq!(
        client.ask(WRITE, last, 4096, &[7; 4096]).expect("a write"),
        0
    );
}

/// `nbdkit` fails when it is told to; `nbdfuse` makes a file of it.
#[test]
fn a_broken_disk_is_an_error_of_each_request_until_it_works_again() {
    if !have(&["nbdkit", "nbdfuse", "fusermount3"]) {
        return;
    }
    if std::fs::File::open("/dev/fuse").is_err() {
        return skipped("no /dev/fuse");
    }
    let home = home();
    std::fs::create_dir(home.path("mount")).expect("a folder");
    let broken = home.path("broken");
    let mut fuse = Command::new("nbdfuse");
    fuse.arg(home.path("mount"))
        .args(["[", "nbdkit", "--exit-with-parent", "--filter=error"])
        .args(["memory", "8M", "error=EIO", "error-rate=100%"])
        .arg(format!("error-file={}", broken.display()))
        .arg("]");
    let Some(fuse) = mounted(&mut fuse, &home.path("mount/nbd")) else {
        return;
    };
    let mut server = start(&home, &["serve", "local:x", "mount/nbd", "--nbd", "unix:s"]);
    let mut client = Client::connect(&home.path("s")).expect("connecting");
    let page = [7; 4096];
    assert_eq!(client.ask(WRITE, 0, 4096, &page).expect("a write"), 0);
    std::fs::write(&broken, []).expect("the sign");
    assert_eq!(client.ask(WRITE, 8192, 4096, &page).expect("a write"), 5);
    assert_eq!(client.ask(READ, 1 << 20, 4096, &[]).expect("a read"), 5);
    std::fs::remove_file(&broken).expect("the sign");
    assert_eq!(client.ask(WRITE, 8192, 4096, &page).expect("a write"), 0);
    assert_eq!(client.ask(FLUSH, 0, 0, &[]).expect("a flush"), 0);
    let mut read = [0; 4096];
    for offset in [0, 8192] {
        assert_eq!(client.read(offset, &mut read).expect("a read"), 0);
        assert!(read == page);
    }
    server.kill();
    let unmount = Command::new("fusermount3")
        .arg("-u")
        .arg(home.path("mount"))
        .status();
    assert!(unmount.expect("fusermount3").success());
    fuse.said();
}

#[test]
fn a_file_that_is_cut_under_its_server_is_an_error_where_it_is_missing() {
    let home = home();
    for (socket, access) in [("a", "auto"), ("b", "buffered")] {
        let nbd = format!("unix:{socket}");
        let serve = ["serve", "local:x", "disk.img", "--size", "1MiB"];
        let more = ["--access", access, "--nbd", &nbd];
        let mut server = start(&home, &[&serve[..], &more].concat());
        let mut client = Client::connect(&home.path(socket)).expect("connecting");
        let file = std::fs::File::options()
            .write(true)
            .open(home.path("disk.img"));
        file.expect("the file").set_len(64 << 10).expect("cut");
        assert_eq!(client.ask(READ, 128 << 10, 4096, &[]).expect("a read"), 5);
        assert_eq!(
            client
                .ask(READ, (64 << 10) - 4096, 8192, &[])
                .expect("a read"),
            5
        );
        let mut read = [1; 4096];
        assert_eq!(client.read(0, &mut read).expect("a read"), 0);
        // A write makes it whole again, as far as it reaches.
        let last = client.size - 4096;
        assert_eq!(
            client.ask(WRITE, last, 4096, &[7; 4096]).expect("a write"),
            0
        );
        assert_eq!(client.read(last, &mut read).expect("a read"), 0);
        assert!(read == [7; 4096]);
        server.kill();
    }
}

#[test]
fn a_read_only_export_refuses_what_writes() {
    let home = home();
    std::fs::write(home.path("disk.img"), [3; 8192]).expect("a file");
    let serve = ["serve", "local:x", "disk.img", "--read-only"];
    let _server = start(&home, &[&serve[..], &["--nbd", "unix:s"]].concat());
    let mut client = Client::connect(&home.path("s")).expect("connecting");
    for (command, bytes) in [(WRITE, &[7; 4096][..]), (TRIM, &[]), (ZERO, &[])] {
        assert_eq!(
            client.ask(command, 0, 4096, bytes).expect("a reply"),
            1,
            "{command}"
        );
    }
    assert_eq!(client.ask(FLUSH, 0, 0, &[]).expect("a reply"), 0);
    let mut read = [0; 8192];
    assert_eq!(client.read(0, &mut read).expect("a read"), 0);
    assert!(read == [3; 8192]);
}

/// Three machines in a row: a proxy may ask a proxy, for NBD clients and for programs. Whichever of them dies costs no
/// request.
#[test]
fn a_proxy_of_a_proxy_serves_nbd_and_channels() {
    let home = home();
    let mut server = start(&home, &["serve", "shm:disk", "disk.img", "--size", "8MiB"]);
    let mut middle = start(
        &home,
        &["proxy", "--server", "shm:disk", "--listen", "shm:middle"],
    );
    let end = ["proxy", "--server", "shm:middle", "--nbd", "unix:p"];
    let _end = start(&home, &[&end[..], &["--cache", "0"]].concat());
    let mut client = Client::connect(&home.path("p")).expect("connecting");
    assert!(fill(&mut client).iter().all(|told| *told == 0));
    middle.kill();
    middle = start(
        &home,
        &["proxy", "--server", "shm:disk", "--listen", "shm:middle"],
    );
    assert_eq!(client.ask(WRITE, 5000, 3, b"abc").expect("a write"), 0);
    server.kill();
    server = start(&home, &["serve", "shm:disk", "disk.img"]);
    assert_eq!(client.ask(FLUSH, 0, 0, &[]).expect("a flush"), 0);
    let mut all = vec![0; 8 << 20];
    assert_eq!(client.read(0, &mut all).expect("a read"), 0);
    for (piece, bytes) in (0u64..).zip(all.chunks(PIECE as usize)) {
        let whole = bytes
            .iter()
            .filter(|byte| **byte == piece.to_le_bytes()[0] | 1);
        assert!(whole.count() >= bytes.len() - 3, "piece {piece}");
    }
    assert_eq!(&all[5000..5003], b"abc");

    let mut end = start(
        &home,
        &["proxy", "--server", "shm:middle", "--listen", "shm:end"],
    );
    run(home
        .command(&["block", "bench", "shm:end", "--time", "1ms", "--write"])
        .stderr(Stdio::inherit()));
    end.kill();
    middle.kill();
    server.kill();
}
