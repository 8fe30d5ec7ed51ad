//! Bounds of a budget against what is used, and their words for people.

use std::fmt;

use egress_rules::{Bound, Budget, MicroUsd};

use crate::day::Day;
use crate::tokens::Usage;

/// The requests that a bound counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Requests and tokens of one run, in its whole life.
    Run,
    /// Requests and tokens of all runs of one principal, in one day.
    PrincipalDay,
    /// Requests and tokens of all runs, in one day.
    Day,
}

impl Scope {
    pub(crate) const ALL: [Self; 3] = [Self::Run, Self::PrincipalDay, Self::Day];
    /// Bounds that begin anew each day.
    pub(crate) const DAYS: [Self; 2] = [Self::PrincipalDay, Self::Day];

    pub(crate) fn of(self, budget: &Budget) -> &Bound {
        match self {
            Self::Run => &budget.run,
            Self::PrincipalDay => &budget.principal_day,
            Self::Day => &budget.day,
        }
    }

    /// Returns the key of a policy.
    fn key(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::PrincipalDay => "principal_day",
            Self::Day => "day",
        }
    }

    fn subject(self) -> &'static str {
        match self {
            Self::Run => "this run",
            Self::PrincipalDay => "all runs of its principal together",
            Self::Day => "all runs together",
        }
    }
}

/// The thing that a bound counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    Tokens,
    Requests,
    /// Millionths of a US dollar.
    Usd,
}

impl Unit {
    const ALL: [Self; 3] = [Self::Tokens, Self::Requests, Self::Usd];

    fn limit(self, bound: &Bound) -> Option<u64> {
        match self {
            Self::Tokens => bound.tokens,
            Self::Requests => bound.requests,
            Self::Usd => bound.usd.map(|usd| usd.0),
        }
    }

    fn used(self, usage: &Usage) -> u64 {
        match self {
            Self::Tokens => usage.tokens.total(),
            Self::Requests => usage.requests,
            Self::Usd => usage.micro_usd,
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Requests => "requests",
            Self::Usd => "usd",
        }
    }

    /// Names the things that are counted.
    fn things(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Requests => "requests",
            Self::Usd => "US dollars",
        }
    }
}

/// A bound of a budget, and the part of it that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundUse {
    pub scope: Scope,
    pub unit: Unit,
    pub used: u64,
    pub limit: u64,
    /// Day at whose beginning the bound begins anew. `None` for that of a run.
    pub until: Option<Day>,
}

impl BoundUse {
    fn is_used_up(&self) -> bool {
        self.used >= self.limit
    }

    /// Returns true if at least 80 % are used.
    fn is_warned_of(&self) -> bool {
        u128::from(self.used) * 5 >= u128::from(self.limit) * 4
    }

    /// Returns true if the use has passed 80 % since it was `before`.
    fn has_passed(&self, before: &Usage) -> bool {
        self.is_warned_of() && !Self { used: self.unit.used(before), ..*self }.is_warned_of()
    }

    /// Returns the use and the bound: `3 of 5 requests by this run`.
    fn words(&self) -> String {
        let (used, limit) = match self.unit {
            Unit::Usd => (MicroUsd(self.used).to_string(), MicroUsd(self.limit).to_string()),
            Unit::Tokens | Unit::Requests => (self.used.to_string(), self.limit.to_string()),
        };
        let until = self.until.map(|day| format!(", until {day} 00:00 UTC")).unwrap_or_default();
        format!("{used} of {limit} {} by {}{until}", self.unit.things(), self.scope.subject())
    }

    /// Returns the key in a policy: `budget.run.tokens`.
    fn key(&self) -> String {
        format!("budget.{}.{}", self.scope.key(), self.unit.key())
    }
}

/// Returns each bound of a scope, with its use on this day.
pub(crate) fn uses(scope: Scope, budget: &Budget, usage: Usage, day: Day) -> impl Iterator<Item = BoundUse> {
    let until = (scope != Scope::Run).then(|| day.next());
    Unit::ALL.into_iter().filter_map(move |unit| {
        let limit = unit.limit(scope.of(budget))?;
        Some(BoundUse { scope, unit, used: unit.used(&usage), limit, until })
    })
}

/// Returns the first bound that is used up.
pub(crate) fn used_up(scope: Scope, budget: &Budget, usage: Usage, day: Day) -> Option<BoundUse> {
    uses(scope, budget, usage, day).find(BoundUse::is_used_up)
}

/// Returns the bounds that have passed 80 % since the use was `before`.
pub(crate) fn passed(
    scope: Scope,
    budget: &Budget,
    (before, usage): (Usage, Usage),
    day: Day,
) -> impl Iterator<Item = Warning> {
    uses(scope, budget, usage, day).filter(move |bound| bound.has_passed(&before)).map(Warning)
}

/// Returns true if a bound of one of these scopes is in US dollars.
pub(crate) fn has_usd(scopes: &[Scope], budget: &Budget) -> bool {
    scopes.iter().any(|scope| scope.of(budget).usd.is_some())
}

/// A bound of which at least 80 % are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warning(pub BoundUse);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.0.key(), self.0.words())
    }
}

/// The reason for which a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exceeded {
    /// The bound is used up.
    UsedUp(BoundUse),
    /// The bound is used up together with what requests under way have reserved. They may use less.
    Reserved(BoundUse),
    /// A model was used that has no price, under a bound in US dollars.
    Unpriced { scope: Scope, model: String },
    /// The counts of earlier requests cannot be read.
    Unreadable,
    /// Counts could not be written for a minute.
    Unwritten,
    /// There are accounts of too many runs.
    TooManyRuns,
}

impl Exceeded {
    /// Returns true if a later request may pass without an operator.
    pub fn passes_by_itself(&self) -> bool {
        matches!(self, Self::Reserved(_))
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UsedUp(bound) => write!(
                f,
                "The budget for models is used up: {}. Only an operator can raise `{}` of the profile. Do not retry.",
                bound.words(),
                bound.key(),
            ),
            Self::Reserved(bound) => write!(
                f,
                "Requests under way have reserved the rest of the budget for models: {}. Retry when one of them has ended.",
                bound.words(),
            ),
            Self::Unpriced { scope, model } => write!(
                f,
                "The model `{model}` has no price, so `budget.{}.usd` cannot be kept. An operator adds its price to \
                 `model_prices` of the daemon's configuration and restarts the daemon. Do not retry.",
                scope.key()
            ),
            Self::Unreadable => f.write_str(
                "The counts of earlier requests to models cannot be read, so no budget can be kept. An operator finds the \
                 file in the daemon's log, moves it away and restarts the daemon. Do not retry.",
            ),
            Self::Unwritten => f.write_str(
                "The counts of requests to models cannot be written, so no budget can be kept. An operator finds the reason \
                 in the daemon's log.",
            ),
            Self::TooManyRuns => f.write_str(
                "Too many runs have used models, so the budget of this run cannot be kept. An operator deletes runs that have \
                 ended. Do not retry.",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Tokens;

    fn day() -> Day {
        Day::of("2026-11-29T12:00:00.000000000Z".parse().unwrap())
    }

    fn tokens(output: u64) -> Usage {
        Usage { tokens: Tokens { output, ..Tokens::default() }, ..Usage::default() }
    }

    #[test]
    fn a_bound_is_used_up_at_its_number_and_warned_of_at_four_fifths() {
        let budget = Budget { run: Bound { tokens: Some(101), ..Bound::default() }, ..Budget::default() };
        let warned = |before, now| passed(Scope::Run, &budget, (tokens(before), tokens(now)), day()).count();
        for (before, now, count) in [(0, 80, 0), (0, 81, 1), (80, 81, 1), (81, 82, 0), (0, u64::MAX, 1)] {
            assert_eq!(warned(before, now), count, "{before} {now}");
        }
        let used_up = |used| used_up(Scope::Run, &budget, tokens(used), day()).is_some();
        assert_eq!([100, 101, u64::MAX].map(used_up), [false, true, true]);
        assert_eq!(uses(Scope::Day, &budget, tokens(1), day()).count(), 0);
    }

    #[test]
    fn the_words_say_the_bound_its_use_and_its_end() {
        let usd = Bound { usd: Some(MicroUsd(5_000_000)), ..Bound::default() };
        let budget = Budget { principal_day: usd, ..Budget::default() };
        let usage = Usage { micro_usd: 5_012_340, ..Usage::default() };
        let bound = used_up(Scope::PrincipalDay, &budget, usage, day()).unwrap();
        assert_eq!(
            Exceeded::UsedUp(bound).to_string(),
            "The budget for models is used up: 5.01234 of 5 US dollars by all runs of its principal together, until \
             2026-11-30 00:00 UTC. Only an operator can raise `budget.principal_day.usd` of the profile. Do not retry."
        );
        let requests = BoundUse { scope: Scope::Run, unit: Unit::Requests, used: 4, limit: 5, until: None };
        assert_eq!(Warning(requests).to_string(), "`budget.run.requests`: 4 of 5 requests by this run");
        let reserved = Exceeded::Reserved(requests);
        assert!(reserved.to_string().contains("4 of 5 requests by this run. Retry when"), "{reserved}");
        assert!(reserved.passes_by_itself() && !Exceeded::UsedUp(requests).passes_by_itself());
        let unpriced = Exceeded::Unpriced { scope: Scope::Run, model: "m-1".to_owned() };
        assert!(unpriced.to_string().starts_with("The model `m-1` has no price"));
    }
}
