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

/// A component, another one, and a wire between them: `$A`, `$B` and `$AB` of a text.
const PARTS: [(&str, &str); 3] = [
    ("$AB", "from = \"a\"\nto = \"b\"\n"),
    ("$A", "[component.a]\nrun = [\"sh\"]\n"),
    ("$B", "[component.b]\nrun = [\"sh\"]\n"),
];

#[test]
fn each_fault_has_its_line() {
    let no_program = "[component.a]\nrun = [\"no-such-program-at-all\"]";
    let one_device = "$Alisten = [\"tap:w\"]\n$Blisten = [\"tap:w\"]";
    let two_names = "$A$Breplicas = 3\n[channel.x]\n$AB[topic.\"x.2\"]\n$AB";
    let taken = "`x.2` is the name of a channel already, in line 6";
    let in_rows = "$Areplicas = 2\n$Breplicas = 3\n[channel.x]\n$AB";
    let to_three = "$Astdout = \"x\"\n$Breplicas = 3\n[channel.x]\n$AB";
    let to_nobody = "$A[channel.x]\nfrom = \"a\"\nto = \"z\"";
    let of_manager = "[manager]\ncolour = 1\n$A";
    let cases = [
        (no_program, 2, "no program"),
        ("[component.a]\nrun = []", 2, "run is empty"),
        ("$A$A", 3, "duplicate key"),
        ("$Arestart = \"sometimes\"", 3, "unknown variant"),
        ("$Acolour = 1", 3, "unknown field"),
        ("$Aafter = [\"b\"]", 3, "no component `b`"),
        ("$Astop_in = \"soon\"", 3, "a time is"),
        (
            "$Alisten = [\"tap:sixteen-letters-\"]",
            3,
            "1 to 15 bytes, not 16",
        ),
        ("$Alisten = [\"tap:web%d\"]", 3, "has no `%`"),
        ("$Alisten = [\"tap:a/b\"]", 3, "has no `%`, `/`"),
        ("$Alisten = [\"tap:a\\u0000\"]", 3, "NUL"),
        (one_device, 6, "component `a` already, in line 3"),
        ("$Asandbox.read = [\"/no/such\"]", 3, "/no/such"),
        ("$Aafter = [\"a\"]", 1, "wait for each other"),
        ("$Astdout = \"x\"", 3, "no end of `x`"),
        (of_manager, 1, "[manager]: unknown field"),
        (to_nobody, 5, "no component `z`"),
        (in_rows, 9, "from 2 replicas to 3"),
        (to_three, 3, "3 channels here"),
        (two_names, 9, taken),
        (
            "$A$B[channel.x]\n$AB[topic.x]\n$AB",
            8,
            "already, in line 5",
        ),
    ];
    for (text, line, part) in cases {
        let whole = |text: String, (name, part): (&str, &str)| text.replace(name, part);
        let text = PARTS.into_iter().fold(text.to_owned(), whole);
        let found = faults(&text);
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

/// One process, then two rows of two, then one process again.
#[test]
fn replicas_are_joined_in_rows() {
    let text = r#"
[component.a]
run = ["sh"]
priority = 7
[component.b]
run = ["sh"]
replicas = 2
[component.c]
run = ["sh"]
replicas = 2
ends = { in = "bc" }
[channel.ab]
from = "a"
to = "b"
[channel.bc]
from = "b"
to = "c"
[channel.ca]
from = "c"
to = "a"
when_down = "drop"
"#;
    let program = parse(text, Path::new("/"), "test").expect("a program");
    let ends = |component: usize, replica| {
        let brief = program.brief(&program.components[component], replica);
        let ends = brief.ends.into_iter();
        ends.map(|(local, end)| format!("{local}={}", end.name))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        ends(0, 0),
        ["ab.0=ab.0", "ab.1=ab.1", "ca.0=ca.0", "ca.1=ca.1"]
    );
    assert_eq!(ends(1, 1), ["ab=ab.1", "bc=bc.1"]);
    assert_eq!(ends(2, 0), ["ca=ca.0", "in=bc.0"]);
    // 0 is the manager, then come a, b.0, b.1, c.0, c.1.
    let rules = program.rules();
    assert_eq!(rules[1].receivers, [2, 3]);
    assert_eq!(
        (&rules[2].receivers[..], &rules[3].receivers[..]),
        (&[4][..], &[5][..])
    );
    assert_eq!(rules[4].receivers, [1]);
    let config = tranship_manager::Config::parse(&program.manager).expect("a configuration");
    let pools: Vec<_> = config.pool.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(pools, ["ab.0", "ab.1"]);
    let keys: Vec<String> = (1..6).map(|n| format!("key{n}")).collect();
    let config = crate::keys::config(&program, &keys, "operator").expect("a configuration");
    let config = tranship_manager::Config::parse(&config).expect("a configuration");
    let given = config.given.expect("names have keys");
    let of = |name: &str| given.iter().find(|it| it.name == name).expect("its rule");
    assert_eq!(
        (&of("ab.1").export[..], &of("ab.1").bind[..]),
        (&keys[..1], &keys[2..3])
    );
    assert_eq!(
        (of("bc.0").line, &of("bc.0").bind),
        (15, &vec!["key4".to_owned()])
    );
    assert_eq!(given.len(), 6);
    let drawn = crate::graph::text(&program);
    assert!(drawn.contains("  a --[channel ab x2]--> b\n"), "{drawn}");
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
