//! Decides about the requests of connections whose rule injects secrets or counts tokens.
//!
//! ```text
//!  asked ─► secrets read ─► rules in force ─► budget ─► granted: headers with secrets, texts to hide
//!                │               │              ├► 403, used up, or the body could hide what its answer may cost
//!                │               │              ├► 429, the rest is reserved by requests under way
//!                │               │              └► 503, other bodies took all memory, so that this one was not read
//!                │               └► 403, the rules have changed
//!                └► 502, the secret cannot be read
//! ```
//!
//! A decision never holds up the session. Its values are wiped once the process has them (`outgoing.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use egress_rules::{Decision as Rule, GitRules, Injection, SecretName};
use git_wire::Ruling;
use model_usage::{Answer, Exceeded, Reservation};
use secrets::{Secret, SecretError, Secrets};
use serde_json::json;
use timestamp::Timestamp;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::to_egress::Body;
use wire::worker::v1::{InjectedHeader, ModelAsked, RequestAnswer, RequestAsked, RequestRefusal};
use zeroize::Zeroizing;

use crate::broken::Broken;
use crate::events;
use crate::git::{self, GitRequest, Place, Push};
use crate::live::Step;
use crate::messages::message;
use crate::metering::estimate;
use crate::outgoing::Grant;
use crate::session::Session;

/// Requests of a connection that may be decided about at the same time. A connection over HTTP/2 has as many.
const UNDER_WAY: usize = 128;
/// Requests of a connection whose tokens may be unknown at the same time.
const UNMETERED: usize = 1_024;
/// Pushes of a connection with consent that may have no response at the same time.
pub(crate) const UNANSWERED: usize = 1_024;
/// Time after which a request may be tried again that found a budget reserved, seconds.
const RETRY_AFTER: u32 = 1;
/// Time after which a request may be tried again for whose body memory was lacking, seconds.
const MEMORY_AFTER: u32 = 5;

/// Refusal of a body that could hide the tokens that it allows its answer.
const UNREADABLE: &str = "under a budget of tokens or dollars, the body of a request has to be an object of JSON (`application/json`, \
                          not compressed), each of its keys there once, and to arrive within 30 seconds";
/// Refusal of a body for which memory was lacking.
const OVERLOADED: &str = "for 30 seconds, the bodies of requests under way took all the memory that coffer-egress has for bodies. Try \
                          again when fewer of them are under way";

/// A request that is decided about.
#[derive(Clone, Copy)]
struct Asked {
    /// Number of its connection.
    connection: u64,
    /// Its own number.
    request: u64,
}

/// The response to a request that does not go out.
struct NotGranted {
    status: u32,
    /// Kind of the error, for programs.
    kind: &'static str,
    /// The rule, for the record.
    rule: String,
    why: String,
    /// The response in the form of git, if it has one. Its status may be that of a success.
    response: Option<git_wire::Refusal>,
    /// Time after which it may be tried again, seconds; 0 if that would be in vain.
    retry_after_s: u32,
}

impl NotGranted {
    fn new(status: u32, kind: &'static str, rule: impl Into<String>, why: impl Into<String>) -> Self {
        Self { status, kind, rule: rule.into(), why: why.into(), response: None, retry_after_s: 0 }
    }
}

/// The facts of a connection that a decision needs.
struct Facts {
    host: String,
    port: u16,
    inject: Vec<Injection>,
    is_metered: bool,
    /// Name of the rule.
    rule: String,
    /// Rules for repositories of git, by list.
    git: Vec<Vec<GitRules>>,
}

impl Facts {
    fn place(&self) -> Place<'_> {
        Place { host: &self.host, port: self.port, rule: &self.rule, lists: &self.git }
    }

    /// Gives the refusal of a push the form of git's report.
    fn report(&self, git: Option<&GitRequest>, refused: NotGranted) -> NotGranted {
        let Some(GitRequest::Push(push)) = git else { return refused };
        let response = Some(git::refuse_whole(push, &self.place(), &refused.why).response);
        NotGranted { response, ..refused }
    }
}

impl Session {
    /// Begins to decide about a request.
    pub(crate) async fn asked(self: &Arc<Self>, connection: u64, asked: RequestAsked) -> Result<(), Broken> {
        let request = asked.request.filter(|request| request.number > 0);
        let request = request.ok_or_else(|| Broken::sent("a question about no request"))?;
        let git = asked.git.map(|git| GitRequest::parse(&git, &self.state.pushes)).transpose()?;
        let model = asked.model;
        let asked = Asked { connection, request: request.number };
        let calls = self.state.control.calls();
        // A process that reads no answers gets no further tasks.
        let place = Arc::clone(&self.questions).try_acquire_owned().ok();
        let (shown, has_room) = {
            let mut all = self.live.lock();
            let live = all.get_mut(&connection).ok_or_else(|| Broken::sent("a request of no connection"))?;
            let is_out = matches!(live.step, Step::Out) && live.may_connect;
            let is_of_its_kind = live.verdict.is_git() == git.is_some();
            if !is_out
                || !is_of_its_kind
                || !live.verdict.asks_each_request()
                || live.deciding.contains(&asked.request)
                || live.unmetered.contains_key(&asked.request)
            {
                return Err(Broken::sent("a question out of turn"));
            }
            let has_room = place.is_some()
                && live.deciding.len() < UNDER_WAY
                && live.unmetered.len() < UNMETERED
                && live.consented.len() < UNANSWERED;
            if has_room {
                live.deciding.insert(asked.request);
                live.add_calls(calls);
            }
            live.request(request);
            (live.shown(None), has_room)
        };
        self.state.view.show(shown);
        if has_room {
            let session = Arc::clone(self);
            self.tasks.spawn(async move {
                let _place = place;
                session.decide(asked, git, model).await;
            });
        } else {
            self.end_for(connection, "it has too many requests under way; connect again".to_owned()).await;
        }
        Ok(())
    }

    /// Decides about a request, and answers it.
    async fn decide(&self, asked: Asked, git: Option<GitRequest>, model: Option<ModelAsked>) {
        let Some(facts) = self.facts(asked) else { return };
        let decision = match self.decision(asked, &facts, git.as_ref(), model).await {
            Ok((grant, reservation)) => {
                self.granted(asked, &facts, reservation);
                Decision::Grant(grant.take())
            }
            Err(refused) => self.refused(asked, &facts, refused),
        };
        // The process may take its time to read the answer. The commands of a push are dropped before. Its place is kept, because a
        // refusal has a line for each ref.
        let _place = git.and_then(GitRequest::into_place);
        let answer = RequestAnswer { request: asked.request, decision: Some(decision) };
        self.send(message(asked.connection, Body::Answer(answer))).await;
    }

    fn facts(&self, asked: Asked) -> Option<Facts> {
        let all = self.live.lock();
        let live = all.get(&asked.connection)?;
        let opening = &live.verdict.opening;
        let (inject, is_metered) = (opening.inject.clone(), opening.is_metered);
        let (rule, git) = (live.verdict.rule.clone(), opening.git.clone());
        Some(Facts { host: live.host(), port: live.port, inject, is_metered, rule, git })
    }

    async fn decision(
        &self,
        asked: Asked,
        facts: &Facts,
        git: Option<&GitRequest>,
        model: Option<ModelAsked>,
    ) -> Result<(Grant, Option<Reservation>), NotGranted> {
        let state = &self.state;
        let shared = state.outside.shared();
        let ruling = match git {
            Some(request) => self.rule_on(asked, request, facts).await?,
            None => None,
        };
        let grant = granting(&shared.secrets, &facts.inject).await;
        if grant.is_ok()
            && let Some(GitRequest::Push(push)) = git
            && let Some((ruling, approval)) = &ruling
        {
            self.record_push(asked, push, ruling, approval.as_deref()).await?;
        }
        // Reading a secret takes time. The rules that count are those of this moment.
        self.check_rules(asked).map_err(|refused| facts.report(git, refused))?;
        let grant = grant.map_err(|error| {
            let why = format!("{error}. Try again later, or ask an operator");
            NotGranted::new(502, "secret_unavailable", "egress: secrets", why)
        })?;
        if !facts.is_metered {
            return Ok((grant, None));
        }
        let budget = state.budget();
        if budget.bounds_tokens()
            && let Some(model) = model.as_ref().filter(|model| model.is_unread)
        {
            return Err(unread(model));
        }
        let estimate = estimate(model, &budget);
        let admitted = shared.ledger.admit(&state.own.who, &budget, estimate, Timestamp::now());
        Ok((grant, Some(admitted.map_err(|exceeded| beyond(&exceeded))?)))
    }

    /// Decides about a request of git. Returns the ruling on a push, and the approval of a reviewer if there is one.
    async fn rule_on(
        &self,
        asked: Asked,
        request: &GitRequest,
        facts: &Facts,
    ) -> Result<Option<(Ruling, Option<String>)>, NotGranted> {
        let place = facts.place();
        let refused = |refused: git::Refused| {
            // Git reads most refusals with the status of a success. The record shows that of a refusal.
            let not_granted = NotGranted::new(403, "refused", facts.rule.as_str(), refused.why);
            NotGranted { response: Some(refused.response), ..not_granted }
        };
        let ruled = git::decide(request, &place, &*self.state.control).await.map_err(refused)?;
        let (GitRequest::Push(push), Some(ruling)) = (request, ruled) else { return Ok(None) };
        if ruling.decision == Rule::Allow {
            return Ok(Some((ruling, None)));
        }
        let consent = self.consent_to(asked.connection, asked.request, push, &ruling).await;
        let approval = consent.map_err(|why| refused(git::refuse_whole(push, &place, &why)))?;
        Ok(Some((ruling, Some(approval))))
    }

    /// Puts a push on record before it goes out.
    async fn record_push(
        &self,
        asked: Asked,
        push: &Push,
        ruling: &Ruling,
        approval: Option<&str>,
    ) -> Result<(), NotGranted> {
        let event = {
            let all = self.live.lock();
            let live = all.get(&asked.connection);
            let event = live.map(|live| events::push(&self.state.run, live, asked.request, push, ruling));
            match (event, approval) {
                (Some(event), Some(approval)) => Some(event.approval(approval)),
                (event, _) => event,
            }
        };
        let is_recorded = match event {
            Some(event) => self.state.control.record(event).await,
            // The connection has ended.
            None => true,
        };
        if is_recorded {
            return Ok(());
        }
        let why = "the audit log takes no records. Try again later, or ask an operator";
        Err(NotGranted::new(503, "log_unavailable", "egress: record", why))
    }

    /// Checks that the rules in force allow the connection as the process looks at it.
    fn check_rules(&self, asked: Asked) -> Result<(), NotGranted> {
        let rules = self.state.control.rules();
        let all = self.live.lock();
        let live = all.get(&asked.connection).filter(|live| live.ended_for.is_none());
        let verdict = live.map(|live| (live, rules.decide(&live.destination, live.port)));
        let refused = |rule: String, why: &str| NotGranted::new(403, "refused", rule, why);
        match verdict {
            None => Err(refused("egress: connection".to_owned(), "the connection has ended")),
            Some((_, verdict)) if verdict.decision == Rule::Deny => {
                Err(refused(verdict.rule, &verdict.words))
            }
            Some((live, verdict))
                if live.passes(&verdict) && (verdict.decision == Rule::Allow || live.approval.is_some()) =>
            {
                Ok(())
            }
            Some((_, verdict)) => Err(refused(verdict.rule, "the rules have changed; connect again")),
        }
    }

    /// Notes a request that goes out.
    fn granted(&self, asked: Asked, facts: &Facts, mut reservation: Option<Reservation>) {
        let names: BTreeSet<&SecretName> = facts.inject.iter().flat_map(Injection::secrets).collect();
        if !names.is_empty() {
            self.state.note_secret();
        }
        if let Some(live) = self.live.lock().get_mut(&asked.connection) {
            live.deciding.remove(&asked.request);
            live.injected.extend(names.into_iter().map(SecretName::to_string));
            let is_taken_back = live.taken_back.remove(&asked.request);
            match reservation.take() {
                // The process no longer has the request, and reports nothing more of it.
                Some(reservation) if is_taken_back => self.state.count(live, reservation, Answer::default()),
                Some(reservation) => drop(live.unmetered.insert(asked.request, reservation)),
                None => {}
            }
        }
        if let Some(reservation) = reservation {
            // It was admitted, and its connection has ended meanwhile.
            self.state.count_unsent(reservation);
        }
    }

    /// Notes a request that does not go out, and returns its response.
    fn refused(&self, asked: Asked, facts: &Facts, refused: NotGranted) -> Decision {
        let NotGranted { status, kind, rule, why, response, retry_after_s } = refused;
        let (host, port) = (&facts.host, facts.port);
        self.state.refuse(host, port, &rule, &why);
        let shown = self.live.lock().get_mut(&asked.connection).map(|live| {
            live.deciding.remove(&asked.request);
            live.taken_back.remove(&asked.request);
            live.answered(asked.request, status);
            live.shown(None)
        });
        if let Some(shown) = shown {
            self.state.view.show(shown);
        }
        if let Some(git_wire::Refusal { status, content_type, body }) = response {
            return Decision::Refusal(RequestRefusal {
                status: status.into(),
                content_type: content_type.to_owned(),
                body,
                retry_after_s,
            });
        }
        let words = format!("Cofferdam refused the request to {host}:{port}: {why} ({rule})");
        let body = json!({ "error": { "type": kind, "message": words } });
        Decision::Refusal(RequestRefusal {
            status,
            content_type: "application/json".to_owned(),
            body: body.to_string().into_bytes(),
            retry_after_s,
        })
    }
}

/// Returns the refusal of a request whose body was not read. Only one that lacked memory may be sent again as it is.
fn unread(model: &ModelAsked) -> NotGranted {
    if model.lacked_memory {
        let refused = NotGranted::new(503, "overloaded", "egress: memory", OVERLOADED);
        return NotGranted { retry_after_s: MEMORY_AFTER, ..refused };
    }
    NotGranted::new(403, "body_unreadable", "egress: budget", UNREADABLE)
}

/// Returns the refusal of a request that a budget leaves no room for.
///
/// Programs repeat a request that got 429. That helps only where requests under way may use less than they have reserved.
fn beyond(exceeded: &Exceeded) -> NotGranted {
    let (status, kind, retry_after_s) = if exceeded.passes_by_itself() {
        (429, "budget_reserved", RETRY_AFTER)
    } else {
        (403, "budget_exceeded", 0)
    };
    NotGranted { retry_after_s, ..NotGranted::new(status, kind, "egress: budget", exceeded.to_string()) }
}

/// Returns the headers with the values of their secrets, and the texts that a response must not show.
async fn granting(secrets: &Secrets, inject: &[Injection]) -> Result<Grant, SecretError> {
    let names: BTreeSet<&SecretName> = inject.iter().flat_map(Injection::secrets).collect();
    let mut values: BTreeMap<&SecretName, Arc<Secret>> = BTreeMap::new();
    for name in names {
        values.insert(name, secrets.get(name).await?);
    }
    let value = |name: &SecretName| values.get(name).map(|secret| secret.expose());
    let mut granted = Grant::default();
    let grant = &mut granted.0;
    grant.hide.extend(values.values().map(|secret| secret.expose().as_bytes().to_vec()));
    for injection in inject {
        // Each secret of a template is among the values.
        let filled = match injection {
            Injection::Header { value: template, .. } => template.fill(value),
            Injection::Basic { user, password } => password.fill(value).map(|password| {
                let credentials = basic(user, &password);
                grant.hide.push(credentials.as_bytes().to_vec());
                Zeroizing::new(["Basic ", &credentials].concat())
            }),
        };
        grant.headers.extend(filled.map(|filled| InjectedHeader {
            name: injection.header().to_owned(),
            value: filled.as_bytes().to_vec(),
        }));
    }
    Ok(granted)
}

/// Returns the credentials of basic authentication (RFC 7617), encoded.
fn basic(user: &str, password: &str) -> Zeroizing<String> {
    let credentials = Zeroizing::new([user, ":", password].concat());
    Zeroizing::new(BASE64_STANDARD.encode(credentials.as_bytes()))
}

#[cfg(test)]
#[path = "grants_tests.rs"]
mod tests;
