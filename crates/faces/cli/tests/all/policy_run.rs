//! `tranship policy run`: a policy as a process of its own. It is killed, and its quotas stay; it lies, and nothing
//! happens; the next one goes on.

use super::kit::{MIB, embedded, joined, place};
use std::path::Path;
use std::process::{Command, Stdio};
use tranship::admin::StatRecord;
use tranship::policy::Target;
use tranship::{Domain, ErrorKind, Pool};
use tranship_testkit::{Running, Said, Watchdog, until};

const TOTAL: u64 = 16 * MIB;

fn command(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = tranship_testkit::tranship(&["policy", "run", "--socket"]);
    command.arg(socket).args(arguments);
    command
}

fn run(socket: &Path, arguments: &[&str]) -> Said {
    Said::of(&mut command(socket, arguments))
}

fn start(socket: &Path, policy: &str) -> Running {
    let arguments = ["--policy", policy, "--every", "10ms"];
    Running::start(command(socket, &arguments).stderr(Stdio::null()))
}

fn manager(socket: &Path, policy: &str) -> Domain {
    let text = format!(
        "total = \"16MiB\"\npolicy = \"{policy}\"\ngrace = \"1ms\"\n[[pool]]\nname = \"small\"\nmin = \"3MiB\"\nmax = \"4MiB\"\n"
    );
    embedded("app", socket, &text)
}

fn pool(domain: &Domain, name: &str) -> Pool {
    super::kit::pool(domain, name, TOTAL, MIB)
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
    let (_dir, socket) = place();
    let domain = manager(&socket, "static");
    let pools = [pool(&domain, "one"), pool(&domain, "small")];
    assert_eq!(quotas(&pools), [16, 16], "nobody divides");
    let first = start(&socket, "throughput");
    until(|| quotas(&pools).iter().sum::<u64>() <= TOTAL / MIB);
    // Between its rule's bounds, whatever it wants.
    assert!((3..=4).contains(&quotas(&pools)[1]), "{:?}", quotas(&pools));
    let said = run(&socket, &["--policy", "qos"]);
    said.ends(2, &["another policy sets quotas (that of domain "]);
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
    let (_dir, socket) = place();
    let domain = manager(&socket, "static");
    let pools = [pool(&domain, "one"), pool(&domain, "small")];
    let liar = joined("liar", &socket);
    let liar = liar.admin().steer().expect("the right");
    let set = |quotas: [u64; 2]| {
        let both = pools.iter().zip(quotas);
        let targets = both.map(|(p, mib)| Target {
            id: p.id().0,
            quota_bytes: mib.saturating_mul(MIB),
        });
        liar.set(&targets.collect::<Vec<_>>())
    };
    set([12, 4]).expect("what there is");
    let (over, bad) = (ErrorKind::Quota, ErrorKind::BadArgument);
    for (lie, kind, words) in [
        ([13, 4], over, "17825792 bytes, 16777216 are available"),
        ([u64::MAX / MIB, 4], bad, "allowed 16777216"),
        ([8, 2], bad, "asked 2097152, allowed 3145728"),
        ([8, 5], bad, "asked 5242880, allowed 4194304"),
        ([0, 4], bad, "allowed 1048576"),
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
    let (dir, socket) = place();
    run(&socket, &["--policy", "qos"]).ends(3, &[]);
    let _domain = manager(&socket, "qos");
    run(&socket, &["--policy", "qos"]).ends(2, &["policy = \"static\""]);
    run(&socket, &["--policy", "best"]).ends(2, &["\"best\"", "\"throughput\""]);
    let file = dir.path().join("p.toml");
    std::fs::write(&file, "policy = \"qos\"\nband = 0.02\nbandd = 1\n").expect("writing");
    let said = run(&socket, &["--config", file.to_str().expect("text")]);
    said.ends(2, &["p.toml", "bandd"]);
}

/// A new manager gives the right again to the domain that had it.
#[test]
fn a_manager_is_started_anew_and_the_policy_goes_on() {
    let _dog = Watchdog::new();
    let (_dir, socket) = place();
    let first = manager(&socket, "static");
    let _policy = start(&socket, "throughput");
    let pools = [pool(&first, "one"), pool(&first, "small")];
    until(|| quotas(&pools).iter().sum::<u64>() <= TOTAL / MIB);
    drop((pools, first));
    let second = manager(&socket, "static");
    let pools = [pool(&second, "one"), pool(&second, "small")];
    until(|| quotas(&pools).iter().sum::<u64>() <= TOTAL / MIB);
}
