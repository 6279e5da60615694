//! Components of the tests of `tranship run`: this test program, by the arguments behind `--nocapture`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tranship::component::Component;
use tranship::{ChannelOptions, Domain, Error, ErrorKind, Receiver, Sender};

type Failed = Box<dyn std::error::Error>;

/// Arguments in front of a component's own.
pub(crate) const ENTRY: [&str; 3] = ["--exact", "component::component", "--nocapture"];

/// A component of another test; alone it does nothing.
#[test]
fn component() {
    if std::env::var_os(tranship::component::VARIABLE).is_none() {
        return;
    }
    let arguments: Vec<String> = std::env::args().skip(1 + ENTRY.len()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["source", count, bytes] => numbers(count).and_then(|all| source(all, bytes)),
        ["until", file, bytes] => source((0..).take_while(|_| !Path::new(file).exists()), bytes),
        ["early", when_down, file] => early(when_down, Path::new(file)),
        ["relay"] => relay(),
        ["sink", file] => sink(Path::new(file)),
        ["publish", count] => publish(count),
        ["subscribe", count, file] => subscribe(count, Path::new(file)),
        ["jobs", count] => jobs(count),
        ["work", file] => work(Path::new(file)),
        ["serve"] => serve(),
        ["call", count, file] => call(count, Path::new(file)),
        ["ready"] => ready(),
        ["tries", file] => tries(Path::new(file)),
        _ => Err(format!("no component {arguments:?}").into()),
    };
    let code = match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("component {arguments:?}: {error}");
            9
        }
    };
    std::process::exit(code);
}

fn numbers(count: &str) -> Result<std::ops::Range<u64>, Failed> {
    Ok(0..count.parse::<u64>()?)
}

/// Sends numbered buffers of one byte each, many times.
fn source(all: impl Iterator<Item = u64>, bytes: &str) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut out = component.sender("out")?;
    let bytes: usize = bytes.parse()?;
    for n in all {
        let mut buffer = out.alloc(bytes)?;
        buffer.fill(b'a' + (n % 26) as u8);
        out.send((buffer.freeze(), n))
            .map_err(|failed| failed.error)?;
    }
    out.finish()?;
    Ok(())
}

/// Sends before a receiver can be there, and writes what became of it; then until one message went.
fn early(when_down: &str, file: &Path) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut out = component.sender("out")?;
    if when_down == "wait" {
        component.ready()?;
    }
    let became = (0..3).map(|n| became(&mut out, n));
    let became: Vec<String> = became.collect::<Result<_, _>>()?;
    std::fs::write(file, became.join(" "))?;
    if when_down != "wait" {
        component.ready()?;
        while self::became(&mut out, 3)? != "Sent" {
            std::thread::yield_now();
        }
    }
    let lost = if out.lost() > 2 { "some" } else { "none" };
    // Before the end: a source whose receivers have ended is stopped.
    std::fs::write(file, format!("{}, lost {lost}", became.join(" ")))?;
    out.finish()?;
    Ok(())
}

/// Sends ten bytes: what became of them.
fn became(out: &mut tranship::component::Sender, n: u64) -> Result<String, Failed> {
    let mut buffer = out.alloc(10)?;
    buffer.fill(b'x');
    Ok(match out.send((buffer.freeze(), n)) {
        Ok(outcome) => format!("{outcome:?}"),
        Err(failed) => format!("{:?}", failed.kind()),
    })
}

fn relay() -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut from = component.receiver("in")?;
    let mut out = component.sender("out")?;
    component.ready()?;
    while let Ok(message) = from.recv() {
        out.copy(&message.to_vec(), message.word)?;
    }
    out.finish()?;
    Ok(())
}

/// Writes what came: the number of bytes, and the first of each message.
fn sink(file: &Path) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut from = component.receiver("in")?;
    component.ready()?;
    let (mut bytes, mut messages) = (0, 0);
    let mut seen = std::fs::File::create(file)?;
    let end = loop {
        match from.recv() {
            Ok(message) => {
                let all = message.to_vec();
                (bytes, messages) = (bytes + all.len(), messages + 1);
                writeln!(
                    seen,
                    "{} {}",
                    all.len(),
                    char::from(*all.first().unwrap_or(&b'-'))
                )?;
            }
            Err(end) => break end.kind(),
        }
    };
    writeln!(seen, "{messages} messages, {bytes} bytes, {end:?}")?;
    Ok(())
}

fn publish(count: &str) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut out = component.publisher("news")?;
    component.ready()?;
    for n in numbers(count)? {
        let mut buffer = out.alloc(1000)?;
        buffer.fill(1);
        out.send((buffer.freeze(), n))
            .map_err(|failed| failed.error)?;
        std::thread::yield_now();
    }
    Ok(())
}

fn subscribe(count: &str, file: &Path) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut news = component.subscriber("news")?;
    for _ in numbers(count)? {
        news.recv()?;
    }
    Ok(std::fs::write(file, "all came")?)
}

fn jobs(count: &str) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut jobs = component.producer("jobs")?;
    for n in numbers(count)? {
        let mut job = jobs.alloc(8)?;
        job.copy_from_slice(&n.to_le_bytes());
        jobs.send(job.freeze()).map_err(|failed| failed.error)?;
    }
    jobs.wait_done(None)?;
    Ok(())
}

fn work(file: &Path) -> Result<(), Failed> {
    let component = Component::connect()?;
    let mut jobs = component.consumer("jobs")?;
    let mut seen = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)?;
    while let Ok(item) = jobs.recv() {
        // Together, so that the lines of several workers do not mix.
        let line = format!("{}\n", number(&item.to_vec())?);
        seen.write_all(line.as_bytes())?;
        item.ack()?;
    }
    Ok(())
}

fn serve() -> Result<(), Failed> {
    let component = Component::connect()?;
    let service = component.service("double")?;
    component.ready()?;
    while let Ok(request) = service.recv() {
        let answer = 2 * number(&request.to_vec())?;
        request
            .reply(&answer.to_le_bytes())
            .map_err(|failed| failed.error)?;
    }
    Ok(())
}

fn call(count: &str, file: &Path) -> Result<(), Failed> {
    let component = Component::connect()?;
    let double = component.client("double")?;
    for n in numbers(count)? {
        let answer = double
            .call(&n.to_le_bytes())
            .map_err(|failed| failed.to_string())?;
        let answer = number(&answer.to_vec())?;
        if answer != 2 * n {
            return Err(format!("{n} became {answer}").into());
        }
    }
    Ok(std::fs::write(file, "all answered")?)
}

fn number(bytes: &[u8]) -> Result<u64, Failed> {
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

/// Is ready, locked down if the file says so, and waits for its end.
fn ready() -> Result<(), Failed> {
    let component = Component::connect()?;
    component.ready()?;
    loop {
        std::thread::park();
    }
}

/// An action that a confined process must not be able to do, and whether it could.
type Attempt = (&'static str, fn() -> bool);

/// Returns the process that started this one: the supervisor, or the first process of the component's namespace.
fn supervisor() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

/// Says whether the manager lets this component do something with a name.
fn may<T>(attempt: impl FnOnce(&Domain) -> Result<T, Error>) -> bool {
    let component = Component::connect().expect("the manager");
    let done = attempt(component.domain());
    done.is_ok() || done.is_err_and(|why| why.kind() != ErrorKind::Access)
}

const ATTEMPTS: [Attempt; 15] = [
    ("open a file", || std::fs::File::open("/etc/passwd").is_ok()),
    ("create a file", || {
        let path = std::env::temp_dir().join(format!("tranship-run-{}", std::process::id()));
        std::fs::File::create_new(&path).is_ok_and(|_| std::fs::remove_file(path).is_ok())
    }),
    ("a network socket", || {
        std::net::UdpSocket::bind("127.0.0.1:0").is_ok()
    }),
    ("ptrace", || {
        // SAFETY: it takes no pointers.
        unsafe { libc::ptrace(libc::PTRACE_SEIZE, supervisor(), 0, 0) == 0 }
    }),
    ("process_vm_readv", || {
        let mut byte = [0u8; 1];
        let local = libc::iovec {
            iov_base: byte.as_mut_ptr().cast(),
            iov_len: 1,
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(0x1000),
            iov_len: 1,
        };
        // SAFETY: one byte of this frame is written. EFAULT would mean that the other process could be read.
        let read = unsafe {
            libc::process_vm_readv(supervisor(), &raw const local, 1, &raw const remote, 1, 0)
        };
        read >= 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
    }),
    ("process_vm_writev", || {
        let byte = [0u8; 1];
        let local = libc::iovec {
            iov_base: byte.as_ptr().cast_mut().cast(),
            iov_len: 1,
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(0x1000),
            iov_len: 1,
        };
        // SAFETY: one byte of this frame is read; nothing is mapped at the other address.
        let written = unsafe {
            libc::process_vm_writev(supervisor(), &raw const local, 1, &raw const remote, 1, 0)
        };
        written >= 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
    }),
    ("pidfd_getfd", || {
        // SAFETY: neither takes pointers.
        unsafe {
            let other = libc::syscall(libc::SYS_pidfd_open, supervisor(), 0);
            other >= 0 && libc::syscall(libc::SYS_pidfd_getfd, other, 0, 0) >= 0
        }
    }),
    ("open another's memory", || {
        std::fs::File::open(format!("/proc/{}/mem", supervisor())).is_ok()
    }),
    ("signal the supervisor", || {
        // SAFETY: it takes no pointers; signal 0 does nothing.
        unsafe { libc::kill(supervisor(), 0) == 0 }
    }),
    ("a namespace", || {
        // SAFETY: it takes no pointers.
        unsafe { libc::unshare(libc::CLONE_NEWUSER) == 0 || libc::unshare(libc::CLONE_NEWNS) == 0 }
    }),
    ("receive what others send", || {
        let soon = ChannelOptions::new().timeout(Duration::from_millis(1));
        may(|domain| domain.open_with::<Receiver>("private", soon))
    }),
    ("send in another's name", || {
        may(|domain| domain.listen::<Sender>("private"))
    }),
    ("send where it receives", || {
        may(|domain| domain.listen::<Sender>("own"))
    }),
    ("divide memory", || may(|domain| domain.admin().steer())),
    ("a name of no line", || {
        may(|domain| domain.listen::<Sender>("other"))
    }),
];

fn tries(file: &Path) -> Result<(), Failed> {
    let tried = ATTEMPTS.iter().filter(|(_, attempt)| attempt());
    let done: Vec<_> = tried.map(|(name, _)| *name).collect();
    Component::connect()?.receiver("own")?.recv()?;
    Ok(std::fs::write(
        file,
        format!("could: {}\n", done.join(", ")),
    )?)
}
