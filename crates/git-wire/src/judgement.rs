//! The judgement on a push: open until it is known which updates are forced, then final.

use std::collections::BTreeSet;
use std::fmt;

use crate::commands::{Change, Command, CommandList};
use crate::decision::Decision;
use crate::ref_name::RefPattern;

/// Most patterns for refs that a message names.
const MOST_SHOWN: usize = 3;

/// Reason of a refusal, in words for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No rule is for the repository.
    Repository,
    /// The rule denies a fetch.
    Fetch,
    /// The rule denies a push.
    Push,
    /// The rule lacks the ref. Its first patterns, and the number of the others.
    Ref(Vec<RefPattern>, usize),
    /// The rule denies a deletion.
    Delete,
    /// The rule denies a forced update.
    Force,
    /// The rule denies a forced update, and nothing is known of the old commit.
    Ancestry,
    /// The rule denies options.
    Options,
    /// Another ref of the same push is refused.
    Other,
}

impl Reason {
    pub(crate) fn refs(patterns: &BTreeSet<RefPattern>) -> Self {
        let shown: Vec<_> = patterns.iter().take(MOST_SHOWN).cloned().collect();
        let more = patterns.len() - shown.len();
        Self::Ref(shown, more)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repository => "no rule allows this repository",
            Self::Fetch => "no rule allows a fetch from this repository",
            Self::Push => "no rule allows a push to this repository",
            Self::Ref(patterns, more) => {
                let names: Vec<_> = patterns.iter().map(RefPattern::as_str).collect();
                write!(f, "no rule allows this ref; push to {}", names.join(" or "))?;
                return if *more > 0 { write!(f, " or {more} more") } else { Ok(()) };
            }
            Self::Delete => "no rule allows to delete this ref",
            Self::Force => "no rule allows a forced update; push to a new ref, or merge the old commit first",
            Self::Ancestry => {
                "it is not known if this update is forced; fetch this ref into the workspace's repository and push from there"
            }
            Self::Options => "no rule allows push options; push without `-o`",
            Self::Other => "not pushed, because another ref of this push is refused",
        })
    }
}

/// Verdict on one command, as far as the request shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub change: Change,
    /// Decision, if the update is not forced.
    pub decision: Decision,
    /// Decision, if it is. Never laxer than `decision`.
    pub if_forced: Decision,
    /// The update is forced whatever its objects are.
    pub is_forced: bool,
    /// The verdict depends on the old commit being an ancestor of the new one, or a reviewer wants to know.
    pub needs_ancestry: bool,
    /// Reason of a refusal.
    pub reason: Option<Reason>,
}

impl Verdict {
    pub(crate) fn denied(change: Change, reason: Reason) -> Self {
        Self {
            change,
            decision: Decision::Deny,
            if_forced: Decision::Deny,
            is_forced: false,
            needs_ancestry: false,
            reason: Some(reason),
        }
    }

    fn settle(self, ancestry: Ancestry) -> Ruled {
        let is_forced = self.is_forced || self.needs_ancestry && ancestry != Ancestry::FastForward;
        let decision = if is_forced { self.if_forced } else { self.decision };
        let unknown = if ancestry == Ancestry::Unknown { Reason::Ancestry } else { Reason::Force };
        let reason = (decision == Decision::Deny).then(|| self.reason.unwrap_or(unknown));
        Ruled { decision, is_forced, reason }
    }
}

/// Relation of the two commits of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ancestry {
    /// The old commit is an ancestor of the new one.
    FastForward,
    /// It is none.
    Forced,
    /// One of the commits is not there. Counted as forced.
    Unknown,
}

/// Judgement on all commands of a push. It has no decision before [`Judgement::settle`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    least: Decision,
    verdicts: Vec<Verdict>,
}

impl Judgement {
    pub(crate) fn new(least: Decision, verdicts: Vec<Verdict>) -> Self {
        Self { least, verdicts }
    }

    /// Returns the verdicts, in the order of the commands.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Returns true if the push is refused whatever its updates are, so that no commit has to be looked at.
    pub fn is_refused(&self) -> bool {
        self.least == Decision::Deny || self.verdicts.iter().any(|verdict| verdict.decision == Decision::Deny)
    }

    /// Decides. `ancestry` is called for the updates whose verdict needs it.
    pub fn settle(self, list: &CommandList, mut ancestry: impl FnMut(&Command) -> Ancestry) -> Ruling {
        // A list of another push has no verdict for some command, and is refused.
        let mut decision =
            if list.commands.len() == self.verdicts.len() { self.least } else { Decision::Deny };
        let mut commands = Vec::with_capacity(list.commands.len());
        for (command, verdict) in list.commands.iter().zip(self.verdicts) {
            let known = if verdict.needs_ancestry { ancestry(command) } else { Ancestry::FastForward };
            let ruled = verdict.settle(known);
            decision = decision.max(ruled.decision);
            commands.push(ruled);
        }
        Ruling { decision, commands }
    }
}

/// Final verdict on one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruled {
    pub decision: Decision,
    /// The update replaces an object that is not an ancestor of the new one, as far as is known.
    pub is_forced: bool,
    /// Reason of a refusal.
    pub reason: Option<Reason>,
}

/// Decision about a push. A push is allowed, asked for or refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    pub decision: Decision,
    /// Verdicts, in the order of the commands.
    pub commands: Vec<Ruled>,
}

impl Ruling {
    /// Returns the ruling that passes no push that one of two rules does not pass. Both have to be about the same push.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        let decision = self.decision.max(other.decision);
        let stricter = |(one, two): (Ruled, Ruled)| {
            let is_forced = one.is_forced || two.is_forced;
            Ruled { is_forced, ..if two.decision > one.decision { two } else { one } }
        };
        let commands = self.commands.into_iter().zip(other.commands).map(stricter).collect();
        Self { decision, commands }
    }

    /// Returns a sentence for each command of a push that is refused.
    pub fn whys(&self) -> Vec<String> {
        let why = |ruled: &Ruled| ruled.reason.as_ref().unwrap_or(&Reason::Other).to_string();
        self.commands.iter().map(why).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ONE, TWO, ZERO, command, list};

    fn verdict(decision: Decision, if_forced: Decision) -> Verdict {
        let needs_ancestry = if_forced > decision;
        Verdict {
            change: Change::Update,
            decision,
            if_forced,
            is_forced: false,
            needs_ancestry,
            reason: None,
        }
    }

    #[test]
    fn an_update_of_unknown_ancestry_counts_as_forced() {
        let list = list(vec![command(ONE, TWO, "refs/heads/x")]);
        for (ancestry, decision, reason) in [
            (Ancestry::FastForward, Decision::Allow, None),
            (Ancestry::Forced, Decision::Deny, Some(Reason::Force)),
            (Ancestry::Unknown, Decision::Deny, Some(Reason::Ancestry)),
        ] {
            let judgement = Judgement::new(Decision::Allow, vec![verdict(Decision::Allow, Decision::Deny)]);
            assert!(!judgement.is_refused());
            let ruling = judgement.settle(&list, |_| ancestry);
            let is_forced = ancestry != Ancestry::FastForward;
            assert_eq!(ruling, Ruling { decision, commands: vec![Ruled { decision, is_forced, reason }] });
        }
    }

    #[test]
    fn one_refused_ref_refuses_the_push_and_the_others_say_so() {
        let list = list(vec![command(ZERO, TWO, "refs/heads/x"), command(ONE, ZERO, "refs/heads/y")]);
        let verdicts =
            vec![verdict(Decision::Allow, Decision::Allow), Verdict::denied(Change::Delete, Reason::Delete)];
        let judgement = Judgement::new(Decision::Allow, verdicts);
        assert!(judgement.is_refused());
        let ruling = judgement.settle(&list, |_| Ancestry::FastForward);
        assert_eq!(ruling.decision, Decision::Deny);
        assert_eq!(
            ruling.whys(),
            ["not pushed, because another ref of this push is refused", "no rule allows to delete this ref"]
        );
    }

    #[test]
    fn a_judgement_on_another_push_is_a_refusal() {
        let judgement = Judgement::new(Decision::Allow, vec![]);
        let list = list(vec![command(ZERO, TWO, "refs/heads/x")]);
        assert_eq!(judgement.settle(&list, |_| Ancestry::FastForward).decision, Decision::Deny);
    }

    #[test]
    fn the_stricter_of_two_rulings_wins_for_each_command() {
        let ruled = |decision, is_forced, reason| Ruled { decision, is_forced, reason };
        let one = Ruling {
            decision: Decision::Deny,
            commands: vec![
                ruled(Decision::Allow, false, None),
                ruled(Decision::Deny, false, Some(Reason::Delete)),
            ],
        };
        let two = Ruling {
            decision: Decision::Ask,
            commands: vec![ruled(Decision::Ask, true, None), ruled(Decision::Allow, false, None)],
        };
        let expected = Ruling {
            decision: Decision::Deny,
            commands: vec![
                ruled(Decision::Ask, true, None),
                ruled(Decision::Deny, false, Some(Reason::Delete)),
            ],
        };
        assert_eq!(one.clone().meet(two.clone()), expected);
        assert_eq!(two.meet(one), expected);
    }

    #[test]
    fn a_refused_ref_names_a_few_that_are_open() {
        let reason = |texts: &[&str]| {
            Reason::refs(&texts.iter().map(|text| RefPattern::parse(text).unwrap()).collect()).to_string()
        };
        assert_eq!(reason(&["refs/heads/agent/*"]), "no rule allows this ref; push to refs/heads/agent/*");
        assert_eq!(
            reason(&["refs/heads/a", "refs/heads/b", "refs/heads/c", "refs/heads/d", "refs/heads/e"]),
            "no rule allows this ref; push to refs/heads/a or refs/heads/b or refs/heads/c or 2 more"
        );
    }
}
