//! Connections that wait for a reviewer, and pushes of git (`push_question.rs`).
//!
//! ```text
//!  connection ─► denied lately ──────────────────────────────► refused
//!      │       └► too many questions, or too many in a minute ─► refused
//!      ▼
//!   question ◄── connections to the same host and port share it, and so do equal pushes
//!      ├─ approved ─► all that wait go on
//!      ├─ denied ───► all that wait are refused, and so is each that follows for five minutes
//!      ├─ expired, cancelled, not possible ─► all that wait are refused
//!      └─ no connection waits for ten seconds ─► withdrawn
//! ```
//!
//! A question outlives the process of the egress, whose connections end with it. It does not outlive the daemon.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egress_rules::{Destination, Injection, Opening, Scheme};
use tokio::sync::watch;

use crate::limits::PerMinute;
use crate::push_question::PushQuestion;

/// Questions of a run that are open at the same time.
pub(crate) const OPEN: usize = 16;
/// New questions of a run in a minute.
pub(crate) const PER_MINUTE: u32 = 20;
/// Time for which a denial holds.
pub(crate) const DENIED: Duration = Duration::from_secs(5 * 60);
/// Denials that are known at the same time. The oldest is forgotten first.
const DENIALS: usize = 256;

/// Paths of a list that a reviewer sees.
const PATHS: usize = 16;

/// A connection that a reviewer is asked about, or a push over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub destination: Destination,
    pub port: u16,
    pub scheme: Scheme,
    /// Methods that a request over HTTP may have; `None` is every method.
    pub methods: Option<BTreeSet<String>>,
    /// The rule that asks.
    pub rule: String,
    /// Demands on its requests, and changes to them.
    pub opening: Opening,
    /// The push, if the question is about one. The connection itself is allowed then.
    pub push: Option<Arc<PushQuestion>>,
}

impl Question {
    /// Returns the reason of a refusal, for an agent.
    fn words(&self, answer: &Answer) -> String {
        if self.push.is_some() { answer.words_of_push() } else { answer.words() }
    }

    /// Describes what happens to its requests, for a reviewer. Empty if they go out as they are.
    pub fn demands(&self) -> String {
        let Opening { paths, inject, upstream, is_metered, .. } = &self.opening;
        let mut words = String::new();
        for list in paths {
            let shown: Vec<String> = list.iter().take(PATHS).map(ToString::to_string).collect();
            let _ = match list.len().saturating_sub(PATHS) {
                0 => writeln!(words, "Paths: {} alone.", shown.join(", ")),
                more => writeln!(words, "Paths: {} and {more} more alone.", shown.join(", ")),
            };
        }
        if let Some(upstream) = upstream {
            let _ = writeln!(words, "Requests go to {upstream} in place of this host.");
        }
        if !inject.is_empty() {
            let headers: Vec<&str> = inject.iter().map(Injection::header).collect();
            let secrets: Vec<String> = self.opening.secrets().into_iter().map(ToString::to_string).collect();
            let (headers, secrets) = (headers.join(", "), secrets.join(", "));
            let _ = writeln!(
                words,
                "Each request gets secrets outside of the run: {secrets} (header {headers})."
            );
        }
        if *is_metered {
            words.push_str("Tokens that its responses say are counted.\n");
        }
        words
    }
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Approved {
        approval_id: String,
    },
    Denied {
        approval_id: String,
        /// Comment of the reviewer; may be empty.
        comment: String,
    },
    /// No reviewer decided in time.
    Expired {
        approval_id: String,
    },
    /// The question was withdrawn, or the policy that asked is no longer in force.
    Cancelled,
    /// No reviewer could be asked, for this reason.
    Unasked(String),
}

pub(crate) type Answers = watch::Sender<Option<Answer>>;
pub(crate) type Waiter = watch::Receiver<Option<Answer>>;

/// Number of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(u64);

/// The result of joining the connections that wait.
#[derive(Debug)]
pub(crate) enum Joined {
    /// The question is new: the caller has it asked.
    Asks(Number, Arc<Answers>, Waiter),
    /// Others wait for the same answer.
    Waits(Waiter),
    /// The connection is refused, for this reason.
    Refused(String),
}

/// The questions of a run, and the denials that hold.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    open: Vec<Open>,
    denied: VecDeque<Denied>,
    asked: PerMinute,
    last: u64,
}

#[derive(Debug)]
struct Open {
    number: Number,
    question: Question,
    answers: Arc<Answers>,
}

#[derive(Debug)]
struct Denied {
    destination: Destination,
    port: u16,
    push: Option<Arc<PushQuestion>>,
    until: Instant,
    words: String,
}

impl Waiting {
    /// Joins the connections that wait for the same answer, or asks a new question.
    pub(crate) fn join(&mut self, question: Question, now: Instant) -> Joined {
        if let Some(words) = self.denied(&question, now) {
            return Joined::Refused(words);
        }
        if let Some(open) = self.open.iter().find(|open| open.question == question) {
            return Joined::Waits(open.answers.subscribe());
        }
        if self.open.len() >= OPEN {
            return Joined::Refused(format!(
                "{OPEN} questions of this run wait for a reviewer already; try again when one is decided"
            ));
        }
        if !self.asked.take(PER_MINUTE, now) {
            return Joined::Refused(
                "the run has asked reviewers too many questions in a minute; try again in a minute"
                    .to_owned(),
            );
        }
        self.last += 1;
        let (number, (answers, waiter)) = (Number(self.last), watch::channel(None));
        let answers = Arc::new(answers);
        self.open.push(Open { number, question, answers: Arc::clone(&answers) });
        Joined::Asks(number, answers, waiter)
    }

    /// Returns the reason for which connections to a host and port, or equal pushes to it, are refused without a question.
    fn denied(&mut self, question: &Question, now: Instant) -> Option<String> {
        self.denied.retain(|denied| denied.until > now);
        let Question { destination, port, push, .. } = question;
        let denied = self
            .denied
            .iter()
            .find(|denied| (&denied.destination, &denied.port, &denied.push) == (destination, port, push));
        denied.map(|denied| denied.words.clone())
    }

    /// Closes a question for which no connection waits. Returns false if one does.
    pub(crate) fn close_left(&mut self, number: Number) -> bool {
        let is_waited_for = |open: &Open| open.number == number && open.answers.receiver_count() > 0;
        if self.open.iter().any(is_waited_for) {
            return false;
        }
        self.open.retain(|open| open.number != number);
        true
    }

    /// Answers a question, and remembers a denial.
    pub(crate) fn settle(&mut self, number: Number, question: &Question, answer: Answer, now: Instant) {
        if matches!(answer, Answer::Denied { .. }) {
            if self.denied.len() >= DENIALS {
                self.denied.pop_front();
            }
            self.denied.push_back(Denied {
                destination: question.destination.clone(),
                port: question.port,
                push: question.push.clone(),
                until: now + DENIED,
                words: question.words(&answer),
            });
        }
        if let Some(place) = self.open.iter().position(|open| open.number == number) {
            // An error means that no connection waits.
            let _ = self.open.swap_remove(place).answers.send(Some(answer));
        }
    }
}

impl Answer {
    /// Returns the reason of a refusal, for an agent.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Approved { approval_id } => format!("a reviewer approved it (approval {approval_id})"),
            Self::Denied { approval_id, comment } => {
                let said = if comment.is_empty() { String::new() } else { format!(": {comment}") };
                format!(
                    "a reviewer denied it (approval {approval_id}){said}. Every attempt within {} minutes is refused \
                     without a question, so go on without this host",
                    DENIED.as_secs() / 60
                )
            }
            Self::Expired { approval_id } => format!(
                "no reviewer decided in time (approval {approval_id}). Another attempt asks again; go on without this \
                 host if you can"
            ),
            Self::Cancelled => {
                "the rules changed, or the question was withdrawn, while it waited for a reviewer. Connect again to ask \
                 again"
                    .to_owned()
            }
            Self::Unasked(why) => format!("no reviewer could be asked: {why}"),
        }
    }

    /// Returns the reason for which a push is refused, for an agent. Git shows 400 bytes of it at most.
    pub(crate) fn words_of_push(&self) -> String {
        match self {
            Self::Approved { .. } | Self::Unasked(_) => self.words(),
            Self::Denied { approval_id, comment } => {
                let said = if comment.is_empty() { String::new() } else { format!(": {comment}") };
                format!(
                    "a reviewer denied this push (approval {approval_id}); the same push is refused for {} minutes, so \
                     change it or go on without it{said}",
                    DENIED.as_secs() / 60
                )
            }
            Self::Expired { approval_id } => {
                format!("no reviewer decided in time (approval {approval_id}); push again to ask again")
            }
            Self::Cancelled => {
                "the question to a reviewer was withdrawn, or the rules changed; push again to ask again"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
