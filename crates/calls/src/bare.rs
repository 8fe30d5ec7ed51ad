//! Shortens a stored outcome for which the store has no room.

use prost::Message as _;
use wire::v1::{CallResponse, call_response::Status};

/// Characters of an error's message that are kept.
const MESSAGE: usize = 300;

/// Returns an encoded response without its result.
pub fn bare(response: &[u8]) -> Vec<u8> {
    let mut response = CallResponse::decode(response).unwrap_or_default();
    response.result_dropped = response.result.take().is_some() || response.rendered.len() > MESSAGE;
    if response.result_dropped {
        let what = if response.status() == Status::Succeeded { "succeeded" } else { "did not succeed" };
        response.rendered = format!(
            "This call was made before and {what}. Its result is no longer stored: check before you repeat it."
        );
    }
    if let Some(error) = &mut response.error {
        error.details.clear();
        error.message = error.message.chars().take(MESSAGE).collect();
    }
    response.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use wire::v1::call_response::Status;
    use wire::v1::result::Kind;
    use wire::v1::{CallResponse, Evidence, Fault, ReadResult, ToolFailure};

    use super::{MESSAGE, bare};

    fn bared(response: &CallResponse) -> CallResponse {
        CallResponse::decode(bare(&response.encode_to_vec()).as_slice()).unwrap()
    }

    #[test]
    fn a_dropped_result_is_named_and_the_status_stays() {
        let content = "x".repeat(100_000);
        let whole = CallResponse {
            call_id: "1".to_owned(),
            status: Status::Succeeded.into(),
            result: Some(Kind::Read(ReadResult { content, ..Default::default() }).into()),
            ..Default::default()
        };
        let bare = bared(&whole);
        assert_eq!((bare.call_id.as_str(), bare.status(), &bare.result), ("1", Status::Succeeded, &None));
        assert!(bare.result_dropped && bare.rendered.contains("no longer stored"), "{}", bare.rendered);
    }

    #[test]
    fn an_error_keeps_its_reason_and_the_beginning_of_its_message() {
        let error = ToolFailure {
            reason: "TIMED_OUT".to_owned(),
            message: "é".repeat(1_000),
            details: [("a".to_owned(), "b".repeat(1_000))].into(),
            fault: Fault::Infrastructure.into(),
            evidence: vec![Evidence { what: "disk.state".to_owned(), value: "full".to_owned() }],
            retry_safe: false,
        };
        let failed = CallResponse { status: Status::Failed.into(), error: Some(error), ..Default::default() };
        let bare = bared(&failed);
        let error = bare.error.unwrap();
        assert_eq!((error.reason.as_str(), error.message.chars().count()), ("TIMED_OUT", MESSAGE));
        assert!(error.details.is_empty() && !bare.result_dropped && bare.rendered.is_empty());
        assert_eq!((error.fault(), error.evidence.len()), (Fault::Infrastructure, 1));
    }
}
