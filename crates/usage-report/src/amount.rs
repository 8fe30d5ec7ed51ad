//! Formats amounts, and the use of models in a phrase.

use presentation::quantity::count;
use wire::v1::ModelCounts;

/// Returns US dollars with at least two places.
pub(crate) fn dollars(micro_usd: u64) -> String {
    let places = format!("{:06}", micro_usd % 1_000_000);
    let kept = places.trim_end_matches('0').len().max(2);
    format!("{}.{}", micro_usd / 1_000_000, places.get(..kept).unwrap_or(&places))
}

/// Returns the sum of all tokens.
pub(crate) fn tokens(counts: &ModelCounts) -> u64 {
    let parts =
        [counts.input_tokens, counts.output_tokens, counts.cached_input_tokens, counts.cache_write_tokens];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Returns what the numbers lack, on one line for each reason.
pub(crate) fn gaps(counts: &ModelCounts) -> Vec<String> {
    let mut gaps = Vec::new();
    if counts.unreported_requests > 0 {
        let responses = count(counts.unreported_requests, "response", "responses");
        gaps.push(format!("{responses} reported no tokens, so theirs are estimated"));
    }
    if counts.unpriced_tokens > 0 {
        let tokens = count(counts.unpriced_tokens, "token", "tokens");
        gaps.push(format!("{tokens} have no price: an operator adds one to `model_prices`"));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_have_the_places_that_they_need() {
        let shown = [0, 1, 10_000, 1_250_000, 3_000_000, 12_345_678].map(dollars);
        assert_eq!(shown, ["0.00", "0.000001", "0.01", "1.25", "3.00", "12.345678"]);
        let most = ModelCounts { input_tokens: u64::MAX, output_tokens: 1, ..ModelCounts::default() };
        assert_eq!(tokens(&most), u64::MAX);
    }

    #[test]
    fn gaps_are_named() {
        assert!(gaps(&ModelCounts::default()).is_empty());
        let counts = ModelCounts { unreported_requests: 1, unpriced_tokens: 30, ..ModelCounts::default() };
        assert_eq!(
            gaps(&counts),
            [
                "1 response reported no tokens, so theirs are estimated",
                "30 tokens have no price: an operator adds one to `model_prices`"
            ]
        );
    }
}
