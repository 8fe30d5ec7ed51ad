//! Counts the tokens that responses say, and warns when a budget is nearly used up.

use model_usage::Tokens;
use timestamp::Timestamp;
use wire::worker::v1::{ModelUsage, PlaceholderSeen};

use crate::broken::Broken;
use crate::decide::State;
use crate::events;
use crate::live::Live;
use crate::refused::Placeholder;
use crate::session::Session;
use crate::view::ModelTokens;

/// Longest name of a model, bytes.
const NAME: usize = 128;
/// Name of a model that a response does not have.
const UNKNOWN: &str = "unknown";
/// Name of a model whose own cannot be shown.
const ODD: &str = "(others)";

impl Session {
    /// Counts the tokens of a response. A response that went to no request counts nothing.
    pub(crate) fn used(&self, connection: u64, usage: ModelUsage) {
        let shown = {
            let mut all = self.live.lock();
            let Some(live) = all.get_mut(&connection) else { return };
            if !live.unmetered.remove(&usage.request) {
                return;
            }
            self.state.count(live, usage);
            live.shown(None)
        };
        self.state.view.show(shown);
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
    /// Counts the requests of a connection that has ended whose tokens are not known.
    pub(crate) fn count_unreported(&self, mut live: Live) -> Live {
        for request in std::mem::take(&mut live.unmetered) {
            self.count(&mut live, ModelUsage { request, ..ModelUsage::default() });
        }
        live
    }

    /// Counts a request that was admitted and has no connection any longer.
    pub(crate) fn count_unknown(&self) {
        let budget = self.control.rules().budget();
        let ledger = &self.outside.shared().ledger;
        let warnings = ledger.report(&self.own.who, &budget, "", &Tokens::default(), false, Timestamp::now());
        for warning in warnings {
            self.record(events::budget(&self.run, &warning.to_string(), None));
        }
    }

    fn count(&self, live: &mut Live, usage: ModelUsage) {
        let (model, is_reported) = (usage.model, usage.is_reported);
        let tokens = Tokens {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cached_input: usage.cached_input_tokens,
            cache_write: usage.cache_write_tokens,
        };
        let budget = self.control.rules().budget();
        let ledger = &self.outside.shared().ledger;
        let warnings = ledger.report(&self.own.who, &budget, &model, &tokens, is_reported, Timestamp::now());
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
}

/// Returns a model's name, which its server chose, for people and the record.
fn shown_name(model: String) -> String {
    match model.len() {
        0 => UNKNOWN.to_owned(),
        1..=NAME if model.bytes().all(|byte| byte.is_ascii_graphic()) => model,
        _ => ODD.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
