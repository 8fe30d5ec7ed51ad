//! Bounds on the use of models.

use serde::{Deserialize, Serialize};

use crate::money::MicroUsd;

/// The most that may be used in some period. `None` is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bound {
    /// Tokens of requests and answers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Cost by the operator's table of prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<MicroUsd>,
}

/// Bounds on the requests of rules with `meter`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// For a run.
    #[serde(skip_serializing_if = "Bound::is_unbounded")]
    pub run: Bound,
    /// For all runs of a principal in a day, UTC.
    #[serde(skip_serializing_if = "Bound::is_unbounded")]
    pub principal_day: Bound,
    /// For all runs in a day, UTC.
    #[serde(skip_serializing_if = "Bound::is_unbounded")]
    pub day: Bound,
    /// Tokens that an answer is taken to have until it says its own, if its request does not bound them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assume_tokens: Option<u64>,
}

impl Bound {
    /// Largest number of tokens and of requests. Larger ones are mistakes.
    pub const MOST: u64 = 1_000_000_000_000_000;

    pub fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the lesser of each.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            tokens: lesser(self.tokens, other.tokens),
            requests: lesser(self.requests, other.requests),
            usd: lesser(self.usd, other.usd),
        }
    }

    /// Returns the first number that is no bound, and what is wrong with it.
    fn problem(&self) -> Option<String> {
        for (key, number) in [("tokens", self.tokens), ("requests", self.requests)] {
            if number.is_some_and(|number| !(1..=Self::MOST).contains(&number)) {
                return Some(format!("{key}: must be from 1 to {}; leave it out for no bound", Self::MOST));
            }
        }
        (self.usd == Some(MicroUsd(0)))
            .then(|| "usd: 0 is not possible; leave it out for no bound".to_owned())
    }
}

impl Budget {
    /// Largest number of tokens that an answer can be taken to have.
    pub const MOST_ASSUMED: u64 = 1_000_000;
    /// Number of tokens that an answer is taken to have, if the budget says nothing else.
    const ASSUMED: u64 = 4_096;

    pub fn is_unbounded(&self) -> bool {
        [self.run, self.principal_day, self.day].iter().all(Bound::is_unbounded)
    }

    /// Returns true if it bounds tokens, or their cost.
    pub fn bounds_tokens(&self) -> bool {
        let bounds_them = |bound: &Bound| bound.tokens.is_some() || bound.usd.is_some();
        [self.run, self.principal_day, self.day].iter().any(bounds_them)
    }

    /// Returns true if it has no key.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of tokens that an answer is taken to have until it says its own.
    pub fn assumed_tokens(&self) -> u64 {
        self.assume_tokens.unwrap_or(Self::ASSUMED)
    }

    /// Returns the lesser of each bound, and the greater assumption, which is the stricter one.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            run: self.run.least(&other.run),
            principal_day: self.principal_day.least(&other.principal_day),
            day: self.day.least(&other.day),
            assume_tokens: self.assume_tokens.max(other.assume_tokens),
        }
    }

    /// Returns every problem, each with the key of its bound.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        let bounds = [("run", self.run), ("principal_day", self.principal_day), ("day", self.day)];
        let of_bounds =
            bounds.into_iter().filter_map(|(key, bound)| Some(format!("{key}.{}", bound.problem()?)));
        of_bounds.chain(self.problem_of_assumption())
    }

    fn problem_of_assumption(&self) -> Option<String> {
        let assumed = self.assume_tokens?;
        if !(1..=Self::MOST_ASSUMED).contains(&assumed) {
            return Some(format!("assume_tokens: must be from 1 to {}", Self::MOST_ASSUMED));
        }
        let message =
            "assume_tokens: bounds nothing by itself; add a bound, such as `run: {tokens: 1000000}`";
        self.is_unbounded().then(|| message.to_owned())
    }
}

/// Returns the lesser of two bounds, of which each may be missing.
fn lesser<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;

    fn budget(value: Value) -> Budget {
        from_value(value).unwrap()
    }

    #[test]
    fn a_budget_is_written_as_it_is_read() {
        let written = json!({
            "run": { "tokens": 1_000_000, "requests": 500, "usd": "5.5" },
            "principal_day": { "usd": "50" },
            "day": { "tokens": 100_000_000 },
            "assume_tokens": 8_192,
        });
        assert_eq!(to_value(budget(written.clone())).unwrap(), written);
        assert_eq!(to_value(Budget::default()).unwrap(), json!({}));
        assert!(budget(json!({ "run": {} })).is_unbounded());
        for bad in [
            json!({ "week": {} }),
            json!({ "run": { "token": 5 } }),
            json!({ "run": { "tokens": -1 } }),
            json!({ "run": { "tokens": 1.5 } }),
            json!({ "run": { "usd": "-1" } }),
        ] {
            assert!(from_value::<Budget>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_least_bound_of_each_counts() {
        let one = budget(json!({ "run": { "tokens": 10, "requests": 3 }, "day": { "usd": "2" } }));
        let two = budget(json!({ "run": { "tokens": 9, "usd": "1" }, "day": { "usd": "0.5" } }));
        let least =
            budget(json!({ "run": { "tokens": 9, "requests": 3, "usd": "1" }, "day": { "usd": "0.5" } }));
        assert_eq!(one.least(&two), least);
        assert_eq!(two.least(&one), least);
        assert_eq!(one.least(&Budget::default()), one);
        let assumes = |tokens: u64| Budget { assume_tokens: Some(tokens), ..one };
        assert_eq!(assumes(5).least(&assumes(7)).assumed_tokens(), 7);
        assert_eq!((one.least(&assumes(5)).assumed_tokens(), one.assumed_tokens()), (5, 4_096));
    }

    #[test]
    fn a_bound_of_nothing_is_a_problem() {
        let problems = |value| budget(value).problems().collect::<Vec<_>>();
        assert_eq!(
            problems(
                json!({ "run": { "tokens": 0 }, "principal_day": { "requests": u64::MAX }, "day": { "usd": 0 } })
            ),
            [
                "run.tokens: must be from 1 to 1000000000000000; leave it out for no bound",
                "principal_day.requests: must be from 1 to 1000000000000000; leave it out for no bound",
                "day.usd: 0 is not possible; leave it out for no bound",
            ]
        );
        assert!(problems(json!({ "run": { "tokens": 1, "usd": "0.000001" } })).is_empty());
        for (assumed, problem) in
            [(0, "must be from 1 to 1000000"), (1_000_001, "must be from 1"), (5, "bounds nothing")]
        {
            let found = problems(json!({ "assume_tokens": assumed }));
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("assume_tokens: {problem}")),
                "{found:?}"
            );
        }
    }
}
