//! The terminal: taken, drawn on, and given back whatever ends this.

use super::app::App;
use super::batch::sort_of;
use super::draw::draw;
use super::keys::Flow;
use super::source::Source;
use crate::args::top::{Tab, TopArgs};
use crate::exit::Answer;
use crate::output;
use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tranship_manager::page::Snapshot;

/// Event for the screen.
enum News {
    Key(Event),
    Page(Box<Result<Snapshot>>),
    Signal(i32),
    /// No key can be typed any more.
    Deaf,
}

/// Interval between two looks at the page; the looking thread reads it before each look.
type Pace = Arc<Mutex<Duration>>;

/// Longest time between two drawings, for the age of the figures.
const REDRAW: Duration = Duration::from_secs(1);

pub(super) fn run(args: &TopArgs, source: Source) -> Result<Answer> {
    let colour = output::colour_on_stdout();
    let mut app = App::new(
        args.show.unwrap_or(Tab::Pools),
        &args.filter,
        args.every,
        colour,
    );
    if let Some((tab, sort)) = sort_of(args)? {
        app.sorts[tab as usize] = sort;
    }
    let (send, news) = sync_channel(64);
    let signals = Signals::new([SIGTERM, SIGHUP, SIGINT]).context("taking signals")?;
    // This also gives the terminal back when something here panics.
    let mut terminal = ratatui::try_init().context("taking the terminal")?;
    let pace: Pace = Arc::new(Mutex::new(args.every));
    start(send, signals, source, Arc::clone(&pace));
    let ended = serve(&mut app, &mut terminal, &news, &pace);
    // This shows the cursor again.
    drop(terminal);
    ratatui::restore();
    match ended? {
        Some(signal) => {
            // The signal then acts as if it had never been caught.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            Ok(Answer::No)
        }
        None => Ok(Answer::Yes),
    }
}

/// Starts three threads that wait: for keys, for signals, for pages. They end with the process.
fn start(send: SyncSender<News>, mut signals: Signals, mut source: Source, pace: Pace) {
    let keys = send.clone();
    std::thread::spawn(move || {
        loop {
            match event::read() {
                Ok(event) => {
                    if keys.send(News::Key(event)).is_err() {
                        return;
                    }
                }
                Err(_) => {
                    let _ = keys.send(News::Deaf);
                    return;
                }
            }
        }
    });
    let signalled = send.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let _ = signalled.send(News::Signal(signal));
        }
    });
    std::thread::spawn(move || {
        loop {
            let begun = Instant::now();
            if send.send(News::Page(Box::new(source.look()))).is_err() {
                return;
            }
            let every = *pace.lock().unwrap_or_else(PoisonError::into_inner);
            std::thread::sleep((begun + every).saturating_duration_since(Instant::now()));
        }
    });
}

/// Serves until the user leaves; returns the signal that was the reason.
fn serve(
    app: &mut App,
    terminal: &mut DefaultTerminal,
    news: &Receiver<News>,
    pace: &Pace,
) -> Result<Option<i32>> {
    loop {
        terminal.draw(|frame| draw(app, frame)).context("drawing")?;
        let first = match news.recv_timeout(REDRAW) {
            Ok(first) => first,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        };
        // All news that has come is drawn once.
        for one in std::iter::once(first).chain(news.try_iter()) {
            match one {
                News::Key(Event::Key(key)) => {
                    if app.key(key) == Flow::Leave {
                        return Ok(None);
                    }
                    *pace.lock().unwrap_or_else(PoisonError::into_inner) = app.every;
                }
                News::Key(_) => {} // a new size is drawn
                News::Page(said) => match *said {
                    Ok(said) => app.take(&said),
                    Err(error) => app.trouble = Some(format!("{error:#}")),
                },
                News::Signal(signal) => return Ok(Some(signal)),
                News::Deaf => return Ok(None),
            }
        }
    }
}
