//! Programs that use NBD and that everybody has.

use crate::kit::{Home, Said, have, home, mounted, run, start, started_saying};
use std::path::Path;
use std::process::Command;
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

fn tool(home: &Home, name: &str, arguments: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.args(arguments).current_dir(home.path(""));
    run(command.env("PATH", path + ":/sbin:/usr/sbin"))
}

pub fn random_file(path: &Path, random: &mut Random, bytes: usize) -> Vec<u8> {
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
    let tool = |name: &str, arguments: &[&str]| tool(home, name, arguments);
    tool("mkfs.ext4", &["-q", "-F", "made.img", "32M"]);
    tool("debugfs", &["-w", "-R", "write film film", "made.img"]);
    tool("nbdcopy", &["--flush", "made.img", export]);
    let raw = ["compare", "-f", "raw", "-F", "raw", "made.img", export];
    tool("qemu-img", &raw);
    // Written in place: some pages of the file's own blocks stay, others are new.
    let [write, read] = ["write", "read"].map(|what| format!("{what} -P 0x77 31M 64k"));
    let in_place = [
        "-f", "raw", "-c", &write, "-c", "flush", "-c", &read, export,
    ];
    tool("qemu-io", &in_place);
    tool("nbdcopy", &[export, "back.img"]);
    tool("e2fsck", &["-fn", "back.img"]);
    tool("debugfs", &["-R", "dump film back", "back.img"]);
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
    if !have(&TOOLS) {
        return;
    }
    let home = home();
    let disk = ["serve", "shm:disk", "disk.img", "--size", "32MiB"];
    let _server = start(&home, &[&disk[..], &["--nbd", "unix:s"]].concat());
    let proxy = ["proxy", "--server", "shm:disk", "--nbd", "unix:p"];
    let _proxy = start(&home, &[&proxy[..], &["--cache", "4MiB"]].concat());
    let export = |socket| format!("nbd+unix:///?socket={}", home.path(socket).display());
    for socket in ["s", "p"] {
        file_system_round_trip(&home, &export(socket));
    }
    // If there is a port, the program prints it.
    let info = tool(&home, "nbdinfo", &["--json", &export("p")]);
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
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
    if !have(&TOOLS) || !have(&["nbdfuse", "fusermount3"]) {
        return;
    }
    if std::fs::File::open("/dev/fuse").is_err() {
        return skipped("no /dev/fuse");
    }
    let home = home();
    let _server = start(&home, &["serve", "shm:disk", "disk.img", "--size", "32MiB"]);
    let _proxy = start(&home, &["proxy", "--server", "shm:disk", "--nbd", "unix:p"]);
    std::fs::create_dir(home.path("mount")).expect("a folder");
    let export = format!("nbd+unix:///?socket={}", home.path("p").display());
    let (tell, ready) = (home.path("pid"), home.path("mount/nbd"));
    let mut fuse = Command::new("nbdfuse");
    fuse.arg("-P").arg(&tell).arg(home.path("mount"));
    let Some(fuse) = mounted(fuse.arg(&export), &ready) else {
        return;
    };
    let mut random = Random::printed("fuse");
    let content = random_file(&home.path("film"), &mut random, 2 << 20);
    let tool = |name: &str, arguments: &[&str]| tool(&home, name, arguments);
    tool("mkfs.ext4", &["-q", "-F", "mount/nbd"]);
    tool("debugfs", &["-w", "-R", "write film film", "mount/nbd"]);
    tool("e2fsck", &["-fn", "mount/nbd"]);
    tool("fusermount3", &["-u", "mount"]);
    fuse.said();
    // Below all of it.
    tool("e2fsck", &["-fn", "disk.img"]);
    tool("debugfs", &["-R", "dump film back", "disk.img"]);
    assert!(std::fs::read(home.path("back")).expect("the film") == content);
}

#[test]
fn a_local_program_measures_a_proxy_and_the_ports_are_said() {
    let home = home();
    let _server = start(&home, &["serve", "shm:disk", "disk.img", "--size", "4MiB"]);
    let proxy = [
        "block", "proxy", "--server", "shm:disk", "--listen", "shm:here",
    ];
    let mut proxy = home.command(&proxy);
    let (_proxy, said) = started_saying(proxy.args(["--nbd", "tcp:127.0.0.1:0"]));
    let port = said[0].strip_prefix("NBD at tcp:127.0.0.1:");
    let port = port.map(str::parse::<u16>);
    assert!(matches!(port, Some(Ok(port)) if port > 0), "{said:?}");
    assert_eq!(said[1..], ["forwarding shm:here to shm:disk"]);
    let bench = [
        "block", "bench", "shm:here", "--time", "50ms", "--write", "--json",
    ];
    let mut bench = home.command(&bench);
    let result = Said::of(bench.args(["--request", "20KiB"])).json();
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4);
    assert!(
        rows.iter()
            .all(|row| row["per_second"].as_f64().is_some_and(|rate| rate > 0.0))
    );
}

#[test]
fn what_cannot_be_served_is_an_error_that_says_why() {
    let home = home();
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
        home.run(&[&["block"], arguments].concat()).ends(2, &[says]);
    }
}
