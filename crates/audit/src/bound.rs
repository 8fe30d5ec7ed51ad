//! Shortens events, so that every event fits in a line and none has to be refused. A value that is too long is replaced by its size and
//! hash.
//!
//! Names and sentences have fixed limits. The free values (`input`, `outcome.facts`, `details`) remain whole while the line fits. Otherwise
//! their long strings are cut first, and then whole values are replaced, the largest first.

use serde_json::{Value, json};
use text::floor;

use crate::canonical::{Header, MAX_LINE, encode};
use crate::event::Event;
use crate::hash::Hash;

const NAME: usize = 256;
const SENTENCE: usize = 2048;
const LONG_STRING: usize = 512;
const KEPT_OF_STRING: usize = 128;
/// Levels of nesting that a free value may have. serde_json reads 128 levels, some of which the record itself and `outcome` need.
const MAX_DEPTH: usize = 64;

/// Encodes `event` in at most [`MAX_LINE`] bytes, and shortens it as far as necessary.
pub(crate) fn encode_bounded(
    out: &mut Vec<u8>,
    header: &Header,
    event: &mut Event,
) -> Result<Hash, serde_json::Error> {
    cap_texts(event);
    cap_depth(event);
    let start = out.len();
    let mut hash = encode(out, header, event)?;
    for shorten in [cut_long_strings, replace_value] {
        for value in values_by_size(event) {
            if out.len() - start <= MAX_LINE {
                return Ok(hash);
            }
            if let Some(value) = value.of(event) {
                shorten(value);
            }
            out.truncate(start);
            hash = encode(out, header, event)?;
        }
    }
    Ok(hash)
}

/// The three free values, by name, because a borrow cannot be sorted and encoded at the same time.
#[derive(Clone, Copy)]
enum Free {
    Input,
    Facts,
    Details,
}

impl Free {
    const ALL: [Self; 3] = [Self::Input, Self::Facts, Self::Details];

    fn of(self, event: &mut Event) -> Option<&mut Value> {
        match self {
            Self::Input => event.input.as_mut(),
            Self::Facts => event.outcome.as_mut().and_then(|outcome| outcome.facts.as_mut()),
            Self::Details => event.details.as_mut(),
        }
    }
}

fn values_by_size(event: &mut Event) -> [Free; 3] {
    let mut all = Free::ALL;
    all.sort_by_cached_key(|value| std::cmp::Reverse(value.of(event).map_or(0, |v| v.to_string().len())));
    all
}

fn cap_depth(event: &mut Event) {
    for value in Free::ALL {
        if let Some(value) = value.of(event)
            && deeper_than(value, MAX_DEPTH)
        {
            replace_value(value);
        }
    }
}

fn deeper_than(value: &Value, limit: usize) -> bool {
    let Some(limit) = limit.checked_sub(1) else { return true };
    match value {
        Value::Array(items) => items.iter().any(|item| deeper_than(item, limit)),
        Value::Object(map) => map.values().any(|item| deeper_than(item, limit)),
        _ => false,
    }
}

fn replace_value(value: &mut Value) {
    let text = value.to_string();
    *value = json!({"truncated": {"bytes": text.len(), "sha256": Hash::of(text.as_bytes()).to_string()}});
}

fn cut_long_strings(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > LONG_STRING => {
            *value = json!({"truncated": {
                "bytes": text.len(),
                "sha256": Hash::of(text.as_bytes()).to_string(),
                "start": &text[..floor(text, KEPT_OF_STRING)],
            }});
        }
        Value::Array(items) => items.iter_mut().for_each(cut_long_strings),
        Value::Object(map) => map.values_mut().for_each(cut_long_strings),
        _ => {}
    }
}

fn cap_texts(event: &mut Event) {
    let names = [
        &mut event.run_id,
        &mut event.call_id,
        &mut event.request_id,
        &mut event.principal,
        &mut event.agent_id,
        &mut event.role,
        &mut event.dialect,
        &mut event.operation,
        &mut event.approval_id,
        &mut event.image,
        &mut event.traceparent,
    ];
    for name in names.into_iter().flatten() {
        cap(name, NAME);
    }
    if let Some(decision) = &mut event.decision {
        for name in [&mut decision.rule, &mut decision.policy_digest].into_iter().flatten() {
            cap(name, NAME);
        }
        decision.reason.iter_mut().for_each(|reason| cap(reason, SENTENCE));
    }
    if let Some(outcome) = &mut event.outcome {
        outcome.reason.iter_mut().for_each(|reason| cap(reason, NAME));
        outcome.message.iter_mut().for_each(|message| cap(message, SENTENCE));
    }
}

fn cap(text: &mut String, limit: usize) {
    if text.len() > limit {
        let mark = format!("…[{} bytes]", text.len());
        text.truncate(floor(text, limit.saturating_sub(mark.len())));
        text.push_str(&mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical;
    use crate::event::{Decision, Kind, Outcome, Status, Verdict};
    use crate::testing::header;

    fn encoded(event: &mut Event) -> Vec<u8> {
        let mut out = Vec::new();
        let hash = encode_bounded(&mut out, &header(1), event).unwrap();
        assert!(out.len() <= MAX_LINE, "{} bytes", out.len());
        let line = &out[..out.len() - 1];
        let envelope = canonical::open(line).unwrap();
        assert_eq!(envelope.hash, hash);
        assert_eq!(canonical::record(&envelope, line).unwrap().event, *event);
        out
    }

    #[test]
    fn a_small_event_is_left_alone() {
        let mut event = Event::new(Kind::CallIntent).input(json!({"text": "x".repeat(60_000)}));
        let before = event.clone();
        encoded(&mut event);
        assert_eq!(event, before);
    }

    #[test]
    fn a_long_string_is_named_by_size_and_hash_and_the_rest_stays() {
        let text = "x".repeat(70_000);
        let mut event = Event::new(Kind::CallIntent).input(json!({"path": "a", "content": text})).run("r");
        encoded(&mut event);
        let input = event.input.unwrap();
        assert_eq!(input["path"], "a");
        assert_eq!(input["content"]["truncated"]["bytes"], 70_000);
        assert_eq!(input["content"]["truncated"]["sha256"], Hash::of(text.as_bytes()).to_string());
    }

    #[test]
    fn many_small_things_are_replaced_as_one() {
        let many: Vec<_> = (0..20_000).map(|n| n.to_string()).collect();
        let mut event = Event::new(Kind::Alert).details(json!(many)).input(json!({"kept": true}));
        encoded(&mut event);
        assert_eq!(event.input, Some(json!({"kept": true})));
        assert!(event.details.unwrap()["truncated"]["bytes"].as_u64().unwrap() > 65_536);
    }

    #[test]
    fn depth_is_bounded_so_that_every_line_can_be_read_again() {
        let mut deep = json!(1);
        for _ in 0..120 {
            deep = json!([deep]);
        }
        let facts = deep.clone();
        let mut event =
            Event::new(Kind::CallReceipt).input(deep).outcome(Outcome::new(Status::Failed).facts(facts));
        encoded(&mut event);
        assert!(event.input.unwrap().get("truncated").is_some());
    }

    #[test]
    fn the_worst_event_fits() {
        let worst = "\u{1}".repeat(100_000); // six bytes each once escaped
        let mut event = Event::new(Kind::CallReceipt)
            .run(&*worst)
            .call(&*worst)
            .request(&*worst)
            .principal(&*worst)
            .agent(&*worst)
            .role(&*worst)
            .dialect(&*worst)
            .operation(&*worst)
            .approval(&*worst)
            .image(&*worst)
            .input(json!({&*worst: worst}))
            .details(json!([worst, worst]))
            .decision(Decision::new(Verdict::Deny).rule(&*worst).reason(&*worst).policy_digest(&*worst))
            .outcome(Outcome::new(Status::Denied).reason(&*worst).message(&*worst).facts(json!(worst)));
        encoded(&mut event);
        assert!(event.run_id.unwrap().ends_with("…[100000 bytes]"));
    }

    #[test]
    fn characters_are_not_cut_in_half() {
        let mut text = "é".repeat(400);
        cap(&mut text, NAME);
        assert!(text.len() <= NAME && text.ends_with("[800 bytes]"));
    }
}
