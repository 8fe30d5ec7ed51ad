//! Spans, and those of a call.
//!
//! An attribute has a name of a closed list, a number, or an id that the daemon has made. It never has an argument, a path, a host or
//! any other text of a client, an agent or a server.

use std::time::{Duration, Instant, SystemTime};

use crate::context::{CallTrace, Context, SpanId, span_id};
use crate::stages::{Stage, Stages};

/// Attribute of the run.
pub(crate) const RUN: &str = "cofferdam.run.id";

/// Kind of a span, by its number in OTLP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Internal = 1,
    Client = 3,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A span that has ended. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub(crate) trace: [u8; 16],
    pub(crate) id: SpanId,
    pub(crate) parent: Option<SpanId>,
    /// The parent is a span of another program.
    pub(crate) is_parent_remote: bool,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// Stable reason of a failure.
    pub(crate) error: Option<String>,
}

/// A call that has ended.
#[derive(Debug)]
pub struct Made<'a> {
    pub call: String,
    pub run: String,
    /// Name of a closed list.
    pub operation: &'static str,
    /// Name of the outcome's status.
    pub outcome: &'static str,
    /// Stable reason of a refusal or failure.
    pub reason: Option<&'a str>,
    pub exit_code: Option<i32>,
    pub approval: Option<&'a str>,
}

/// The moment of now on both clocks, by which other moments are converted.
struct Now {
    instant: Instant,
    nanos: u64,
}

impl Now {
    fn new() -> Self {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), nanos: nanos(wall) }
    }

    fn of(&self, moment: Instant) -> u64 {
        self.nanos.saturating_sub(nanos(self.instant.saturating_duration_since(moment)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl CallTrace {
    /// Returns the span of a call that has ended now, and those of its stages. Returns none if the trace is not recorded.
    pub fn spans(&self, made: &Made<'_>, taken: Instant, stages: &Stages) -> Vec<Span> {
        if !self.is_recorded() {
            return Vec::new();
        }
        let now = Now::new();
        let Context { trace, span, .. } = self.own;
        // The names are those of OpenTelemetry's semantic conventions for tools of generative AI.
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", made.operation.into()),
            ("gen_ai.tool.type", "function".into()),
            ("gen_ai.tool.call.id", Value::Text(made.call.clone())),
            (RUN, Value::Text(made.run.clone())),
            ("cofferdam.outcome", made.outcome.into()),
        ];
        if let Some(code) = made.exit_code {
            attributes.push(("process.exit.code", Value::Number(code.into())));
        }
        let is_error = made.outcome != "succeeded";
        let error = is_error.then(|| made.reason.unwrap_or(made.outcome).to_owned());
        let call = Span {
            trace,
            id: span,
            parent: self.parent.map(|parent| parent.span),
            is_parent_remote: self.parent.is_some(),
            name: format!("execute_tool {}", made.operation),
            kind: Kind::Internal,
            start: now.of(taken),
            end: now.nanos,
            attributes,
            error,
        };
        let children = stages.0.iter().map(|(stage, from, to)| {
            let approval = made.approval.filter(|_| *stage == Stage::Approval);
            Span {
                trace,
                id: span_id(),
                parent: Some(span),
                name: stage.name().to_owned(),
                start: now.of(*from),
                end: now.of(*to),
                attributes: approval.map(|id| ("cofferdam.approval.id", id.into())).into_iter().collect(),
                ..Span::default()
            }
        });
        std::iter::once(call).chain(children).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Made, Value};
    use crate::context::{CallTrace, Context};
    use crate::stages::{Stage, Stages};

    fn trace(flags: &str) -> CallTrace {
        let parent = Context::parse(&format!("00-{}-{}-{flags}", "ab".repeat(16), "cd".repeat(8))).unwrap();
        CallTrace { own: Context { span: [7; 8], ..parent }, parent: Some(parent), has_span: true }
    }

    fn made() -> Made<'static> {
        Made {
            call: "c".to_owned(),
            run: "r".to_owned(),
            operation: "exec",
            outcome: "failed",
            reason: Some("TIMED_OUT"),
            exit_code: Some(124),
            approval: Some("a"),
        }
    }

    #[test]
    fn a_call_has_a_span_with_its_stages_within() {
        let taken = Instant::now().checked_sub(Duration::from_millis(30)).unwrap();
        let at = |ms| taken + Duration::from_millis(ms);
        let mut stages = Stages::default();
        stages.add(Stage::Policy, at(0), at(5));
        stages.add(Stage::Approval, at(5), at(20));
        stages.add(Stage::Lane, at(20), at(30));
        let spans = trace("01").spans(&made(), taken, &stages);
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["execute_tool exec", "policy", "approval", "lane"]);
        let call = &spans[0];
        assert_eq!((call.id, call.parent, call.is_parent_remote), ([7; 8], Some([0xcd; 8]), true));
        assert_eq!(call.error.as_deref(), Some("TIMED_OUT"));
        assert!(call.attributes.contains(&("process.exit.code", Value::Number(124))));
        for child in &spans[1..] {
            assert_eq!((child.trace, child.parent), (call.trace, Some(call.id)));
            assert!(
                child.start >= call.start && child.end <= call.end && child.start <= child.end,
                "{child:?}"
            );
        }
        assert_eq!(spans[2].attributes, [("cofferdam.approval.id", Value::Text("a".to_owned()))]);
        assert!(spans[1].end - spans[1].start == 5_000_000 && spans[1].end == spans[2].start);
    }

    #[test]
    fn a_trace_that_is_not_sampled_has_no_spans() {
        assert!(trace("00").spans(&made(), Instant::now(), &Stages::default()).is_empty());
        let passed_on = CallTrace { has_span: false, ..trace("01") };
        assert!(passed_on.spans(&made(), Instant::now(), &Stages::default()).is_empty());
    }
}
