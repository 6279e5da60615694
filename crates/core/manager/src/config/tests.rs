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
fn what_means_nothing_is_an_error_at_its_line() {
    let long = "x".repeat(65);
    for (line, says, text) in [
        (1, "5 bytes", "total = 5".to_owned()),
        (2, "64 KiB", "\ntotal = \"63KiB\"".to_owned()),
        (1, "0 bytes", "default_quota = 0".to_owned()),
        (2, "`name`", "[[connect]]\nname = \"a\"".to_owned()),
        (
            3,
            "`name`",
            "[[connect]]\nuid = 1\nname = \"a*\"".to_owned(),
        ),
        (2, "no name", "[[export]]\nname = \"\"".to_owned()),
        (2, "no name", format!("[[bind]]\nname = \"{long}\"")),
        (2, "no name", format!("[[bind]]\nname = \"{long}*\"")),
        (
            2,
            "no name",
            "[[reserved]]\nname = \"a\\nb\"\nuid = 0".to_owned(),
        ),
        (1, "0o1232", "socket_mode = 666".to_owned()),
        (1, "-1", "pools_per_domain = -1".to_owned()),
    ] {
        let (at, message) = parse_error(&text);
        assert!(
            at == line && message.contains(says),
            "{text}: {at}: {message}"
        );
    }
    let all =
        "total = 65536\nsocket_mode = 0o777\n[[export]]\nname = \"*\"\n[[connect]]\nallow = false";
    assert!(Config::parse(all).is_ok());
}

#[test]
fn sizes_and_durations() {
    let c = Config::parse("total = \"64MiB\"\ndefault_quota = 65537\nidle_exit = \"60s\"").unwrap();
    assert_eq!(c.total, Some(64 << 20));
    assert_eq!(c.default_quota, Some(65537));
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
    use tranship_proto::AccessRule::{Export, Reserved};
    assert_eq!(c.bars_export(1, 1, "cam/left"), None);
    assert_eq!(c.bars_export(1, 1, "mic"), Some(Export));
    assert_eq!(c.bars_export(2, 1, "cam/left"), Some(Export));
    assert_eq!(c.bars_export(0, 0, "sys/clock"), None);
    assert_eq!(c.bars_export(1, 1, "sys/clock"), Some(Reserved));
    assert!(c.may_bind(9, 9, "anything"));
}

#[test]
fn rules_for_pools_go_by_their_names() {
    let text = "policy = \"qos\"\npolicy_period = \"100ms\"\n[[pool]]\nname = \"a*\"\nmin = \"1MiB\"\ntarget = 0.1\n[[pool]]\nname = \"*\"\nweight = 3\n";
    let config = Config::parse(text).expect("a configuration");
    assert!(config.is_scheduled() && !Config::default().is_scheduled());
    let (a, b) = (config.rule_of("alpha"), config.rule_of("beta"));
    assert_eq!((a.min_bytes, a.target, a.weight), (1 << 20, Some(0.1), 1));
    assert_eq!((b.min_bytes, b.target, b.weight), (0, None, 3));
}

#[test]
fn policies_that_cannot_be_are_errors_with_their_line() {
    for (wrong, why) in [
        ("policy = \"best\"", "\"throughput\""),
        ("policy_period = \"1ms\"", "100ms"),
        ("[[pool]]\nname = \"a\"\ntarget = 1.5", "target is 1.5"),
        ("[[pool]]\nname = \"a\"\nweight = 0", "weight is 0"),
        (
            "[[pool]]\nname = \"a\"\nmin = \"2MiB\"\nmax = \"1MiB\"",
            "more than max",
        ),
        ("[[pool]]\nname = \"a\"\nquota = 1", "unknown field"),
    ] {
        let error = Config::parse(&format!("\n{wrong}\n")).expect_err(wrong);
        let said = error.to_string();
        assert!(said.contains(why) && said.starts_with("line "), "{said}");
    }
}

/// A time beyond any use is refused before it is added to the clock.
#[test]
fn times_have_an_end() {
    for (text, key) in [
        (
            "[[hog]]\nover = \"1MiB\"\nfor = \"18446744073709551615s\"",
            "for",
        ),
        ("linger = \"876001h\"", "876001h"),
        (
            "idle_exit = \"18446744073709551615s\"",
            "18446744073709551615s",
        ),
    ] {
        let error = Config::parse(text).expect_err(text).to_string();
        assert!(error.contains(key) && error.contains("876000h"), "{error}");
    }
    let longest = Config::parse("linger = \"876000h\"").expect("a hundred years");
    assert_eq!(longest.linger, Duration::from_secs(876_000 * 3600));
}
