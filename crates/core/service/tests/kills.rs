//! The two processes of a service, its clients and the manager, killed at random while calls and streams are in flight: no call hangs, each fails with
//! the party named that is to blame, and the survivors go on.

use std::path::{Path, PathBuf};
use std::time::Duration;
use tranship_core::admin::StatRecord;
use tranship_core::{Domain, ErrorKind};
use tranship_manager::{Config, Listener, Shutdown};
use tranship_service::{CallError, CallOptions, Client, Request, ServiceOptions, Services};
use tranship_testkit::{Control, Peer, Random, Watchdog, child, is_root};

/// The calls of each client between two kills.
const CALLS: u64 = 40;

/// The most bytes of an argument that goes by reference.
const BYTES: u64 = 256 << 10;

child!(
    fn manager(ctl: Control) -> Result<(), String> {
        let path: PathBuf = ctl.recv().map_err(|e| e.to_string())?.ok_or("no path")?;
        let listener = Listener::bind(&path, 0o600).map_err(|e| e.to_string())?;
        ctl.send(&()).map_err(|e| e.to_string())?;
        let stop = Shutdown::new().map_err(|e| e.to_string())?;
        let config = Config {
            orphan_interval: Duration::from_millis(20),
            ..Config::default()
        };
        tranship_manager::run(config, listener, &stop, is_root()).map_err(|e| e.to_string())
    }
);

fn join(ctl: &Control, name: &str) -> Domain {
    let path: PathBuf = ctl.recv().unwrap().unwrap();
    let builder = Domain::builder().name(name).socket(path);
    builder.helper_thread(true).connect().unwrap()
}

child!(
    /// Two workers answer each request with its bytes, each one higher.
    fn server(ctl: Control) -> Result<(), String> {
        let domain = join(&ctl, "server");
        let options = ServiceOptions::new().shared();
        let service = domain.serve_with("work", options);
        let service = service.map_err(|e| e.to_string())?;
        ctl.send(&()).map_err(|e| e.to_string())?;
        let work = || -> Result<(), tranship_core::Error> {
            loop {
                let request = service.recv()?;
                if request.method() == 1 {
                    // So does one whose stream ended by a death.
                    let _ = echo(request);
                    continue;
                }
                let mut bytes = request.to_vec();
                bytes
                    .iter_mut()
                    .for_each(|byte| *byte = byte.wrapping_add(1));
                // A client that died meanwhile takes nothing.
                let _ = match bytes.first().is_some_and(|first| first % 8 == 0) {
                    true => request.fail(b"unlucky").map_err(|e| e.error),
                    false => request.alloc(bytes.len()).and_then(|mut reply| {
                        reply.write(0, &bytes)?;
                        request.reply(reply).map_err(|e| e.error)
                    }),
                };
            }
        };
        let failed = std::thread::scope(|s| {
            let other = s.spawn(work);
            work().and(other.join().expect("a worker"))
        });
        Err(format!("a worker ended: {failed:?}"))
    }
);

/// Sends each item back, and their number as the answer.
fn echo(request: Request) -> Result<(), tranship_core::Error> {
    let mut items = 0;
    while let Some(item) = request.recv()? {
        let mut back = request.alloc(item.len())?;
        back.write(0, &item.to_vec())?;
        request.send(back).map_err(|e| e.error)?;
        items += 1u8;
    }
    request.reply(&[items]).map_err(|e| e.error)
}

child!(
    /// Makes as many calls as it is told, whatever dies meanwhile.
    fn client(ctl: Control) -> Result<(), String> {
        let domain = join(&ctl, "client");
        let mut random = Random::seeded(u64::from(std::process::id()));
        let mut client: Option<Client> = None;
        ctl.send(&()).map_err(|e| e.to_string())?;
        while let Some(calls) = ctl.recv::<u64>().map_err(|e| e.to_string())? {
            let mut done = 0;
            while done < calls {
                let service = match &client {
                    Some(service) => service,
                    None => match domain.client("work") {
                        Ok(made) => client.insert(made),
                        Err(error) if error == ErrorKind::ManagerAway => continue,
                        Err(error) => return Err(format!("connecting: {error:?}")),
                    },
                };
                match call(service, &mut random) {
                    Ok(()) => done += 1,
                    Err(error) => {
                        let fits =
                            matches!(error.kind(), ErrorKind::PeerDied | ErrorKind::PeerGone);
                        let text = error.to_string();
                        let blames =
                            text.contains("service `work` (domain ") && text.contains(", process ");
                        if error == ErrorKind::ManagerAway {
                            continue; // its pool was not there yet
                        }
                        if !fits || !blames {
                            return Err(format!("blames nobody: {error:?}"));
                        }
                        client = None;
                    }
                }
            }
            ctl.send(&done).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
);

fn call(service: &Client, random: &mut Random) -> Result<(), tranship_core::Error> {
    let first = u8::try_from(random.below(256)).unwrap_or(0);
    let checked = |answer: Result<tranship_core::Message, CallError<_>>, bytes: usize| match answer
    {
        Ok(answer) => {
            let came = answer.to_vec();
            assert_eq!(came, vec![first.wrapping_add(1); bytes]);
            Ok(())
        }
        Err(CallError::Failed(why)) => {
            assert_eq!((why.to_vec(), first % 8), (b"unlucky".to_vec(), 7));
            Ok(())
        }
        Err(other) => Err(tranship_core::Error::from(other.map(drop))),
    };
    match random.below(5) {
        4 => stream(service, random),
        0 => checked(service.call(&[first; 8]).map_err(|e| e.map(|()| ())), 8),
        1 => {
            // Cancelled.
            drop(service.begin(&[first; 8])?);
            Ok(())
        }
        _ => {
            let bytes = usize::try_from(1 + random.below(BYTES)).unwrap_or(1);
            let mut buffer = service.alloc(bytes)?;
            buffer.fill(first);
            checked(service.call(buffer).map_err(|e| e.map(drop)), bytes)
        }
    }
}

fn stream(service: &Client, random: &mut Random) -> Result<(), tranship_core::Error> {
    let options = CallOptions::new().method(1).streams();
    let call = service.begin_with(b"", options)?;
    let items = u8::try_from(random.below(20)).unwrap_or(0);
    for item in 0..items {
        let mut buffer = service.alloc(1000)?;
        buffer.fill(item);
        if let Err(failed) = call.send(buffer) {
            // An answer that comes too early says why.
            assert_ne!(failed.kind(), ErrorKind::ChannelState, "not all was taken");
            return Err(failed.error);
        }
        let back = call.recv()?;
        let back = back.map_or_else(Vec::new, |back| back.to_vec());
        if back != vec![item; 1000] {
            // Over too early: its worker let go.
            return Err(call
                .wait()
                .map_or_else(Into::into, |answer| panic!("{answer:?}")));
        }
    }
    call.finish();
    assert_eq!(call.wait()?.to_vec(), [items]);
    Ok(())
}

fn start(launch: tranship_testkit::Launch, path: &Path) -> Peer {
    let peer = launch.start().unwrap();
    peer.ask::<()>(path);
    peer
}

#[test]
fn no_caller_hangs_and_the_right_party_is_named() {
    let dog = Watchdog::new();
    let folder = tranship_testkit::folder().unwrap();
    let path = folder.path().join("manager");
    let mut random = Random::printed("service kills");
    let mut clerk = start(manager(), &path);
    let mut serving = [start(server(), &path), start(server(), &path)];
    let mut calling = [start(client(), &path), start(client(), &path)];
    for kill in 0..tranship_testkit::kills(60, 2000) {
        dog.step(format_args!("kill {kill}"));
        calling
            .iter()
            .for_each(|client| client.send(&CALLS).unwrap());
        random.instant(Duration::from_millis(15));
        match random.below(8) {
            0 => {
                clerk.kill();
                clerk = start(manager(), &path);
            }
            1..4 => {
                let at = usize::try_from(random.below(2)).unwrap();
                calling[at].kill();
                calling[at] = start(client(), &path);
                calling[at].send(&CALLS).unwrap();
            }
            _ => {
                let at = usize::try_from(random.below(2)).unwrap();
                serving[at].kill();
                serving[at] = start(server(), &path);
            }
        }
        for client in &calling {
            assert_eq!(client.expect::<u64>(), CALLS);
        }
    }
    dog.step("the end");
    calling.iter().for_each(|client| _ = client.kill());
    serving.iter().for_each(|server| _ = server.kill());
    let guest = Domain::builder()
        .name("guest")
        .socket(&path)
        .connect()
        .unwrap();
    // Nothing is left of the dead but their records, until those go.
    loop {
        let books = guest.admin().stat().expect("stat");
        let left = |record: &StatRecord| match record {
            StatRecord::Manager(m) => m.granted_bytes != 0 || m.stranded_bytes != 0,
            StatRecord::Domain(domain) => domain.domain != guest.id(),
            _ => true,
        };
        if !books.iter().any(left) {
            break;
        }
        std::thread::yield_now();
    }
    drop(clerk);
}
