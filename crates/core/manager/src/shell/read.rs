//! Reading clients' messages.

use super::conn::Carrying;
use super::conns::violation;
use super::parts::Shell;
use super::worker::Carried;
use crate::state::{ClientId, Facts, Fd, FdToken, Input};
use std::io;
use std::os::fd::OwnedFd;
use tranship_proto::{MAX_FDS, MAX_MESSAGE_BYTES, Refusal, RefusalCode, Request, decode};
use tranship_region::layout::ControlPageRw;
use tranship_sys::epoll::Ready;
use tranship_sys::{process, socket};

/// Messages taken from a client in one task.
const TURN: usize = 16;
/// Messages of an ended process that are still read. Its own messages are in the socket already; its children may go on
/// writing for ever.
const LAST_WORDS: u32 = 1024;

/// The result of reading.
#[derive(PartialEq, Eq)]
enum Got {
    Message,
    Nothing,
    Gone,
}

impl Shell {
    pub(super) fn client_ready(&mut self, client: ClientId, ready: Ready) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        if ready.writable || (ready.hung_up && conn.blocked) {
            self.plan_write(client);
        }
        if ready.readable || ready.hung_up {
            self.plan_read(client);
        }
    }

    /// Takes some messages of a client.
    pub(super) fn read(&mut self, client: ClientId) {
        if let Some(conn) = self.conns.get_mut(&client) {
            conn.reading = false;
        }
        for _ in 0..TURN {
            match self.conns.get(&client) {
                Some(conn) if conn.may_read() => {}
                Some(_) => return self.rewatch(client),
                None => return,
            }
            let got = self.read_one(client);
            self.heard(client, &got);
            if got != Got::Message {
                return self.rewatch(client);
            }
        }
        self.plan_read(client);
    }

    fn read_one(&mut self, client: ClientId) -> Got {
        let Some(conn) = self.conns.get_mut(&client) else {
            return Got::Gone;
        };
        if conn.bare && !conn.greeted {
            return self.read_bare(client);
        }
        let mut buf = std::mem::take(&mut self.buf);
        let got = match socket::peek(&conn.fd, &mut buf) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
            Ok(front) if front.brings => {
                conn.carried = Carrying::Waiting;
                let uid = conn.uid;
                if let Some(party) = self.parties.get_mut(&uid) {
                    party.carry.push_back(client);
                }
                self.use_workers(uid);
                Got::Message
            }
            Ok(front) if front.bytes > 0 && socket::drop_front(&conn.fd).is_ok() => {
                let bytes = &buf[..front.bytes.min(buf.len())];
                self.message(client, bytes, front.truncated);
                Got::Message
            }
            _ => {
                self.hang_up(client);
                Got::Gone
            }
        };
        self.buf = buf;
        got
    }

    /// Reads a connection that the kernel keeps free of descriptors. Only the sender's identity comes with its
    /// messages.
    fn read_bare(&mut self, client: ClientId) -> Got {
        let Some(conn) = self.conns.get(&client) else {
            return Got::Gone;
        };
        let uid = conn.uid;
        match socket::recvmsg(&conn.fd, &mut self.buf, true) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Got::Nothing,
            Ok(received) if received.bytes > 0 => {
                let bytes = self.buf[..received.bytes.min(self.buf.len())].to_vec();
                let carried = Carried {
                    ended: false,
                    bytes,
                    truncated: received.truncated,
                    ctrunc: received.ctrunc,
                    came: 0,
                    fds: Vec::new(),
                    pidfd: received.pidfd,
                };
                self.carried(client, uid, carried);
                Got::Message
            }
            _ => {
                self.hang_up(client);
                Got::Gone
            }
        }
    }

    /// Handles that a worker has brought a client's message.
    pub(super) fn arrived(&mut self, client: ClientId) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let Carrying::Arrived(carried) = std::mem::replace(&mut conn.carried, Carrying::No) else {
            return;
        };
        let uid = conn.uid;
        let got = if carried.ended && carried.came == 0 {
            self.hang_up(client);
            Got::Gone
        } else {
            self.carried(client, uid, *carried);
            Got::Message
        };
        self.heard(client, &got);
        self.plan_read(client);
        self.rewatch(client);
    }

    /// Handles the loss of a worker that was sent for a client's message. If the message may be lost too, the
    /// connection is closed: its client comes back, and claims what it has.
    pub(super) fn lost(&mut self, client: ClientId, before: bool) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        if before {
            conn.carried = Carrying::No;
            self.plan_read(client);
            self.rewatch(client);
        } else {
            tracing::warn!("a message was lost with the process that took it");
            self.hang_up(client);
        }
    }

    fn hang_up(&mut self, client: ClientId) {
        let dying = self.conns.get_mut(&client).and_then(|c| c.dying.take());
        self.drop_conn(client);
        self.feed(Input::HungUp { client });
        if let Some((domain, _)) = dying {
            self.feed(Input::ProcessDied { domain });
        }
    }

    /// Counts down the messages that an ended process may still send.
    fn heard(&mut self, client: ClientId, got: &Got) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let Some((domain, left)) = &mut conn.dying else {
            return;
        };
        *left -= 1;
        if *got == Got::Nothing || *left == 0 {
            let domain = *domain;
            conn.dying = None;
            self.feed(Input::ProcessDied { domain });
        }
    }

    /// Handles the end of a process: its earlier messages still count.
    pub(super) fn last_words(&mut self, pidfd: FdToken) {
        let Some(domain) = self.watches.get(&pidfd).copied() else {
            return;
        };
        let client = self.connected.get(&domain).copied();
        match client.and_then(|c| Some((c, self.conns.get_mut(&c)?))) {
            Some((client, conn)) => {
                conn.dying = Some((domain, LAST_WORDS));
                let uid = conn.uid;
                self.plan_read(client);
                self.let_the_dying_go(uid);
            }
            None => self.feed(Input::ProcessDied { domain }),
        }
    }

    /// Handles a message with descriptors.
    fn carried(&mut self, client: ClientId, uid: u32, carried: Carried) {
        let request = decode::<Request>(&carried.bytes);
        let given = carried.fds.iter().filter(|(_, fd)| fd.is_some()).count();
        let wanted = carried.fds.iter().filter(|(f, _)| f.sealed.is_memory());
        // There was no room for the prescribed descriptors, in a worker or here.
        let lost = given < wanted.count();
        let mut fds = Vec::new();
        for (facts, fd) in carried.fds {
            let token = self.keep_sent(uid, &facts, fd);
            fds.push(Fd { token, facts });
        }
        let lacks = |request: &Request| {
            let hello = matches!(request, Request::Hello { .. }) && carried.pidfd.is_none();
            lost || carried.came < request.fds() || (hello && carried.came == 0)
        };
        let refused = match &request {
            Ok(request) if carried.ctrunc && lacks(request) => {
                tracing::warn!(
                    open = self.fds.len(),
                    "no descriptors left, a request is refused"
                );
                Some(Input::Crippled {
                    client,
                    request: request.clone(),
                })
            }
            _ if carried.ctrunc || carried.came > MAX_FDS => {
                let refusal = violation(RefusalCode::BadDescriptor, carried.came, MAX_FDS);
                Some(Input::Violation { client, refusal })
            }
            _ => unreadable(client, carried.bytes.len(), carried.truncated, &request),
        };
        match (refused, request) {
            (None, Ok(request @ Request::Hello { .. })) if fds.is_empty() => {
                self.hello(client, request, carried.pidfd);
            }
            (None, Ok(request)) => self.request(client, uid, request, fds),
            (Some(refused), _) => {
                fds.iter().for_each(|fd| drop(self.fds.remove(&fd.token)));
                self.feed(refused);
            }
            (None, Err(_)) => {}
        }
    }

    /// Handles a message without descriptors.
    fn message(&mut self, client: ClientId, bytes: &[u8], truncated: bool) {
        let request = decode::<Request>(bytes);
        let refused = unreadable(client, bytes.len(), truncated, &request);
        match (refused, request) {
            (Some(refused), _) => self.feed(refused),
            (None, Ok(request @ Request::Hello { .. })) => self.hello(client, request, None),
            (None, Ok(request)) => {
                let uid = self.conns.get(&client).map_or(0, |c| c.uid);
                self.request(client, uid, request, Vec::new());
            }
            (None, Err(_)) => {}
        }
    }

    fn request(&mut self, client: ClientId, uid: u32, request: Request, mut fds: Vec<Fd>) {
        let input = match ends(&request) {
            Ok(made) => {
                fds.extend(made.into_iter().flatten().map(|end| Fd {
                    token: self.keep_shared(uid, end),
                    facts: Facts {
                        made_here: true,
                        ..Facts::default()
                    },
                }));
                Input::Request {
                    client,
                    request,
                    fds,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no sockets for a request");
                fds.iter().for_each(|fd| drop(self.fds.remove(&fd.token)));
                Input::Crippled { client, request }
            }
        };
        self.feed(input);
    }

    fn hello(&mut self, client: ClientId, request: Request, pidfd: Option<OwnedFd>) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let said = pidfd.as_ref().map(|sayer| who_greets(&conn.fd, sayer));
        let process = match said {
            Some(Ok(None)) => {
                let refusal = Refusal {
                    code: RefusalCode::Access,
                    asked: conn.uid.into(),
                    available: 0,
                };
                return self.feed(Input::Violation { client, refusal });
            }
            Some(Ok(process)) => process,
            // No descriptors to find out with.
            Some(Err(_)) | None => None,
        };
        let pidfd = pidfd.filter(|_| process.is_some());
        let control_page = match (
            conn.greeted,
            ControlPageRw::create(self.control_page_entries, self.instance),
        ) {
            (false, Ok((fd, control_page))) => Some((fd, control_page)),
            (false, Err(error)) => {
                tracing::warn!(%error, "no control page for a client");
                None
            }
            (true, _) => None,
        };
        conn.greeted = true;
        let uid = conn.uid;
        let _ = socket::pass_pidfd(&conn.fd, false);
        let _ = socket::pass_rights(&conn.fd, true);
        let control_page = control_page.map(|(fd, control_page)| {
            if self.scheduled {
                control_page.set_scheduled();
            }
            let token = self.keep_own(uid, fd);
            self.control_pages.insert(token, control_page);
            token
        });
        if let Some(conn) = self.conns.get_mut(&client) {
            conn.control_page = conn.control_page.or(control_page);
        }
        let pidfd = pidfd.map(|fd| self.keep_own(uid, fd));
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process: process.unwrap_or(0),
            control_page,
        });
    }
}

/// Makes the two sockets that two clients are going to share. If a client made them, it could keep the other's end busy
/// (`docs/threat-model.md`).
fn ends(request: &Request) -> io::Result<Option<[OwnedFd; 2]>> {
    let is_shared = matches!(request, Request::WakeFd { .. });
    is_shared
        .then(|| socket::one_way().map(<[OwnedFd; 2]>::from))
        .transpose()
}

/// Returns the input for bytes that are no request.
fn unreadable<E>(
    client: ClientId,
    bytes: usize,
    truncated: bool,
    request: &Result<Request, E>,
) -> Option<Input> {
    let refusal = match request {
        _ if truncated => violation(RefusalCode::BadArgument, bytes, MAX_MESSAGE_BYTES),
        Err(_) => violation(RefusalCode::BadArgument, bytes, 0),
        Ok(_) => return None,
    };
    Some(Input::Violation { client, refusal })
}

/// Identifies the process that says hello, if it has made the connection. A process may be made to write into another's
/// connection, and such words say nothing about that other process.
fn who_greets(conn: &OwnedFd, sayer: &OwnedFd) -> io::Result<Option<u64>> {
    let process = process_identity(sayer)?;
    let made = socket::peer_pidfd(conn)?;
    let made = made.map(|by| process_identity(&by)).transpose()?;
    Ok((made == Some(process)).then_some(process))
}

/// Returns a number that distinguishes processes as long as the machine runs: pidfds of one process share an inode.
pub(super) fn process_identity(pidfd: &OwnedFd) -> io::Result<u64> {
    use std::os::fd::AsRawFd;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let mut lines = info.lines();
    let pid = lines.find_map(|l| l.strip_prefix("Pid:")?.trim().parse::<u64>().ok());
    let (_, inode) = process::identity(pidfd)?;
    Ok(inode.wrapping_mul(1 << 22).wrapping_add(pid.unwrap_or(0)))
}
