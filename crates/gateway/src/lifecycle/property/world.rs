//! The gateway and its model, side by side: a daemon that takes one step at a time and may die at each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use operations::{Bound, Git, Operation, Write};
use timestamp::{Clock, UnixMillis};

use super::model::{Asked, Does, Remembered, State};
use super::{Forged, SLOTS, Step};
use crate::admission::{Admission, Ticket};
use crate::approvals::{
    Approval, ApprovalFilter, ApprovalState, Ballot, Choice, DecideError, REDEEM_WITHIN, Review, Reviewer,
};
use crate::consent::{Consent, Remember};
use crate::gateway::Gateway;
use crate::permit::Permit;
use crate::testing::{TestClock, delete, exec, shell, write};
use policy::{Caller, Level, Policy, RunScope};

/// 0 and 1 ask, and only under 0 may consent be remembered; 2 denies; 3 allows what is not critical.
static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    [("ask", "[digest, prefix]"), ("ask", "[]"), ("deny", "[]"), ("allow", "[]")]
        .map(|(says, remember)| {
            let critical = if says == "allow" { "ask" } else { says };
            format!(
                "roles: {{r: {{allow: '*'}}}}
profiles:
  p:
    operations: {{write: {says}, delete: {critical}, exec: {says}, shell: {says}, git.commit: {says}}}
    exec: {{default: {says}}}
    approvals: {{timeout_s: 60, quorum: 2, remember: {remember}}}
    rate_limits:
      operations: {{default: {{minute: unlimited, hour: unlimited, day: unlimited}}}}
      run: {{minute: unlimited, hour: unlimited, day: unlimited}}
      principal: {{minute: unlimited, hour: unlimited, day: unlimited}}
"
            )
        })
        .map(|yaml| Policy::from_files([("p.yaml", yaml)]).unwrap())
        .into()
});

/// The state that outlives the process.
#[derive(Clone)]
struct Disk {
    approvals: String,
    consents: String,
}

pub(super) struct World {
    gateway: Gateway,
    clock: Arc<TestClock>,
    policy: usize,
    /// State of the file that each call names, by run.
    file: [u64; 2],
    /// How often a slot was used: each use is another call.
    uses: [usize; SLOTS],
    asked: [Option<Asked>; SLOTS],
    remembered: Vec<Remembered>,
    /// Permits that were given and not spent: lost when the process dies.
    held: [Option<Permit>; SLOTS],
    executed: BTreeMap<String, usize>,
    pub(super) recalled: usize,
    pub(super) restarts: usize,
}

fn run_of(slot: usize) -> usize {
    slot / 2 % 2
}

fn caller(run: usize) -> Caller {
    Caller { principal: "asker".into(), agent_id: "a".into(), role: "r".into(), run_id: format!("run-{run}") }
}

fn scope(image: &str) -> RunScope {
    RunScope { profile: "p".into(), image_id: image.into() }
}

fn operation(does: Does, content: &str) -> Operation {
    match does {
        Does::Write => Operation::Write(Write { content: content.into(), ..write("f") }),
        Does::Delete if content == "x" => Operation::Delete(delete("f")),
        Does::Delete => Operation::Delete(delete("g")),
        Does::MakeAll => Operation::Exec(exec(&["wc", "all", content])),
        Does::MakeInstall => Operation::Exec(exec(&["/usr/bin/wc", "install", content])),
        Does::Local => Operation::Exec(exec(&["/workspace/wc", "all", content])),
        Does::Wrapped => Operation::Exec(exec(&["env", "wc", content])),
        Does::Shell => Operation::Shell(shell(&format!("wc {content}"))),
        Does::Commit => Operation::Git(Git::Commit { message: content.into() }),
    }
}

fn bound(version: u64) -> Bound {
    Bound { digest: format!("{version:064x}"), ..Bound::default() }
}

/// 0 asked, 1 is an approver, the others are directors.
fn reviewer(who: usize) -> Reviewer {
    let principal = if who == 0 { "asker".to_owned() } else { format!("boss-{who}") };
    let level = if who == 1 { Level::Approver } else { Level::Director };
    Reviewer { principal, level, may_decide_own: false }
}

impl World {
    pub(super) fn new() -> Self {
        let clock = TestClock::new();
        let gateway = Gateway::new(POLICIES[0].clone(), clock.clone());
        Self {
            gateway,
            clock,
            policy: 0,
            file: [0; 2],
            uses: [0; SLOTS],
            asked: [const { None }; SLOTS],
            remembered: Vec::new(),
            held: [const { None }; SLOTS],
            executed: BTreeMap::new(),
            recalled: 0,
            restarts: 0,
        }
    }

    pub(super) fn executed(&self) -> usize {
        self.executed.len()
    }

    fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    fn call_id(&self, slot: usize) -> String {
        format!("call-{slot}-{}", self.uses[slot])
    }

    pub(super) fn take(&mut self, step: &Step) {
        match *step {
            Step::Proceed { slot } => self.proceed(slot),
            Step::Request { slot } => self.request(slot),
            Step::Vote { slot, who, approve, remember, dies } => {
                self.vote(slot, who, approve, remember, dies);
            }
            Step::Redeem { slot, forged, dies } => self.redeem(slot, forged, dies),
            Step::Execute { slot } => self.execute(slot),
            Step::ChangeFile { run } => self.file[run] += 1,
            Step::CancelCall { slot } => {
                self.gateway.cancel_call(&self.call_id(slot));
                self.over(|other| other == slot);
            }
            Step::EndRun { run } => {
                self.gateway.cancel_run(&format!("run-{run}"));
                self.gateway.forget_run(&format!("run-{run}"));
                self.remembered.retain(|consent| consent.run != run);
                self.over(|slot| run_of(slot) == run);
                // The calls in progress end with their run.
                for slot in (0..SLOTS).filter(|slot| run_of(*slot) == run) {
                    self.held[slot] = None;
                }
            }
            Step::Forget => {
                let forgotten = self.remembered.pop().map(|consent| consent.id);
                if let Some(id) = forgotten {
                    assert!(self.gateway.forget(&id).is_some());
                    assert!(self.gateway.forget(&id).is_none());
                }
            }
            Step::Forward { seconds } => self.clock.advance(Duration::from_secs(seconds)),
            Step::Back { seconds } => self.clock.go_back(Duration::from_secs(seconds)),
            Step::Tick => self.tick(),
            Step::Reload { policy } => {
                let changed = self.gateway.reload(POLICIES[policy].clone());
                assert_eq!(changed, policy != self.policy);
                self.policy = policy;
                let ended = self.gateway.forget_outdated().len();
                let before = self.remembered.len();
                self.remembered.retain(|consent| consent.policy == policy);
                assert_eq!(ended, before - self.remembered.len());
            }
            Step::Restart => {
                let disk = self.disk();
                self.restart(&disk);
            }
        }
    }

    fn proceed(&mut self, slot: usize) {
        let voter = |votes: &BTreeSet<usize>| (2..5).find(|who| !votes.contains(who)).unwrap_or(2);
        match self.asked[slot].as_ref().map(|asked| asked.state.clone()) {
            _ if self.held[slot].is_some() => self.execute(slot),
            Some(State::Pending { votes }) => {
                let remember = usize::from(Does::ALL[slot].offers(1) && self.uses[slot].is_multiple_of(3));
                self.vote(slot, voter(&votes), true, remember, false);
            }
            Some(State::Approved { .. }) => self.redeem(slot, Forged::Nothing, false),
            Some(State::Over) | None => self.request(slot),
        }
    }

    /// As the daemon asks: the policy first, then what is remembered, then a reviewer.
    fn request(&mut self, slot: usize) {
        let open = self.asked[slot].as_ref().is_some_and(Asked::is_open) || self.held[slot].is_some();
        if open {
            return;
        }
        self.uses[slot] += 1;
        let (does, run, call) = (Does::ALL[slot], run_of(slot), self.call_id(slot));
        let admission = self.gateway.admit(
            &self.gateway.policy(),
            &scope("i"),
            &caller(run),
            &call,
            operation(does, "x"),
        );
        let ticket = match admission {
            Admission::Permit(permit) => {
                assert!(self.policy == 3 && does != Does::Delete, "{permit:?}");
                self.held[slot] = Some(permit);
                return;
            }
            Admission::Refuse(refusal) => {
                assert_eq!(self.policy, 2, "{refusal:?}");
                return;
            }
            Admission::Ask(ticket) => *ticket,
        };
        assert!(self.policy < 2 || self.policy == 3 && does == Does::Delete, "{does:?}");
        let now = bound(self.file[run]);
        let recalled = self.gateway.recall(&ticket, &now);
        let covered =
            self.remembered.iter().any(|consent| consent.covers(does, run, self.policy, self.file[run]));
        assert_eq!(recalled.is_some(), covered, "{does:?} {recalled:?}");
        if let Some(permit) = recalled {
            assert!(permit.decision().rule.starts_with("remembered consent "));
            assert_eq!(permit.approval_id(), None);
            self.recalled += 1;
            self.held[slot] = Some(permit);
            return;
        }
        let review = Review { bound: now, ..Review::default() };
        let approval = self.gateway.request_approval(&ticket, review, None).unwrap();
        assert_eq!((approval.needed as usize, approval.state), (does.needed(), ApprovalState::Pending));
        self.asked[slot] = Some(Asked {
            id: approval.approval_id,
            state: State::Pending { votes: BTreeSet::new() },
            policy: self.policy,
            file: self.file[run],
            from: approval.created_at,
            until: approval.expires_at,
            reminded: false,
        });
    }

    fn vote(&mut self, slot: usize, who: usize, approve: bool, remember: usize, crash: bool) {
        let (now, does, disk) = (self.now(), Does::ALL[slot], crash.then(|| self.disk()));
        let Some(asked) = &mut self.asked[slot] else { return };
        let ballot = Ballot {
            choice: if approve { Choice::Approve } else { Choice::Deny },
            remember: match remember {
                0 => Remember::Once,
                1 => Remember::Digest,
                _ => Remember::Prefix(vec![operation_word(does).to_owned()]),
            },
            comment: String::new(),
            proof: None,
        };
        let decided = self.gateway.decide(&asked.id, &reviewer(who), &ballot);
        let level = who != 1 || does != Does::Delete;
        let form = remember == 0 || asked.policy == 0 && does.offers(remember) && approve;
        let expected = match &asked.state {
            State::Pending { votes } => {
                now < asked.until && who != 0 && level && !votes.contains(&who) && form
            }
            _ => false,
        };
        assert_eq!(decided.is_ok(), expected, "{does:?} by {who}: {decided:?}");
        if decided == Err(DecideError::SelfApproval) {
            assert_eq!(who, 0);
        }
        if let Some(disk) = disk {
            // Before it was on record: as if it had never been handed in.
            return self.restart(&disk);
        }
        let Ok(approval) = decided else { return };
        let State::Pending { votes } = &mut asked.state else { return };
        votes.insert(who);
        let settled = !approve || votes.len() >= does.needed();
        assert_eq!(approval.state == ApprovalState::Pending, !settled);
        if settled {
            asked.state = if approve { State::Approved { at: now } } else { State::Over };
        }
        let given = approval.remembered.clone();
        assert_eq!(given.is_some(), remember > 0);
        if let Some(consent) = given {
            // One that was given under a policy that is no longer in force has ended before it began.
            if asked.policy == self.policy {
                self.remembered.push(Remembered {
                    id: consent.consent_id.clone(),
                    run: run_of(slot),
                    policy: asked.policy,
                    does,
                    file: (remember == 1).then_some(asked.file),
                });
            }
            self.gateway.remember(consent);
        }
    }

    fn redeem(&mut self, slot: usize, forged: Forged, crash: bool) {
        let (now, policy, disk) = (self.now(), self.policy, crash.then(|| self.disk()));
        let (does, run, call) = (Does::ALL[slot], run_of(slot), self.call_id(slot));
        let Some(asked) = &mut self.asked[slot] else { return };
        let shown = bound(asked.file).held();
        let content = if forged == Forged::Content { "y" } else { "x" };
        let call = if forged == Forged::OtherCall { format!("{call}-other") } else { call };
        let run = if forged == Forged::OtherRun { 1 - run } else { run };
        let image = if forged == Forged::OtherImage { "j" } else { "i" };
        let mut approval = self.gateway.approval(&asked.id).unwrap();
        (approval.call_id, approval.run_id) = (call, format!("run-{run}"));
        let ticket = Ticket::resumed(&approval, scope(image), operation(does, content));
        let redeemed = self.gateway.redeem(&asked.id, &ticket);

        let foreign = matches!(forged, Forged::OtherCall | Forged::OtherRun);
        let approved = matches!(asked.state, State::Approved { .. });
        let live = matches!(asked.state, State::Approved { at } if now < at.after(REDEEM_WITHIN));
        let same = forged == Forged::Nothing && policy == asked.policy;
        assert_eq!(redeemed.is_ok(), live && same, "{redeemed:?}");
        if approved && !foreign {
            asked.state = State::Over;
        }
        if let Some(disk) = disk {
            // Before it was on disk that it is spent: the permit goes with the process, the consent does not.
            if approved {
                asked.state = State::Approved { at: approval.decided_at.unwrap() };
            }
            return self.restart(&disk);
        }
        if let Ok(permit) = redeemed {
            assert_eq!(permit.approval_id(), Some(asked.id.as_str()));
            // Whatever the file is by now: its lane sees whether it is that.
            assert_eq!(permit.bounds().held_to, shown);
            self.held[slot] = Some(permit);
        }
    }

    fn execute(&mut self, slot: usize) {
        if let Some(permit) = self.held[slot].take() {
            let parts = permit.into_parts();
            assert_eq!(parts.call_id, self.call_id(slot));
            let times = self.executed.entry(parts.call_id).or_default();
            *times += 1;
            assert_eq!(*times, 1, "a call is executed once");
        }
    }

    fn over(&mut self, which: impl Fn(usize) -> bool) {
        for (slot, asked) in self.asked.iter_mut().enumerate() {
            if let Some(asked) = asked.as_mut().filter(|_| which(slot)) {
                asked.state = State::Over;
            }
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        let ids = |approvals: Vec<Approval>| -> BTreeSet<String> {
            approvals.into_iter().map(|approval| approval.approval_id).collect()
        };
        let (expired, reminded) = (ids(self.gateway.expire_due()), ids(self.gateway.reminders_due()));
        let (mut expire, mut remind) = (BTreeSet::new(), BTreeSet::new());
        for asked in self.asked.iter_mut().flatten() {
            match asked.state {
                State::Pending { .. } if now >= asked.until => {
                    expire.insert(asked.id.clone());
                    asked.state = State::Over;
                }
                State::Pending { .. } if now >= asked.half_time() && !asked.reminded => {
                    remind.insert(asked.id.clone());
                    asked.reminded = true;
                }
                State::Approved { at } if now >= at.after(REDEEM_WITHIN) => asked.state = State::Over,
                _ => {}
            }
        }
        assert_eq!((expired, reminded), (expire, remind));
    }

    fn disk(&self) -> Disk {
        let approvals = self.gateway.list_approvals(&ApprovalFilter::default());
        Disk {
            approvals: serde_json::to_string(&approvals).unwrap(),
            consents: serde_json::to_string(&self.gateway.consents(None)).unwrap(),
        }
    }

    /// Another process with what the previous one had on disk. Permits are in no file.
    fn restart(&mut self, disk: &Disk) {
        self.restarts += 1;
        self.held = [const { None }; SLOTS];
        self.gateway = Gateway::new(POLICIES[self.policy].clone(), self.clock.clone());
        self.gateway.restore_approvals(serde_json::from_str(&disk.approvals).unwrap()).unwrap();
        for consent in serde_json::from_str::<Vec<Consent>>(&disk.consents).unwrap() {
            self.gateway.remember(consent);
        }
    }
}

fn operation_word(does: Does) -> &'static str {
    match does {
        Does::MakeInstall => "/usr/bin/wc",
        Does::Local => "/workspace/wc",
        Does::Wrapped => "env",
        _ => "wc",
    }
}
