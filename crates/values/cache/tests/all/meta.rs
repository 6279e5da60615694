//! The meta protocol, command by command and flag by flag, as memcached's protocol.txt has it; and lines that no client
//! of memcached's sends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};
use tranship_cache::{Options, Server};
use tranship_testkit::Watchdog;

fn server() -> Server {
    let options = Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        threads: 2,
        ..Options::default()
    };
    Server::start(options).expect("a server")
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn new(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address()).expect("connect");
        Client(BufReader::new(stream))
    }

    fn say(&mut self, text: &str) {
        let told = self.0.get_mut().write_all(text.as_bytes());
        told.expect("write");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("read");
        assert!(line.ends_with("\r\n"), "{line:?}");
        line.truncate(line.len() - 2);
        line
    }

    /// All that is answered to lines, up to an `mn` behind them.
    fn ask(&mut self, lines: &str) -> Vec<String> {
        self.say(&format!("{}\r\nmn\r\n", lines.replace('|', "\r\n")));
        let mut answer = Vec::new();
        loop {
            match self.line() {
                end if end == "MN" => return answer,
                line => answer.push(line),
            }
        }
    }
}

/// Rows of a table: the lines before, the question, and the answer; `|` is between lines. `#` in an answer is any
/// number.
const TABLE: &[(&str, &str, &str)] = &[
    // mg
    ("", "mg no", "EN"),
    ("", "mg no v q", ""),
    ("", "mg no O123 k", "EN O123 kno"),
    ("", "mg bm8= b k Oq s t", "EN kbm8= b Oq"),
    ("", "mg no q k O1", ""),
    ("ms k 3 F7|abc", "mg k", "HD"),
    ("ms k 3 F7|abc", "mg k v", "VA 3|abc"),
    (
        "ms k 3 F7|abc",
        "mg k s v f t k Oo",
        "VA 3 s3 f7 t-1 kk Oo|abc",
    ),
    ("ms k 3 T100|abc", "mg k t", "HD t100"),
    ("ms k 3|abc", "mg k T50 t", "HD t50"),
    ("ms k 3|abc", "mg k h|mg k h", "HD h0|HD h1"),
    ("ms k 3|abc", "mg k u h|mg k h", "HD h0|HD h0"),
    ("ms k 3|abc", "mg k l", "HD l0"),
    ("ms k 3|abc", "mg k v Ppath Lelse q", "VA 3|abc"),
    ("ms k 3 E77|abc", "mg k v c C77", "HD c77"),
    ("ms k 3 E77|abc", "mg k v c C78", "VA 3 c77|abc"),
    ("", "mg k N30 t v", "VA 0 t30 W|"),
    ("mg k N30", "mg k N30 t", "HD t30 Z"),
    ("", "mg k N30 E88 c", "HD c88 W"),
    (
        "ms k 3 T20|abc",
        "mg k R30 v|mg k R30 v",
        "VA 3 W|abc|VA 3 Z|abc",
    ),
    ("ms k 3 T40|abc", "mg k R30 v", "VA 3|abc"),
    ("ms k 3|abc", "mg k R30 v", "VA 3|abc"),
    ("ms aw== 3 b|abc", "mg k v k", "VA 3 kk|abc"),
    ("ms aw== 3 b|abc", "mg aw== b k", "HD kaw== b"),
    // ms
    ("", "ms k 3 k Oo s c|abc", "HD kk Oo s3 c#"),
    ("", "ms k 3 q|abc", ""),
    ("", "ms k 3 E9 c|abc", "HD c9"),
    ("", "ms k 3 E0 c|abc|mg k c", "HD c0|HD c0"),
    ("ms k 3 E0|abc", "ms k 3 C0|abc|mg k c", "EX|HD c0"),
    (
        "ms k 3 E9|abc",
        "ms k 3 C9 E10 c|abd|mg k v",
        "HD c10|VA 3|abd",
    ),
    ("ms k 3 E9|abc", "ms k 3 C8|abd", "EX"),
    ("ms k 3 E9|abc", "ms k 3 C8 c k Oo q|abd", "EX c0 kk Oo"),
    ("", "ms k 3 C8 q|abc", "NF"),
    ("ms k 3|abc", "ms k 3 ME|abd", "NS"),
    ("", "ms k 3 ME|abc", "HD"),
    ("", "ms k 3 MR|abc", "NS"),
    ("", "ms k 3 MA|abc", "NS"),
    ("ms k 3|abc", "ms k 2 MA s|de|mg k v", "HD s5|VA 5|abcde"),
    ("ms k 3|abc", "ms k 2 MP s|de|mg k v", "HD s5|VA 5|deabc"),
    ("", "ms k 2 MA N30 s|de|mg k v t", "HD s2|VA 2 t30|de"),
    ("", "ms k 3 MS|abc", "HD"),
    (
        "",
        "ms k 3 MX|abc",
        "CLIENT_ERROR invalid mode for ms M token",
    ),
    ("", "ms k x|mg k", "CLIENT_ERROR bad command line format|EN"),
    // md
    ("ms k 3|abc", "md k|md k", "HD|NF"),
    ("ms k 3|abc", "md k q|md k q|md k q O1 k", "NF|NF O1 kk"),
    ("ms k 3 E9|abc", "md k C8 q|md k C9", "EX|HD"),
    ("ms k 3|abc", "md k k Oo", "HD kk Oo"),
    ("ms k 3 F5 T100|abc", "md k x|mg k v f t", "HD|VA 0 f0 t-1|"),
    ("ms k 3 E5|abc", "md k x|mg k c", "HD|HD c5"),
    ("ms k 3|abc", "md k x E9|mg k c s", "HD|HD c9 s0"),
    ("ms k 3|abc", "md k x T30|mg k t", "HD|HD t30"),
    ("ms k 3|abc", "md k I x|mg k v", "HD|VA 0 W X|"),
    (
        "ms k 3|abc",
        "md k I|mg k v|mg k v",
        "HD|VA 3 W X|abc|VA 3 X Z|abc",
    ),
    ("ms k 3|abc", "md k I T30 E9|mg k t c", "HD|HD t30 c9 W X"),
    // A stale value in a stale one's place: nobody else is told to renew it, and it lives no longer.
    (
        "ms k 3 T100 E9|abc|md k I E20|mg k",
        "ms k 3 I C10 T900 E30|new|mg k v t|mg k v",
        "HD|VA 3 t100 X Z|new|VA 3 X Z|new",
    ),
    (
        "ms k 3 E9|abc|md k I E20",
        "ms k 3 C20|new|mg k v",
        "HD|VA 3|new",
    ),
    (
        "ms k 3 E9|abc|md k I E20",
        "ms k 3 I C21|new|ms k 3 I C0|new",
        "EX|EX",
    ),
    // ma
    ("", "ma n|ma n q", "NF|NF"),
    (
        "ms n 1|5",
        "ma n|ma n v D10|ma n MD v|ma n M- D99 v",
        "HD|VA 2|16|VA 2|15|VA 1|0",
    ),
    ("ms n 1|5", "ma n q|mg n v", "VA 1|6"),
    ("", "ma n N30 J7 v t|ma n v", "VA 1 t30|7|VA 1|8"),
    ("", "ma n N30 J7 q|mg n v", "VA 1|7"),
    (
        "ms n 1 E9|5",
        "ma n C8|ma n C9 E10 c|ma n C0 v",
        "EX|HD c10|VA 1|7",
    ),
    ("ms n 1|5", "ma n T30 t k Oo", "HD t30 kn Oo"),
    (
        "ms n 1|x",
        "ma n",
        "CLIENT_ERROR cannot increment or decrement non-numeric value",
    ),
    (
        "ms n 1|5",
        "ma n MX",
        "CLIENT_ERROR invalid mode for ma M token",
    ),
    (
        "ms n 1|5",
        "ma n Dx",
        "CLIENT_ERROR invalid numeric delta value",
    ),
    (
        "",
        "ma n N0 Jx",
        "CLIENT_ERROR invalid numeric initial value",
    ),
    // me, and its errors
    ("", "me no", "EN"),
    ("", "mg", "CLIENT_ERROR bad command line format"),
    ("", "mg k !", "CLIENT_ERROR invalid flag"),
    ("", "mg k v v", "CLIENT_ERROR duplicate flag"),
    (
        "",
        "mg k Tx",
        "CLIENT_ERROR bad token in command line format",
    ),
    ("", "mg !!! b", "CLIENT_ERROR error decoding key"),
    (
        "",
        "mg k O01234567890123456789012345678901",
        "EN O01234567890123456789012345678901",
    ),
    (
        "",
        "mg k O012345678901234567890123456789012",
        "CLIENT_ERROR opaque token too long",
    ),
    (
        "",
        "ms k 3 O012345678901234567890123456789012|abc|mg k",
        "CLIENT_ERROR opaque token too long|EN",
    ),
    (
        "",
        "md k q O012345678901234567890123456789012",
        "CLIENT_ERROR opaque token too long",
    ),
];

/// Numbers in the place of `#` are left out.
fn is_as(answer: &str, expected: &str) -> bool {
    match expected.split_once('#') {
        None => answer == expected,
        Some((before, after)) => {
            let middle = answer
                .strip_prefix(before)
                .and_then(|rest| rest.strip_suffix(after));
            middle.is_some_and(|number| number.parse::<u64>().is_ok())
        }
    }
}

#[test]
fn each_command_answers_as_the_protocol_has_it() {
    let _dog = Watchdog::new();
    let server = server();
    let mut client = Client::new(&server);
    let mut wrong = Vec::new();
    for (first, then, expected) in TABLE {
        assert_eq!(client.ask("flush_all"), ["OK"]);
        if !first.is_empty() {
            client.ask(first);
        }
        let answer = client.ask(then).join("|");
        if !is_as(&answer, expected) {
            wrong.push(format!(
                "{first:?}, {then:?}: {answer:?} and not {expected:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Only items that are not used since go at a time that has passed.
#[test]
fn all_is_flushed_at_a_point_in_time() {
    let _dog = Watchdog::new();
    let server = server();
    let mut client = Client::new(&server);
    let now = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.expect("after 1970").as_secs()
    };
    client.ask("set k 0 0 1|x");
    assert_eq!(
        client.ask(&format!("flush_all {}|mg k", now() - 1000)),
        ["OK", "HD"]
    );
    assert_eq!(
        client.ask(&format!("flush_all {}|mg k", now() + 1000)),
        ["OK", "HD"]
    );
    assert_eq!(
        client.ask(&format!("flush_all {}|mg k", now() + 2)),
        ["OK", "HD"]
    );
    while client.ask("mg k") == ["HD"] {}
    client.ask("set k 0 0 1|x");
    // Later than it was stored, as whole seconds go.
    let stored = now();
    while now() < stored + 3 {
        std::thread::yield_now();
    }
    assert_eq!(client.ask("set new 0 0 1|x"), ["STORED"]);
    assert_eq!(
        client.ask(&format!("flush_all {}|mg k|mg new", now() - 1)),
        ["OK", "EN", "HD"]
    );
    assert_eq!(
        client.ask("flush_all x"),
        ["CLIENT_ERROR invalid exptime argument"]
    );
    assert_eq!(client.ask("flush_all -1|mg new"), ["OK", "EN"]);
}

/// Requests of another protocol: those that a browser was made to send, and the binary protocol.
#[test]
fn other_protocols_end_the_connection_and_reach_no_command() {
    let _dog = Watchdog::new();
    let server = server();
    for foreign in [
        &b"POST / HTTP/1.1\r\nHost: cache\r\n\r\nset x 0 0 1\r\ny\r\n"[..],
        b"GET /x HTTP/1.1\r\n\r\nset x 0 0 1\r\ny\r\n",
        b"PUT x HTTP/1.1\r\nset x 0 0 1\r\ny\r\n",
        b"\x80\x00\x00\x00\x00\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01",
        b"mn\r\nHEAD / HTTP/1.0\r\nset x 0 0 1\r\ny\r\n",
    ] {
        let mut client = Client::new(&server);
        client.0.get_mut().write_all(foreign).expect("write");
        let mut heard = Vec::new();
        // The bytes that it sent behind that may have reset the connection.
        let _ = client.0.read_to_end(&mut heard);
        assert!(heard.is_empty() || heard == b"MN\r\n", "{heard:?}");
    }
    assert_eq!(Client::new(&server).ask("mg x"), ["EN"]);
}

#[test]
fn a_get_has_as_many_keys_as_anybody_asks_for() {
    let _dog = Watchdog::new();
    let server = server();
    let mut client = Client::new(&server);
    let key = |number: usize| format!("a-key-of-some-length-{number:06}");
    for number in (0..20_000).step_by(100) {
        client.ask(&format!("set {} 7 0 1|x", key(number)));
    }
    let keys: Vec<String> = (0..20_000).map(key).collect();
    for name in ["get", "gets", "gat 100"] {
        let answer = client.ask(&format!("{name} {}", keys.join(" ")));
        assert_eq!(answer.len(), 401, "{name}");
        assert_eq!(answer[400], "END");
        for (number, pair) in answer.chunks_exact(2).enumerate() {
            assert!(pair[0].starts_with(&format!("VALUE {} 7 1", key(number * 100))));
            assert_eq!(pair[1], "x");
        }
    }
    let stats = server.stats();
    assert_eq!((stats.cmd_get, stats.get_hits), (60_000, 600));
    // A word that is no key ends it.
    let long = "x".repeat(251);
    client.say(&format!(
        "get {} {long} {}\r\nset y 0 0 1\r\ny\r\n",
        keys.join(" "),
        keys.join(" ")
    ));
    let mut heard = String::new();
    let _ = client.0.read_to_string(&mut heard);
    assert!(heard.is_empty() || heard.contains("CLIENT_ERROR bad command line format\r\n"));
    assert_eq!(Client::new(&server).ask("mg y"), ["EN"]);
}

/// At 2 GiB memcached's lengths end.
#[test]
fn a_value_of_2_gib_is_refused_at_once_and_not_awaited() {
    let _dog = Watchdog::new();
    let server = server();
    let mut client = Client::new(&server);
    for command in [
        "set k 0 0 2147483646",
        "set k 0 0 4294967296",
        "ms k 2147483647",
        "ms k 2147483648 q",
    ] {
        assert_eq!(
            client.ask(command),
            ["CLIENT_ERROR bad command line format"],
            "{command}"
        );
    }
}

/// Rows that `stats` of memcached 1.6 has, except those that only some builds have.
const ROWS: &str = "pid uptime time version pointer_size rusage_user rusage_system max_connections curr_connections \
    total_connections rejected_connections connection_structures response_obj_oom response_obj_count response_obj_bytes \
    read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set cmd_flush cmd_touch cmd_meta \
    get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits \
    cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds auth_errors idle_kicks \
    bytes_read bytes_written limit_maxbytes accepting_conns listen_disabled_num time_in_listen_disabled_us threads \
    conn_yields hash_power_level hash_bytes hash_is_expanding slab_reassign_rescues slab_reassign_chunk_rescues \
    slab_reassign_evictions_nomem slab_reassign_inline_reclaim slab_reassign_busy_items slab_reassign_busy_deletes \
    slab_reassign_running slabs_moved lru_crawler_running lru_crawler_starts lru_maintainer_juggles malloc_fails \
    log_worker_dropped log_worker_written log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids \
    round_robin_fallback bytes curr_items total_items slab_global_page_pool expired_unfetched evicted_unfetched \
    evicted_active evictions reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked moves_to_cold \
    moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped";

#[test]
fn stats_have_the_rows_that_exporters_read_each_once() {
    let _dog = Watchdog::new();
    let server = server();
    let mut client = Client::new(&server);
    let answer = client.ask("stats");
    let names: Vec<&str> = answer
        .iter()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    let lacking: Vec<&str> = ROWS
        .split_whitespace()
        .filter(|name| !names.contains(name))
        .collect();
    assert!(lacking.is_empty(), "{lacking:?}");
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "{names:?}");
}
