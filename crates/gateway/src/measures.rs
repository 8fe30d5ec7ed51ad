//! Measures that alerts impose on calls: for a while, calls that the policy allows need consent.
//!
//! A measure only makes a decision stricter: `allow` becomes `ask`, nothing else changes, and given consent stays
//! valid. It ends when its time is over or when it is lifted. The daemon keeps measures across restarts. Every call is
//! checked against them, which costs almost nothing while there are none.

use std::hash::RandomState;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;
use timestamp::UnixMillis;

use crate::decision::Decision;
use policy::{Caller, Verdict};

/// Most measures at the same time. Beyond it, the one that ends first is dropped.
const MAX: usize = 10_000;

/// The calls that need consent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum MeasureScope {
    /// The calls of this agent of this principal.
    Agent {
        /// The principal that made the agent's runs.
        principal: String,
        agent_id: String,
    },
    /// The calls of this run.
    Run(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// The alert that imposed it.
    pub alert_id: String,
    /// The calls that the measure applies to.
    pub scope: MeasureScope,
    /// The anomaly rule that fired.
    pub rule: String,
    /// Reason, for reviewers.
    pub justification: String,
    pub until: UnixMillis,
}

#[derive(Debug, Default)]
pub(crate) struct Measures(RwLock<UsageTable>);

#[derive(Debug, Default)]
struct UsageTable {
    /// Scope of each alert's measure.
    by_alert: HashMap<String, MeasureScope, RandomState>,
    /// Measures by scope, so that a call checks only the two scopes that it belongs to.
    by_scope: HashMap<MeasureScope, Vec<Measure>, RandomState>,
}

/// A [`MeasureScope`] that borrows the names of a call.
#[derive(Hash)]
enum Named<'a> {
    Agent { principal: &'a str, agent_id: &'a str },
    Run(&'a str),
}

impl Equivalent<MeasureScope> for Named<'_> {
    fn equivalent(&self, scope: &MeasureScope) -> bool {
        match (self, scope) {
            (Self::Agent { principal, agent_id }, MeasureScope::Agent { principal: of, agent_id: agent }) => {
                agent_id == agent && principal == of
            }
            (Self::Run(run), MeasureScope::Run(of)) => run == of,
            _ => false,
        }
    }
}

impl UsageTable {
    fn remove(&mut self, alert_id: &str) -> bool {
        let Some(scope) = self.by_alert.remove(alert_id) else { return false };
        if let Some(measures) = self.by_scope.get_mut(&scope) {
            measures.retain(|measure| measure.alert_id != alert_id);
            if measures.is_empty() {
                self.by_scope.remove(&scope);
            }
        }
        true
    }

    fn all(&self) -> impl Iterator<Item = &Measure> {
        self.by_scope.values().flatten()
    }

    fn of(&self, scope: &Named<'_>, now: UnixMillis) -> Option<&Measure> {
        self.by_scope.get(scope)?.iter().find(|measure| measure.until > now)
    }
}

impl Measures {
    /// Puts a measure into force. It replaces an earlier measure of the same alert.
    pub(crate) fn impose(&self, measure: Measure, now: UnixMillis) {
        let mut table = self.0.write();
        table.remove(&measure.alert_id);
        let over: Vec<String> = table
            .all()
            .filter(|measure| measure.until <= now)
            .map(|measure| measure.alert_id.clone())
            .collect();
        for alert in over {
            table.remove(&alert);
        }
        let first = table.all().min_by_key(|measure| measure.until);
        if let Some(first) =
            first.filter(|_| table.by_alert.len() >= MAX).map(|measure| measure.alert_id.clone())
        {
            table.remove(&first);
        }
        table.by_alert.insert(measure.alert_id.clone(), measure.scope.clone());
        table.by_scope.entry(measure.scope.clone()).or_default().push(measure);
    }

    /// Ends the measure of an alert. Returns true if there was one.
    pub(crate) fn lift(&self, alert_id: &str) -> bool {
        self.0.write().remove(alert_id)
    }

    /// Makes `decision` as strict as the measures require.
    pub(crate) fn apply(&self, caller: &Caller, now: UnixMillis, decision: &mut Decision) {
        let table = self.0.read();
        if table.by_alert.is_empty() || decision.verdict != Verdict::Allow {
            return;
        }
        let Caller { principal, agent_id, run_id, .. } = caller;
        let of_agent = table.of(&Named::Agent { principal, agent_id }, now);
        let measure = of_agent.or_else(|| table.of(&Named::Run(run_id), now));
        if let Some(measure) = measure {
            decision.verdict = Verdict::Ask;
            decision.rule = format!("anomaly {}", measure.rule);
            decision.justification.clone_from(&measure.justification);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use operations::{Operation, Read, ReadPart};
    use timestamp::{Clock as _, UnixMillis};

    use super::{MAX, Measure, MeasureScope, Measures};
    use crate::admission::Admission;
    use crate::decision::Decision;
    use crate::gateway::Gateway;
    use crate::testing::{TestClock, builtin, caller, path, run};
    use policy::Verdict;

    fn measure(alert: &str, scope: MeasureScope, until: UnixMillis) -> Measure {
        Measure {
            alert_id: alert.to_owned(),
            scope,
            rule: "loop".to_owned(),
            justification: "an alert asks for it".to_owned(),
            until,
        }
    }

    fn agent(name: &str) -> MeasureScope {
        MeasureScope::Agent { principal: "uid:1000".to_owned(), agent_id: name.to_owned() }
    }

    fn read() -> Operation {
        let encoding = operations::Encoding::Utf8;
        Operation::Read(Read { path: path("README.md"), part: ReadPart::Whole, encoding, transfer: None })
    }

    fn asks(gateway: &Gateway) -> bool {
        match gateway.admit(&gateway.policy(), &run("review"), &caller("worker"), "call", read()) {
            Admission::Ask(ticket) => {
                assert_eq!(ticket.decision().rule, "anomaly loop");
                assert_eq!(ticket.decision().justification, "an alert asks for it");
                true
            }
            Admission::Permit(_) => false,
            Admission::Refuse(refusal) => panic!("{refusal}"),
        }
    }

    #[test]
    fn measure_asks_for_consent_until_lifted_or_expired() {
        let clock = TestClock::new();
        let gateway = Gateway::new(builtin(), clock.clone());
        let until = clock.now().after(Duration::from_secs(60));
        assert!(!asks(&gateway));
        gateway.impose(measure("a", agent("alice"), until));
        assert!(asks(&gateway));
        assert!(gateway.lift("a") && !gateway.lift("a"));
        assert!(!asks(&gateway));
        gateway.impose(measure("b", MeasureScope::Run("run-1".to_owned()), until));
        assert!(asks(&gateway));
        clock.advance(Duration::from_secs(59));
        assert!(asks(&gateway));
        clock.advance(Duration::from_secs(1));
        assert!(!asks(&gateway));
    }

    #[test]
    fn measures_do_not_affect_others() {
        let clock = TestClock::new();
        let gateway = Gateway::new(builtin(), clock.clone());
        let until = clock.now().after(Duration::from_secs(60));
        gateway.impose(measure("a", agent("bob"), until));
        let namesake = MeasureScope::Agent { principal: "uid:7".to_owned(), agent_id: "alice".to_owned() };
        gateway.impose(measure("b", namesake, until));
        gateway.impose(measure("c", MeasureScope::Run("run-2".to_owned()), until));
        assert!(!asks(&gateway));
    }

    #[test]
    fn no_measure_makes_a_decision_milder_and_measures_are_bounded() {
        let measures = Measures::default();
        for count in 0..=MAX as u64 {
            measures
                .impose(measure(&count.to_string(), agent("alice"), UnixMillis(100 + count)), UnixMillis(0));
        }
        assert!(!measures.lift("0") && measures.lift("1"), "the one that ends first gave way");
        let mut decision = Decision {
            verdict: Verdict::Deny,
            rule: "r".into(),
            risk: policy::Risk::Low,
            policy_digest: String::new(),
            justification: String::new(),
        };
        measures.apply(&caller("worker"), UnixMillis(0), &mut decision);
        assert_eq!((decision.verdict, decision.rule.as_str()), (Verdict::Deny, "r"));
    }
}
