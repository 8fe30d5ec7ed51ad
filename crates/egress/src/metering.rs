//! Reserves what requests may cost, charges what their responses say, and warns when a budget is nearly used up.

use egress_rules::Budget;
use model_usage::{Answer, Estimate, Extent, Reservation, Settled, Tokens};
use timestamp::Timestamp;
use wire::worker::v1::model_usage::Extent as WireExtent;
use wire::worker::v1::{ModelAsked, ModelUsage, PlaceholderSeen};

use crate::broken::Broken;
use crate::decide::State;
use crate::events;
use crate::live::Live;
use crate::refused::Placeholder;
use crate::session::Session;
use crate::view::ModelTokens;

/// Bytes that an unknown body is taken to have for each token that is assumed.
const BYTES_OF_A_TOKEN: u64 = 4;
/// Longest name of a model, bytes.
const NAME: usize = 128;
/// Name of a model that a response does not have.
const UNKNOWN: &str = "unknown";
/// Name of a model whose own cannot be shown.
const ODD: &str = "(others)";

impl Session {
    /// Charges a request by its response. A response to no request counts nothing.
    pub(crate) fn used(&self, connection: u64, usage: ModelUsage) -> Result<(), Broken> {
        let request = usage.request;
        let answer = answer(usage)?;
        let shown = {
            let mut all = self.live.lock();
            let Some(live) = all.get_mut(&connection) else { return Ok(()) };
            let Some(reservation) = live.unmetered.remove(&request) else {
                // Its program left before the decision, so it is not sent even if it is granted.
                if live.deciding.contains(&request) {
                    live.taken_back.insert(request);
                }
                return Ok(());
            };
            self.state.count(live, reservation, answer);
            live.shown(None)
        };
        self.state.view.show(shown);
        Ok(())
    }

    /// Puts on record that a request had a placeholder where it is worth nothing. The process has refused the request.
    pub(crate) fn placeholder_seen(&self, connection: u64, seen: &PlaceholderSeen) -> Result<(), Broken> {
        let place = usize::try_from(seen.index).ok().and_then(|index| self.state.own.placeholders.get(index));
        let (variable, secret, _) = place.ok_or_else(|| Broken::sent("a placeholder that the run lacks"))?;
        let part = match seen.place.as_str() {
            "path" => "path",
            "header" => "headers",
            "body" => "body",
            _ => return Err(Broken::sent("a placeholder in no part of a request")),
        };
        let mut all = self.live.lock();
        // The connection may have ended meanwhile, with a body that was cut off.
        let Some(live) = all.get_mut(&connection) else { return Ok(()) };
        let why = format!(
            "the {part} of a request had the placeholder ${variable}, which is worth nothing there: it stands for the \
             secret {secret}, which a rule sets in its own header and for its own hosts"
        );
        live.ended_for = Some(why.clone());
        let placeholder = Placeholder { variable: variable.clone(), secret: secret.to_string() };
        self.state.refuse_placeholder(&live.host(), live.port, placeholder, &why);
        Ok(())
    }
}

impl State {
    /// Charges the requests of a connection that has ended whose responses are not known.
    pub(crate) fn count_unreported(&self, mut live: Live) -> Live {
        for (_, reservation) in std::mem::take(&mut live.unmetered) {
            self.count(&mut live, reservation, Answer { extent: Extent::Unanswered, ..Answer::default() });
        }
        live
    }

    /// Counts a request that was admitted and is not sent, because its connection has ended.
    pub(crate) fn count_unsent(&self, reservation: Reservation) {
        for warning in self.settle(reservation, Answer::default()).warnings {
            self.record(events::budget(&self.run, &warning.to_string(), None));
        }
    }

    /// Charges a request of a connection, and ends its reservation.
    pub(crate) fn count(&self, live: &mut Live, reservation: Reservation, answer: Answer) {
        let is_reported = answer.is_reported;
        let Settled { model, tokens, warnings } = self.settle(reservation, answer);
        live.add_tokens(&ModelTokens {
            model: shown_name(model),
            requests: 1,
            unreported: u64::from(!is_reported),
            input: tokens.input,
            output: tokens.output,
            cached_input: tokens.cached_input,
            cache_write: tokens.cache_write,
        });
        for warning in warnings {
            tracing::warn!(run = self.run, %warning, "a budget for models is nearly used up");
            self.record(events::budget(&self.run, &warning.to_string(), Some(&*live)));
        }
    }

    fn settle(&self, reservation: Reservation, answer: Answer) -> Settled {
        let budget = self.budget();
        self.outside.shared().ledger.settle(reservation, &budget, answer, Timestamp::now())
    }
}

/// Returns the tokens that a request may cost. One without a body costs none.
pub(crate) fn estimate(asked: Option<ModelAsked>, budget: &Budget) -> Estimate {
    let Some(ModelAsked { body_bytes, max_tokens, model, .. }) = asked else { return Estimate::nothing() };
    let assumed = budget.assumed_tokens();
    let body_bytes = if body_bytes == 0 { assumed.saturating_mul(BYTES_OF_A_TOKEN) } else { body_bytes };
    let model = if is_name(&model) { model } else { String::new() };
    Estimate::new(model, body_bytes, if max_tokens == 0 { assumed } else { max_tokens })
}

/// Returns the response that the process reports.
fn answer(usage: ModelUsage) -> Result<Answer, Broken> {
    let extent = match usage.extent() {
        WireExtent::Unspecified => return Err(Broken::sent("the tokens of a response that cannot be")),
        WireExtent::NotSent => Extent::NotSent,
        WireExtent::Unanswered => Extent::Unanswered,
        WireExtent::Refused => Extent::Refused,
        WireExtent::Cut => Extent::Cut,
        WireExtent::Whole => Extent::Whole,
    };
    let tokens = Tokens {
        input: usage.input_tokens,
        output: usage.output_tokens,
        cached_input: usage.cached_input_tokens,
        cache_write: usage.cache_write_tokens,
    };
    let ModelUsage { model, is_reported, body_bytes, .. } = usage;
    Ok(Answer { model, tokens, is_reported, extent, body_bytes })
}

fn is_name(model: &str) -> bool {
    model.len() <= NAME && model.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns a model's name, which its server chose, for people and the record.
fn shown_name(model: String) -> String {
    match model.len() {
        0 => UNKNOWN.to_owned(),
        _ if is_name(&model) => model,
        _ => ODD.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_takes_what_the_body_says_and_assumes_the_rest() {
        let budget = Budget { assume_tokens: Some(500), ..Budget::default() };
        let asked = |body_bytes, max_tokens, model: &str| {
            let model = model.to_owned();
            let asked = ModelAsked { body_bytes, max_tokens, model, ..ModelAsked::default() };
            estimate(Some(asked), &budget)
        };
        let made = |model: &str, bytes, output| Estimate::new(model.to_owned(), bytes, output);
        assert_eq!(asked(80, 20, "large-3"), made("large-3", 80, 20));
        assert_eq!(asked(80, 0, "two words"), made("", 80, 500));
        assert_eq!(asked(0, 0, ""), made("", 2_000, 500));
        assert_eq!(estimate(None, &budget), Estimate::nothing());
    }

    #[test]
    fn a_response_without_an_extent_breaks_the_protocol() {
        assert!(answer(ModelUsage::default()).is_err());
        assert!(answer(ModelUsage { extent: 77, ..ModelUsage::default() }).is_err());
        let cut = ModelUsage { extent: WireExtent::Cut.into(), body_bytes: 9, ..ModelUsage::default() };
        assert_eq!(answer(cut).unwrap(), Answer { extent: Extent::Cut, body_bytes: 9, ..Answer::default() });
    }

    #[test]
    fn a_name_of_a_model_is_short_and_visible() {
        let long = "m".repeat(NAME + 1);
        for (model, shown) in [
            ("org/large-3:free", "org/large-3:free"),
            ("", "unknown"),
            ("two words", "(others)"),
            ("m\u{1b}[2J", "(others)"),
            (&long, "(others)"),
            (&long[1..], &long[1..]),
        ] {
            assert_eq!(shown_name(model.to_owned()), shown, "{model}");
        }
    }
}
