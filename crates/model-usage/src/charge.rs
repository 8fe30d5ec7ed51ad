//! The tokens that a request is charged, from its estimate and its response.
//!
//! A program can leave a response before the server says its tokens, and a server can say none. Neither is free: see [`charge`].

use egress_rules::{Bound, MicroUsd};

use crate::tokens::Tokens;

/// Bytes of a text that are counted as one token.
const BYTES_OF_A_TOKEN: u64 = 4;
/// Largest estimate of the input, and of the output. No request makes a larger one by what it says, because its estimate may be charged to
/// bounds that it shares with other runs.
const MOST: u64 = 1 << 20;

/// The tokens that a request may cost, before its response is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Name of the model that the request says; empty if it says none.
    pub(crate) model: String,
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Estimate {
    /// Returns the estimate for a request without a body, which is none to a model.
    #[must_use]
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Makes the estimate for a request with a body of so many bytes, whose answer may have `output` tokens.
    #[must_use]
    pub fn new(model: String, body_bytes: u64, output: u64) -> Self {
        Self { model, input: of_bytes(body_bytes).clamp(1, MOST), output: output.clamp(1, MOST) }
    }

    /// Returns the estimate with at most the tokens of a run's bound.
    ///
    /// By what it says, a request then takes at most the part of a day's bound that its run may use.
    pub(crate) fn within(self, run: &Bound) -> Self {
        let most = run.tokens.unwrap_or(u64::MAX);
        let input = self.input.min(most);
        Self { input, output: self.output.min(most - input), ..self }
    }

    /// Returns the tokens that are reserved.
    pub(crate) fn tokens(&self) -> Tokens {
        Tokens { input: self.input, output: self.output, ..Tokens::default() }
    }
}

/// The parts of a response that arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Extent {
    /// The request was not sent.
    #[default]
    NotSent,
    /// The request was sent, and no response arrived.
    Unanswered,
    /// The server did not do what was asked.
    Refused,
    /// A part of the response arrived.
    Cut,
    /// The whole response arrived.
    Whole,
}

/// The response to a request, or its lack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Name of the model; empty if the response has none.
    pub model: String,
    /// The tokens that it reported.
    pub tokens: Tokens,
    /// False if it reported none that could be read.
    pub is_reported: bool,
    pub extent: Extent,
    /// Bytes of its body that arrived.
    pub body_bytes: u64,
}

/// Returns the tokens that a request is charged.
///
/// | response | charged |
/// |---|---|
/// | whole, with a report | the report |
/// | cut, with a report so far | the report, and a token of output for each four bytes if these are more |
/// | cut, without a report | the estimate of the input, and a token for each four bytes |
/// | none, or whole without a report | the estimate, or more by the bytes |
/// | to a request that was not sent, that had no body, or that the server refused | the report, if there is one |
pub(crate) fn charge(estimate: &Estimate, answer: &Answer) -> Tokens {
    let seen = of_bytes(answer.body_bytes);
    let estimated = |output| Tokens { input: estimate.input, output, ..Tokens::default() };
    match answer.extent {
        Extent::Cut if answer.is_reported => {
            Tokens { output: answer.tokens.output.max(seen), ..answer.tokens }
        }
        _ if answer.is_reported => answer.tokens,
        Extent::NotSent | Extent::Refused => Tokens::default(),
        _ if *estimate == Estimate::nothing() => Tokens::default(),
        Extent::Cut if answer.body_bytes > 0 => estimated(seen),
        Extent::Cut | Extent::Unanswered | Extent::Whole => estimated(estimate.output.max(seen)),
    }
}

/// Returns an estimated cost, which is at most the bound of a run.
pub(crate) fn within(cost: MicroUsd, run: &Bound) -> MicroUsd {
    run.usd.map_or(cost, |most| cost.min(most))
}

fn of_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_OF_A_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input: u64, output: u64) -> Tokens {
        Tokens { input, output, ..Tokens::default() }
    }

    #[test]
    fn a_request_is_charged_by_its_report_and_otherwise_by_its_estimate_and_the_bytes_that_arrived() {
        use Extent::{Cut, NotSent, Refused, Unanswered, Whole};
        let asked = Estimate::new("m".to_owned(), 400, 1_000);
        let none = Estimate::nothing();
        let report = Some(tokens(90, 7));
        for (estimate, extent, report, body_bytes, charged) in [
            (&asked, Whole, report, 9_999, tokens(90, 7)),
            (&asked, Cut, report, 20, tokens(90, 7)),
            (&asked, Cut, report, 400, tokens(90, 100)),
            (&asked, Cut, None, 41, tokens(100, 11)),
            (&asked, Cut, None, 0, tokens(100, 1_000)),
            (&asked, Unanswered, None, 0, tokens(100, 1_000)),
            (&asked, Whole, None, 8, tokens(100, 1_000)),
            (&asked, Whole, None, 8_000, tokens(100, 2_000)),
            (&asked, Refused, None, 8_000, tokens(0, 0)),
            (&asked, Refused, report, 8_000, tokens(90, 7)),
            (&asked, NotSent, None, 0, tokens(0, 0)),
            (&none, Whole, None, 8_000, tokens(0, 0)),
            (&none, Unanswered, None, 0, tokens(0, 0)),
            (&none, Whole, report, 8_000, tokens(90, 7)),
        ] {
            let answer = Answer {
                tokens: report.unwrap_or_default(),
                is_reported: report.is_some(),
                extent,
                body_bytes,
                ..Answer::default()
            };
            assert_eq!(charge(estimate, &answer), charged, "{estimate:?} {answer:?}");
        }
    }

    #[test]
    fn an_estimate_is_bounded_and_never_nothing_for_a_request_with_a_body() {
        assert_eq!(Estimate::new(String::new(), u64::MAX, u64::MAX).tokens(), tokens(MOST, MOST));
        assert_eq!(Estimate::new(String::new(), 0, 0).tokens(), tokens(1, 1));
        let asked = Estimate::new(String::new(), 400, 1_000);
        let within = |most| asked.clone().within(&Bound { tokens: Some(most), ..Bound::default() }).tokens();
        assert_eq!(
            [within(10), within(150), within(9_999)],
            [tokens(10, 0), tokens(100, 50), tokens(100, 1_000)]
        );
    }
}
