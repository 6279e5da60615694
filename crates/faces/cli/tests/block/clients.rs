//! Programs that use NBD and that everybody has.

use crate::kit::{Home, Running, have, run, started_saying, watchdog};
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::{Random, skipped};

pub const TOOLS: [&str; 7] = [
    "qemu-img",
    "qemu-io",
    "nbdinfo",
    "nbdcopy",
    "mkfs.ext4",
    "e2fsck",
    "debugfs",
];

fn tool(home: &Home, name: &str, arguments: &[&str]) -> Vec<u8> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = home.path("");
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(folder)
        .env("PATH", path + ":/sbin:/usr/sbin");
    run(&mut command)
}

fn random_file(path: &Path, random: &mut Random, bytes: usize) -> Vec<u8> {
    let content: Vec<u8> = (0..bytes / 8)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    std::fs::write(path, &content).expect("a file");
    content
}

/// An ext4 image is made, copied in, checked, and read back.
pub fn file_system_round_trip(home: &Home, export: &str) {
    let mut random = Random::printed("file system");
    let content = random_file(&home.path("film"), &mut random, 3 << 20);
    let _ = std::fs::remove_file(home.path("made.img"));
    tool(home, "mkfs.ext4", &["-q", "-F", "made.img", "32M"]);
    tool(
        home,
        "debugfs",
        &["-w", "-R", "write film film", "made.img"],
    );
    tool(home, "nbdcopy", &["--flush", "made.img", export]);
    tool(
        home,
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", "made.img", export],
    );
    // Written in place: some pages of the file's own blocks stay, others are new.
    tool(
        home,
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "write -P 0x77 31M 64k",
            "-c",
            "flush",
            "-c",
            "read -P 0x77 31M 64k",
            export,
        ],
    );
    tool(home, "nbdcopy", &[export, "back.img"]);
    tool(home, "e2fsck", &["-fn", "back.img"]);
    tool(home, "debugfs", &["-R", "dump film back", "back.img"]);
    assert!(
        std::fs::read(home.path("back")).expect("the film") == content,
        "the film differs"
    );
    let made = std::fs::read(home.path("made.img")).expect("the image");
    let back = std::fs::read(home.path("back.img")).expect("the image");
    let same = (31 << 20, (31 << 20) + (64 << 10));
    assert!(made[..same.0] == back[..same.0] && made[same.1..] == back[same.1..made.len()]);
}

#[test]
fn a_file_system_through_the_server_and_through_a_proxy() {
    let _dog = watchdog();
    if !have(&TOOLS) {
        return;
    }
    let home = Home::new();
    let _server = home.start(&[
        "serve", "shm:disk", "disk.img", "--size", "32MiB", "--nbd", "unix:s",
    ]);
    let _proxy = home.start(&[
        "proxy", "--server", "shm:disk", "--nbd", "unix:p", "--cache", "4MiB",
    ]);
    for socket in ["s", "p"] {
        file_system_round_trip(
            &home,
            &format!("nbd+unix:///?socket={}", home.path(socket).display()),
        );
    }
    // If there is a port, the program prints it.
    let info = format!("nbd+unix:///?socket={}", home.path("p").display());
    let info = tool(&home, "nbdinfo", &["--json", &info]);
    let info: serde_json::Value = serde_json::from_slice(&info).expect("JSON");
    let export = &info["exports"][0];
    assert_eq!(
        (&export["export-size"], &export["can_fua"]),
        (&(32 << 20).into(), &true.into())
    );
    assert_eq!(info["structured"], true);
}

/// `nbdfuse` shows the export as a file, on which a file system is made and used.
#[test]
fn a_file_system_in_place_through_fuse() {
    let _dog = watchdog();
    if !have(&TOOLS) || !have(&["nbdfuse", "fusermount3"]) {
        return;
    }
    if std::fs::File::open("/dev/fuse").is_err() {
        return skipped("no /dev/fuse");
    }
    let home = Home::new();
    let _server = home.start(&["serve", "shm:disk", "disk.img", "--size", "32MiB"]);
    let _proxy = home.start(&["proxy", "--server", "shm:disk", "--nbd", "unix:p"]);
    std::fs::create_dir(home.path("mount")).expect("a folder");
    let export = format!("nbd+unix:///?socket={}", home.path("p").display());
    let (tell, ready) = (home.path("pid"), home.path("mount/nbd"));
    let mut fuse = Command::new("nbdfuse");
    fuse.arg("-P")
        .arg(&tell)
        .arg(home.path("mount"))
        .arg(&export);
    let mut fuse = Running(fuse.stdin(Stdio::null()).spawn().expect("nbdfuse"));
    while !ready.exists() {
        if let Some(status) = fuse.0.try_wait().expect("waiting") {
            return skipped(format!("nbdfuse cannot mount here: {status}"));
        }
        std::thread::yield_now();
    }
    let mut random = Random::printed("fuse");
    let content = random_file(&home.path("film"), &mut random, 2 << 20);
    tool(&home, "mkfs.ext4", &["-q", "-F", "mount/nbd"]);
    tool(
        &home,
        "debugfs",
        &["-w", "-R", "write film film", "mount/nbd"],
    );
    tool(&home, "e2fsck", &["-fn", "mount/nbd"]);
    tool(&home, "fusermount3", &["-u", "mount"]);
    fuse.0.wait().expect("its end");
    // Below all of it.
    tool(&home, "e2fsck", &["-fn", "disk.img"]);
    tool(&home, "debugfs", &["-R", "dump film back", "disk.img"]);
    assert!(std::fs::read(home.path("back")).expect("the film") == content);
}

#[test]
fn a_local_program_measures_a_proxy_and_the_ports_are_said() {
    let _dog = watchdog();
    let home = Home::new();
    let _server = home.start(&["serve", "shm:disk", "disk.img", "--size", "4MiB"]);
    let mut proxy = home.command(&[
        "block",
        "proxy",
        "--server",
        "shm:disk",
        "--listen",
        "shm:here",
        "--nbd",
        "tcp:127.0.0.1:0",
    ]);
    let proxy = proxy.stdout(Stdio::piped()).spawn().expect("a proxy");
    let (_proxy, said) = started_saying(proxy);
    let port = said[0].strip_prefix("NBD at tcp:127.0.0.1:");
    let port = port.map(str::parse::<u16>);
    assert!(matches!(port, Some(Ok(port)) if port > 0), "{said:?}");
    assert_eq!(said[1..], ["forwarding shm:here to shm:disk"]);
    let bench = [
        "block",
        "bench",
        "shm:here",
        "--time",
        "50ms",
        "--write",
        "--json",
        "--request",
        "20KiB",
    ];
    let output = run(&mut home.command(&bench));
    let result: serde_json::Value = serde_json::from_slice(&output).expect("JSON");
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row["per_second"].as_f64().is_some_and(|rate| rate > 0.0))
    );
}

#[test]
fn what_cannot_be_served_is_an_error_that_says_why() {
    let _dog = watchdog();
    let home = Home::new();
    for (arguments, says) in [
        (&["serve", "shm:x", "nothing"][..], "nothing"),
        (
            &["serve", "nowhere:x", "disk.img", "--size", "1MiB"],
            "`nowhere:`",
        ),
        (&["proxy", "--server", "shm:x"], "--nbd"),
        (
            &["serve", "shm:x", "disk.img", "--nbd", "udp:1"],
            "unix:PATH",
        ),
    ] {
        let output = home
            .command(&[&["block"], arguments].concat())
            .output()
            .expect("running");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(says), "{error}");
    }
}
