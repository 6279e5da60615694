//! Runs the tests that are in Python, and the type checkers, in a virtual environment of their own under `target/`.
//! Also runs Python and C programs together, and the commands of the documentation for installing the package.

mod install;
mod kills;
mod languages;
mod packages;
mod stage;

use stage::{Stage, blocks, compiled, here, output, staged};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tranship::net::Over;
use tranship::net::{Credentials, Net, Timing, certificate};
use tranship::{Domain, ErrorKind, PoolOptions, Sender};
use tranship_testkit::{Said, Watchdog, skipped};

/// Starts a program of Python's over the staged package; or says why not.
fn python(arguments: &[&str]) -> Option<Command> {
    staged().map(|stage| over(stage, Command::new(&stage.python), arguments))
}

/// An interpreter with the staged package.
fn over(stage: &Stage, mut interpreter: Command, arguments: &[&str]) -> Command {
    interpreter
        .args(arguments)
        .current_dir(here("tests/python"))
        .env("PYTHONPATH", &stage.package)
        .env("MYPYPATH", &stage.package)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("TRANSHIP_SOCKET")
        .env_remove("TRANSHIP_BIN");
    interpreter
}

/// Runs a module of Python's; or says why not.
fn run(module: &str, arguments: &[&str]) {
    let Some(mut command) = python(&["-m", module]) else {
        return;
    };
    let _dog = Watchdog::new();
    if let Err(failed) = output(command.args(arguments)) {
        panic!("{failed}");
    }
}

/// Files of `tests/python` that run beside the others.
const BESIDE: &[&[&str]] = &[
    &["test_mp.py"],
    &["test_kills.py", "test_docs.py", "test_forks.py"],
];

/// Runs files of `tests/python`. What failed is said last, where a report that was cut off still has it.
fn pytest(files: &[&str]) {
    let Some(mut command) = python(&["-m", "pytest"]) else {
        return;
    };
    let _dog = Watchdog::new();
    command
        .args(["-q", "-p", "no:cacheprovider", "--tb=short", "-rf"])
        // What children say of their ends is not captured: of a test that hangs it would be lost.
        .arg("--capture=sys")
        // Not a bound on speed: a test that takes so long hangs, and is shown.
        .args(["-o", "faulthandler_timeout=300"]);
    let can_exit = "import pytest; assert pytest.version_tuple >= (9,)";
    if python(&["-c", can_exit]).is_some_and(|mut asks| output(&mut asks).is_ok()) {
        command.args(["-o", "faulthandler_exit_on_timeout=true"]);
    }
    let said = Said::of(command.args(files));
    let (about, err, out) = (&said.about, &said.err, &said.out);
    assert_eq!(said.code, Some(0), "{about}\n{err}\n{out}");
}

#[test]
fn pytest_of_multiprocessing() {
    pytest(BESIDE[0]);
}

#[test]
fn pytest_of_processes() {
    pytest(BESIDE[1]);
}

#[test]
fn pytest_of_all_others() {
    let others = BESIDE.iter().copied().flatten();
    let others: Vec<String> = others.map(|file| format!("--ignore={file}")).collect();
    let mut files: Vec<&str> = others.iter().map(String::as_str).collect();
    files.push(".");
    pytest(&files);
}

/// Modules of CPython's cases, the newest last: before 3.12 those of executors depend on each other's names.
const CASES: [&str; 2] = [
    "test._test_multiprocessing",
    "test.test_concurrent_futures.test_process_pool",
];

/// Returns how to start an interpreter that has all of CPython's cases, else the stage's, which has those of `multiprocessing`.
fn with_cases(stage: &Stage) -> Result<Command, String> {
    let has = |mut command: Command, modules: &[&str]| {
        output(command.args(["-c", &format!("import {}", modules.join(", "))])).map(drop)
    };
    let other = |version: &str| {
        let mut command = Command::new(format!("python{version}"));
        command.env("PYENV_VERSION", version); // which pyenv's programs of these names want
        command
    };
    for version in ["3.14", "3.13", "3.12"] {
        if has(other(version), &CASES).is_ok() {
            return Ok(other(version));
        }
    }
    has(Command::new(&stage.python), &CASES[..1])?;
    Ok(Command::new(&stage.python))
}

/// CPython's own cases, against `tranship.mp`.
#[test]
fn cpythons_own_cases() {
    let Some(stage) = staged() else { return };
    let interpreter = match with_cases(stage) {
        Ok(interpreter) => interpreter,
        Err(why) => return skipped(format!("no Python here has the package `test`: {why}")),
    };
    let _dog = Watchdog::new();
    let mut command = over(stage, interpreter, &["standard.py"]);
    let said = output(&mut command).unwrap_or_else(|failed| panic!("{failed}"));
    let said = said.err;
    let ran = said
        .split("Ran ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let ran: u32 = ran.and_then(|ran| ran.parse().ok()).expect("their number");
    println!("{ran} cases");
    assert!(ran > 55, "{said}");
}

#[test]
fn the_stubs_say_what_the_module_has() {
    let allowed = here("tests/python/stubtest.txt");
    let allowed = allowed.to_str().expect("a path");
    run(
        "mypy.stubtest",
        &[
            "tranship._native",
            "--concise",
            "--ignore-unused-allowlist",
            "--allowlist",
            allowed,
        ],
    );
}

#[test]
fn mypy_takes_a_users_program() {
    let nowhere = ["--strict", "--cache-dir=/dev/null", "typed.py"];
    run("mypy", &nowhere);
}

/// The programs that pages show, as functions that say their types, or as whole programs.
#[test]
fn mypy_takes_the_programs_of_the_pages() {
    let folder = tranship_testkit::folder().expect("a folder");
    let mut arguments = vec!["--cache-dir=/dev/null".to_owned()];
    for page in ["README.md", "docs/python.md"] {
        for (number, program) in blocks(page, "python").iter().enumerate() {
            let name = page.replace(['/', '.'], "_");
            let file = folder.path().join(format!("{name}_{number}.py"));
            fs::write(&file, program).expect("a program");
            arguments.push(file.display().to_string());
        }
    }
    assert!(arguments.len() > 4, "{arguments:?}");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run("mypy", &arguments);
}

#[test]
fn pyright_takes_a_users_program() {
    let Some(stage) = staged() else { return };
    let python = stage.python.to_str().expect("a path");
    run("pyright", &["--pythonpath", python, "typed.py"]);
}

/// A program in Rust (this one) sends to one in C and to one in Python, by the address alone: over shared memory, and
/// over TCP with TLS.
#[test]
fn three_languages_share_a_channel() {
    const MESSAGES: u8 = 40;
    let dog = Watchdog::within(std::time::Duration::from_secs(3600));
    let Some(stage) = staged() else { return };
    let folder = tranship_testkit::folder().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let reader = compiled("tests/languages/reader.c", folder.path());
    let minute = std::time::Duration::from_secs(3600);
    let authority = certificate::authority("test", minute).expect("an authority");
    let issued = certificate::issue(&authority, "test", &["127.0.0.1".to_owned()], minute);
    let issued = issued.expect("a certificate");
    for (name, text) in [
        ("ca.pem", &authority.cert),
        ("cert.pem", &issued.cert),
        ("key.pem", &issued.key),
    ] {
        fs::write(at(name), text).expect("a file");
    }
    let owner = fs::Permissions::from_mode(0o600);
    fs::set_permissions(at("key.pem"), owner).expect("a file");

    let domain = Domain::embedded().expect("a domain");
    let credentials = Credentials::load(folder.path()).expect("credentials");
    let net = Net::tls(credentials, Timing::default()).expect("a network");
    let port = net.open("127.0.0.1:0".parse().expect("an address"));
    let port = port.expect("a port");
    let carrier = Over::new("tcp", Arc::new(net));
    tranship::carrier::add_to(&domain, Arc::new(carrier));
    let pool = domain.create_pool(PoolOptions::new(16 << 20));
    let pool = pool.expect("a pool");
    for address in ["shm:numbers", &format!("tcp:{port}/numbers")] {
        let listener = domain.listen::<Sender>(address).expect("a listener");
        let mut python = Command::new(&stage.python);
        python
            .arg(here("tests/languages/reader.py"))
            .env("PYTHONPATH", &stage.package);
        let mut readers = [Command::new(&reader), python].map(|mut reader| {
            reader
                .arg(address)
                .env("TRANSHIP_SOCKET", domain.socket_path().expect("a path"))
                .env("TRANSHIP_TLS", folder.path())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a reader")
        });
        dog.step(format!("readers at {address}"));
        let mut senders = [(); 2].map(|()| {
            loop {
                match listener.accept_timeout(std::time::Duration::from_millis(100)) {
                    Err(error) if error == ErrorKind::TimedOut => {}
                    sender => return sender.expect("a reader"),
                }
                for reader in &mut readers {
                    let ended = reader.try_wait().expect("a process");
                    assert!(ended.is_none(), "{address}: {ended:?}");
                }
            }
        });
        let mut sum = 0u64;
        for number in 0..MESSAGES {
            let len = 1 + usize::from(number) * usize::from(number) * 97 % 100_000;
            let mut buf = pool.alloc(len).expect("memory");
            buf.write(0, &vec![number; len]).expect("room");
            sum += u64::from(number) * len as u64;
            let buf = buf.freeze();
            for sender in &mut senders {
                sender.send(buf.clone()).expect("sent");
            }
        }
        dog.step(format!("what readers at {address} say"));
        drop(senders);
        for reader in readers {
            let said = reader.wait_with_output().expect("its end");
            assert!(said.status.success(), "{address}: {}", said.status);
            let numbers = String::from_utf8_lossy(&said.stdout);
            assert_eq!(numbers.trim(), format!("{MESSAGES} {sum}"), "{address}");
        }
    }
}
