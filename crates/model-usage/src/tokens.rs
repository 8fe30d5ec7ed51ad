//! Numbers that responses of models report, and their sums.

use serde::{Deserialize, Serialize};

/// Tokens of a request and its answer. No token is counted twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Tokens of the request that were not read from a cache.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// Tokens of the request that were read from a cache.
    pub cached_input: u64,
    /// Tokens of the request that were written to a cache.
    pub cache_write: u64,
}

impl Tokens {
    /// Returns the sum of all tokens.
    pub fn total(&self) -> u64 {
        let Self { input, output, cached_input, cache_write } = *self;
        input.saturating_add(output).saturating_add(cached_input).saturating_add(cache_write)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cached_input = self.cached_input.saturating_add(other.cached_input);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }
}

/// Use of models: of one model, or the sum of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Requests that were sent; for a single model, requests whose response was read, since only a response has the model's name.
    pub requests: u64,
    /// Responses without usage that could be read.
    pub unreported: u64,
    /// Tokens that responses reported, and the estimates for those that reported none.
    pub tokens: Tokens,
    /// Cost of the tokens that have a price, in millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens that have no price.
    pub unpriced: Tokens,
    /// True if some tokens without a price were used under a bound in US dollars.
    pub blocks: bool,
}

impl Usage {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.unreported = self.unreported.saturating_add(other.unreported);
        self.tokens.add(&other.tokens);
        self.micro_usd = self.micro_usd.saturating_add(other.micro_usd);
        self.unpriced.add(&other.unpriced);
        self.blocks |= other.blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_end_at_the_largest_number() {
        let most = Tokens { input: u64::MAX, output: 1, cached_input: 2, cache_write: u64::MAX };
        assert_eq!(most.total(), u64::MAX);
        let mut sum = Usage { requests: u64::MAX, tokens: most, micro_usd: 7, ..Usage::default() };
        sum.add(&Usage { requests: 1, tokens: most, micro_usd: u64::MAX, ..Usage::default() });
        let tokens = Tokens { input: u64::MAX, output: 2, cached_input: 4, cache_write: u64::MAX };
        assert_eq!(sum, Usage { requests: u64::MAX, tokens, micro_usd: u64::MAX, ..Usage::default() });
    }
}
