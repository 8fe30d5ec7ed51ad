//! The use of models within one scope.

use std::collections::BTreeMap;

use crate::tokens::Usage;

/// Name under which the models and principals beyond the bounds are counted.
pub(crate) const OTHER: &str = "other";
/// Name of a model that a response does not have.
const UNKNOWN: &str = "unknown";
/// Longest name of a model, bytes.
const LONGEST: usize = 128;

/// Returns the name under which a model is counted.
pub(crate) fn model_name(model: &str) -> &str {
    let is_visible = |byte: u8| byte.is_ascii_graphic();
    match model {
        "" => UNKNOWN,
        _ if model.len() <= LONGEST && model.bytes().all(is_visible) => model,
        _ => OTHER,
    }
}

/// Requests, and the use of each model.
#[derive(Debug, Default, Clone)]
pub(crate) struct Account {
    /// Requests that were sent.
    requests: u64,
    models: BTreeMap<String, Usage>,
    /// Sum of the models.
    sum: Usage,
}

impl Account {
    /// Returns the use of all models.
    pub(crate) fn total(&self) -> Usage {
        Usage { requests: self.requests, ..self.sum }
    }

    pub(crate) fn models(&self) -> impl Iterator<Item = (&str, Usage)> {
        self.models.iter().map(|(model, usage)| (model.as_str(), *usage))
    }

    /// Counts one request, and returns the number of all.
    pub(crate) fn count_request(&mut self) -> Usage {
        self.requests = self.requests.saturating_add(1);
        Usage { requests: self.requests, ..Usage::default() }
    }

    /// Counts requests that an earlier daemon counted.
    pub(crate) fn count_earlier_requests(&mut self, requests: u64) {
        self.requests = self.requests.saturating_add(requests);
    }

    /// Adds to the use of a model. Returns the name under which it is counted, and its use.
    ///
    /// Models beyond the first `most` are counted as one.
    pub(crate) fn add<'m>(&mut self, model: &'m str, usage: &Usage, most: usize) -> (&'m str, Usage) {
        let has_room = self.models.len() < most || self.models.contains_key(model);
        let name = if has_room { model } else { OTHER };
        let counted = self.models.entry(name.to_owned()).or_default();
        counted.add(usage);
        self.sum.add(usage);
        (name, *counted)
    }

    /// Returns a model without a price that was used under a bound in US dollars.
    pub(crate) fn blocking(&self) -> Option<&str> {
        let mut models = self.sum.blocks.then_some(&self.models)?.iter();
        models.find(|(_, usage)| usage.blocks).map(|(model, _)| model.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_names_are_counted_as_one() {
        let long = "m".repeat(LONGEST + 1);
        for (model, counted) in [
            ("large-3", "large-3"),
            ("org/large:free", "org/large:free"),
            ("", "unknown"),
            ("two words", "other"),
            ("m\u{1b}[2J", "other"),
            ("módel", "other"),
            (&long, "other"),
            (&long[1..], &long[1..]),
        ] {
            assert_eq!(model_name(model), counted, "{model}");
        }
    }

    #[test]
    fn models_beyond_the_bound_are_counted_as_one() {
        let mut account = Account::default();
        let used = Usage { requests: 1, ..Usage::default() };
        for model in ["a", "b", "c", "a", "d"] {
            account.add(model, &used, 2);
        }
        let models: Vec<_> = account.models().map(|(model, usage)| (model, usage.requests)).collect();
        assert_eq!(models, [("a", 2), ("b", 1), ("other", 2)]);
        assert_eq!((account.sum.requests, account.total().requests), (5, 0));
    }
}
