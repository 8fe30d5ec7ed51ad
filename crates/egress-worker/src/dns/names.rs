//! The names that the daemon has resolved, and the questions to it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::channel::{Channel, Unanswered};

/// Questions to the daemon at the same time.
const QUESTIONS: usize = 64;
/// Names that are cached, for each kind of answer.
const CACHED: usize = 4_096;
/// Time for which a name that does not exist is cached. A rule may come while the run lives.
const NEGATIVE: Duration = Duration::from_secs(5);

/// The cache of names.
#[derive(Debug)]
pub(crate) struct Names {
    channel: Rc<Channel>,
    known: RefCell<HashMap<String, Ipv4Addr>>,
    unknown: RefCell<HashMap<String, Instant>>,
    asked: RefCell<HashSet<String>>,
    answered: Notify,
    waiting: Cell<usize>,
}

/// The right to wait for an answer of the daemon.
#[derive(Debug)]
pub(crate) struct Turn(Rc<Names>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get().saturating_sub(1));
    }
}

impl Names {
    pub(crate) fn new(channel: Rc<Channel>) -> Rc<Self> {
        Rc::new(Self {
            channel,
            known: RefCell::default(),
            unknown: RefCell::default(),
            asked: RefCell::default(),
            answered: Notify::new(),
            waiting: Cell::new(0),
        })
    }

    /// Returns the address of a name that is cached, `None` if it does not exist.
    pub(crate) fn cached(&self, name: &str) -> Result<Option<Ipv4Addr>, Unanswered> {
        if let Some(address) = self.known.borrow().get(name) {
            return Ok(Some(*address));
        }
        let is_recent = self.unknown.borrow().get(name).is_some_and(|asked| asked.elapsed() < NEGATIVE);
        if is_recent { Ok(None) } else { Err(Unanswered) }
    }

    /// Takes a turn to wait, unless as many wait as may.
    pub(crate) fn turn(self: &Rc<Self>) -> Option<Turn> {
        let waiting = self.waiting.get();
        if waiting >= QUESTIONS {
            return None;
        }
        self.waiting.set(waiting + 1);
        Some(Turn(Rc::clone(self)))
    }
}

impl Turn {
    /// Asks the daemon for the address of a name. `None` if it does not exist.
    ///
    /// Queries for the same name share one question.
    pub(crate) async fn address(&self, name: &str) -> Result<Option<Ipv4Addr>, Unanswered> {
        let names = &self.0;
        loop {
            if let Ok(answer) = names.cached(name) {
                return Ok(answer);
            }
            if names.asked.borrow_mut().insert(name.to_owned()) {
                break;
            }
            names.answered.notified().await;
        }
        let answer = names.channel.resolve(name).await;
        names.asked.borrow_mut().remove(name);
        if let Ok(answer) = answer {
            names.keep(name, answer);
        }
        names.answered.notify_waiters();
        answer
    }

    /// Asks the daemon for the name of an address. `None` if it has none.
    pub(crate) async fn name(&self, address: Ipv4Addr) -> Result<Option<String>, Unanswered> {
        self.0.channel.look_up(address).await
    }
}

impl Names {
    fn keep(&self, name: &str, answer: Option<Ipv4Addr>) {
        if let Some(address) = answer {
            let mut known = self.known.borrow_mut();
            // The daemon keeps all of them.
            if known.len() < CACHED {
                known.insert(name.to_owned(), address);
            }
            return;
        }
        let mut unknown = self.unknown.borrow_mut();
        if unknown.len() >= CACHED {
            unknown.retain(|_, asked| asked.elapsed() < NEGATIVE);
        }
        if unknown.len() >= CACHED {
            unknown.clear();
        }
        unknown.insert(name.to_owned(), Instant::now());
    }
}
