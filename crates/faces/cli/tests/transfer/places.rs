//! Addresses: transfers between machines work from a shell, and an address that can never meet a peer is refused at
//! once.

use crate::kit::*;
use std::time::Duration;
use tranship_testkit::Port;
use tranship_transport::net::certificate;

#[test]
fn bytes_go_by_every_address_that_leads_to_another_process() {
    let manager = Home::new("");
    let (ca, life) = (manager.path("ca"), Duration::from_secs(86400));
    certificate::init(&ca, "test", life).expect("an authority");
    let (ours, at) = (manager.path("ours"), ["127.0.0.1".to_owned()]);
    certificate::issue_into(&ca, "ours", &at, life, &ours).expect("issued");
    let [tls, plain] = [(); 2].map(|()| Port::reserve().expect("a port"));
    let from = input_file(&manager);
    for address in [
        "shm:films".to_owned(),
        "copy:films".to_owned(),
        format!("tcp+plain:127.0.0.1:{}/films", plain.number()),
        format!("tcp:127.0.0.1:{}/films", tls.number()),
    ] {
        let to = manager.path("out");
        let begin = |command: &str, file| {
            let mut command = manager.command(&[command, &address]);
            let command = command.arg(file).env("TRANSHIP_TLS", &ours);
            Running::start(command)
        };
        let both = [begin("recv", &to), begin("send", &from)];
        both.into_iter().for_each(Running::ends_well);
        let received = std::fs::read(&to).expect("what arrived");
        assert!(received == input(), "{address}: {} bytes", received.len());
        std::fs::remove_file(&to).expect("removing");
    }
    // No peer comes to this address either.
    let nobody = format!("tcp+plain:127.0.0.1:{}/films", plain.number());
    for command in ["send", "recv"] {
        let said = manager.run(&[command, &nobody, "--wait", "10ms"]);
        said.ends(1, &[]);
    }
}

#[test]
fn an_address_that_leads_nowhere_says_so_before_anybody_is_waited_for() {
    let manager = Home::new("");
    for (address, words) in [
        ("local:films", "inside of one process"),
        ("cam:1", "a name alone has no colon"),
        ("tcp:127.0.0.1/films", "no :port"),
        ("tcp:127.0.0.1:7700/films", "no credentials"),
    ] {
        for command in ["send", "recv"] {
            let mut command = manager.command(&[command, address]);
            let command = command
                .env_remove("TRANSHIP_TLS")
                .env_remove("XDG_CONFIG_HOME")
                .env("HOME", manager.path(""));
            let said = Said::of(command);
            said.ends(2, &[]);
            has(&said.err.to_lowercase(), &[words]);
        }
    }
}
