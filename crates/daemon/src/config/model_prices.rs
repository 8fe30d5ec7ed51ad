//! Reads `model_prices`: what tokens of models cost, for budgets in US dollars.

use std::collections::BTreeMap;

use document::{At, Fields};
use egress_rules::MicroUsd;
use model_usage::Price;
use policy::Policy;
use serde_json::{Value, json};

/// Maximum number of prices.
const MAX_PRICES: usize = 1_000;
/// Maximum length of a model's name, bytes.
const MAX_NAME: usize = 128;

/// Reads the section: a price for a million tokens of each model, or of all models whose names begin alike.
pub(super) fn read(top: &Fields<'_>) -> BTreeMap<String, Price> {
    let Some(at) = top.get("model_prices") else { return BTreeMap::new() };
    let entries = at.entries();
    if entries.len() > MAX_PRICES {
        at.problem(format!("has more than {MAX_PRICES} prices"));
        return BTreeMap::new();
    }
    let mut prices = BTreeMap::new();
    for (name, at) in entries {
        if !is_name(name) {
            at.problem(format!(
                "must be the name of a model in 1 to {MAX_NAME} characters of visible ASCII; `*` can only be its end"
            ));
        }
        if let Some(price) = price(&at) {
            prices.insert(name.to_owned(), price);
        }
    }
    prices
}

fn is_name(name: &str) -> bool {
    let beginning = name.strip_suffix('*').unwrap_or(name);
    (1..=MAX_NAME).contains(&name.len())
        && beginning.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*')
}

fn price(at: &At<'_>) -> Option<Price> {
    let fields = at.fields(&["input", "output", "cached_input", "cache_write"]);
    let (input, output) =
        (fields.required("input").and_then(dollars), fields.required("output").and_then(dollars));
    let (cached_input, cache_write) =
        (fields.get("cached_input").and_then(dollars), fields.get("cache_write").and_then(dollars));
    Some(Price { input: input?, output: output?, cached_input, cache_write })
}

/// Reads an amount in US dollars, such as `"3.75"`.
fn dollars(at: &At<'_>) -> Option<MicroUsd> {
    MicroUsd::parse(&at.decimal()?).map_err(|error| at.problem(error.to_string())).ok()
}

/// Returns the section in the form of the configuration file.
pub(super) fn shown(prices: &BTreeMap<String, Price>) -> Value {
    let one = |price: &Price| {
        let mut shown = json!({ "input": price.input.to_string(), "output": price.output.to_string() });
        let cached = [("cached_input", price.cached_input), ("cache_write", price.cache_write)];
        for (key, price) in cached.into_iter().filter_map(|(key, price)| Some((key, price?))) {
            shown[key] = price.to_string().into();
        }
        shown
    };
    prices.iter().map(|(name, price)| (name.as_str(), one(price))).collect()
}

/// Returns a note for each profile with a budget in US dollars, if there is no price at all.
pub(crate) fn unpriced(prices: &BTreeMap<String, Price>, policy: &Policy) -> Vec<String> {
    if !prices.is_empty() {
        return Vec::new();
    }
    let has_dollars = |name: &&str| {
        let budget = policy.profile(name).map(|profile| profile.egress.settings().budget).unwrap_or_default();
        [budget.run, budget.principal_day, budget.day].iter().any(|bound| bound.usd.is_some())
    };
    let note = |name| {
        format!(
            "profiles.{name}.egress.budget has `usd`, and `model_prices` is empty: requests are refused after the first answer"
        )
    };
    policy.profile_names().filter(has_dollars).map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{keys, parse};
    use super::*;

    #[test]
    fn prices_are_read_and_printed_as_they_are() {
        assert!(!parse("{}").unwrap().to_string().contains("model_prices"));
        let text =
            "model_prices: { large-3: { input: '3.00', output: 15, cached_input: 0.3, cache_write: '3.75' },
            'small*': { input: 0, output: '0.000001' } }";
        let config = parse(text).unwrap();
        let large = Price {
            input: MicroUsd(3_000_000),
            output: MicroUsd(15_000_000),
            cached_input: Some(MicroUsd(300_000)),
            cache_write: Some(MicroUsd(3_750_000)),
        };
        let small = Price { input: MicroUsd(0), output: MicroUsd(1), cached_input: None, cache_write: None };
        let expected = BTreeMap::from([("large-3".to_owned(), large), ("small*".to_owned(), small)]);
        assert_eq!(config.model_prices, expected);
        assert_eq!(parse(&config.to_string()).unwrap().model_prices, expected);
    }

    #[test]
    fn a_budget_in_dollars_without_prices_is_noted() {
        let text = "profiles:
  p: { operations: {}, egress: { budget: { day: { usd: 5 } } } }
  q: { operations: {}, egress: { budget: { day: { tokens: 5 } } } }
roles: { r: { allow: '*' } }
";
        let policy = Policy::from_files([("p.yaml", text)]).unwrap();
        let notes = unpriced(&BTreeMap::new(), &policy);
        assert!(notes.len() == 1 && notes[0].starts_with("profiles.p.egress.budget has `usd`"), "{notes:?}");
        let priced = parse("model_prices: { '*': { input: 1, output: 1 } }").unwrap().model_prices;
        assert!(unpriced(&priced, &policy).is_empty());
    }

    #[test]
    fn every_problem_has_its_key() {
        let text = "model_prices: { a: { input: '1' }, b: { input: -1, output: -0.5 }, c: { input: '1e3', output: '$2' },
            'd*e': { input: 1, output: 1 }, 'f g': { input: 1, output: 1 }, h: 5, i: { input: 1, output: 1, cached: 1 } }";
        assert_eq!(
            keys(text),
            [
                "model_prices.a",
                "model_prices.b.input",
                "model_prices.b.output",
                "model_prices.c.input",
                "model_prices.c.output",
                "model_prices.d*e",
                "model_prices.f g",
                "model_prices.h",
                "model_prices.h",
                "model_prices.h",
                "model_prices.i.cached",
            ]
        );
        let many = (0..=MAX_PRICES).map(|number| format!("m{number}: {{ input: 1, output: 1 }}"));
        let many = many.collect::<Vec<_>>().join(", ");
        assert_eq!(keys(&format!("model_prices: {{ {many} }}")), ["model_prices"]);
    }
}
