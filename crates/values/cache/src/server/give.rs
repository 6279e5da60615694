//! The server's side of a hand-over: a thread waits for a successor at the control socket.

use super::handover::{Say, as_file, hear, is_friend, odd, say, write_down};
use super::running::{Crew, Running};
use super::worker::Worker;
use crate::image::FORMAT;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use tranship_sys::{epoll, socket};

/// Most bytes of untaken replies that are handed over for a client. A client with more loses its connection, as slow
/// clients do.
const REPLIES: usize = 1 << 20;

/// Waits for successors until the server ends or one has come.
pub(super) fn wait(running: &Arc<Running>, listener: &OwnedFd, doorbell: &OwnedFd) {
    loop {
        let both = [listener.as_fd(), doorbell.as_fd()];
        if epoll::wait_any_readable(&both, None).is_err() || running.is_stopping() {
            return;
        }
        let given = socket::accept(listener).and_then(|to| meet(running, &to, listener));
        match given {
            Ok(Some(pid)) => return running.gone(pid),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the cache was not handed over, and is served on"),
        }
    }
}

/// Returns the process that has it now, if it is another one.
fn meet(running: &Arc<Running>, to: &OwnedFd, listener: &OwnedFd) -> io::Result<Option<u32>> {
    if !is_friend(to)? {
        return Err(odd("a process of another user asked for the cache"));
    }
    let Some(heard) = hear(to)? else {
        return Ok(None);
    };
    match heard.say {
        Say::Take(FORMAT) => {}
        Say::Take(other) => {
            let why = format!("it hands over in format {FORMAT}, and not in {other}");
            say(to, &Say::No(why), &[])?;
            return Ok(None);
        }
        _ => return Err(odd("a successor that begins with something else")),
    }
    let mut crew = running.pause();
    let given = match running.failure() {
        None => give(running, &mut crew, to, listener),
        // Work that a thread left half done must not be continued.
        Some(why) => say(to, &Say::No(why.clone()), &[]).and(Err(odd(why))),
    };
    if given.is_ok() {
        // The threads have nothing to give back any more: the arena is not ours.
        drop(crew);
    } else {
        running.shared.store.arena().take_back();
        running.serve(crew)?;
    }
    given?;
    Ok(Some(socket::peer_credentials(to)?.pid))
}

fn give(running: &Running, crew: &mut Crew, to: &OwnedFd, listener: &OwnedFd) -> io::Result<()> {
    let shared = &running.shared;
    shared.store.arena().give_away();
    let (mut image, lost) = write_down(shared);
    let mut streams: Vec<BorrowedFd<'_>> = Vec::new();
    let mut slow = 0;
    for connection in crew.workers.iter().flat_map(Worker::connections) {
        match connection.write_down(REPLIES) {
            Some(client) => {
                image.connections.push(client);
                streams.push(connection.stream().as_fd());
            }
            None => slow += 1,
        }
    }
    let (items, clients) = (image.items.len(), streams.len());
    let bytes = as_file(&image.encode())?;
    drop(image);
    let mut fds = vec![
        shared.store.file(),
        bytes.as_fd(),
        listener.as_fd(),
        running.listener.as_fd(),
    ];
    fds.extend(running.datagrams.as_ref().map(AsFd::as_fd));
    say(to, &Say::Image, &fds)?;
    for some in streams.chunks(socket::MAX_FDS) {
        say(to, &Say::Connections, some)?;
    }
    match hear(to)?.map(|heard| heard.say) {
        Some(Say::Ready) => {}
        Some(Say::No(why)) => return Err(odd(format!("the successor cannot use it: {why}"))),
        _ => return Err(odd("the successor went away")),
    }
    // The name is to be had when the successor goes on; its readers come to that.
    crew.share_server = None;
    // From here on the cache is the successor's, whether the successor hears this or that we are dead.
    let _ = say(to, &Say::Yours, &[]);
    tracing::info!(items, clients, lost, slow, "handed over");
    Ok(())
}
