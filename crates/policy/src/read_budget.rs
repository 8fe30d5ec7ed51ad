//! Reads `budget` of the section `egress`.

use document::At;
use egress_rules::{Bound, Budget, MicroUsd};

pub(super) fn budget(at: &At<'_>) -> Budget {
    const KEYS: [&str; 4] = ["run", "principal_day", "day", "assume_tokens"];
    let fields = at.fields(&KEYS);
    fields.need_values(&KEYS);
    let bound = |key: &str| fields.get(key).map(bound).unwrap_or_default();
    let assumed = fields.get("assume_tokens").and_then(|at| at.number(1..=Budget::MOST_ASSUMED));
    Budget {
        run: bound("run"),
        principal_day: bound("principal_day"),
        day: bound("day"),
        assume_tokens: assumed,
    }
}

fn bound(at: &At<'_>) -> Bound {
    let fields = at.fields(&["tokens", "requests", "usd"]);
    fields.need_values(&["tokens", "requests", "usd"]);
    let number = |key: &str| fields.get(key).and_then(|at| at.number(1..=Bound::MOST));
    Bound { tokens: number("tokens"), requests: number("requests"), usd: fields.get("usd").and_then(usd) }
}

fn usd(at: &At<'_>) -> Option<MicroUsd> {
    MicroUsd::parse(&at.decimal()?).map_err(|problem| at.problem(problem.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use egress_rules::MicroUsd;

    use crate::Policy;

    fn loaded(budget: &str) -> Result<Policy, Vec<String>> {
        let policy = format!(
            "profiles:\n  p:\n    operations: {{}}\n    egress:\n      budget: {budget}\nroles: {{r: {{allow: \"*\"}}}}\n"
        );
        Policy::from_files([("p.yaml", policy)])
            .map_err(|problems| problems.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_budget_is_read_and_written_back() {
        let policy = loaded(
            "{run: {tokens: 1000000, requests: 500, usd: \"5.00\"}, day: {usd: 0.25}, principal_day: {usd: 50},
            assume_tokens: 9000}",
        );
        let policy = policy.unwrap();
        let budget = policy.profile("p").unwrap().egress.settings().budget;
        assert_eq!((budget.run.tokens, budget.run.requests), (Some(1_000_000), Some(500)));
        assert_eq!(budget.assumed_tokens(), 9_000);
        let dollars = [budget.run.usd, budget.day.usd, budget.principal_day.usd];
        assert_eq!(dollars, [5_000_000, 250_000, 50_000_000].map(|micro| Some(MicroUsd(micro))));
        let written = policy.to_yaml().unwrap();
        assert_eq!(Policy::from_files([("again.yaml", &written)]).unwrap().digest(), policy.digest());
        assert_eq!(loaded("{run: {}}").unwrap().digest(), loaded("{}").unwrap().digest());
    }

    #[test]
    fn every_problem_of_a_budget_has_its_place() {
        let at = "p.yaml:5: profiles.p.egress.budget";
        let dollars = "must be US dollars up to 1000000000 with at most 6 places, such as `5.00`";
        for (budget, problem) in [
            ("{week: {tokens: 5}}", ".week: unknown key".to_owned()),
            ("{run: {token: 5}}", ".run.token: unknown key (did you mean `tokens`?)".to_owned()),
            (
                "{run: {tokens: 0}}",
                ".run.tokens: must be a whole number from 1 to 1000000000000000".to_owned(),
            ),
            (
                "{run: {requests: 1.5}}",
                ".run.requests: must be a whole number from 1 to 1000000000000000".to_owned(),
            ),
            ("{day: {usd: \"$5\"}}", format!(".day.usd: {dollars}")),
            (
                "{day: {usd: -5}}",
                ".day.usd: expected text, found a negative, fractional or huge number".to_owned(),
            ),
            (
                "{run: {tokens: 5}, assume_tokens: 0}",
                ".assume_tokens: must be a whole number from 1 to 1000000".to_owned(),
            ),
            ("{assume_tokens: 5}", ": assume_tokens: bounds nothing by itself".to_owned()),
            ("{day: null}", ".day: has no value, so it would bound nothing".to_owned()),
            ("{run: {tokens: null}}", ".run.tokens: has no value, so it would bound nothing".to_owned()),
            ("null", ": has no value, so it would bound nothing".to_owned()),
            ("{day: {usd: 0.0000001}}", format!(".day.usd: {dollars}")),
            ("{day: {usd: \"0\"}}", ": day.usd: 0 is not possible; leave it out for no bound".to_owned()),
        ] {
            let said = loaded(budget).unwrap_err();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with(&format!("{at}{problem}")), "{said:?}");
        }
    }
}
