//! One client's connection: accepting, reading, sending.

use super::{CLIENT, Shell, TURN, facts};
use crate::state::{ClientId, Facts, Fd, FdToken, Input};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tranship_proto::{Event, MAX_MESSAGE_BYTES, Refusal, RefusalCode, Request, decode, encode};
use tranship_region::layout::BoardRw;
use tranship_sys::epoll::{Interest, Ready};
use tranship_sys::socket::{self, Received};
use tranship_sys::{crash, futex};

/// A message on its way out, with its own hold on its descriptors.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub bytes: Vec<u8>,
    pub fds: Vec<Arc<File>>,
}

#[derive(Debug)]
pub(super) struct Conn {
    pub fd: OwnedFd,
    pub queue: VecDeque<Outgoing>,
    pub greeted: bool,
    pub board: Option<FdToken>,
    /// Epoll also waits for room.
    pub wants_room: bool,
}

fn violation(code: RefusalCode, asked: usize, available: usize) -> Refusal {
    Refusal {
        code,
        asked: asked as u64,
        available: available as u64,
    }
}

impl Shell {
    pub(super) fn accept(&mut self) {
        for _ in 0..TURN {
            let fd = match socket::accept(&self.listener) {
                Ok(fd) => fd,
                Err(_) => return,
            };
            let open = self.conns.len() + self.fds.len();
            if open >= self.max_files {
                tracing::warn!(open, "no descriptors left, connection refused");
                let refusal = violation(RefusalCode::NoDescriptors, open, self.max_files);
                let _ = socket::sendmsg(&fd, &encode(&Event::Expelled { refusal }), &[], true);
                continue;
            }
            let client = ClientId(self.next_client);
            self.next_client += 1;
            if let Err(error) = self.adopt(client, fd) {
                tracing::warn!(%error, "connection not taken");
            }
        }
    }

    fn adopt(&mut self, client: ClientId, fd: OwnedFd) -> io::Result<()> {
        socket::set_nonblocking(&fd, true)?;
        socket::pass_pidfd(&fd, true)?;
        // No message before `Welcome` brings descriptors.
        let _ = socket::pass_rights(&fd, false);
        let creds = socket::peer_credentials(&fd)?;
        self.epoll.add(&fd, CLIENT | client.0, Interest::Read)?;
        let conn = Conn {
            fd,
            queue: VecDeque::new(),
            greeted: false,
            board: None,
            wants_room: false,
        };
        self.conns.insert(client, conn);
        self.feed(Input::Connected {
            client,
            uid: creds.uid,
            gid: creds.gid,
            pid: creds.pid,
        });
        Ok(())
    }

    pub(super) fn client_ready(&mut self, client: ClientId, ready: Ready) {
        if ready.writable {
            self.dirty.insert(client);
            self.flush_all();
        }
        if ready.readable || ready.hung_up {
            for _ in 0..TURN {
                if !self.conns.contains_key(&client) || !self.read_one(client) {
                    return;
                }
            }
        }
    }

    /// Takes one message; `false` when there is none.
    pub(super) fn read_one(&mut self, client: ClientId) -> bool {
        let Some(conn) = self.conns.get(&client) else {
            return false;
        };
        let mut buf = [0u8; MAX_MESSAGE_BYTES + 1];
        match socket::recvmsg(&conn.fd, &mut buf, true) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => false,
            Err(_) => {
                self.hang_up(client);
                false
            }
            Ok(r) if r.bytes == 0 => {
                self.hang_up(client);
                false
            }
            Ok(r) => {
                self.message(client, &buf, r);
                true
            }
        }
    }

    fn hang_up(&mut self, client: ClientId) {
        self.drop_conn(client);
        self.feed(Input::HungUp { client });
    }

    pub(super) fn drop_conn(&mut self, client: ClientId) -> Option<Conn> {
        let conn = self.conns.remove(&client)?;
        let _ = self.epoll.remove(&conn.fd);
        self.connected.retain(|_, c| *c != client);
        self.dirty.remove(&client);
        self.throttled.remove(&client);
        Some(conn)
    }

    fn message(&mut self, client: ClientId, buf: &[u8], r: Received) {
        let bytes = &buf[..r.bytes.min(buf.len())];
        let decoded = decode::<Request>(bytes);
        let refused = if r.ctrunc {
            // Descriptors were left out. Only those that the message prescribes are missing for want of room here.
            let lacks = |request: &Request| {
                let hello = matches!(request, Request::Hello { .. }) && r.pidfd.is_none();
                r.fds.len() < request.fds() || (hello && r.fds.is_empty())
            };
            if let Some(request) = decoded.as_ref().ok().filter(|request| lacks(request)) {
                let request = request.clone();
                tracing::warn!(
                    open = self.fds.len(),
                    "no descriptors left, a request is refused"
                );
                return self.feed(Input::Crippled { client, request });
            }
            Some(violation(
                RefusalCode::BadDescriptor,
                r.fds.len(),
                socket::MAX_FDS,
            ))
        } else if r.truncated {
            Some(violation(
                RefusalCode::BadArgument,
                r.bytes,
                MAX_MESSAGE_BYTES,
            ))
        } else {
            None
        };
        let request = match (refused, decoded) {
            (Some(refusal), _) => return self.feed(Input::Violation { client, refusal }),
            (None, Err(_)) => {
                let refusal = violation(RefusalCode::BadArgument, bytes.len(), 0);
                return self.feed(Input::Violation { client, refusal });
            }
            (None, Ok(request)) => request,
        };
        if matches!(request, Request::Hello { .. }) && r.fds.is_empty() {
            return self.hello(client, request, r.pidfd);
        }
        // A surplus is closed before anything is looked at.
        let surplus = r.fds.len() != request.fds();
        let mut fds = Vec::new();
        for file in r.fds.into_iter().map(File::from) {
            let facts = if surplus {
                Default::default()
            } else {
                facts::look(&file)
            };
            fds.push(Fd {
                token: self.keep(file.into()),
                facts,
            });
        }
        if !surplus {
            match ends(&request) {
                Ok(made) => fds.extend(made.into_iter().flatten().map(|end| Fd {
                    token: self.keep(end),
                    facts: Facts {
                        made_here: true,
                        ..Facts::default()
                    },
                })),
                Err(error) => {
                    tracing::warn!(%error, "no sockets for a request");
                    return self.feed(Input::Crippled { client, request });
                }
            }
        }
        self.feed(Input::Request {
            client,
            request,
            fds,
        });
    }

    fn hello(&mut self, client: ClientId, request: Request, pidfd: Option<OwnedFd>) {
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        let board = match (
            conn.greeted,
            BoardRw::create(self.board_entries, self.instance),
        ) {
            (false, Ok((fd, board))) => Some((fd, board)),
            (false, Err(error)) => {
                tracing::warn!(%error, "no board for a client");
                None
            }
            (true, _) => None,
        };
        conn.greeted = true;
        let _ = socket::pass_pidfd(&conn.fd, false);
        let _ = socket::pass_rights(&conn.fd, true);
        let board = board.map(|(fd, board)| {
            let token = self.keep(fd);
            self.boards.insert(token, board);
            token
        });
        if let Some(conn) = self.conns.get_mut(&client) {
            conn.board = conn.board.or(board);
        }
        let process = pidfd.as_ref().map_or(0, process_identity);
        let pidfd = pidfd.map(|fd| self.keep(fd));
        self.feed(Input::Hello {
            client,
            request,
            pidfd,
            process,
            board,
        });
    }

    pub(super) fn queue(&mut self, client: ClientId, event: &Event, fds: &[FdToken]) {
        let fds: Vec<Arc<File>> = fds
            .iter()
            .filter_map(|t| self.fds.get(t).cloned())
            .collect();
        let Some(conn) = self.conns.get_mut(&client) else {
            return;
        };
        conn.queue.push_back(Outgoing {
            bytes: encode(event),
            fds,
        });
        self.dirty.insert(client);
        if let Event::Welcome { domain, .. } = event {
            self.connected.insert(*domain, client);
        }
    }

    /// Sends what can be sent, tells the state, and goes on with what that gives.
    pub(super) fn flush_all(&mut self) {
        while let Some(client) = self.dirty.pop_first() {
            let sent = self.flush(client);
            for _ in 0..sent {
                self.answers.push_back(Input::Sent { client });
            }
            if self.conns.get(&client).is_some_and(|c| !c.queue.is_empty()) {
                self.answers.push_back(Input::Blocked { client });
            }
            while let Some(input) = self.answers.pop_front() {
                let actions = self.state.step(self.started.elapsed(), input);
                for action in actions {
                    self.act(action);
                }
            }
        }
    }

    fn flush(&mut self, client: ClientId) -> usize {
        let Some(conn) = self.conns.get_mut(&client) else {
            return 0;
        };
        let mut sent = 0;
        let mut blocked = false;
        while let Some(out) = conn.queue.front() {
            let fds: Vec<BorrowedFd<'_>> = out.fds.iter().map(|f| f.as_fd()).collect();
            // Crash: of what belongs together one client may have heard and another not: the next manager says it again to
            // who claims.
            crash::point("manager.before_send");
            match socket::sendmsg(&conn.fd, &out.bytes, &fds, true) {
                Ok(()) => {
                    conn.queue.pop_front();
                    sent += 1;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    blocked = true;
                    break;
                }
                Err(e) if e.raw_os_error() == Some(TOO_MANY_REFS) => {
                    self.throttled.insert(client);
                    break;
                }
                // Reading will find the hang-up, after what it still has to say.
                Err(_) => break,
            }
        }
        if blocked != conn.wants_room {
            let interest = if blocked {
                Interest::ReadWrite
            } else {
                Interest::Read
            };
            if self
                .epoll
                .modify(&conn.fd, CLIENT | client.0, interest)
                .is_ok()
            {
                conn.wants_room = blocked;
            }
        }
        if sent > 0
            && let Some(board) = conn.board.and_then(|t| self.boards.get(&t))
        {
            // Ordering: Release; partner is the client's acquire load of `wake` before it looks at its socket.
            board.wake().fetch_add(1, Ordering::Release);
            let _ = futex::wake(board.wake(), u32::MAX >> 1);
        }
        sent
    }

    /// The connection goes, after one attempt to say why.
    pub(super) fn part(&mut self, client: ClientId, refusal: Option<Refusal>) {
        self.flush(client);
        let Some(conn) = self.drop_conn(client) else {
            return;
        };
        if let (Some(refusal), true) = (refusal, conn.queue.is_empty()) {
            let _ = socket::sendmsg(&conn.fd, &encode(&Event::Expelled { refusal }), &[], true);
        }
        let _ = socket::shutdown(&conn.fd);
    }
}

/// What two clients are going to share is made here: neither then has the end of the other, which it could keep busy
/// (`docs/threat-model.md`).
fn ends(request: &Request) -> io::Result<Option<[OwnedFd; 2]>> {
    let (near, far) = match request {
        Request::ConnectSocket { .. } => socket::pair()?,
        Request::WakeFd { .. } => socket::one_way()?,
        _ => return Ok(None),
    };
    Ok(Some([near, far]))
}

/// ETOOMANYREFS: too many descriptors of ours are in flight.
const TOO_MANY_REFS: i32 = 109;

/// Tells processes apart for as long as the machine runs: pidfds of one process share an inode.
fn process_identity(pidfd: &OwnedFd) -> u64 {
    let pid = || {
        use std::os::fd::AsRawFd;
        let info =
            std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
        info.lines()
            .find_map(|l| l.strip_prefix("Pid:")?.trim().parse::<u64>().ok())
    };
    let inode = pidfd
        .try_clone()
        .ok()
        .and_then(|fd| File::from(fd).metadata().ok())
        .map_or(0, |m| m.ino());
    inode.wrapping_mul(1 << 22).wrapping_add(pid().unwrap_or(0))
}
