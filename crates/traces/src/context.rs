//! The context of a trace, as W3C Trace Context writes it in `traceparent`.
//!
//! A context comes from a client, so it is a claim: it names a trace and proves nothing. `tracestate` is dropped, which the
//! specification permits: it is free text of other vendors.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Length of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// Longest text that is looked at. Later versions may append fields.
const LONGEST: usize = 256;

/// Identity of a span, in a trace.
pub(crate) type SpanId = [u8; 8];

/// A span that others can be children of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Context {
    pub(crate) trace: [u8; 16],
    pub(crate) span: SpanId,
    /// Its maker records the trace.
    pub(crate) sampled: bool,
}

impl Context {
    /// Parses a `traceparent`. Returns `None` for anything that the specification calls invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, further) = text.split_at_checked(LENGTH).filter(|_| text.len() <= LONGEST)?;
        let mut parts = known.split('-');
        let mut next = |digits: usize| parts.next().filter(|part| part.len() == digits && is_lower_hex(part));
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let fits = match version {
            "00" => further.is_empty(),
            "ff" => false,
            _ => further.is_empty() || further.starts_with('-'),
        };
        if !fits || parts.next().is_some() {
            return None;
        }
        let (mut context, mut flag) = (Self { trace: [0; 16], span: [0; 8], sampled: false }, [0; 1]);
        hex::decode_to_slice(trace, &mut context.trace).ok()?;
        hex::decode_to_slice(span, &mut context.span).ok()?;
        hex::decode_to_slice(flags, &mut flag).ok()?;
        context.sampled = flag[0] & 1 == 1;
        (context.trace != [0; 16] && context.span != [0; 8]).then_some(context)
    }

    /// Returns true if the context's maker records the trace.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Returns the trace's id as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        hex::encode(self.trace)
    }

    /// Returns the span's id as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        hex::encode(self.span)
    }
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (u128::from_be_bytes(self.trace), u64::from_be_bytes(self.span));
        write!(f, "00-{trace:032x}-{span:016x}-{:02x}", u8::from(self.sampled))
    }
}

impl From<Context> for String {
    fn from(context: Context) -> Self {
        context.to_string()
    }
}

impl TryFrom<String> for Context {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not a traceparent")
    }
}

/// Returns the last eight bytes of a trace's id, which samplers compare.
pub(crate) fn last_bytes(trace: [u8; 16]) -> [u8; 8] {
    let mut last = [0; 8];
    last.copy_from_slice(&trace[8..]);
    last
}

/// Returns a random id of a span, which is never zero: the bits of the UUID's variant are in it.
pub(crate) fn span_id() -> SpanId {
    last_bytes(Uuid::new_v4().into_bytes())
}

/// The trace of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTrace {
    /// The context that commands and records get.
    pub(crate) own: Context,
    /// The span of the client.
    pub(crate) parent: Option<Context>,
    /// The call has a span. Without an exporter, the client's context is passed on as it came.
    pub(crate) has_span: bool,
}

impl CallTrace {
    /// Returns the context that commands and records of the call get.
    pub fn context(&self) -> &Context {
        &self.own
    }

    /// Returns true if spans of the call are exported, or if its client has named the trace.
    pub fn is_known_outside(&self) -> bool {
        self.is_recorded() || self.parent.is_some() || !self.has_span
    }

    /// Returns true if spans of the call are exported.
    pub fn is_recorded(&self) -> bool {
        self.has_span && self.own.sampled
    }
}

#[cfg(test)]
mod tests {
    use super::{Context, span_id};

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_context_is_read_and_written_alike() {
        for flags in ["00", "01"] {
            let text = format!("00-{TRACE}-{SPAN}-{flags}");
            let context = Context::parse(&text).unwrap();
            assert_eq!((context.trace_id().as_str(), context.span_id().as_str()), (TRACE, SPAN));
            assert_eq!(context.sampled, flags == "01");
            assert_eq!(context.to_string(), text);
            let json = serde_json::to_string(&context).unwrap();
            assert_eq!(serde_json::from_str::<Context>(&json).unwrap(), context);
        }
        assert!(serde_json::from_str::<Context>("\"00-0-0-0\"").is_err());
    }

    #[test]
    fn flags_and_fields_of_later_versions_are_dropped() {
        let context = Context::parse(&format!("cc-{TRACE}-{SPAN}-ff-what-comes-then")).unwrap();
        assert_eq!(context.to_string(), format!("00-{TRACE}-{SPAN}-01"));
        assert!(Context::parse(&format!("cc-{TRACE}-{SPAN}-01")).is_some());
    }

    #[test]
    fn everything_else_is_no_context() {
        let zeros = "0".repeat(32);
        for text in [
            String::new(),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("00-{TRACE}-{SPAN}-01-x"),
            format!("00-{TRACE}-{SPAN}-0x"),
            format!("00-{TRACE}-{SPAN}-+1"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01x"),
            format!("cc-{TRACE}-{SPAN}-01-{}", "x".repeat(1_000)),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00_{TRACE}_{SPAN}_01"),
            format!("00-{TRACE}{SPAN}--01"),
            format!("00-{}é-{SPAN}-01", &TRACE[..30]),
            "é".repeat(40),
        ] {
            assert_eq!(Context::parse(&text), None, "{text}");
        }
    }

    #[test]
    fn ids_of_spans_differ_and_are_not_zero() {
        let ids: std::collections::BTreeSet<_> = (0..1_000).map(|_| span_id()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(!ids.contains(&[0; 8]));
    }
}
