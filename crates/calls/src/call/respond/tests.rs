//! The bounds that a policy may set, against the messages and frames on their way.

use call_response::Status;
use operations::transport::{MAX_COMMAND, MAX_OUTPUT, MAX_READ, MAX_UPSTREAM, MAX_WRITE, MESSAGE};
use operations::{Bounds, ExecResult, ListResult, McpContent, McpResult, ReadResult};
use wire::worker::v1 as worker;
use worker_protocol::convert::{bounds_to_wire, outcome_to_wire};
use worker_protocol::frame::encode;

use super::super::execute::finished;
use super::super::parse::limits;
use super::*;
use operations::CommandLimits;
use operations::transport::MAX_SHOWN;
use policy::Policy;
use wire::v1::CallRequest;
use wire::v1::call_request::Request;

/// Texts that bytes can decode to, including those that take the most space in a message.
const TEXTS: [&str; 4] = ["\u{1}", "\n", "\"", "\u{fffd}"];

fn forms() -> Vec<ResponseFormat> {
    let of_dialect = |name: &str| {
        let dialect = dialects::find(name).unwrap();
        let tool = dialect.tools()[0].name.to_owned();
        ResponseFormat::Dialect { dialect: Some(dialect), name: name.to_owned(), tool, operation: None }
    };
    dialects::names().into_iter().map(of_dialect).chain([ResponseFormat::Canonical]).collect()
}

fn answered(form: &ResponseFormat, result: OpResult) -> (CallResponse, Outcome) {
    let mut close = CallEnd::Executed(Box::new(finished(Ok(result))));
    let response = form.respond(CallResponse::default(), &mut close, Facts::default());
    assert!(response.encoded_len() <= MAX_ANSWER);
    let CallEnd::Executed(finished) = close else { unreachable!() };
    (response, finished.outcome)
}

fn text(of: &str, bytes: u64) -> String {
    of.repeat(usize::try_from(bytes).unwrap() / of.len())
}

#[test]
fn every_bound_of_a_policy_fits_an_answer_and_a_request() {
    for form in forms() {
        let name = form.name().unwrap_or_default();
        for of in TEXTS {
            let most = if form.is_dialect() { MAX_SHOWN } else { MAX_READ };
            let read = ReadResult { content: text(of, most), start_line: 1 << 30, ..Default::default() };
            let frame = worker::from_worker::Body::Outcome(outcome_to_wire(Ok(OpResult::Read(read.clone()))));
            assert!(encode(&worker::FromWorker { id: u64::MAX, body: Some(frame) }).is_ok());
            let (response, _) = answered(&form, OpResult::Read(read.clone()));
            assert_eq!(response.status(), Status::Succeeded, "{name}: {of:?}");
            let Some(OpResult::Read(shown)) = response.kind() else { panic!("{name}: {of:?}") };
            assert_eq!(shown.content == read.content, !form.is_dialect(), "{name}: {of:?}");

            // A byte that is no text becomes a character of three.
            let most = if of.len() > 1 { 3 * MAX_OUTPUT } else { MAX_OUTPUT };
            let exec = ExecResult {
                stdout: text(of, most),
                stderr: text(of, most),
                exit_code: Some(0),
                ..Default::default()
            };
            let mcp = |data: &str, json: &str| McpResult {
                content: vec![McpContent { data: data.to_owned(), ..Default::default() }],
                structured_content_json: json.to_owned(),
                ..Default::default()
            };
            let json = serde_json::json!(text(of, MAX_UPSTREAM / 8)).to_string();
            for result in [
                OpResult::Shell(exec),
                OpResult::Mcp(mcp(&text(of, MAX_UPSTREAM), "")),
                OpResult::Mcp(mcp("", &json)),
            ] {
                let (response, _) = answered(&form, result);
                let whole = response.result.is_some() && !response.rendered.is_empty();
                assert!(response.status() == Status::Succeeded && whole, "{name}: {of:?}");
            }
        }
    }
    let request = |kind: v1::operation::Kind| {
        let operation = v1::Operation { kind: Some(kind) };
        let call = CallRequest { request: Some(Request::Operation(operation.clone())), ..Default::default() };
        assert!(call.encoded_len() <= MESSAGE);
        let bounds = Some(bounds_to_wire(&Bounds::default()));
        let start = worker::Start { operation: Some(operation), bounds, ..Default::default() };
        assert!(
            encode(&worker::ToWorker { id: u64::MAX, body: Some(worker::to_worker::Body::Start(start)) })
                .is_ok()
        );
    };
    let content = operations::encode_base64(&vec![1; usize::try_from(MAX_WRITE).unwrap()]);
    request(v1::operation::Kind::Write(v1::WriteRequest { content, ..Default::default() }));
    let CommandLimits { args, argv_bytes, .. } = CommandLimits::WIDEST;
    for argument in [argv_bytes / args, 128 * 1024 - 1] {
        let args = vec!["x".repeat(argument); argv_bytes / argument];
        let stdin = vec![1; usize::try_from(MAX_COMMAND).unwrap() - argv_bytes];
        request(v1::operation::Kind::Exec(v1::ExecRequest { args, stdin, ..Default::default() }));
    }
}

#[test]
fn the_shipped_profiles_are_within_the_bounds() {
    let policy = Policy::builtin().unwrap();
    for name in policy.profile_names() {
        let bounds = &policy.profile(name).unwrap().bounds;
        let policy::CallBounds { max_read_bytes, max_write_bytes, max_output_bytes, .. } = bounds;
        assert!(
            *max_read_bytes <= MAX_READ && *max_write_bytes <= MAX_WRITE && *max_output_bytes <= MAX_OUTPUT
        );
        assert!(bounds.max_argv_bytes + bounds.max_stdin_bytes <= MAX_COMMAND, "{name}");
        assert!(limits(policy.profile(name).unwrap()).max_read_bytes <= MAX_SHOWN, "what dialects tell");
    }
}

#[test]
fn an_answer_is_sent_in_the_form_that_fits_or_fails() {
    let names = |count: usize| {
        let entry =
            operations::Entry { path: "\u{1}".repeat(100), name: "\u{1}".repeat(100), ..Default::default() };
        OpResult::List(ListResult { entries: vec![entry; count], ..Default::default() })
    };
    let fs =
        || forms().into_iter().find(|form| form.name().is_some_and(|name| name.starts_with("fs:"))).unwrap();
    let (canonical, _) = answered(&ResponseFormat::Canonical, names(4_000));
    assert!(canonical.result.is_some() && canonical.rendered.is_empty());
    let (dialect, _) = answered(&fs(), names(2_600));
    assert_eq!((dialect.status(), dialect.result), (Status::Succeeded, None));
    for (form, count) in [(fs(), 4_000), (ResponseFormat::Canonical, 40_000)] {
        let (failed, outcome) = answered(&form, names(count));
        assert_eq!((failed.status(), failed.error.unwrap().reason.as_str()), (Status::Failed, "READ_LIMIT"));
        assert_eq!(outcome.unwrap_err().reason, Reason::ReadLimit, "it is on record");
    }
}
