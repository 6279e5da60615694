//! Applications that speak FastCGI.

use crate::site::Site;
use std::path::Path;
use std::process::{Command, Stdio};
use tranship_testkit::{Running, Watchdog, skipped};

/// The application of the experiments' peers.
const ANSWER: &str = include_str!("../../../../crates/lab/experiments/src/web/answer.c");
/// The bridge, as a part of the program's file.
const BRIDGE: &str = r#"
[component.fastcgi]
run = ["tranship-web", "fastcgi", "--at", "DIR/app.sock", "--root", "DIR/scripts"]
restart = "always"
pause = "10ms"

[channel.route-fastcgi]
from = "route"
to = "fastcgi"

[channel.fastcgi-front]
from = "fastcgi"
to = "front"
when_down = "drop"

[channel.front-http]"#;

fn site() -> Site {
    let bridge = BRIDGE.replace("tranship-web", env!("CARGO_BIN_EXE_tranship-web"));
    Site::start(&[
        (
            "\"--rule\", \"/=static\"",
            "\"--rule\", \"/=static\", \"--rule\", \"/app=fastcgi\"",
        ),
        ("[channel.front-http]", &bridge),
    ])
}

#[test]
fn without_an_application_the_answer_is_502() {
    let _watchdog = Watchdog::new();
    let site = site();
    assert_eq!(site.get("/app/x").0, 502);
    assert_eq!(site.get("/page.txt").0, 200);
    site.stop();
}

#[test]
fn php_is_answered_by_an_unchanged_php_fpm() {
    let _watchdog = Watchdog::new();
    let Some(fpm) = php_fpm() else {
        return skipped("php-fpm is not there: apt-get install php-fpm");
    };
    let site = site();
    let dir = site.dir.path().to_string_lossy().into_owned();
    let scripts = site.dir.path().join("scripts/app");
    std::fs::create_dir_all(&scripts).expect("a folder");
    let script = "<?php header('X-Method: ' . $_SERVER['REQUEST_METHOD']); echo str_repeat('y', (int)($_GET['n'] ?? 0)), file_get_contents('php://input');";
    std::fs::write(scripts.join("test.php"), script).expect("a script");
    let user = match tranship_testkit::is_root() {
        true => "user = nobody\ngroup = nogroup\n",
        false => "",
    };
    let conf = format!(
        "[global]\nerror_log = {dir}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {dir}/app.sock\nlisten.mode = 0666\npm = static\npm.max_children = 2\n"
    );
    std::fs::write(site.dir.path().join("fpm.conf"), conf).expect("a file");
    open_to_all(site.dir.path());
    let mut command = Command::new(fpm);
    command
        .args(["-F", "-n", "-y", &format!("{dir}/fpm.conf")])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut running = Running::start(&mut command);
    loop {
        match site.get("/app/test.php?n=3") {
            (200, body) => {
                assert_eq!(body, b"yyy");
                break;
            }
            (502, _) => assert!(
                running.0.try_wait().expect("a state").is_none(),
                "php-fpm ended"
            ),
            other => panic!("{other:?}"),
        }
    }
    let mut client = site.client();
    for bytes in [0, 1, 70_000, 1 << 20] {
        client.ask(&format!("/app/test.php?n={bytes}"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.body.len()), (200, bytes));
        assert_eq!(reply.header("x-method"), Some("GET"));
    }
    let sent = "z".repeat(200_000);
    client.send(format!(
        "POST /app/test.php HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{sent}",
        sent.len()
    ));
    assert_eq!(client.reply().body, sent.as_bytes());
    client.ask("/app/none.php");
    assert_eq!(client.reply().status, 404);
    running.signal(libc::SIGTERM);
    running.ends_well();
    assert_eq!(site.get("/app/test.php").0, 502);
    site.stop();
}

#[test]
fn a_program_of_libfcgi_is_answered_unchanged() {
    let _watchdog = Watchdog::new();
    if !Path::new("/usr/include/fcgiapp.h").is_file() {
        return skipped("libfcgi is not there: apt-get install libfcgi-dev");
    }
    let site = site();
    let dir = site.dir.path();
    let (source, answer) = (dir.join("answer.c"), dir.join("answer"));
    std::fs::write(&source, ANSWER).expect("a source");
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&answer).arg(&source).arg("-lfcgi");
    assert!(cc.status().expect("cc").success());
    let mut command = Command::new(answer);
    command.arg(dir.join("app.sock")).arg("2");
    let mut running = Running::start(&mut command);
    loop {
        match site.get("/app/3") {
            (200, body) => {
                assert_eq!(body, b"xxx");
                break;
            }
            (502, _) => assert!(
                running.0.try_wait().expect("a state").is_none(),
                "the application ended"
            ),
            other => panic!("{other:?}"),
        }
    }
    let mut client = site.client();
    for bytes in [0, 1, 70_000, 1 << 20] {
        client.ask(&format!("/app/{bytes}"));
        let reply = client.reply();
        assert_eq!((reply.status, reply.body), (200, vec![b'x'; bytes]));
    }
    drop(running);
    site.stop();
}

/// The application's user is another one.
fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for path in [dir, &dir.join("scripts"), &dir.join("scripts/app")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .expect("permissions");
    }
}

fn php_fpm() -> Option<String> {
    let names = std::fs::read_dir("/usr/sbin").ok()?.flatten();
    let mut names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names
        .find(|name| name.starts_with("php-fpm"))
        .map(|name| format!("/usr/sbin/{name}"))
}
