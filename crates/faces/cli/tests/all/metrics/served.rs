//! Servers of the figures, and their ends.

use super::kit::{Manager, get_tcp, get_unix, start_at, start_saying};
use crate::kit::{MIB, joined, place, pool};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tranship::{Domain, Pool};
use tranship_testkit::{Port, Running, Said, Watchdog, tranship};

fn camera(manager: &Manager) -> (Domain, Pool) {
    let domain = joined("camera", &manager.socket);
    let pool = pool(&domain, "frames", 8 * MIB, MIB);
    (domain, pool)
}

fn has(text: &str, line: &str) {
    assert!(text.lines().any(|l| l == line), "{line}:\n{text}");
}

fn mode_of(path: &Path) -> u32 {
    let about = std::fs::metadata(path).expect("it");
    about.permissions().mode() & 0o777
}

#[test]
fn the_text_is_printed_once() {
    let _dog = Watchdog::new();
    let manager = Manager::start(&[]);
    let (_domain, pool) = camera(&manager);
    let _held = pool.alloc(100).expect("memory");
    let print = |format: &str| {
        let mut command = tranship(&["metrics", "--format", format, "--socket"]);
        Said::of(command.arg(&manager.socket)).well()
    };
    let open = print("openmetrics");
    has(&open, "tranship_up 1");
    has(
        &open,
        "tranship_pool_granted_bytes{pool=\"frames\",domain=\"camera\"} 1048576",
    );
    has(&open, "tranship_domains{state=\"connected\"} 1");
    assert!(open.ends_with("\n# EOF\n"));
    has(
        &print("prometheus"),
        "# TYPE tranship_pool_allocations_total counter",
    );
    let nobody = Said::of(&mut tranship(&["metrics", "--socket", "/nowhere/m.sock"]));
    nobody.ends(3, &[]);
    assert_eq!(nobody.out, "");
}

#[test]
fn a_manager_has_figures_beside_it_for_as_long_as_it_lives() {
    let _dog = Watchdog::new();
    let ports = [(); 2].map(|()| Port::reserve().expect("a port"));
    let [tcp, web] = ports.each_ref().map(Port::number);
    let (tcp_, web_) = (tcp.to_string(), web.to_string());
    let flags = ["--metrics", "--metrics-tcp", &tcp_, "--web", &web_];
    let mut manager = Manager::start(&flags);
    let (_domain, _pool) = camera(&manager);
    let line = "tranship_pool_max_bytes{pool=\"frames\",domain=\"camera\"} 8388608";
    has(&get_unix(&manager.figures(), "/metrics"), line);
    has(&get_tcp(tcp, "/metrics"), line);
    has(&get_tcp(web, "/metrics"), line);
    assert!(get_tcp(web, "/").contains("<!doctype html>"));
    assert!(get_tcp(web, "/data.json").contains("\"frames\""));
    assert_eq!(mode_of(&manager.figures()), 0o600);
    // Killed: the other process sees it, and its leftovers are no obstacle.
    manager.process.kill();
    manager.process = start_again(&manager, &flags);
    has(&get_unix(&manager.figures(), "/metrics"), "tranship_up 1");
}

#[test]
fn a_manager_that_ends_in_order_leaves_nothing() {
    let _dog = Watchdog::new();
    let mut manager = Manager::start(&["--metrics"]);
    assert!(manager.figures().exists());
    manager.process.signal(libc::SIGTERM);
    let status = manager.process.0.wait();
    assert!(status.expect("its end").success());
    assert!(!manager.figures().exists());
}

/// The process beside the last manager may have the ports for a moment yet.
fn start_again(manager: &Manager, flags: &[&str]) -> Running {
    let figures = manager.figures();
    while std::os::unix::net::UnixStream::connect(&figures).is_ok() {
        std::thread::yield_now();
    }
    start_at(&manager.socket, flags)
}

#[test]
fn a_process_of_its_own_outlives_managers() {
    let _dog = Watchdog::new();
    let mut manager = Manager::start(&[]);
    let path = manager.dir.path().join("figures");
    let mut command = tranship(&["metrics", "--tcp", "0", "--unix"]);
    command.arg(&path);
    command.arg("--socket").arg(&manager.socket);
    let (_server, line) = start_saying(command, "figures at http://127.0.0.1:");
    assert!(line.trim_end().ends_with("/metrics"), "{line}");
    let up = |wanted: &str| {
        // A look is shown for half a second.
        while !get_unix(&path, "/metrics").lines().any(|l| l == wanted) {
            std::thread::yield_now();
        }
    };
    up("tranship_up 1");
    manager.process.kill();
    up("tranship_up 0");
    manager.process = start_at(&manager.socket, &[]);
    up("tranship_up 1");
}

#[test]
fn where_a_unix_socket_is_served_is_said_too() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let [path, manager] = ["figures", "no manager"].map(|name| dir.path().join(name));
    let mut command = tranship(&["metrics", "--unix"]);
    command.arg(&path);
    command.arg("--socket").arg(&manager);
    let (_server, line) = start_saying(command, "figures at ");
    assert_eq!(line, format!("figures at unix:{}\n", path.display()));
    has(&get_unix(&path, "/metrics"), "tranship_up 0");
}

#[test]
fn a_configuration_says_the_same_and_other_sites_are_kept_out() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let file = dir.path().join("manager.toml");
    let text = "socket_mode = 0o666\n[[connect]]\nallow = true\n[observe]\nmetrics = true\n";
    std::fs::write(&file, text).expect("writing");
    let manager = Manager::start(&["--config", file.to_str().expect("a path")]);
    has(&get_unix(&manager.figures(), "/metrics"), "tranship_up 1");
    assert_eq!(mode_of(&manager.figures()), 0o600);
}

#[test]
fn where_others_could_listen_in_it_has_to_be_said() {
    let _dog = Watchdog::new();
    let (_dir, socket) = place();
    for (wrong, why) in [
        (["--web", "0.0.0.0:0"], "--anywhere"),
        (["--metrics-tcp", "[::]:0"], "--anywhere"),
        (["--web", "nonsense"], "not an address"),
    ] {
        let mut command = tranship(&["manager"]);
        command.args(wrong).arg("--socket").arg(&socket);
        Said::of(&mut command).ends(2, &[why]);
        assert!(!socket.exists());
    }
}

#[test]
fn a_manager_says_where_its_page_is() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let mut command = tranship(&["manager", "--web", "0", "--metrics-tcp", "0", "--socket"]);
    command.arg(dir.path().join("m.sock"));
    let (_manager, line) = start_saying(command, "page at http://127.0.0.1:");
    assert!(!line.contains(":0/"), "{line}");
}
