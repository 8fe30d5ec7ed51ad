//! The messages of OTLP that the daemon sends, by their field numbers in the protocol's definition (opentelemetry-proto 1.x).
//!
//! Only the fields that are used. The tests read them with the types that the project generates from the definition.

use prost::Message as _;

use crate::span::{Span as Made, Value};

/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;
/// Flags that say if the parent of a span is of another program.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// Flag of a trace that is recorded. Others are not sent.
const SAMPLED: u32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
#[expect(clippy::struct_field_names, reason = "the names of OTLP")]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(oneof = "any_value::Value", tags = "1, 3")]
    value: Option<any_value::Value>,
}

mod any_value {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Value {
        #[prost(string, tag = "1")]
        String(String),
        #[prost(int64, tag = "3")]
        Int(i64),
    }
}

/// Encodes a request that exports spans of one daemon. `instance` tells it from others.
pub(crate) fn request(instance: &str, spans: Vec<Made>) -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        ("service.name", "cofferd".into()),
        ("service.version", version.into()),
        ("service.instance.id", instance.into()),
    ];
    let resource = Resource { attributes: attributes.into_iter().map(attribute).collect() };
    let scope = Scope { name: "cofferdam".to_owned(), version: version.to_owned() };
    let spans = spans.into_iter().map(span).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    let resource_spans = vec![ResourceSpans { resource: Some(resource), scope_spans }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

fn span(made: Made) -> Span {
    let mut attributes: Vec<KeyValue> = made.attributes.into_iter().map(attribute).collect();
    if let Some(error) = &made.error {
        attributes.push(attribute(("error.type", error.as_str().into())));
    }
    let remote = if made.is_parent_remote { IS_REMOTE } else { 0 };
    Span {
        trace_id: made.trace.to_vec(),
        span_id: made.id.to_vec(),
        parent_span_id: made.parent.map(Vec::from).unwrap_or_default(),
        name: made.name,
        kind: made.kind as i32,
        start_time_unix_nano: made.start,
        end_time_unix_nano: made.end.max(made.start),
        attributes,
        status: made.error.map(|_| Status { code: ERROR }),
        flags: SAMPLED | KNOWS_REMOTE | remote,
    }
}

fn attribute((key, value): (&'static str, Value)) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::String(text),
        Value::Number(number) => any_value::Value::Int(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Read;
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
    use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
    use prost::Message as _;

    use super::request;
    use crate::span::{Kind, Span, Value};

    #[test]
    fn the_generated_types_read_every_field() {
        let made = Span {
            trace: [1; 16],
            id: [2; 8],
            parent: Some([3; 8]),
            is_parent_remote: true,
            name: "execute_tool exec".to_owned(),
            kind: Kind::Client,
            start: 4,
            end: 5,
            attributes: vec![("a", "b".into()), ("n", Value::Number(-6))],
            error: Some("TIMED_OUT".to_owned()),
        };
        let read = ExportTraceServiceRequest::decode(&request("i", vec![made])[..]).unwrap();
        let [of_resource] = &read.resource_spans[..] else { panic!("{read:?}") };
        let text = |value: &str| Some(Read::StringValue(value.to_owned()));
        let attributes = |list: &[opentelemetry_proto::tonic::common::v1::KeyValue]| {
            list.iter().map(|one| (one.key.clone(), one.value.clone().unwrap().value)).collect::<Vec<_>>()
        };
        let resource = attributes(&of_resource.resource.as_ref().unwrap().attributes);
        assert_eq!(resource[0], ("service.name".to_owned(), text("cofferd")));
        assert_eq!(resource[2], ("service.instance.id".to_owned(), text("i")));
        let [of_scope] = &of_resource.scope_spans[..] else { panic!("{read:?}") };
        assert_eq!(of_scope.scope.as_ref().unwrap().name, "cofferdam");
        let [span] = &of_scope.spans[..] else { panic!("{read:?}") };
        assert_eq!(
            (&span.trace_id[..], &span.span_id[..], &span.parent_span_id[..]),
            (&[1; 16][..], &[2; 8][..], &[3; 8][..])
        );
        assert_eq!((span.name.as_str(), span.kind()), ("execute_tool exec", SpanKind::Client));
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano, span.flags), (4, 5, 0x301));
        assert_eq!(span.status.as_ref().unwrap().code(), StatusCode::Error);
        let expected = [("a", text("b")), ("n", Some(Read::IntValue(-6))), ("error.type", text("TIMED_OUT"))];
        assert_eq!(attributes(&span.attributes), expected.map(|(key, value)| (key.to_owned(), value)));
    }

    #[test]
    fn a_root_has_no_parent_and_a_clock_that_stepped_back_no_negative_time() {
        let made = Span { start: 9, end: 5, ..Span::default() };
        let read = ExportTraceServiceRequest::decode(&request("i", vec![made])[..]).unwrap();
        let span = &read.resource_spans[0].scope_spans[0].spans[0];
        assert!(span.parent_span_id.is_empty() && span.status.is_none());
        assert_eq!((span.end_time_unix_nano, span.kind(), span.flags), (9, SpanKind::Internal, 0x101));
    }
}
