//! `tranship policy run`: a policy as a process of its own. It is killed, and its quotas stay; it lies, and nothing
//! happens; the next one goes on.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use tranship::admin::StatRecord;
use tranship::manager::Config;
use tranship::policy::Target;
use tranship::{Domain, ErrorKind, Pool, PoolOptions};
use tranship_testkit::{Running, Watchdog, until};

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 16 * MIB;

fn command(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranship"));
    command.args(["policy", "run"]).args(arguments);
    command.arg("--socket").arg(socket).env_remove("RUST_LOG");
    command.stdin(Stdio::null());
    command
}

fn output(socket: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(socket, arguments).output().expect("running");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

fn start(socket: &Path, policy: &str) -> Running {
    let arguments = ["--policy", policy, "--every", "10ms"];
    Running::start(command(socket, &arguments).stderr(Stdio::null()))
}

fn manager(socket: &Path, policy: &str) -> Domain {
    let text = format!(
        "total = \"16MiB\"\npolicy = \"{policy}\"\ngrace = \"1ms\"\n[[pool]]\nname = \"small\"\nmin = \"3MiB\"\nmax = \"4MiB\"\n"
    );
    let config = Config::parse(&text).expect("a configuration");
    let builder = Domain::builder().name("app").config(config).socket(socket);
    builder.helper_thread(true).embedded().expect("embedded")
}

fn pool(domain: &Domain, name: &str) -> Pool {
    let options = PoolOptions::new(TOTAL).chunk_bytes(MIB).name(name);
    domain.create_pool(options).expect("pool")
}

fn quotas<const N: usize>(pools: &[Pool; N]) -> [u64; N] {
    pools.each_ref().map(|p| p.stats().quota_bytes / MIB)
}

fn domains(domain: &Domain) -> usize {
    let records = domain.admin().stat().expect("statistics").into_iter();
    records
        .filter(|r| matches!(r, StatRecord::Domain(_)))
        .count()
}

#[test]
fn it_is_killed_and_its_quotas_stay_and_the_next_one_goes_on() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let domain = manager(&socket, "static");
    let pools = [pool(&domain, "one"), pool(&domain, "small")];
    assert_eq!(quotas(&pools), [16, 16], "nobody divides");
    let first = start(&socket, "throughput");
    until(|| quotas(&pools).iter().sum::<u64>() <= TOTAL / MIB);
    // Between its rule's bounds, whatever it wants.
    assert!((3..=4).contains(&quotas(&pools)[1]), "{:?}", quotas(&pools));
    let (code, said) = output(&socket, &["--policy", "qos"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("another policy sets quotas (that of domain "),
        "{said}"
    );
    // A quota that is set by hand stays.
    domain
        .admin()
        .set_quota(pools[0].id(), 5 * MIB)
        .expect("by hand");
    until(|| quotas(&pools)[0] == 5);
    drop(first);
    // Until the manager has read all messages of the policy, and its end.
    until(|| domains(&domain) == 1);
    let left = quotas(&pools);
    assert_eq!(left[0], 5);
    // No client waits: a new pool gets the rest, and nothing moves.
    let third = pool(&domain, "three");
    assert_eq!(
        third.stats().quota_bytes / MIB,
        TOTAL / MIB - left[0] - left[1]
    );
    assert_eq!(quotas(&pools), left);
    let held = third.alloc(usize::try_from(MIB).expect("small"));
    let held = held.expect("within its quota");
    let next = start(&socket, "throughput");
    // The new pool uses one of its chunks: it is to have no more than it uses, and some headroom.
    until(|| third.stats().quota_bytes <= 3 * MIB);
    assert_eq!(quotas(&pools)[0], 5);
    drop((next, held));
}

#[test]
fn who_lies_changes_nothing() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let domain = manager(&socket, "static");
    let pools = [pool(&domain, "one"), pool(&domain, "small")];
    let liar = Domain::builder().name("liar").socket(&socket).connect();
    let liar = liar.expect("connect").admin().steer().expect("the right");
    let set = |quotas: [u64; 2]| {
        let both = pools.iter().zip(quotas);
        let targets = both.map(|(p, mib)| Target {
            id: p.id().0,
            quota_bytes: mib.saturating_mul(MIB),
        });
        liar.set(&targets.collect::<Vec<_>>())
    };
    set([12, 4]).expect("what there is");
    for (lie, kind, words) in [
        (
            [13, 4],
            ErrorKind::Quota,
            "17825792 bytes, 16777216 are available",
        ),
        (
            [u64::MAX / MIB, 4],
            ErrorKind::BadArgument,
            "allowed 16777216",
        ),
        (
            [8, 2],
            ErrorKind::BadArgument,
            "asked 2097152, allowed 3145728",
        ),
        (
            [8, 5],
            ErrorKind::BadArgument,
            "asked 5242880, allowed 4194304",
        ),
        ([0, 4], ErrorKind::BadArgument, "allowed 1048576"),
    ] {
        let error = set(lie).expect_err("a lie");
        assert_eq!(error.kind(), kind, "{lie:?}: {error}");
        let text = format!("{error:#}");
        assert!(text.contains(words), "{text}");
        assert_eq!(quotas(&pools), [12, 4], "{lie:?}");
    }
}

#[test]
fn where_the_manager_has_its_own_and_where_there_is_none_it_says_so() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let (code, said) = output(&socket, &["--policy", "qos"]);
    assert_eq!(code, Some(3), "{said}");
    let _domain = manager(&socket, "qos");
    let (code, said) = output(&socket, &["--policy", "qos"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("policy = \"static\""), "{said}");
    let (code, said) = output(&socket, &["--policy", "best"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("\"best\"") && said.contains("\"throughput\""),
        "{said}"
    );
    let file = dir.path().join("p.toml");
    std::fs::write(&file, "policy = \"qos\"\nband = 0.02\nbandd = 1\n").expect("writing");
    let (code, said) = output(&socket, &["--config", file.to_str().expect("text")]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("p.toml") && said.contains("bandd"), "{said}");
}

/// A new manager gives the right again to the domain that had it.
#[test]
fn a_manager_is_started_anew_and_the_policy_goes_on() {
    let _dog = Watchdog::new();
    let dir = tranship_testkit::folder().expect("a folder");
    let socket = dir.path().join("m.sock");
    let first = manager(&socket, "static");
    let _policy = start(&socket, "throughput");
    let pools = [pool(&first, "one"), pool(&first, "small")];
    until(|| quotas(&pools).iter().sum::<u64>() <= TOTAL / MIB);
    drop((pools, first));
    let second = manager(&socket, "static");
    let pools = [pool(&second, "one"), pool(&second, "small")];
    until(|| quotas(&pools).iter().sum::<u64>() <= TOTAL / MIB);
}
