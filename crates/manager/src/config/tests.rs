use super::*;

fn parse_error(text: &str) -> (usize, String) {
    match Config::parse(text) {
        Err(ConfigError::Parse { line, message }) => (line, message),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_keys_and_bad_values_name_their_line() {
    let (line, message) = parse_error("total = \"1GiB\"\n\ntotall = 3\n");
    assert_eq!(line, 3, "{message}");
    assert!(message.contains("totall"), "{message}");
    let (line, message) = parse_error("[limits]\npools = 3\npoools = 4\n");
    assert_eq!(line, 3, "{message}");
    let (line, message) = parse_error("\ntotal = \"64MB\"");
    assert_eq!(line, 2, "{message}");
    assert!(message.contains("64MB"), "{message}");
    assert_eq!(parse_error("a = 1\nidle_exit = \"5 parsecs\"").0, 1);
    assert_eq!(
        parse_error("forward = \"granted\"\nidle_exit = \"5 parsecs\"").0,
        2
    );
    assert_eq!(parse_error("\n\n[[connect]]\nuid = \"root\"").0, 4);
    assert_eq!(
        parse_error("forward = \"granted\"\npools_per_domain = 0").0,
        2
    );
    assert_eq!(parse_error("x").0, 1);
}

#[test]
fn sizes_and_durations() {
    let c = Config::parse("total = \"64MiB\"\ndefault_quota = 4096\nidle_exit = \"60s\"").unwrap();
    assert_eq!(c.total, Some(64 << 20));
    assert_eq!(c.default_quota, Some(4096));
    assert_eq!(c.idle_exit, Some(Duration::from_secs(60)));
    assert_eq!(units::parse_duration("5ms"), Some(Duration::from_millis(5)));
    assert_eq!(units::parse_size("99999999999TiB"), None);
}

#[test]
fn the_first_matching_rule_decides() {
    let c = Config::parse(
        "[[connect]]\nuid = 7\nallow = false\n[[connect]]\ngid = 100\n\
         [[export]]\nuid = 1\nname = \"cam/*\"\n[[reserved]]\nname = \"sys/*\"\nuid = 0\n",
    )
    .unwrap();
    assert!(!c.may_connect(7, 100));
    assert!(c.may_connect(8, 100));
    assert!(!c.may_connect(8, 101));
    assert!(c.may_export(1, 1, "cam/left"));
    assert!(!c.may_export(1, 1, "mic"));
    assert!(!c.may_export(2, 1, "cam/left"));
    assert!(c.may_export(0, 0, "sys/clock"));
    assert!(!c.may_export(1, 1, "sys/clock"));
    assert!(c.may_bind(9, 9, "anything"));
}

#[test]
fn the_example_parses() {
    let text = include_str!("../../../../dist/manager.toml");
    let c = Config::parse(text).unwrap();
    assert!(c.total.is_some());
    // Every key that is commented out is a valid key too.
    let all: String = text
        .lines()
        .map(|l| match l.strip_prefix("#: ") {
            Some(rest) => format!("{rest}\n"),
            None => format!("{l}\n"),
        })
        .collect();
    assert_ne!(all, text);
    Config::parse(&all).unwrap();
}
