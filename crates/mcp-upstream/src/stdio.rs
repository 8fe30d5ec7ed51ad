//! A server's program, with messages on its standard streams, one on each line.
//!
//! ```text
//!  exchange ─► queue ─► stdin │ program │ stdout ─► pieces ─► lines ─► Incoming ─► waiting call
//!                ▲───── answers to what it asks of us ◄───────────────────┘
//! ```
//!
//! A server takes up memory for one line, the queue, the pieces, and the last part of its standard error. Its output is read no faster
//! than it is parsed. Unsolicited messages are counted, and too many end the server. A server that does not read delays the calls to it
//! until they time out.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::text::cut_beginning;
use parking_lot::Mutex;
use policy::McpStdio;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::fault::Fault;
use super::host::{Host, Output, Pipes};
use super::lines::Lines;
use super::link_state::LinkState;
use super::message::{self, Incoming};
use super::text::one_line;

/// Most messages that wait for the server to read them.
const QUEUE: usize = 32;
/// Most pieces of its output that wait to be parsed.
const PIECES: usize = 4;
/// Most requests that wait for their answers.
const MAX_WAITING: usize = 64;
/// Most bytes of messages between two expected answers.
const MAX_UNASKED: usize = 16 * 1024 * 1024;
/// Most bytes of standard error that are kept.
const LAST_WORDS: usize = 4 * 1024;
/// Time in which a server has to answer a ping after a call was abandoned.
const ALIVE: Duration = Duration::from_secs(5);

type Answer = Result<Value, Fault>;

/// Streams of a program.
pub(super) struct Stdio {
    shared: Arc<Shared>,
    queue: mpsc::Sender<String>,
}

struct Shared {
    link: LinkState,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    unasked: usize,
    last_words: VecDeque<u8>,
    /// Reason for which the link accepts no further requests.
    why: Option<Fault>,
}

/// Request that waits for its answer until this is dropped.
struct Waiting {
    shared: Arc<Shared>,
    id: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Stdio {
    /// Starts the program. Only the first request shows if it can be run.
    pub(super) fn start(
        host: &dyn Host,
        name: &str,
        program: &McpStdio,
        link: LinkState,
    ) -> Result<Self, Fault> {
        let (queue, input) = mpsc::channel(QUEUE);
        let (output, pieces) = mpsc::channel(PIECES);
        host.start(name, program, Pipes { input, output, end: link.end.clone() })?;
        let shared = Arc::new(Shared { link, state: Mutex::default() });
        tokio::spawn(listen(pieces, queue.clone(), Arc::clone(&shared)));
        Ok(Self { shared, queue })
    }

    /// Sends a request, and waits for the answer.
    pub(super) async fn exchange(&self, id: u64, request: String) -> Answer {
        let mut waiting = self.shared.expect(id)?;
        tokio::select! {
            biased;
            // Before the request is sent, the only possible answer is that the server is lost.
            lost = waiting.answer() => return lost,
            sent = self.send(request) => sent?,
        }
        waiting.answer().await
    }

    /// Sends a message that has no answer.
    pub(super) async fn send(&self, message: String) -> Result<(), Fault> {
        self.queue.send(message).await.map_err(|_| self.shared.why())
    }

    /// Tells the server that a request is abandoned, and pings it.
    ///
    /// A server that hangs is ended. One that was only slow is not, so the other calls to it continue.
    pub(super) fn give_up(&self, cancelled: String, ping: u64) {
        // A server that does not read its input does not receive this either.
        let _ = self.queue.try_send(cancelled);
        let Ok(mut waiting) = self.shared.expect(ping) else { return };
        let (shared, queue) = (Arc::clone(&self.shared), self.queue.clone());
        tokio::spawn(async move {
            let alive = async {
                if queue.send(message::request(ping, "ping", &json!({}))).await.is_ok() {
                    drop(waiting.answer().await);
                }
            };
            if timeout(ALIVE, alive).await.is_err() {
                shared.end(Fault::Lost("it did not react and was ended".to_owned()));
            }
        });
    }

    /// Returns the last part of its standard error on one line, for the operator's log only.
    pub(super) fn last_words(&self) -> String {
        let words: Vec<u8> = self.shared.state.lock().last_words.iter().copied().collect();
        one_line(&String::from_utf8_lossy(&words[cut_beginning(&words)..]), LAST_WORDS)
    }
}

impl Waiting {
    async fn answer(&mut self) -> Answer {
        (&mut self.answer).await.unwrap_or_else(|_| Err(self.shared.why()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.shared.state.lock().waiting.remove(&self.id);
    }
}

impl Shared {
    fn expect(self: &Arc<Self>, id: u64) -> Result<Waiting, Fault> {
        let mut state = self.state.lock();
        if let Some(why) = &state.why {
            return Err(why.clone());
        }
        if state.waiting.len() >= MAX_WAITING {
            return Err(Fault::Busy);
        }
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(id, sender);
        state.unasked = 0;
        Ok(Waiting { shared: Arc::clone(self), id, answer })
    }

    /// Ends the link. Every waiting call gets the first reason.
    fn end(&self, why: Fault) {
        let mut state = self.state.lock();
        state.why.get_or_insert(why);
        state.waiting.clear();
        drop(state);
        self.link.end.cancel();
    }

    fn why(&self) -> Fault {
        self.state.lock().why.clone().unwrap_or_else(|| Fault::Lost("its stream is closed".to_owned()))
    }

    /// Handles one line of standard output. Returns the reply, if there is one.
    fn heard(&self, line: &[u8]) -> Result<Option<String>, Fault> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let incoming = Incoming::read(line)?;
        let mut state = self.state.lock();
        state.unasked += line.len();
        let mut reply = None;
        match incoming {
            Incoming::Answer { id, answer } => {
                // An answer to no waiting request is late or invented.
                if let Some(waits) = state.waiting.remove(&id) {
                    state.unasked = 0;
                    let _ = waits.send(answer);
                }
            }
            Incoming::ToolsChanged => self.link.changed.store(true, Ordering::Relaxed),
            Incoming::Request { answer } => reply = Some(answer),
            Incoming::Other => {}
        }
        if state.unasked > MAX_UNASKED {
            return Err(Fault::Broken(format!("it wrote more than {MAX_UNASKED} bytes without a request")));
        }
        Ok(reply)
    }
}

/// Reads the program's output until it ends or violates the protocol.
async fn listen(mut pieces: mpsc::Receiver<Output>, queue: mpsc::Sender<String>, shared: Arc<Shared>) {
    let mut lines = Lines::default();
    let why = loop {
        match pieces.recv().await {
            Some(Output::Stdout(data)) => {
                let heard = lines.take(&data, |line| {
                    if let Some(reply) = shared.heard(line)? {
                        // A server that asks but does not read gets no reply.
                        let _ = queue.try_send(reply);
                    }
                    Ok(())
                });
                if let Err(fault) = heard {
                    break fault;
                }
            }
            Some(Output::Stderr(data)) => {
                let mut state = shared.state.lock();
                state.last_words.extend(data);
                let over = state.last_words.len().saturating_sub(LAST_WORDS);
                state.last_words.drain(..over);
            }
            Some(Output::Ended(why)) => break why,
            None => break Fault::Lost("its stream is closed".to_owned()),
        }
    };
    shared.end(why);
}
