//! The path of a request, as `tranship trace` shows it.

use crate::site::Site;
use std::path::{Path, PathBuf};
use std::process::Command;
use tranship_testkit::{Watchdog, artifact};

/// A dynamic request goes this way.
const PATH: [&str; 7] = [
    "front", "http", "guard", "route", "cache", "dynamic", "front",
];

#[test]
fn a_trace_shows_a_request_on_its_way_through_six_components() {
    let _watchdog = Watchdog::new();
    let site = Site::start(&[]);
    let mut client = site.client();
    let mut ask = || {
        client.ask("/dynamic?n=4096");
        assert_eq!(client.reply().status, 200);
    };
    ask();
    let (tranship, socket) = (artifact("tranship-cli", "tranship"), socket(&site));
    let run = |arguments: &[&str]| text(&tranship, &socket, arguments);
    let state = run(&["stat", "--json"]);
    // What goes along: the bytes, the record, the reply.
    for channel in ["front-http", "http-guard", "dynamic-front"] {
        let pool = pool_of(&state, channel);
        let said = run(&["trace", "--on", pool]);
        assert!(said.ends_with(" is traced\n"), "{channel}: {said}");
    }
    // Each component hears of it in its time.
    loop {
        ask();
        // The connection is the word of all its requests. The front's lines for the log have none.
        let all = run(&["trace", "--json"]);
        let words = all.split("\"word\":").skip(1);
        let words = words.map(|rest| rest.trim_start().split(|c: char| !c.is_ascii_digit()));
        let Some(word) = words
            .filter_map(|mut word| word.next())
            .find(|it| *it != "0")
        else {
            continue;
        };
        let shown = run(&["trace", "--word", word]);
        let mut rest = &shown[..];
        let hops = PATH.windows(2).take_while(|hop| {
            let lines = rest.split_inclusive('\n');
            let mut before = 0;
            let found = lines.into_iter().any(|line| {
                before += line.len();
                line.contains(&format!(" {}#", hop[0]))
                    && line.contains(&format!(" sent to {}#", hop[1]))
            });
            rest = &rest[before..];
            found
        });
        if hops.count() == PATH.len() - 1 {
            break;
        }
    }
    site.stop();
}

/// Returns what a command prints.
fn text(tranship: &Path, socket: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(tranship);
    command.args(arguments).arg("--socket").arg(socket);
    let output = command.output().expect("running tranship");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the number of the pool whose buffers a channel carries.
fn pool_of<'a>(state: &'a str, channel: &str) -> &'a str {
    let name = format!("\"name\": \"{channel}\"");
    let (_, rest) = state.split_once(&name).expect("the channel");
    let (_, pools) = rest.split_once("\"pools\": [").expect("its pools");
    let digits = |c: char| !c.is_ascii_digit();
    pools.trim_start().split(digits).next().expect("a pool")
}

/// Returns the socket of the program's manager.
fn socket(site: &Site) -> PathBuf {
    let programs = std::fs::read_dir(site.dir.path().join("tranship")).expect("a folder");
    let mut sockets = programs.flatten().map(|it| it.path().join("manager.sock"));
    sockets.find(|it| it.exists()).expect("a manager")
}
