//! The state machine against a model, over random histories: every answer is what the model says, and no history
//! gets a permit without consent, or two for one consent.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ops::{Operation, Write};
use proptest::prelude::*;

use super::book::REDEEM_WITHIN;
use super::{ApprovalFilter, Choice, Review, Reviewer};
use crate::admission::{Admission, Ticket};
use crate::binding::{FileState, FileStates};
use crate::caller::{Caller, RunScope};
use crate::clock::{Clock, UnixMillis};
use crate::gateway::Gateway;
use crate::policy::Policy;
use crate::testing::{TestClock, path, write};

const CALLS: usize = 6;
const TIMEOUT: Duration = Duration::from_secs(60);

/// 0 and 1 ask, under different digests; 2 denies writing; 3 allows it.
static POLICIES: LazyLock<Vec<Policy>> = LazyLock::new(|| {
    ["ask, list: allow", "ask", "deny", "allow"]
        .map(|write| {
            format!("profiles: {{p: {{operations: {{write: {write}}}}}}}\nroles: {{r: {{allow: '*'}}}}")
        })
        .map(|yaml| Policy::from_files([("p.yaml", yaml)]).unwrap().without_rate_limits())
        .into()
});

#[derive(Debug, Clone)]
enum Step {
    Request { call: usize },
    Decide { call: usize, approve: bool, own: bool },
    Redeem { call: usize, other_content: bool, other_call: bool, other_files: bool },
    CancelCall { call: usize },
    CancelRun { run: usize },
    Advance { seconds: u64 },
    Tick,
    Reload { policy: usize },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let call = 0..CALLS;
    let rarely = || prop::bool::weighted(0.1);
    prop_oneof![
        4 => call.clone().prop_map(|call| Step::Request { call }),
        5 => (call.clone(), prop::bool::weighted(0.8), rarely()).prop_map(|(call, approve, own)| Step::Decide { call, approve, own }),
        6 => (call.clone(), rarely(), rarely(), rarely()).prop_map(|(call, other_content, other_call, other_files)| {
            Step::Redeem { call, other_content, other_call, other_files }
        }),
        1 => call.prop_map(|call| Step::CancelCall { call }),
        1 => (0..2_usize).prop_map(|run| Step::CancelRun { run }),
        2 => prop::sample::select(vec![1, 20, 60, 599, 600]).prop_map(|seconds| Step::Advance { seconds }),
        1 => Just(Step::Tick),
        1 => (0..POLICIES.len()).prop_map(|policy| Step::Reload { policy }),
        1 => Just(Step::Restart),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Model {
    Pending { until: UnixMillis },
    Approved { at: UnixMillis },
    Over,
}

/// One approval that was asked for: what the model knows, and what the gateway was given.
struct Asked {
    model: Model,
    id: String,
    policy: usize,
    permits: usize,
    consented: bool,
}

struct World {
    gateway: Gateway,
    clock: Arc<TestClock>,
    policy: usize,
    /// The latest approval of each call.
    asked: Vec<Option<Asked>>,
}

fn caller_of(call: usize) -> Caller {
    Caller {
        principal: "asker".into(),
        agent_id: "a".into(),
        role: "r".into(),
        run_id: format!("run-{}", call % 2),
    }
}

fn scope() -> RunScope {
    RunScope { profile: "p".into(), image_id: "i".into() }
}

fn files(changed: bool) -> FileStates {
    [(path("a"), FileState::Sha256(if changed { "bb" } else { "aa" }.into()))].into()
}

impl World {
    fn new() -> Self {
        let clock = TestClock::new();
        let gateway = Gateway::new(POLICIES[0].clone(), clock.clone());
        Self { gateway, clock, policy: 0, asked: (0..CALLS).map(|_| None).collect() }
    }

    /// A ticket for a call under a policy that asks, whatever is in force: as a forger would keep one.
    fn ticket(call: usize, content: &str) -> Ticket {
        let operation = Operation::Write(Write { content: content.into(), ..write("a") });
        let asking = Gateway::new(POLICIES[0].clone(), TestClock::new());
        match asking.admit(&scope(), &caller_of(call), &format!("call-{call}"), operation) {
            Admission::Ask(ticket) => *ticket,
            other => panic!("{other:?}"),
        }
    }

    fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    fn request(&mut self, call: usize) {
        let operation = Operation::Write(Write { content: b"x".to_vec(), ..write("a") });
        let admission = self.gateway.admit(&scope(), &caller_of(call), &format!("call-{call}"), operation);
        let Admission::Ask(ticket) = admission else {
            assert!(self.policy >= 2, "policy {} answered {admission:?}", self.policy);
            return;
        };
        let open = self.asked[call].as_ref().is_some_and(|asked| asked.model != Model::Over);
        let review = Review { files: files(false), ..Review::default() };
        let answer = self.gateway.request_approval(&ticket, review, Some(TIMEOUT));
        assert_eq!(answer.is_err(), open, "{answer:?}");
        if let Ok(approval) = answer {
            let until = self.now().after(TIMEOUT);
            let model = Model::Pending { until };
            self.asked[call] = Some(Asked {
                model,
                id: approval.approval_id,
                policy: self.policy,
                permits: 0,
                consented: false,
            });
        }
    }

    fn decide(&mut self, call: usize, approve: bool, own: bool) {
        let now = self.now();
        let Some(asked) = &mut self.asked[call] else { return };
        let reviewer =
            Reviewer { principal: if own { "asker" } else { "boss" }.into(), may_decide_own: false };
        let choice = if approve { Choice::Approve } else { Choice::Deny };
        let decided = self.gateway.decide(&asked.id, &reviewer, choice, "").is_ok();
        let expected = matches!(asked.model, Model::Pending { until } if now < until) && !own;
        assert_eq!(decided, expected);
        if decided {
            asked.consented = approve;
            asked.model = if approve { Model::Approved { at: now } } else { Model::Over };
        }
    }

    fn redeem(&mut self, call: usize, other_content: bool, other_call: bool, other_files: bool) {
        let (now, policy) = (self.now(), self.policy);
        let Some(asked) = &mut self.asked[call] else { return };
        let ticket =
            Self::ticket(if other_call { call + 2 } else { call }, if other_content { "y" } else { "x" });
        let redeemed = self.gateway.redeem(&asked.id, &ticket, &files(other_files));
        let live =
            matches!(asked.model, Model::Approved { at } if now < at.after(REDEEM_WITHIN)) && !other_call;
        let same = !other_content && !other_files && policy == asked.policy;
        assert_eq!(redeemed.is_ok(), live && same, "{redeemed:?}");
        if let Ok(permit) = redeemed {
            asked.permits += 1;
            assert!(asked.consented && asked.permits == 1 && policy < 2);
            assert_eq!(permit.approval_id(), Some(asked.id.as_str()));
        }
        if matches!(asked.model, Model::Approved { .. }) && !other_call {
            asked.model = Model::Over;
        }
    }

    fn cancel(&mut self, which: impl Fn(usize) -> bool) {
        for (_, asked) in self.asked.iter_mut().enumerate().filter(|(call, _)| which(*call)) {
            if let Some(asked) = asked {
                asked.model = Model::Over;
            }
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        let mut expired: Vec<String> =
            self.gateway.expire_due().into_iter().map(|approval| approval.approval_id).collect();
        let mut expected = Vec::new();
        for asked in self.asked.iter_mut().flatten() {
            match asked.model {
                Model::Pending { until } if now >= until => {
                    expected.push(asked.id.clone());
                    asked.model = Model::Over;
                }
                Model::Approved { at } if now >= at.after(REDEEM_WITHIN) => asked.model = Model::Over,
                _ => {}
            }
        }
        expired.sort();
        expected.sort();
        assert_eq!(expired, expected);
    }

    fn restart(&mut self) {
        let stored = serde_json::to_string(&self.gateway.list_approvals(&ApprovalFilter::default())).unwrap();
        self.gateway = Gateway::new(POLICIES[self.policy].clone(), self.clock.clone());
        self.gateway.restore_approvals(serde_json::from_str(&stored).unwrap()).unwrap();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Request { call } => self.request(call),
            Step::Decide { call, approve, own } => self.decide(call, approve, own),
            Step::Redeem { call, other_content, other_call, other_files } => {
                self.redeem(call, other_content, other_call, other_files);
            }
            Step::CancelCall { call } => {
                self.gateway.cancel_call(&format!("call-{call}"));
                self.cancel(|other| other == call);
            }
            Step::CancelRun { run } => {
                self.gateway.cancel_run(&format!("run-{run}"));
                self.cancel(|call| call % 2 == run);
            }
            Step::Advance { seconds } => self.clock.advance(Duration::from_secs(seconds)),
            Step::Tick => self.tick(),
            Step::Reload { policy } => {
                self.gateway.reload(POLICIES[policy].clone());
                self.policy = policy;
            }
            Step::Restart => self.restart(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn no_history_gets_a_permit_without_consent_or_twice(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
    }
}
