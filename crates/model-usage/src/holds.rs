//! The part of each bound that requests under way hold, until their responses say what they used.

use std::collections::BTreeMap;

use crate::bounds::Scope;
use crate::tokens::Usage;
use crate::who::Who;

/// The sum of reservations. Each is bounded, so the sums of all that memory can hold do not overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    requests: u64,
    tokens: u128,
    micro_usd: u128,
}

impl Held {
    /// Returns the hold of one request.
    pub(crate) fn new(tokens: u64, micro_usd: u64) -> Self {
        Self { requests: 1, tokens: tokens.into(), micro_usd: micro_usd.into() }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.tokens += other.tokens;
        self.micro_usd += other.micro_usd;
    }

    fn remove(&mut self, other: &Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
        self.micro_usd = self.micro_usd.saturating_sub(other.micro_usd);
    }

    /// Returns use and holds together.
    pub(crate) fn with(&self, mut usage: Usage) -> Usage {
        let number = |number: u128| u64::try_from(number).unwrap_or(u64::MAX);
        usage.tokens.output = usage.tokens.output.saturating_add(number(self.tokens));
        usage.micro_usd = usage.micro_usd.saturating_add(number(self.micro_usd));
        usage
    }
}

/// The holds of all requests under way. They are in memory alone, and do not end with a day.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    runs: BTreeMap<String, Held>,
    principals: BTreeMap<String, Held>,
    all: Held,
}

impl Holds {
    pub(crate) fn add(&mut self, who: &Who, held: &Held) {
        self.runs.entry(who.run.clone()).or_default().add(held);
        self.principals.entry(who.principal.clone()).or_default().add(held);
        self.all.add(held);
    }

    /// Takes back what was added.
    pub(crate) fn remove(&mut self, who: &Who, held: &Held) {
        for (sums, name) in [(&mut self.runs, &who.run), (&mut self.principals, &who.principal)] {
            let Some(sum) = sums.get_mut(name) else { continue };
            sum.remove(held);
            if sum.requests == 0 {
                sums.remove(name);
            }
        }
        self.all.remove(held);
    }

    pub(crate) fn of(&self, scope: Scope, who: &Who) -> Held {
        let sum = match scope {
            Scope::Run => self.runs.get(&who.run),
            Scope::PrincipalDay => self.principals.get(&who.principal),
            Scope::Day => Some(&self.all),
        };
        sum.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_count_for_their_run_their_principal_and_all_and_leave_nothing() {
        let who = |run: &str, principal: &str| Who { run: run.to_owned(), principal: principal.to_owned() };
        let (one, two, three) = (who("r", "a"), who("s", "a"), who("t", "b"));
        let mut holds = Holds::default();
        for (who, tokens) in [(&one, 1), (&one, 2), (&two, 4), (&three, 8)] {
            holds.add(who, &Held::new(tokens, tokens * 10));
        }
        let tokens = |holds: &Holds, who| {
            Scope::ALL.map(|scope| holds.of(scope, who).with(Usage::default()).tokens.total())
        };
        assert_eq!((tokens(&holds, &one), tokens(&holds, &three)), ([3, 7, 15], [8, 8, 15]));
        assert_eq!(holds.of(Scope::Day, &one).with(Usage::default()).micro_usd, 150);
        for (who, tokens) in [(&one, 2), (&two, 4), (&three, 8), (&one, 1)] {
            holds.remove(who, &Held::new(tokens, tokens * 10));
        }
        assert!(holds.runs.is_empty() && holds.principals.is_empty());
        assert_eq!(holds.all, Held::default());
    }
}
