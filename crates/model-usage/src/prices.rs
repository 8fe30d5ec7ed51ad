//! Prices of models, from the operator's table.

use std::collections::BTreeMap;

use egress_rules::MicroUsd;

use crate::tokens::Tokens;

/// Number of tokens that a price is for.
const PRICED: u128 = 1_000_000;

/// Price of a model, for a million tokens each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: MicroUsd,
    pub output: MicroUsd,
    /// Price of tokens that are read from a cache. `None`: that of the input.
    pub cached_input: Option<MicroUsd>,
    /// Price of tokens that are written to a cache. `None`: that of the input.
    pub cache_write: Option<MicroUsd>,
}

impl Price {
    /// Returns the cost of tokens, rounded up to a millionth of a US dollar.
    fn cost(&self, tokens: &Tokens) -> MicroUsd {
        let parts = [
            (tokens.input, self.input),
            (tokens.output, self.output),
            (tokens.cached_input, self.cached_input.unwrap_or(self.input)),
            (tokens.cache_write, self.cache_write.unwrap_or(self.input)),
        ];
        let cost = |(count, price): (u64, MicroUsd)| u128::from(count).saturating_mul(u128::from(price.0));
        let sum = parts.into_iter().map(cost).fold(0, u128::saturating_add);
        MicroUsd(u64::try_from(sum.div_ceil(PRICED)).unwrap_or(u64::MAX))
    }
}

/// Prices of models. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    exact: BTreeMap<String, Price>,
    /// Beginnings of names, the longest first.
    prefixes: Vec<(String, Price)>,
}

impl Prices {
    /// Makes the table. A key is the name of a model, or a beginning of names and `*`.
    pub fn new(table: BTreeMap<String, Price>) -> Self {
        let mut prices = Self::default();
        for (name, price) in table {
            match name.strip_suffix('*') {
                Some(prefix) => prices.prefixes.push((prefix.to_owned(), price)),
                None => {
                    prices.exact.insert(name, price);
                }
            }
        }
        prices.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        prices
    }

    /// Returns the cost of tokens of a model. `None` if the model has no price.
    ///
    /// The whole name comes before beginnings, and a longer beginning before a shorter one.
    pub fn cost(&self, model: &str, tokens: &Tokens) -> Option<MicroUsd> {
        let by_prefix = || self.prefixes.iter().find(|(prefix, _)| model.starts_with(prefix.as_str()));
        let price = self.exact.get(model).or_else(|| by_prefix().map(|(_, price)| price))?;
        Some(price.cost(tokens))
    }

    /// Returns the most that tokens of any model cost. `None` if there are no prices.
    pub(crate) fn dearest(&self, tokens: &Tokens) -> Option<MicroUsd> {
        let prefixes = self.prefixes.iter().map(|(_, price)| price);
        self.exact.values().chain(prefixes).map(|price| price.cost(tokens)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: u64, output: u64) -> Price {
        Price { input: MicroUsd(input), output: MicroUsd(output), cached_input: None, cache_write: None }
    }

    fn input(count: u64) -> Tokens {
        Tokens { input: count, ..Tokens::default() }
    }

    #[test]
    fn the_whole_name_comes_first_and_then_the_longest_beginning() {
        let table = [("large", 1), ("large*", 2), ("large-3*", 3), ("*", 4)];
        let table = table.map(|(name, dollars)| (name.to_owned(), price(dollars * 1_000_000, 0)));
        let prices = Prices::new(table.into());
        for (model, dollars) in [("large", 1), ("large-2", 2), ("large-3-mini", 3), ("small", 4), ("", 4)] {
            assert_eq!(prices.cost(model, &input(1_000_000)), Some(MicroUsd(dollars * 1_000_000)), "{model}");
        }
        assert_eq!(Prices::default().cost("large", &input(1)), None);
        assert_eq!(prices.dearest(&input(1_000_000)), Some(MicroUsd(4_000_000)));
        assert_eq!(Prices::default().dearest(&input(1)), None);
    }

    #[test]
    fn each_kind_of_token_has_its_price_and_the_sum_is_rounded_up() {
        let dear = Price {
            input: MicroUsd(3_000_000),
            output: MicroUsd(15_000_000),
            cached_input: Some(MicroUsd(300_000)),
            cache_write: Some(MicroUsd(3_750_000)),
        };
        let prices = Prices::new([("m".to_owned(), dear), ("n".to_owned(), price(3_000_000, 0))].into());
        let tokens = Tokens { input: 10, output: 100, cached_input: 1_000, cache_write: 10_000 };
        // 30 + 1,500 + 300 + 37,500 millionths.
        assert_eq!(prices.cost("m", &tokens), Some(MicroUsd(39_330)));
        assert_eq!(prices.cost("m", &Tokens { cached_input: 1, ..Tokens::default() }), Some(MicroUsd(1)));
        let cached = Tokens { cached_input: 10, cache_write: 10, ..Tokens::default() };
        assert_eq!(prices.cost("n", &cached), Some(MicroUsd(60)), "as input");
        let most =
            Tokens { input: u64::MAX, output: u64::MAX, cached_input: u64::MAX, cache_write: u64::MAX };
        assert_eq!(prices.cost("m", &most), Some(MicroUsd(u64::MAX)));
    }
}
