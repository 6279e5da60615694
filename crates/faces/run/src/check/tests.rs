use super::*;

const TWO: &str = r#"
[component.a]
run = ["sh"]
[component.b]
run = ["sh"]
[channel.ab]
from = "a"
to = "b"
"#;

fn faults(text: &str) -> Vec<(usize, String)> {
    let faults = parse(text, Path::new("/"), "test").expect_err("faults");
    faults.into_iter().map(|f| (f.line, f.text)).collect()
}

#[test]
fn a_program_has_its_components_and_their_ends() {
    let program = parse(TWO, Path::new("/"), "test").expect("a program");
    assert_eq!(program.name, "test");
    assert!(
        program.components[0].run[0].starts_with('/'),
        "found in PATH"
    );
    let brief = program.brief(&program.components[0], 0);
    assert_eq!(brief.ends["ab"].part, tranship::component::Part::Send);
    assert_eq!(program.rules()[1].receivers, [2]);
}

#[test]
fn each_fault_has_its_line() {
    let cases = [
        (
            "[component.a]\nrun = [\"no-such-program-at-all\"]",
            2,
            "no program",
        ),
        ("[component.a]\nrun = []", 2, "run is empty"),
        (
            "[component.a]\nrun = [\"sh\"]\n[component.a]\nrun = [\"sh\"]",
            3,
            "duplicate key",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\nrestart = \"sometimes\"",
            3,
            "unknown variant",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\ncolour = 1",
            3,
            "unknown field",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\nafter = [\"b\"]",
            3,
            "no component `b`",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\nstop_in = \"soon\"",
            3,
            "a time is",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\nsandbox.read = [\"/no/such\"]",
            3,
            "/no/such",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\nafter = [\"a\"]",
            1,
            "wait for each other",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\nstdout = \"x\"",
            3,
            "no end of `x`",
        ),
        (
            "[manager]\ncolour = 1\n[component.a]\nrun = [\"sh\"]",
            1,
            "[manager]: unknown field",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\n[channel.x]\nfrom = \"a\"\nto = \"z\"",
            5,
            "no component `z`",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\n[component.b]\nrun = [\"sh\"]\nreplicas = 3\n[channel.x]\nfrom = \"a\"\nto = \"b\"",
            8,
            "3 receivers",
        ),
        (
            "[component.a]\nrun = [\"sh\"]\n[component.b]\nrun = [\"sh\"]\n[channel.x]\nfrom = \"a\"\nto = \"b\"\n[topic.x]\nfrom = \"a\"\nto = \"b\"",
            8,
            "already, in line 5",
        ),
    ];
    for (text, line, part) in cases {
        let found = faults(text);
        let right = found
            .iter()
            .any(|(at, text)| *at == line && text.contains(part));
        assert!(right, "{text}\n{found:#?}");
    }
}

#[test]
fn a_circle_of_channels_that_wait_is_found_and_one_with_room_is_none() {
    let back = format!("{TWO}[channel.ba]\nfrom = \"b\"\nto = \"a\"\n");
    let found = faults(&back);
    assert_eq!(found[0].0, 6, "{found:#?}");
    assert!(found[0].1.contains("a -> b -> a"), "{found:#?}");
    let room = format!("{back}when_full = \"drop\"\n");
    parse(&room, Path::new("/"), "test").expect("room");
}

#[test]
fn a_priority_becomes_a_rule_of_the_manager() {
    let text = TWO.replace(
        "[component.b]",
        "priority = 7\nquota = \"8MiB\"\n[component.b]",
    );
    let program = parse(&text, Path::new("/"), "test").expect("a program");
    let config = tranship_manager::Config::parse(&program.manager).expect("a configuration");
    assert_eq!(config.pool.len(), 1);
    assert_eq!(config.pool[0].name, "ab");
    assert_eq!(config.policy, "priority");
}
