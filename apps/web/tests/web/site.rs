//! A web server of a test: its folder, its processes.

use crate::client::Client;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tranship_testkit::{Running, artifact, folder};

const FILE: &str = include_str!("../../web.toml");

/// A front that waits for an answer as long as it takes: a component that has died may be long in coming back.
pub(crate) const PATIENT: (&str, &str) = ("\"front\"]", "\"front\", \"--answer\", \"100000000\"]");

pub(crate) struct Site {
    pub dir: tempfile::TempDir,
    running: Option<Running>,
}

impl Site {
    /// Starts the server of `web.toml`, with these changes of its text.
    pub(crate) fn start(changes: &[(&str, &str)]) -> Site {
        let text = FILE.replace("127.0.0.1:8080", "./web.sock");
        Site::start_file(&text, changes, Stdio::inherit())
    }

    /// Starts the server of a file, with these changes of its text.
    pub(crate) fn start_file(text: &str, changes: &[(&str, &str)], prints: Stdio) -> Site {
        let dir = folder().expect("a folder");
        let web = PathBuf::from(env!("CARGO_BIN_EXE_tranship-web"));
        let mut text = text.replace("\"tranship-web\"", &format!("{:?}", web.to_string_lossy()));
        for (before, after) in changes {
            assert!(text.contains(before), "the file has no {before:?}");
            text = text.replace(before, after);
        }
        text = text.replace("DIR", &dir.path().to_string_lossy());
        text += "\n[manager.pressure]\nwatch = false\n";
        std::fs::write(dir.path().join("web.toml"), text).expect("a file");
        std::fs::create_dir(dir.path().join("site")).expect("a folder");
        let site = |name: &str, bytes: &[u8]| {
            std::fs::write(dir.path().join("site").join(name), bytes).expect("a file");
        };
        site("index.html", b"<h1>home</h1>");
        site("page.txt", b"0123456789");
        site(".hidden", b"secret");
        let mut command = Command::new(artifact("tranship-cli", "tranship"));
        command
            .arg("run")
            .arg(dir.path().join("web.toml"))
            .stdin(Stdio::null())
            .stderr(prints)
            .env("XDG_RUNTIME_DIR", dir.path())
            .env_remove("TRANSHIP_SOCKET");
        let running = Some(Running::start(&mut command));
        Site { dir, running }
    }

    /// Returns a new connection.
    pub(crate) fn client(&self) -> Client {
        let path = self.dir.path().join("web.sock");
        loop {
            match std::os::unix::net::UnixStream::connect(&path) {
                Ok(socket) => return Client::new(socket),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sends one request on a connection of its own, and returns status and body.
    pub(crate) fn get(&self, target: &str) -> (u16, Vec<u8>) {
        let mut client = self.client();
        client.ask(target);
        let reply = client.reply();
        (reply.status, reply.body)
    }

    /// Returns the process of a component.
    pub(crate) fn pid(&self, component: &str) -> Option<u32> {
        let here = self.dir.path().canonicalize().expect("the folder");
        std::fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .find_map(|entry| {
                let pid = entry.file_name().to_str()?.parse().ok()?;
                let works_here = std::fs::read_link(entry.path().join("cwd")).ok()? == here;
                let said = std::fs::read(entry.path().join("cmdline")).ok()?;
                let mut words = said.split(|byte| *byte == 0);
                let program = words.next()?;
                let is =
                    program.ends_with(b"tranship-web") && words.next()? == component.as_bytes();
                (works_here && is).then_some(pid)
            })
    }

    /// Kills the process of a component, and waits until it is gone.
    pub(crate) fn kill(&self, component: &str) {
        let pid = self.wait_pid(component);
        let raw = rustix::process::Pid::from_raw(pid.cast_signed()).expect("a process");
        let fd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())
            .expect("it runs");
        rustix::process::pidfd_send_signal(&fd, rustix::process::Signal::KILL).expect("a signal");
        let mut ended = [rustix::event::PollFd::new(
            &fd,
            rustix::event::PollFlags::IN,
        )];
        while rustix::event::poll(&mut ended, None).is_err() {}
    }

    pub(crate) fn wait_pid(&self, component: &str) -> u32 {
        loop {
            match self.pid(component) {
                Some(pid) => return pid,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sends a signal to a component's process.
    pub(crate) fn signal(&self, component: &str, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.wait_pid(component).cast_signed());
        rustix::process::kill_process(pid.expect("a process"), signal).expect("it runs");
    }

    /// Stops the server; nothing of it is left.
    pub(crate) fn stop(mut self) {
        if let Some(running) = self.running.take() {
            running.signal(libc::SIGTERM);
            running.ends_well();
        }
        assert!(!self.dir.path().join("web.sock").exists());
        assert_eq!(self.pid("front"), None);
    }
}
