//! The terminal: keys come from it, frames go to it, and it is restored at each end.
//!
//! A panic restores it before its message, with the hook that `ratatui` sets.

use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_client::Connect;
use command_context::client::Client;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc};

use crate::act::{Done, perform};
use crate::draw::Painter;
use crate::feed::{self, News};
use crate::notify::Notifier;
use crate::view::{Action, View};

/// Time that the thread of the keys waits before it looks if it has to end.
const LOOK: Duration = Duration::from_millis(100);
/// Number of keys that may wait.
const KEYS: usize = 64;

/// Returns true if there is a terminal to draw on and to read keys from.
pub fn is_possible() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// The terminal in its other mode, until this value is dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| leave())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    // A terminal that is gone has no mode to restore.
    let _ = ratatui::try_restore();
}

/// Input of the terminal.
enum Input {
    Key(KeyEvent),
    Resize,
    /// The terminal is gone.
    End,
}

/// The thread that reads the terminal. It ends when this value is dropped.
struct Keys {
    received: mpsc::Receiver<Input>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    fn start() -> io::Result<Self> {
        let (to, received) = mpsc::channel(KEYS);
        let stop = Arc::new(AtomicBool::new(false));
        let ended = stop.clone();
        let thread = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            while !ended.load(Ordering::Acquire) {
                let input = match event::poll(LOOK).and_then(|ready| ready.then(event::read).transpose()) {
                    Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => Input::Key(key),
                    Ok(Some(Event::Resize(..))) => Input::Resize,
                    Ok(_) => continue,
                    Err(_) => Input::End,
                };
                let is_end = matches!(input, Input::End);
                if to.blocking_send(input).is_err() || is_end {
                    return;
                }
            }
        })?;
        Ok(Self { received, stop, thread: Some(thread) })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A thread that waits for room in the channel ends with this.
        self.received.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Signals that end the program, each with its number.
struct Signals([(Signal, u8); 3]);

impl Signals {
    fn new() -> io::Result<Self> {
        let of = |kind: SignalKind, number| Ok::<_, io::Error>((signal(kind)?, number));
        Ok(Self([
            of(SignalKind::hangup(), 1)?,
            of(SignalKind::interrupt(), 2)?,
            of(SignalKind::terminate(), 15)?,
        ]))
    }

    async fn next(&mut self) -> u8 {
        let [(hangup, one), (interrupt, two), (terminate, three)] = &mut self.0;
        tokio::select! {
            _ = hangup.recv() => *one,
            _ = interrupt.recv() => *two,
            _ = terminate.recv() => *three,
        }
    }
}

type Working = Pin<Box<dyn Future<Output = Done>>>;

/// Shows the pending approvals of a run, or of all with an empty id, one after the other, to be decided on.
pub async fn review(daemon: &Connect, first: Client, run_id: String) -> Ended {
    run(daemon, first, View::reviewing(run_id)).await
}

/// Shows the screen until the user leaves it.
pub(crate) async fn run(daemon: &Connect, first: Client, mut view: View) -> Ended {
    let mut signals = Signals::new()?;
    let mut screen = Screen::enter()?;
    let mut keys = Keys::start()?;
    let painter = Painter { colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    let mut notifier = Notifier::default();
    let (to, mut news) = mpsc::channel(1);
    let hurry = Notify::new();
    let mut client = first.clone();
    let mut feed = std::pin::pin!(feed::keep(daemon, first, to, &hurry));
    let mut working: Option<Working> = None;
    loop {
        if working.is_none()
            && let Some(action) = view.next_approval()
        {
            working = Some(Box::pin(perform(client.clone(), action, None)));
        }
        view.busy = working.is_some();
        screen.0.draw(|frame| painter.draw(frame, &mut view))?;
        tokio::select! {
            refused = &mut feed => return Err(refused),
            number = signals.next() => return Ok(Exit::Command(128 + number)),
            input = keys.received.recv() => match input {
                None | Some(Input::End) => return Err(Failure::failed("the terminal is gone")),
                Some(Input::Resize) => {}
                Some(Input::Key(key)) => match view.key(key, Instant::now()) {
                    None => {}
                    Some(Action::Quit) => return Ok(Exit::Ok),
                    Some(Action::Refresh) => {
                        screen.0.clear()?;
                        hurry.notify_one();
                    }
                    Some(_) if working.is_some() => "wait for the action before".clone_into(&mut view.message),
                    Some(action) => {
                        let call = record(&view, &action);
                        working = Some(Box::pin(perform(client.clone(), action, call)));
                    }
                },
            },
            Some(news) = news.recv() => match news {
                News::Round(with, board) => {
                    client = with;
                    notifier.tell(&board.approvals.items);
                    view.update(*board);
                }
                News::Gone(why) => view.gone = Some(why.to_string()),
            },
            done = finished(&mut working) => {
                working = None;
                take(&mut view, done);
                hurry.notify_one();
            }
        }
    }
}

/// Waits for the action under way, if there is one.
async fn finished(working: &mut Option<Working>) -> Done {
    match working {
        Some(working) => working.await,
        None => pending().await,
    }
}

/// Returns the record of a call that is looked at.
fn record(view: &View, action: &Action) -> Option<wire::v1::AuditEvent> {
    let Action::Look(_, id) = action else { return None };
    view.board.calls.items.iter().find(|event| event.call_id == *id).cloned()
}

fn take(view: &mut View, done: Done) {
    match done {
        Done::Said(message) => view.message = message,
        Done::Closed(message) => {
            view.close();
            view.message = message;
        }
        Done::Text { title, text, approval } => view.read(title, &text, approval),
        Done::Changed { title, text, approval } => {
            view.read(title, &text, Some(approval));
            "it has changed since it was shown: read it again".clone_into(&mut view.message);
        }
    }
}
