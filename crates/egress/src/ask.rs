//! Asks reviewers about connections, and lets these go on or refuses them.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egress_rules::{Decision, Narrowed, Scheme, Verdict};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::decide::State;
use crate::live::{Live, Step};
use crate::messages::{end, message, words};
use crate::push_question::PushQuestion;
use crate::session::Session;
use crate::waiting::{Answer, Answers, Joined, Number, Question, Waiter};

/// Time for which a question stays open without a connection that waits, so that a program that tries again finds it.
const GRACE: Duration = Duration::from_secs(10);
/// Time in which questions are withdrawn at the end of a run.
const WITHDRAWN: Duration = Duration::from_secs(5);

impl State {
    /// Joins the connections that wait for an answer. A new question is asked in the background.
    pub(crate) fn join(self: &Arc<Self>, question: Question) -> Result<Waiter, String> {
        match self.waiting.lock().join(question.clone(), Instant::now()) {
            Joined::Waits(waiter) => Ok(waiter),
            Joined::Refused(why) => Err(why),
            Joined::Asks(number, answers, waiter) => {
                self.asking.spawn(ask(Arc::clone(self), number, question, answers));
                Ok(waiter)
            }
        }
    }

    /// Withdraws all questions, and waits until that is on record.
    pub(crate) async fn withdraw_questions(&self) {
        self.over.cancel();
        self.asking.close();
        if timeout(WITHDRAWN, self.asking.wait()).await.is_err() {
            tracing::error!(run = self.run, "a question about a connection was not withdrawn in time");
        }
    }
}

/// Asks one question, until it is answered or no connection waits for the answer.
async fn ask(state: Arc<State>, number: Number, question: Question, answers: Arc<Answers>) {
    let (given_up, rules) = (state.over.child_token(), state.control.rules());
    let mut asked = pin!(state.control.ask(question.clone(), given_up.clone()));
    let answer = tokio::select! {
        answer = &mut asked => answer,
        () = left(&state, number, &answers) => {
            given_up.cancel();
            asked.await
        }
    };
    // A consent outlives the program that waited for it.
    state.keep_consent(&question, &answer, rules);
    state.waiting.lock().settle(number, &question, answer, Instant::now());
}

/// Waits until no connection has waited for the answer for a while, and closes the question.
async fn left(state: &State, number: Number, answers: &Answers) {
    loop {
        answers.closed().await;
        tokio::time::sleep(GRACE).await;
        if state.waiting.lock().close_left(number) {
            return;
        }
    }
}

impl Session {
    /// Lets a connection wait for a reviewer until `left` is cancelled.
    ///
    /// The process has looked at it if its scheme is not TCP, so that nothing malformed reaches a reviewer. It reports a program that leaves.
    pub(crate) fn wait(self: &Arc<Self>, number: u64, (question, left): (Question, CancellationToken)) {
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            let waiter = match session.state.join(question) {
                Ok(waiter) => waiter,
                Err(why) => {
                    session.turn_back(number, &why).await;
                    return;
                }
            };
            // The token ends with the wait, so no part of what follows may depend on it.
            if let Some(answer) = left.run_until_cancelled(answer_of(waiter)).await {
                session.answered(number, answer).await;
            }
        });
    }

    async fn answered(self: &Arc<Self>, number: u64, answer: Answer) {
        let why = match &answer {
            Answer::Approved { approval_id } if self.consented(number, approval_id) => return,
            Answer::Approved { .. } => Answer::Cancelled.words(),
            answer => answer.words(),
        };
        self.turn_back(number, &why).await;
    }

    /// Takes consent for a connection, unless the rules in force deny it, or want it looked at in another way, or the run or its
    /// tenant has used up its bytes meanwhile.
    fn consented(self: &Arc<Self>, number: u64, approval_id: &str) -> bool {
        let rules = self.state.control.rules();
        let mut all = self.live.lock();
        let Some(live) = all.get_mut(&number).filter(|live| live.is_waiting()) else { return false };
        let verdict = rules.decide(&live.destination, live.port);
        let is_over = verdict.decision == Decision::Deny || self.state.is_exhausted();
        if is_over || !live.was_looked_at_for(&verdict) {
            return false;
        }
        live.approval = Some(approval_id.to_owned());
        self.go_on(number, live, verdict);
        true
    }

    /// Lets a connection that waits go on if these rules allow it now. Returns false if it does not wait, or has to wait on.
    fn released(self: &Arc<Self>, number: u64, verdict: Verdict) -> bool {
        let mut all = self.live.lock();
        let Some(live) = all.get_mut(&number).filter(|live| live.is_waiting()) else { return false };
        let may_go = verdict.decision == Decision::Allow && !self.state.is_exhausted();
        if !may_go || !live.was_looked_at_for(&verdict) {
            return false;
        }
        self.go_on(number, live, verdict);
        true
    }

    fn go_on(self: &Arc<Self>, number: u64, live: &mut Live, verdict: Verdict) {
        live.verdict = Verdict { decision: Decision::Allow, ..verdict };
        live.step = Step::Out;
        self.tasks.spawn(Arc::clone(self).go_out(number));
        self.state.view.show(live.shown(None));
    }

    /// Ends the connections that these rules do not allow, and lets those go on that need no reviewer any longer.
    pub(crate) async fn apply(self: &Arc<Self>, rules: &Narrowed) {
        let verdicts: Vec<(u64, Verdict)> = {
            let all = self.live.lock();
            let decided = all
                .iter()
                .filter(|(_, live)| matches!(live.step, Step::LookedAt | Step::Out | Step::Waits { .. }));
            let changed = decided.filter_map(|(id, live)| {
                let companion =
                    live.companion().and_then(|_| self.state.of_companion(&live.destination, live.port));
                let verdict = companion.unwrap_or_else(|| rules.decide(&live.destination, live.port));
                let stays = match verdict.decision {
                    Decision::Allow => !live.is_waiting() && live.passes(&verdict),
                    // A reviewer has decided about it, or is going to.
                    Decision::Ask if live.verdict.decision == Decision::Ask => {
                        live.was_looked_at_for(&verdict)
                    }
                    Decision::Ask => live.approval.is_some() && live.passes(&verdict),
                    Decision::Deny => false,
                };
                (!stays).then_some((*id, verdict))
            });
            changed.collect()
        };
        for (id, verdict) in verdicts {
            let why = format!("the rules have changed: {}", verdict.rule);
            if !self.released(id, verdict) && !self.turn_back(id, &why).await {
                self.end_for(id, why).await;
            }
        }
    }

    /// Refuses a connection that waits: over HTTP with a response, otherwise with a reset. Returns false if it does not wait.
    async fn turn_back(&self, number: u64, why: &str) -> bool {
        let text = {
            let mut all = self.live.lock();
            let Some(live) = all.get_mut(&number).filter(|live| live.is_waiting()) else { return false };
            let host = live.host();
            self.state.refuse(&host, live.port, &live.verdict.rule, why);
            live.step = Step::Refused;
            live.ended_for = Some(why.to_owned());
            let verdict = Verdict { words: sentence(why), ..live.verdict.clone() };
            if live.requests.is_empty() { String::new() } else { words(&host, live.port, &verdict) }
        };
        self.send(message(number, end(text))).await;
        true
    }
}

impl Live {
    /// Returns true if it waits for a reviewer.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.step, Step::Waits { .. })
    }

    /// Returns true if the process has looked at it in the way that this verdict wants.
    pub(crate) fn was_looked_at_for(&self, verdict: &Verdict) -> bool {
        let Verdict { scheme, methods, opening, .. } = &self.verdict;
        (scheme, methods, opening) == (&verdict.scheme, &verdict.methods, &verdict.opening)
    }

    /// Returns true if this verdict wants nothing that the connection lacks, and takes nothing of its opening away.
    pub(crate) fn passes(&self, verdict: &Verdict) -> bool {
        let has_methods = match (&self.verdict.methods, &verdict.methods) {
            (_, None) => true,
            (Some(mine), Some(methods)) => mine.is_subset(methods),
            (None, Some(_)) => false,
        };
        // A connection over TCP was not looked at.
        let has_scheme = verdict.scheme == Scheme::Tcp || self.verdict.scheme == verdict.scheme;
        has_scheme && has_methods && self.verdict.opening == verdict.opening
    }

    fn question(&self) -> Question {
        let Verdict { scheme, methods, rule, opening, .. } = self.verdict.clone();
        let destination = self.destination.clone();
        Question { destination, port: self.port, scheme, methods, rule, opening, push: None }
    }

    /// Returns the question about a push over it.
    pub(crate) fn question_of(&self, push: Arc<PushQuestion>) -> Question {
        Question { push: Some(push), ..self.question() }
    }

    /// Has it wait for a reviewer. Returns the question, and the token that is cancelled when it no longer waits.
    pub(crate) fn begin_wait(&mut self) -> (Question, CancellationToken) {
        let left = CancellationToken::new();
        self.step = Step::Waits { _until: left.clone().drop_guard() };
        (self.question(), left)
    }
}

/// Waits for the answer to a question.
pub(crate) async fn answer_of(mut waiter: Waiter) -> Answer {
    // The sender is dropped without an answer only when the question was closed.
    match waiter.wait_for(Option::is_some).await {
        Ok(answer) => answer.clone().unwrap_or(Answer::Cancelled),
        Err(_) => Answer::Cancelled,
    }
}

/// Returns a reason as a sentence.
fn sentence(why: &str) -> String {
    let mut letters = why.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
#[path = "ask_tests.rs"]
mod tests;
