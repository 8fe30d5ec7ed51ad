//! A server in the run's container, spoken with over its standard streams: one message a line.
//!
//! ```text
//!  request ─► queue ─► stdin │ server │ stdout ─► lines ─► Incoming ─► whoever waits
//!                ▲───── answers to what it asks of us ◄────────┘
//! ```
//!
//! What a server can make us keep is one line, the queue, and the last words of its standard error. It is read no faster
//! than it is heard; what nobody waits for is counted, and too much of it ends the server. A server that does not read
//! holds up whoever waits for it, until their time is over.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gateway::McpStdio;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fault::Fault;
use super::host::{Host, Output, Pipes};
use super::lines::Lines;
use super::message::{self, Incoming};
use super::text::one_line;

/// Messages that wait for the server to read them.
const QUEUE: usize = 32;
/// Requests that wait for their answers.
const MAX_WAITING: usize = 64;
/// Bytes of messages between two answers that somebody waits for.
const MAX_UNASKED: usize = 16 * 1024 * 1024;
/// Pieces of its output that wait to be heard.
const PIECES: usize = 4;
/// Bytes of standard error that are kept.
const LAST_WORDS: usize = 4 * 1024;
/// For a server that a call was given up on to show that it is alive.
const ALIVE: Duration = Duration::from_secs(5);

/// The stream to a server. Dropping it ends the server, and everything that it started.
pub(super) struct Stdio {
    shared: Arc<Shared>,
    queue: mpsc::Sender<String>,
    _end: DropGuard,
}

struct Shared {
    state: Mutex<State>,
    next: AtomicU64,
    changed: AtomicBool,
    /// Cancelled when nothing more can be asked.
    over: CancellationToken,
    /// Ends the server.
    end: CancellationToken,
}

#[derive(Default)]
struct State {
    lines: Lines,
    waiting: HashMap<u64, oneshot::Sender<Result<Value, Fault>>>,
    unasked: usize,
    last_words: VecDeque<u8>,
    why: Option<Fault>,
}

impl Stdio {
    /// Starts the server's program. Whether it can be run is seen when it is first asked.
    pub(super) fn start(host: &dyn Host, name: &str, program: &McpStdio) -> Result<Self, Fault> {
        let end = CancellationToken::new();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            next: AtomicU64::new(1),
            changed: AtomicBool::new(false),
            over: CancellationToken::new(),
            end: end.clone(),
        });
        let (queue, input) = mpsc::channel(QUEUE);
        let (output, written) = mpsc::channel(PIECES);
        host.start(name, program, Pipes { input, output, end: end.clone() })?;
        tokio::spawn(listen(written, queue.clone(), Arc::clone(&shared)));
        Ok(Self { shared, queue, _end: end.drop_guard() })
    }

    /// Asks, and waits for the answer.
    pub(super) async fn request(
        &self,
        method: &str,
        params: &Value,
        until: Instant,
        cancel: &CancellationToken,
    ) -> Result<Value, Fault> {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let mut answer = self.shared.expect(id)?;
        let _forget = Forget { shared: &self.shared, id };
        let line = message::request(id, method, params);
        tokio::select! {
            biased;
            () = self.shared.over.cancelled() => return Err(self.shared.why()),
            () = cancel.cancelled() => return Err(Fault::Cancelled),
            sent = timeout_at(until, self.queue.send(line)) => match sent {
                Err(_) => return Err(self.given_up(Fault::TimedOut)),
                Ok(Err(_)) => return Err(self.shared.why()),
                Ok(Ok(())) => {}
            },
        }
        let fault = tokio::select! {
            biased;
            answer = &mut answer => return answer.unwrap_or_else(|_| Err(self.shared.why())),
            () = self.shared.over.cancelled() => return Err(self.shared.why()),
            () = cancel.cancelled() => Fault::Cancelled,
            () = tokio::time::sleep_until(until) => Fault::TimedOut,
        };
        // A server that does not read hears nothing of it either.
        let _ = self.queue.try_send(message::cancelled(id, &fault.to_string()));
        Err(self.given_up(fault))
    }

    /// Says something that has no answer.
    pub(super) async fn notify(&self, method: &str, params: &Value, until: Instant) -> Result<(), Fault> {
        match timeout_at(until, self.queue.send(message::notification(method, params))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.shared.why()),
            Err(_) => Err(Fault::TimedOut),
        }
    }

    /// Whether the server said, since this was last asked, that it has other tools now.
    pub(super) fn tools_changed(&self) -> bool {
        self.shared.changed.swap(false, Ordering::Relaxed)
    }

    /// Whether it can still be asked.
    pub(super) fn is_over(&self) -> bool {
        self.shared.over.is_cancelled()
    }

    /// The last that it wrote to its standard error, on one line: for the operator's log alone.
    pub(super) fn last_words(&self) -> String {
        let words: Vec<u8> = self.shared.state().last_words.iter().copied().collect();
        one_line(&String::from_utf8_lossy(&words), LAST_WORDS)
    }

    /// A server that hangs is ended, one that only took long is not: the other calls to it go on.
    fn given_up(&self, fault: Fault) -> Fault {
        let (shared, queue) = (Arc::clone(&self.shared), self.queue.clone());
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(answer) = shared.expect(id) {
            let asked = queue.try_send(message::request(id, "ping", &Value::Object(serde_json::Map::new())));
            drop(queue);
            tokio::spawn(async move {
                let _forget = Forget { shared: &shared, id };
                let heard = asked.is_ok() && tokio::time::timeout(ALIVE, answer).await.is_ok();
                if !heard {
                    shared.end(Fault::Lost("it hung and was ended".to_owned()));
                }
            });
        }
        fault
    }
}

/// Nobody waits for the answer any more.
struct Forget<'s> {
    shared: &'s Shared,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.state().waiting.remove(&self.id);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, id: u64) -> Result<oneshot::Receiver<Result<Value, Fault>>, Fault> {
        let mut state = self.state();
        if let Some(why) = &state.why {
            return Err(why.clone());
        }
        if state.waiting.len() >= MAX_WAITING {
            return Err(Fault::Busy);
        }
        let (answer, receiver) = oneshot::channel();
        state.waiting.insert(id, answer);
        state.unasked = 0;
        Ok(receiver)
    }

    /// Nothing more can be asked, for the first reason that there was.
    fn end(&self, why: Fault) {
        let mut state = self.state();
        let why = state.why.get_or_insert(why).clone();
        for (_, waits) in state.waiting.drain() {
            let _ = waits.send(Err(why.clone()));
        }
        drop(state);
        self.over.cancel();
        self.end.cancel();
    }

    fn why(&self) -> Fault {
        self.state().why.clone().unwrap_or_else(|| Fault::Lost("its stream is closed".to_owned()))
    }

    /// Hears bytes of standard output; gives what is to be answered.
    fn heard(&self, data: &[u8]) -> Result<Vec<String>, Fault> {
        let mut state = self.state();
        let mut lines = std::mem::take(&mut state.lines);
        let mut answers = Vec::new();
        let heard = lines.take(data, |line| {
            if line.iter().all(u8::is_ascii_whitespace) {
                return Ok(());
            }
            state.unasked += line.len();
            match Incoming::read(line)? {
                Incoming::Answer { id, answer } => {
                    // One that nobody waits for is late, or made up.
                    if let Some(waits) = state.waiting.remove(&id) {
                        state.unasked = 0;
                        let _ = waits.send(answer);
                    }
                }
                Incoming::ToolsChanged => self.changed.store(true, Ordering::Relaxed),
                Incoming::Request { answer } if answers.len() < QUEUE => answers.push(answer),
                Incoming::Request { .. } | Incoming::Other => {}
            }
            if state.unasked > MAX_UNASKED {
                return Err(Fault::Broken(format!(
                    "it wrote more than {MAX_UNASKED} bytes that nobody asked for"
                )));
            }
            Ok(())
        });
        state.lines = lines;
        heard.map(|()| answers)
    }
}

/// Hears what the program writes until it ends, or is no longer worth hearing.
async fn listen(mut written: mpsc::Receiver<Output>, queue: mpsc::Sender<String>, shared: Arc<Shared>) {
    loop {
        let said = tokio::select! {
            biased;
            () = shared.over.cancelled() => return,
            said = written.recv() => said,
        };
        match said {
            Some(Output::Stdout(data)) => match shared.heard(&data) {
                Ok(answers) => {
                    for answer in answers {
                        // A server that asks and does not read goes without.
                        let _ = queue.try_send(answer);
                    }
                }
                Err(fault) => shared.end(fault),
            },
            Some(Output::Stderr(data)) => {
                let mut state = shared.state();
                state.last_words.extend(data);
                let over = state.last_words.len().saturating_sub(LAST_WORDS);
                state.last_words.drain(..over);
            }
            Some(Output::Ended(why)) => shared.end(why),
            None => shared.end(Fault::Lost("its stream is closed".to_owned())),
        }
    }
}
