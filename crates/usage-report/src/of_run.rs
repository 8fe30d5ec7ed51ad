//! The use of models by one run, for `coffer run show`.

use presentation::quantity::count;
use presentation::time;
use wire::v1::budget_bound::{Scope, Unit};
use wire::v1::{BudgetBound, ModelUse};

use crate::amount::{dollars, gaps, tokens};

/// Describes what a run has used of models.
pub fn used(model_use: &ModelUse) -> String {
    let counts = model_use.total.unwrap_or_default();
    let mut parts =
        vec![count(counts.requests, "request", "requests"), count(tokens(&counts), "token", "tokens")];
    if counts.cost_micro_usd > 0 {
        parts.push(format!("{} US dollars", dollars(counts.cost_micro_usd)));
    }
    [vec![parts.join(", ")], gaps(&counts)].concat().join("; ")
}

/// Describes what is left of a run's budget.
pub fn left(model_use: &ModelUse) -> String {
    let bounds: Vec<_> = model_use.bounds.iter().map(bound_left).collect();
    bounds.join("; ")
}

fn bound_left(bound: &BudgetBound) -> String {
    let rest = bound.limit.saturating_sub(bound.used);
    let amounts = match bound.unit() {
        Unit::MicroUsd => format!("{} of {} US dollars", dollars(rest), dollars(bound.limit)),
        Unit::Requests => format!("{rest} of {} requests", bound.limit),
        Unit::Tokens | Unit::Unspecified => format!("{rest} of {} tokens", bound.limit),
    };
    let until = bound.renews_at.as_ref().map(|at| format!(" until {}", time::moment(Some(at))));
    format!("{amounts} {}{}", whose(bound.scope()), until.unwrap_or_default())
}

/// Describes whose requests a bound counts.
pub(crate) fn whose(scope: Scope) -> &'static str {
    match scope {
        Scope::Run | Scope::Unspecified => "for the run",
        Scope::PrincipalDay => "for all runs of its principal",
        Scope::Day => "for all runs",
    }
}

#[cfg(test)]
mod tests {
    use wire::v1::ModelCounts;

    use super::*;

    #[test]
    fn use_and_the_rest_of_each_bound_are_shown() {
        let total = ModelCounts {
            requests: 2,
            unreported_requests: 1,
            input_tokens: 900,
            output_tokens: 100,
            cost_micro_usd: 4_200,
            ..ModelCounts::default()
        };
        let bound = |scope: Scope, unit: Unit, used, limit, renews: Option<i64>| BudgetBound {
            scope: scope.into(),
            unit: unit.into(),
            used,
            limit,
            renews_at: renews.map(|seconds| wire::Timestamp { seconds, nanos: 0 }),
        };
        let bounds = vec![
            bound(Scope::Run, Unit::Tokens, 1_200, 1_000, None),
            bound(Scope::PrincipalDay, Unit::MicroUsd, 4_200, 5_000_000, Some(86_400)),
            bound(Scope::Day, Unit::Requests, 2, 10, Some(86_400)),
        ];
        let model_use = ModelUse { total: Some(total), bounds };
        assert_eq!(
            used(&model_use),
            "2 requests, 1000 tokens, 0.0042 US dollars; 1 response reported no tokens, so theirs are estimated"
        );
        assert_eq!(
            left(&model_use),
            "0 of 1000 tokens for the run; 4.9958 of 5.00 US dollars for all runs of its principal until \
             1970-01-02T00:00:00.000Z; 8 of 10 requests for all runs until 1970-01-02T00:00:00.000Z"
        );
        assert_eq!(
            (used(&ModelUse::default()), left(&ModelUse::default())),
            ("0 requests, 0 tokens".into(), String::new())
        );
    }
}
