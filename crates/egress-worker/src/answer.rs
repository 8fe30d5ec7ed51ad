//! The answers of the daemon about single requests.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use tokio::sync::oneshot;
use wire::worker::v1 as proto;
use wire::worker::v1::request_answer::Decision;
use zeroize::Zeroizing;

use crate::broken::Broken;

/// Headers that belong to the connection or to the form of a request. No answer sets them.
const OF_THE_CONNECTION: [&str; 11] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "keep-alive",
    "accept-encoding",
    "http2-settings",
];

/// The decision about one request.
pub(crate) enum Answer {
    Grant(Grant),
    Refusal(Refusal),
}

/// A request that goes out.
#[derive(Default)]
pub(crate) struct Grant {
    /// Headers that replace all of their name.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Texts that the response must not show.
    pub(crate) hide: Vec<Zeroizing<Vec<u8>>>,
}

/// The response to a request that does not go out.
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) content_type: HeaderValue,
    pub(crate) body: Bytes,
    /// Value of `Retry-After`, seconds; 0 for none.
    pub(crate) retry_after: u32,
}

/// Prints no header and no text, because they may hold secrets.
impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Grant(_) => "Grant",
            Self::Refusal(_) => "Refusal",
        })
    }
}

/// Parses an answer. Returns it with the number of its request.
pub(crate) fn parse(answer: proto::RequestAnswer) -> Result<(u64, Answer), Broken> {
    let parsed = match answer.decision.ok_or(Broken)? {
        Decision::Grant(grant) => Answer::Grant(Grant::try_from(grant)?),
        Decision::Refusal(refusal) => Answer::Refusal(Refusal::try_from(refusal)?),
    };
    Ok((answer.request, parsed))
}

impl TryFrom<proto::RequestGrant> for Grant {
    type Error = Broken;

    fn try_from(grant: proto::RequestGrant) -> Result<Self, Broken> {
        let hide = grant.hide.into_iter().map(Zeroizing::new).collect();
        let headers = grant.headers.into_iter().map(header).collect::<Result<_, _>>()?;
        Ok(Self { headers, hide })
    }
}

/// Parses a header. Its value is not printed, and its bytes are overwritten when the last request that has it is gone.
fn header(header: proto::InjectedHeader) -> Result<(HeaderName, HeaderValue), Broken> {
    let value = Zeroizing::new(header.value);
    let name = HeaderName::from_lowercase(header.name.as_bytes()).map_err(|_| Broken)?;
    if OF_THE_CONNECTION.contains(&name.as_str()) || name.as_str().starts_with("proxy-") {
        return Err(Broken);
    }
    let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(value)).map_err(|_| Broken)?;
    value.set_sensitive(true);
    Ok((name, value))
}

impl TryFrom<proto::RequestRefusal> for Refusal {
    type Error = Broken;

    fn try_from(refusal: proto::RequestRefusal) -> Result<Self, Broken> {
        let status = u16::try_from(refusal.status).ok().and_then(|status| StatusCode::from_u16(status).ok());
        // Git reads a refusal of its service with the status of a success.
        let status =
            status.filter(|status| *status == StatusCode::OK || status.as_u16() >= 400).ok_or(Broken)?;
        let content_type = HeaderValue::try_from(refusal.content_type).map_err(|_| Broken)?;
        let retry_after = refusal.retry_after_s;
        Ok(Self { status, content_type, body: refusal.body.into(), retry_after })
    }
}

/// The requests of one connection that wait for an answer. The first answer to each counts.
#[derive(Debug, Default)]
pub(crate) struct Answers(RefCell<HashMap<u64, oneshot::Sender<Answer>>>);

/// A request that waits. It no longer does when this is dropped.
pub(crate) struct Waiting<'a> {
    answers: &'a Answers,
    number: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Answers {
    /// Begins to wait for the answer to a request.
    pub(crate) fn expect(&self, number: u64) -> Waiting<'_> {
        let (sender, answer) = oneshot::channel();
        self.0.borrow_mut().insert(number, sender);
        Waiting { answers: self, number, answer }
    }

    /// Gives an answer. It is ignored if its request does not wait.
    pub(crate) fn give(&self, number: u64, answer: Answer) {
        if let Some(sender) = self.0.borrow_mut().remove(&number) {
            let _ = sender.send(answer);
        }
    }

    /// Returns true if no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl Waiting<'_> {
    /// Waits for the answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        match (&mut self.answer).await {
            Ok(answer) => answer,
            // The sender is dropped only together with the connection.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.answers.0.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(name: &str, value: &[u8]) -> proto::RequestAnswer {
        let header = proto::InjectedHeader { name: name.to_owned(), value: value.to_vec() };
        let grant = proto::RequestGrant { headers: vec![header], hide: vec![b"s3cret".to_vec()] };
        proto::RequestAnswer { request: 7, decision: Some(Decision::Grant(grant)) }
    }

    #[test]
    fn a_grant_is_parsed_and_prints_no_value() {
        let (number, answer) = parse(grant("authorization", b"Bearer s3cret")).unwrap();
        assert_eq!((number, format!("{answer:?}")), (7, "Grant".to_owned()));
        let Answer::Grant(grant) = answer else { panic!("a refusal") };
        let (name, value) = &grant.headers[0];
        assert_eq!((name.as_str(), value.as_bytes()), ("authorization", &b"Bearer s3cret"[..]));
        assert!(value.is_sensitive());
    }

    #[test]
    fn headers_that_change_the_form_of_a_request_break_the_protocol() {
        for (name, value) in [
            ("Authorization", &b"x"[..]),
            ("x y", b"x"),
            ("", b"x"),
            ("x-key", b"a\r\nx: y"),
            ("x-key", b"a\0"),
            ("host", b"x"),
            ("content-length", b"1"),
            ("transfer-encoding", b"chunked"),
            ("proxy-authorization", b"x"),
        ] {
            assert_eq!(parse(grant(name, value)).err(), Some(Broken), "{name}");
        }
        let none = proto::RequestAnswer { request: 7, decision: None };
        assert_eq!(parse(none).err(), Some(Broken));
    }

    #[test]
    fn a_refusal_has_the_status_of_an_error_or_of_an_answer_to_git() {
        let refusal = |status| {
            let refusal = proto::RequestRefusal {
                status,
                content_type: "application/json".into(),
                body: b"{}".into(),
                retry_after_s: 0,
            };
            parse(proto::RequestAnswer { request: 1, decision: Some(Decision::Refusal(refusal)) })
        };
        for status in [200, 403] {
            assert!(matches!(refusal(status), Ok((1, Answer::Refusal(_)))), "{status}");
        }
        for status in [0, 101, 201, 204, 302, 399, 1000, 70_000] {
            assert_eq!(refusal(status).err(), Some(Broken), "{status}");
        }
    }

    #[tokio::test]
    async fn the_first_answer_to_a_waiting_request_counts() {
        let answers = Answers::default();
        answers.give(1, parse(grant("x-key", b"a")).unwrap().1);
        let mut waiting = answers.expect(1);
        answers.give(2, parse(grant("x-key", b"b")).unwrap().1);
        answers.give(1, parse(grant("x-key", b"c")).unwrap().1);
        answers.give(1, parse(grant("x-key", b"d")).unwrap().1);
        let Answer::Grant(granted) = waiting.answer().await else { panic!("a refusal") };
        assert_eq!(granted.headers[0].1.as_bytes(), b"c");
        drop(answers.expect(3));
        drop(waiting);
        assert!(answers.is_empty());
    }
}
