use super::stage::Stage;
use crate::kit::terminal;
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tranship_testkit::{Running, Watchdog, has};

/// Content of a terminal, and whether all of it was written.
struct Shown {
    parser: vt100::Parser,
    over: bool,
}

/// Interval between two checks whether it still runs.
const LOOK: Duration = Duration::from_millis(200);

struct Terminal {
    top: Running,
    keys: File,
    inside: File,
    shown: Arc<(Mutex<Shown>, Condvar)>,
}

fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    fn new(stage: &Stage, more: &[&str]) -> Terminal {
        Terminal::with(stage, more, true)
    }

    fn with(stage: &Stage, more: &[&str], colours: bool) -> Terminal {
        let (keys, inside) = terminal();
        tcsetwinsize(&inside, winsize(120, 30)).expect("a size");
        let end = || inside.try_clone().expect("another");
        let mut command = stage.top(more);
        command.stdin(end()).stdout(end()).stderr(end());
        command
            .env("TERM", "xterm-256color")
            .env("NO_COLOR", if colours { "" } else { "1" });
        // SAFETY: system calls only.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                Ok(ioctl_tiocsctty(rustix::stdio::stdin())?)
            });
        }
        let top = Running::start(&mut command);
        let shown = Shown {
            parser: vt100::Parser::new(30, 120, 0),
            over: false,
        };
        let shown = Arc::new((Mutex::new(shown), Condvar::new()));
        let mut from = keys.try_clone().expect("another");
        let also = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut raw = [0; 4096];
            loop {
                let n = from.read(&mut raw).unwrap_or(0);
                let mut shown = also.0.lock().expect("no panic");
                match n {
                    0 => shown.over = true,
                    n => shown.parser.process(&raw[..n]),
                }
                also.1.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        Terminal {
            top,
            keys,
            inside,
            shown,
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits for a screen of which `what` is true. Returns the screen's text.
    #[track_caller]
    fn until(&mut self, what: impl Fn(&str) -> bool) -> String {
        loop {
            let ended = self.top.0.try_wait().expect("a child");
            let shown = self.shown.0.lock().expect("no panic");
            let screen = shown.parser.screen().contents();
            if what(&screen) {
                return screen;
            }
            assert!(ended.is_none(), "it has ended, {ended:?}:\n{screen}");
            // The program may end without a word.
            let more = self.shown.1.wait_timeout(shown, LOOK);
            drop(more.expect("no panic"));
        }
    }

    #[track_caller]
    fn has(&mut self, part: &str) -> String {
        self.until(|screen| screen.contains(part))
    }

    fn resize(&self, columns: u16, rows: u16) {
        let mut shown = self.shown.0.lock().expect("no panic");
        shown.parser.screen_mut().set_size(rows, columns);
        drop(shown);
        tcsetwinsize(&self.inside, winsize(columns, rows)).expect("a size");
    }

    /// Waits for its end; the terminal is as it was before.
    fn ends(mut self) -> ExitStatus {
        let status = self.top.0.wait().expect("its end");
        let modes = tcgetattr(&self.inside).expect("its modes").local_modes;
        assert!(
            modes.contains(LocalModes::ECHO | LocalModes::ICANON),
            "{modes:?}"
        );
        // The other side is told that nobody is left.
        drop(self.inside);
        let mut shown = self.shown.0.lock().expect("no panic");
        while !shown.over {
            shown = self.shown.1.wait(shown).expect("no panic");
        }
        let screen = shown.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor());
        status
    }
}

#[test]
fn keys_choose_what_is_seen() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    let mut terminal = Terminal::new(&stage, &[]);
    terminal.has("frames");
    terminal.press("3");
    let channels = terminal.has("video");
    has(&channels, &["camera#", "depth"]);
    terminal.press("\r");
    terminal.has("the sender waited 0 % of its time");
    terminal.press("\x1b");
    terminal.has("rate/s");
    terminal.press("5");
    terminal.has("its bytes");
    terminal.press("/nothing");
    terminal.until(|s| s.contains("/nothing_") && !s.contains("viewer#"));
    terminal.press("\x7f\x7f\x7f\x7f\x7f\x7f\x7fview\r");
    terminal.until(|s| s.contains("viewer#") && s.contains("filter \"view\""));
    terminal.press("?");
    terminal.has("look more often");
    terminal.press("x1");
    terminal.has("connected");
    terminal.resize(60, 12);
    terminal.until(|s| s.lines().all(|l| l.len() <= 60) && s.contains("1 domains"));
    terminal.resize(10, 3);
    terminal.has("too small");
    terminal.resize(120, 30);
    terminal.has("connected");
    terminal.press("q");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn a_manager_that_hangs_is_seen_and_goes_on_being_shown() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    let mut terminal = Terminal::new(&stage, &["--show", "channels", "--every", "250ms"]);
    terminal.has("video");
    stage.home.manager.signal(libc::SIGSTOP);
    let hung = terminal.has("has been silent for");
    has(&hung, &["is stopped", "video"]);
    // Keys work all the same.
    terminal.press("2");
    terminal.has("frames");
    stage.home.manager.signal(libc::SIGCONT);
    terminal.until(|s| !s.contains("silent"));
    terminal.press("\x03");
    assert_eq!(terminal.ends().code(), Some(0));
}

#[test]
fn a_signal_ends_it_and_gives_the_terminal_back() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let mut terminal = Terminal::new(&stage, &[]);
        terminal.has("frames");
        terminal.top.signal(signal);
        assert_eq!(terminal.ends().signal(), Some(signal));
    }
}

#[test]
fn who_wants_no_colours_gets_none() {
    let _dog = Watchdog::new();
    let stage = Stage::new();
    for colours in [true, false] {
        let mut terminal = Terminal::with(&stage, &[], colours);
        terminal.has("frames");
        let shown = terminal.shown.0.lock().expect("no panic");
        let screen = shown.parser.screen();
        let cells = (0..30).flat_map(|row| (0..120).map(move |column| (row, column)));
        let mut cells = cells.filter_map(|(row, column)| screen.cell(row, column));
        let coloured = cells.any(|cell| cell.fgcolor() != vt100::Color::Default);
        drop(shown);
        assert_eq!(coloured, colours);
        terminal.press("q");
        terminal.ends();
    }
}
