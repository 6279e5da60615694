//! Examples 14 and 15, unchanged, on two hosts: network namespaces of their own, TLS between them, in fine weather and in bad.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tranship::Trust;
use tranship::net::{CA_FILE, CERT_FILE, CREDENTIALS_VARIABLE, KEY_FILE, certificate};
use tranship_testkit::lab::{self, Lab, Weather};
use tranship_testkit::{Random, Watchdog, skipped};

const EXAMPLES: [&str; 2] = ["14_any_address", "15_any_address_async"];

/// Built with the tests, beside them.
fn example(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("this program");
    let deps = me.parent().expect("a directory");
    deps.with_file_name("examples").join(name)
}

/// Each host has its own, signed by one authority.
fn credentials(lab: &Lab, in_: &Path) -> [PathBuf; 2] {
    let hour = Duration::from_secs(3600);
    let authority = certificate::authority("two hosts", hour).expect("authority");
    [0, 1].map(|side| {
        let directory = in_.join(format!("host{side}"));
        std::fs::create_dir(&directory).expect("a directory");
        let address = lab.address(side).to_string();
        let own = certificate::issue(&authority, &format!("host{side}"), &[address], hour);
        let own = own.expect("issue");
        for (file, text) in [
            (CA_FILE, &authority.cert),
            (CERT_FILE, &own.cert),
            (KEY_FILE, &own.key),
        ] {
            let path = directory.join(file);
            std::fs::write(&path, text).expect("write");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("for us alone");
        }
        directory
    })
}

fn start(command: &mut Command, credentials: &Path) -> Child {
    command.env(CREDENTIALS_VARIABLE, credentials);
    command.stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().expect("start")
}

#[test]
fn the_same_programs_on_two_hosts() {
    let _dog = Watchdog::new();
    if let Err(why) = lab::possible() {
        return skipped(why);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let lab = Lab::new(Random::printed("two hosts")).expect("lab");
    let credentials = credentials(&lab, folder.path());
    // As the examples have them.
    let levels = Trust::ALL
        .iter()
        .map(|trust| trust.name())
        .chain(["sealed"]);
    let levels = levels.map(|level| (EXAMPLES[0], EXAMPLES[0], level));
    let others = [(0, 1), (1, 0), (1, 1)];
    let others = others.map(|(w, r)| (EXAMPLES[w], EXAMPLES[r], Trust::default().name()));
    for (number, (writer, reader, level)) in levels.chain(others).enumerate() {
        if number == Trust::ALL.len() + 1 {
            lab.weather(Weather {
                loss_per_mille: 5,
                delay: Duration::from_millis(1),
                jitter: Duration::from_millis(1),
                partition: false,
            });
        }
        let address = format!("tcp:{}:7700/numbers{number}", lab.address(0));
        let mut reads = lab.command(0, example(reader));
        let reads = start(reads.args(["read", &address]), &credentials[0]);
        let mut writes = lab.command(1, example(writer));
        let mut writes = start(writes.args(["write", &address, level]), &credentials[1]);
        let read = reads.wait_with_output().expect("its end");
        assert!(writes.wait().expect("its end").success(), "{writer}");
        assert!(read.status.success(), "{reader}");
        let said = String::from_utf8_lossy(&read.stdout);
        assert_eq!(said.trim(), "60 messages", "{writer} to {reader}, {level}");
    }
}
