//! Asks reviewers about pushes of git.
//!
//! ```text
//!  a rule asks ─► few enough to read? ─► question ─► consent to these ids ─► on record, with its approval ─► out
//!                    └► refused             ├► denied, expired, withdrawn: refused, with a line for each ref
//!                                           └◄ the same push again, within ten minutes of consent
//! ```

use std::sync::Arc;
use std::time::Instant;

use egress_rules::Narrowed;
use git_wire::Ruling;

use crate::ask::answer_of;
use crate::decide::State;
use crate::git::Push;
use crate::push_question::PushQuestion;
use crate::session::Session;
use crate::waiting::{Answer, Question};

impl State {
    /// Keeps the consent to a push, if the answer is one.
    pub(crate) fn keep_consent(&self, question: &Question, answer: &Answer, rules: Arc<Narrowed>) {
        if let (Some(_), Answer::Approved { approval_id }) = (&question.push, answer) {
            self.consents.lock().keep(question.clone(), approval_id, rules, Instant::now());
        }
    }
}

impl Session {
    /// Has a reviewer decide about a push. Returns the approval, or the reason of a refusal.
    ///
    /// Ends when the connection does. By then, no byte of the push has left.
    pub(crate) async fn consent_to(
        &self,
        connection: u64,
        request: u64,
        push: &Push,
        ruling: &Ruling,
    ) -> Result<String, String> {
        let pushed = Arc::new(PushQuestion::of(push, ruling)?);
        let withdrawn = || Answer::Cancelled.words_of_push();
        let asked = self.live.lock().get(&connection).map(|live| (live.question_of(pushed), live.left()));
        let (question, left) = asked.ok_or_else(withdrawn)?;
        let rules = self.state.control.rules();
        let known = self.state.consents.lock().find(&question, &rules, Instant::now());
        let answer = if let Some(approval_id) = known {
            Answer::Approved { approval_id }
        } else {
            let waiter = self.state.join(question)?;
            left.run_until_cancelled(answer_of(waiter)).await.ok_or_else(withdrawn)?
        };
        let Answer::Approved { approval_id } = answer else { return Err(answer.words_of_push()) };
        if let Some(live) = self.live.lock().get_mut(&connection) {
            live.consented.insert(request, approval_id.clone());
        }
        Ok(approval_id)
    }
}

#[cfg(test)]
#[path = "ask_push_tests.rs"]
mod tests;
