//! Makes spans of connections and of runs from the records of the audit log, in their order.
//!
//! A connection is a child of the call whose command made it if only one command was running, and otherwise of its run. The trace of a
//! run has the run's own id, so that nothing has to be stored for it.

use std::collections::BTreeMap;

use audit::{Event, Kind, Record};
use serde_json::Value as Json;
use uuid::Uuid;

use crate::context::{Context, SpanId, last_bytes, span_id};
use crate::span::{self, RUN, Span, Value};
use crate::tracer::Traces;

/// Most calls that are open. Connections of further ones are those of their runs.
const CALLS: usize = 16_384;
/// Most connections that are open. Further ones have no span.
const CONNECTIONS: usize = 16_384;
/// Ends that are no failure.
const ORDERLY: [&str; 3] = ["closed", "ended", "idle"];

/// Calls and connections that have begun.
#[derive(Debug)]
pub struct Connections {
    traces: Traces,
    calls: BTreeMap<String, Context>,
    open: BTreeMap<String, Open>,
}

#[derive(Debug)]
struct Open {
    trace: [u8; 16],
    parent: SpanId,
    start: u64,
}

impl Connections {
    pub fn new(traces: Traces) -> Self {
        Self { traces, calls: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// Reads the next record of the log. Exports the span of a connection or a run that it ends.
    pub fn record(&mut self, record: &Record) {
        let event = &record.event;
        let at = u64::try_from(record.time.unix_nanos()).unwrap_or_default();
        match event.kind {
            Kind::CallIntent => self.begin(event),
            Kind::CallReceipt => {
                event.call_id.as_ref().and_then(|call| self.calls.remove(call));
            }
            Kind::EgressIntent => self.connect(event, at),
            Kind::EgressReceipt => self.disconnect(event, at),
            Kind::RunState if matches!(text(event, "state"), Some("STOPPED" | "FAILED")) => {
                self.end(event, at);
            }
            _ => {}
        }
    }

    fn begin(&mut self, event: &Event) {
        let context = event.traceparent.as_deref().and_then(Context::parse);
        if let (Some(call), Some(context)) = (&event.call_id, context)
            && self.calls.len() < CALLS
        {
            self.calls.insert(call.clone(), context);
        }
    }

    /// Returns the trace of a run and its span, if it is recorded.
    fn of_run(&self, event: &Event) -> Option<(Uuid, [u8; 16], SpanId)> {
        let run = Uuid::parse_str(event.run_id.as_deref()?).ok()?;
        let trace = run.into_bytes();
        self.traces.takes(trace).then(|| (run, trace, last_bytes(trace)))
    }

    fn connect(&mut self, event: &Event, start: u64) {
        let running = detail(event, "calls").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let call = match running {
            [call] => call.as_str().and_then(|call| self.calls.get(call)),
            _ => None,
        };
        let place = match call {
            Some(call) => call.sampled.then_some((call.trace, call.span)),
            None => self.of_run(event).map(|(_, trace, span)| (trace, span)),
        };
        if let (Some((trace, parent)), Some(id)) = (place, text(event, "connection"))
            && self.open.len() < CONNECTIONS
        {
            self.open.insert(id.to_owned(), Open { trace, parent, start });
        }
    }

    fn disconnect(&mut self, event: &Event, end: u64) {
        let Some(Open { trace, parent, start }) =
            text(event, "connection").and_then(|id| self.open.remove(id))
        else {
            return;
        };
        let cause = text(event, "cause").unwrap_or("unknown");
        let mut attributes = run(event);
        attributes.push(("cofferdam.connection.end", cause.into()));
        for (name, key) in [
            ("server.port", "port"),
            ("cofferdam.connection.bytes_out", "bytes_out"),
            ("cofferdam.connection.bytes_in", "bytes_in"),
        ] {
            if let Some(number) = detail(event, key).and_then(Json::as_i64) {
                attributes.push((name, Value::Number(number)));
            }
        }
        self.traces.send(vec![Span {
            trace,
            id: span_id(),
            parent: Some(parent),
            name: "connection".to_owned(),
            kind: span::Kind::Client,
            start,
            end,
            attributes,
            error: (!ORDERLY.contains(&cause)).then(|| cause.to_owned()),
            ..Span::default()
        }]);
    }

    fn end(&mut self, event: &Event, end: u64) {
        let Some((id, trace, span)) = self.of_run(event) else { return };
        // The id has the moment at which the run was asked for.
        let Some((seconds, nanos)) = id.get_timestamp().map(|at| at.to_unix()) else { return };
        let state = text(event, "state").unwrap_or_default();
        self.traces.send(vec![Span {
            trace,
            id: span,
            name: "run".to_owned(),
            start: seconds.saturating_mul(1_000_000_000).saturating_add(nanos.into()),
            end,
            attributes: run(event),
            error: (state == "FAILED").then(|| state.to_owned()),
            ..Span::default()
        }]);
    }
}

fn run(event: &Event) -> Vec<(&'static str, Value)> {
    event.run_id.as_deref().map(|run| (RUN, run.into())).into_iter().collect()
}

fn detail<'e>(event: &'e Event, key: &str) -> Option<&'e Json> {
    event.details.as_ref()?.get(key)
}

fn text<'e>(event: &'e Event, key: &str) -> Option<&'e str> {
    detail(event, key)?.as_str()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use audit::{Event, Hash, Kind, LogId, Record};
    use serde_json::{Value as Json, json};
    use tokio::sync::mpsc::{Receiver, channel};

    use super::Connections;
    use crate::span::Span;
    use crate::tracer::{Share, Traces};

    const RUN: &str = "0192f0c1-0000-7000-8000-00000000aaaa";

    fn connections(share: &str) -> (Connections, Receiver<Vec<Span>>) {
        let (queue, spans) = channel(8);
        (Connections::new(Traces::new(queue, Arc::default(), Share::parse(share).unwrap())), spans)
    }

    impl Connections {
        fn read(&mut self, event: Event) {
            let (log, hash): (LogId, _) = ("ab".repeat(16).parse().unwrap(), Hash::of(b""));
            let time = "2026-01-02T03:04:05.000000006Z".parse().unwrap();
            self.record(&Record { log, sequence: 1, time, previous: hash, hash, event: event.run(RUN) });
        }
    }

    fn call(id: &str, flags: &str) -> Event {
        let mut event = Event::new(Kind::CallIntent).call(id);
        event.traceparent = Some(format!("00-{}-{}-{flags}", "ab".repeat(16), "cd".repeat(8)));
        event
    }

    fn egress(kind: Kind, calls: &[&str]) -> Event {
        let (host, cause) = ("secret.example.org", "reset");
        let details = json!({ "connection": "x", "host": host, "port": 443, "calls": calls, "cause": cause, "bytes_in": 5 });
        Event::new(kind).details(details)
    }

    fn only(spans: &mut Receiver<Vec<Span>>) -> Span {
        let [span] = <[Span; 1]>::try_from(spans.try_recv().unwrap()).unwrap();
        assert!(spans.try_recv().is_err());
        span
    }

    #[test]
    fn a_connection_is_a_child_of_the_one_command_that_ran() {
        let (mut connections, mut spans) = connections("0");
        connections.read(call("c", "01"));
        connections.read(egress(Kind::EgressIntent, &["c"]));
        // The command is over before its connection.
        connections.read(Event::new(Kind::CallReceipt).call("c"));
        connections.read(egress(Kind::EgressReceipt, &["c"]));
        let span = only(&mut spans);
        assert_eq!((span.trace, span.parent), ([0xab; 16], Some([0xcd; 8])));
        assert_eq!((span.name.as_str(), span.error.as_deref()), ("connection", Some("reset")));
        assert!(!format!("{span:?}").contains("example"), "no text of a program: {span:?}");
        assert!(connections.calls.is_empty() && connections.open.is_empty());
    }

    #[test]
    fn a_connection_of_a_call_that_is_not_sampled_has_no_span() {
        let (mut connections, mut spans) = connections("1");
        connections.read(call("c", "00"));
        connections.read(egress(Kind::EgressIntent, &["c"]));
        connections.read(egress(Kind::EgressReceipt, &["c"]));
        assert!(spans.try_recv().is_err());
    }

    #[test]
    fn a_connection_of_several_commands_is_one_of_the_run() {
        for running in [&["c", "d"][..], &[], &["unknown"]] {
            let (mut connections, mut spans) = connections("1");
            connections.read(call("c", "01"));
            connections.read(call("d", "01"));
            connections.read(egress(Kind::EgressIntent, running));
            connections.read(egress(Kind::EgressReceipt, running));
            let connection = only(&mut spans);
            let state = |state: &str| Event::new(Kind::RunState).details(json!({ "state": state }));
            connections.read(state("READY"));
            assert!(spans.try_recv().is_err());
            connections.read(state("STOPPED"));
            let run = only(&mut spans);
            assert_eq!((connection.trace, connection.parent), (run.trace, Some(run.id)));
            assert_eq!(hex::encode(run.trace), RUN.replace('-', ""));
            assert!(run.parent.is_none() && run.start > 0 && run.start < run.end, "{run:?}");
        }
    }

    #[test]
    fn a_receipt_without_an_intent_and_odd_records_are_skipped() {
        let (mut connections, mut spans) = connections("1");
        connections.read(egress(Kind::EgressReceipt, &[]));
        connections.read(Event::new(Kind::EgressIntent).details(Json::Null));
        connections.read(Event::new(Kind::CallIntent));
        assert!(spans.try_recv().is_err());
    }
}
