//! One message of a server, JSON-RPC 2.0, as far as this crate uses it.
//!
//! Trust boundary: every byte is the server's. This module starts no task and keeps no message.

use serde::Deserialize;
use serde_json::{Value, json};

use super::fault::Fault;

/// Most bytes of one message. It bounds memory, too: only one message is kept while it arrives.
pub(super) const MAX_MESSAGE: usize = 8 * 1024 * 1024;
/// Most bytes of the id of a server's request.
const MAX_ID: usize = 256;

/// Message, classified by its use.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// Answer to a request of the daemon.
    Answer {
        /// Number of the daemon's request.
        id: u64,
        /// Result, or the server's error.
        answer: Result<Value, Fault>,
    },
    /// The server's tools have changed.
    ToolsChanged,
    Request {
        /// Reply to send.
        answer: String,
    },
    /// Message that is ignored.
    Other,
}

#[derive(Deserialize)]
struct Message {
    jsonrpc: String,
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Error>,
}

/// Distinguishes a result of `null` from a missing one.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[derive(Deserialize)]
struct Error {
    code: i64,
    #[serde(default)]
    message: String,
}

impl Incoming {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let broken = |why: &str| Fault::Broken(why.to_owned());
        let Message { jsonrpc, id, method, result, error } =
            serde_json::from_slice(bytes).map_err(|_| broken("its output is not a message"))?;
        if jsonrpc != "2.0" {
            return Err(broken("its output is not JSON-RPC 2.0"));
        }
        let answer = match (method, &id, result, error) {
            (Some(method), Some(id), None, None) => {
                return Ok(Self::Request { answer: refusal(&method, id)? });
            }
            (Some(method), None, None, None) if method == "notifications/tools/list_changed" => {
                return Ok(Self::ToolsChanged);
            }
            (Some(_), None, None, None) => return Ok(Self::Other),
            (None, _, Some(result), None) => Ok(result),
            (None, _, None, Some(Error { code, message })) => Err(Fault::Refused { code, message }),
            _ => return Err(broken("a message is neither a request nor an answer")),
        };
        // The daemon's ids are numbers. An answer to an unknown request may merely be late, and is no reason to end a server.
        Ok(id.as_ref().and_then(Value::as_u64).map_or(Self::Other, |id| Self::Answer { id, answer }))
    }
}

/// Returns the reply to a request of the server: only a ping is granted.
fn refusal(method: &str, id: &Value) -> Result<String, Fault> {
    if !(id.is_number() || id.as_str().is_some_and(|id| id.len() <= MAX_ID)) {
        return Err(Fault::Broken("a request has an invalid id".to_owned()));
    }
    let (key, value) = if method == "ping" {
        ("result", json!({}))
    } else {
        ("error", json!({"code": -32_601, "message": "this client offers nothing to servers"}))
    };
    Ok(json!({"jsonrpc": "2.0", "id": id, key: value}).to_string())
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}

/// Returns the notification that the daemon has abandoned a request.
pub(super) fn cancelled(id: u64, reason: &str) -> String {
    notification("notifications/cancelled", &json!({"requestId": id, "reason": reason}))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<Incoming, Fault> {
        Incoming::read(text.as_bytes())
    }

    #[test]
    fn messages_are_classified_by_their_fields() {
        let answer = |id, answer| Ok(Incoming::Answer { id, answer });
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#), answer(7, Ok(json!({"a": 1}))));
        let refused = Err(Fault::Refused { code: -1, message: "no".to_owned() });
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}"#),
            answer(7, refused)
        );
        assert_eq!(
            read(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#),
            Ok(Incoming::ToolsChanged)
        );
        for other in [
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"7","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"parse"}}"#,
            r#"{"jsonrpc":"2.0","id":-7,"result":{}}"#,
        ] {
            assert_eq!(read(other), Ok(Incoming::Other), "{other}");
        }
    }

    #[test]
    fn invalid_messages_break_the_protocol() {
        for wrong in [
            "",
            "hello",
            "[]",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#,
        ] {
            assert!(matches!(read(wrong), Err(Fault::Broken(_))), "{wrong}");
        }
        let deep =
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(read(&deep), Err(Fault::Broken(_))));
    }

    #[test]
    fn requests_of_a_server_are_refused_but_a_ping() {
        let asked = |method: &str| match read(&format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}"}}"#))
        {
            Ok(Incoming::Request { answer }) => serde_json::from_str::<Value>(&answer).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(asked("ping"), json!({"jsonrpc": "2.0", "id": "a", "result": {}}));
        for method in ["sampling/createMessage", "roots/list", "elicitation/create", "x"] {
            assert_eq!(asked(method)["error"]["code"], -32_601, "{method}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Incoming::read(&bytes);
        }
    }
}
