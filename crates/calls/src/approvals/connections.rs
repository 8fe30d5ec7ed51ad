//! Asks for consent to connections that leave a run, and to pushes of git over them.
//!
//! A connection waits in the run's egress, and cannot outlive this daemon. An approval that is pending when the daemon ends is therefore
//! cancelled: in order at a stop, or by the next daemon.

use std::fmt::Write as _;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use gateway::{Approval, ApprovalState, BoundPush, CONNECT, Connect, ConnectReview, PUSH};
use operations::Reason;
use policy::Caller;
use redact::Redactor;
use refusal::Refusal;
use runs::{Answer, Asked, Question, Reviewers, Rules};
use serde_json::json;
use tokio::sync::oneshot;

use super::{Approvals, pushes};
use crate::quote::quote;

/// Most commands that a reviewer sees, and most characters of each.
const SHOWN: (usize, usize) = (8, 200);

impl Reviewers for Approvals {
    fn ask(&self, asked: Asked) -> BoxFuture<'_, Answer> {
        self.ask_about(asked).boxed()
    }
}

impl Approvals {
    /// Asks, waits for the decision, and uses the consent.
    async fn ask_about(&self, asked: Asked) -> Answer {
        let (run, question) = (&asked.run, &asked.question);
        let spec = run.spec();
        let connect = Connect {
            caller: Caller {
                principal: spec.principal.clone(),
                agent_id: spec.agent_id.clone(),
                role: spec.role.clone(),
                run_id: run.record().id.to_string(),
            },
            run: run.scope(),
            host: question.destination.to_string(),
            port: question.port,
            scheme: question.scheme.to_string(),
            methods: question.methods.clone(),
            rule: question.rule.clone(),
            companion: asked.companion.clone(),
            push: question.push.as_ref().map(|push| BoundPush {
                repository: push.repository.clone(),
                statement: push.statement.clone(),
            }),
        };
        let redactor = self.audit.redactor().of(&connect.caller.run_id);
        let review = review(&connect, &asked, &redactor);
        let prepare = || self.gateway.prepare_connection(&connect, review, self.longest());
        let (approval, settled) = match self.begin(prepare, None).await {
            Ok(begun) => begun,
            Err(refusal) => return Answer::Unasked(refusal.message),
        };
        let answer = self.answer_to(&asked, &connect, &approval, settled).await;
        self.done(&approval.approval_id).await;
        answer
    }

    async fn answer_to(
        &self,
        asked: &Asked,
        connect: &Connect,
        approval: &Approval,
        settled: oneshot::Receiver<Approval>,
    ) -> Answer {
        let approval_id = approval.approval_id.clone();
        let settled = tokio::select! {
            // A decision that has arrived counts.
            biased;
            settled = settled => settled,
            () = asked.given_up.cancelled() => return self.withdraw(&approval_id).await,
            () = asked.run.ended.cancelled() => return self.withdraw(&approval_id).await,
        };
        let Ok(settled) = settled else {
            return Answer::Unasked("the decision could not be put on record".to_owned());
        };
        match settled.state {
            ApprovalState::Approved => match self.use_consent(&settled, connect, asked).await {
                Ok(()) => Answer::Approved { approval_id },
                Err(refusal) => {
                    let _ = self.withdraw(&approval_id).await;
                    if refusal.reason == Reason::PreconditionFailed {
                        Answer::Cancelled
                    } else {
                        Answer::Unasked(refusal.message)
                    }
                }
            },
            ApprovalState::Denied => Answer::Denied { approval_id, comment: settled.comment },
            ApprovalState::Expired => Answer::Expired { approval_id },
            ApprovalState::Cancelled | ApprovalState::Pending => Answer::Cancelled,
        }
    }

    /// Cancels the approval of a connection that no longer waits.
    async fn withdraw(&self, approval_id: &str) -> Answer {
        let cancelled = self.void(approval_id).await;
        // An approval whose end cannot be recorded is void all the same.
        let _ = self.settle(cancelled).await;
        Answer::Cancelled
    }

    /// Marks the consent as used, and remembers it in the run's rules if the reviewer said so. Consent to a push is not remembered.
    async fn use_consent(
        &self,
        approval: &Approval,
        connect: &Connect,
        asked: &Asked,
    ) -> Result<(), Refusal> {
        self.gateway.redeem_connection(&approval.approval_id, connect)?;
        self.spend(&approval.approval_id).await?;
        let Some(consent) = &approval.remembered else { return Ok(()) };
        let Question { destination, port, scheme, methods, .. } = &asked.question;
        let remembered = match Rules::one(destination, *port, *scheme, methods.as_ref()) {
            Ok(rules) => {
                let run = &asked.run;
                run.remember_connection(rules, &consent.given_by, &approval.approval_id).await.map(drop)
            }
            Err(_) => Err(Refusal::invalid("egress_json", "no rule can name this destination")),
        };
        if let Err(refusal) = remembered {
            // The consent counts for the connections that wait. The next one asks again.
            let (run, approval) = (&connect.caller.run_id, &approval.approval_id);
            tracing::error!(
                run,
                approval,
                why = refusal.message,
                "a consent to a connection is not remembered"
            );
        }
        Ok(())
    }

    /// Cancels the approvals of connections that were asked for under the previous policy.
    pub(super) async fn cancel_outdated_connections(&self) {
        let outdated = self.spend_decided(self.gateway.cancel_outdated_connections()).await;
        let _ = self.settle(outdated).await;
    }
}

/// Returns what reviewers see: the connection, and the commands that are running.
fn review(connect: &Connect, asked: &Asked, redactor: &Redactor) -> ConnectReview {
    let Connect { host, port, scheme, methods, rule, .. } = connect;
    let push = asked.question.push.as_deref();
    let whose = connect.program().replacen('a', "A", 1);
    let mut preview = match push {
        None => format!("{whose} wants {host}:{port} over {scheme} ({rule}).\n"),
        Some(push) => {
            format!("{whose} pushes to {} on {host}:{port} ({rule}).\n", push.repository)
        }
    };
    if let Some(methods) = methods {
        let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
        let _ = writeln!(preview, "Methods: {} alone.", methods.join(", "));
    }
    preview.push_str(&asked.question.demands());
    preview.push_str(match asked.commands.len() {
        _ if connect.companion.is_some() => {
            "It is not known which command of the run it works for, if any.\n"
        }
        0 => "No command of a call is running; it may be a background process.\n",
        1 => "This command is running:\n",
        _ => "These commands are running:\n",
    });
    for command in asked.commands.iter().take(SHOWN.0) {
        let shown: String = redactor.text(command).0.chars().take(SHOWN.1).collect();
        quote(&mut preview, &shown);
    }
    if let Some(push) = push {
        pushes::describe(push, asked.preview.as_ref(), redactor, &mut preview);
    }
    let mut facts = json!({
        "host": host, "port": port, "scheme": scheme, "methods": methods, "rule": rule, "calls": asked.calls,
    });
    if let Some(companion) = &connect.companion {
        facts["companion"] = companion.as_str().into();
    }
    let opening = &asked.question.opening;
    if let Some(upstream) = &opening.upstream {
        facts["upstream"] = upstream.to_string().into();
    }
    let injected: Vec<String> = opening.secrets().into_iter().map(ToString::to_string).collect();
    if !injected.is_empty() {
        facts["injected"] = injected.into();
    }
    let name = if let (Some(push), Some(facts)) = (push, facts.as_object_mut()) {
        let mut pushed = pushes::json(push);
        redactor.value(&mut pushed["options"]);
        facts.extend(pushed.as_object().cloned().unwrap_or_default());
        PUSH
    } else {
        CONNECT
    };
    ConnectReview { operation_json: json!({ name: facts }).to_string(), preview }
}
