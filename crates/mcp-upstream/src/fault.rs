//! Reasons for which a server gave no usable answer. One table turns them into messages for the agent.

use operations::{Reason, ToolFailure};

use super::text::one_line;

/// Most bytes of a server's own words in a message to the agent.
const SAID: usize = 1_024;

/// Kinds of the failures of a server that could not be reached, or that ended.
const ABSENT: &str = "absent";
const LOST: &str = "lost";

/// Reason for a missing answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The server could not be started or reached.
    #[error("it is not available: {0}")]
    Absent(String),
    /// The server or its stream ended while it was needed.
    #[error("it was lost: {0}")]
    Lost(String),
    /// The server did not answer in time.
    #[error("it did not answer in time")]
    TimedOut,
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The server sent a message that violates the protocol, or too much.
    #[error("it broke the protocol: {0}")]
    Broken(String),
    /// The server answered with an error.
    #[error("it answered with error {code}: {message}")]
    Refused {
        /// Error code of JSON-RPC.
        code: i64,
        message: String,
    },
    /// The largest permitted number of requests is waiting for the server.
    #[error("too many messages wait for it")]
    Busy,
}

impl Fault {
    /// Returns true if the connection can no longer be used.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Absent(_) | Self::Lost(_) | Self::Broken(_))
    }

    /// Returns the failure that the agent sees. If `sent` is true, the call may have reached the server.
    pub(super) fn failure(&self, server: &str, sent: bool) -> ToolFailure {
        let (reason, kind) = match self {
            Self::TimedOut => (Reason::TimedOut, "timed_out"),
            Self::Cancelled => (Reason::Cancelled, "cancelled"),
            Self::Busy => (Reason::Overloaded, "busy"),
            Self::Absent(_) => (Reason::UpstreamFailed, ABSENT),
            Self::Lost(_) => (Reason::UpstreamFailed, LOST),
            Self::Broken(_) => (Reason::UpstreamFailed, "protocol"),
            Self::Refused { .. } => (Reason::UpstreamFailed, "refused"),
        };
        let unknown =
            sent && matches!(self, Self::Lost(_) | Self::TimedOut | Self::Cancelled | Self::Broken(_));
        let rest = if unknown { "; the call may have taken effect: check before you repeat it" } else { "" };
        let said = one_line(&self.to_string(), SAID);
        ToolFailure::new(reason, format!("the MCP server `{server}`: {said}{rest}"))
            .with("server", server)
            .with("kind", kind)
    }
}

/// Returns true if a call failed because its server could not be reached or ended, as all servers in a container do with their run.
pub fn is_gone(failure: &ToolFailure) -> bool {
    let kind = failure.details.get("kind").map(String::as_str);
    failure.reason == Reason::UpstreamFailed && matches!(kind, Some(ABSENT | LOST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_that_is_not_there_is_gone() {
        let gone = [Fault::Absent("why".to_owned()), Fault::Lost("why".to_owned())];
        assert!(gone.iter().all(|fault| is_gone(&fault.failure("db", true))));
        let others = [Fault::TimedOut, Fault::Cancelled, Fault::Busy, Fault::Broken("lost".to_owned())];
        assert!(others.iter().all(|fault| !is_gone(&fault.failure("db", true))));
        let refused = Fault::Refused { code: 1, message: "lost".to_owned() };
        assert!(!is_gone(&refused.failure("lost", true)));
    }

    #[test]
    fn server_errors_are_bounded_to_one_line() {
        let fault = Fault::Refused { code: -32_000, message: format!("a\nb\u{1b}{}", "x".repeat(5_000)) };
        let failure = fault.failure("db", true);
        assert_eq!(failure.reason, Reason::UpstreamFailed);
        assert!(
            failure.message.starts_with("the MCP server `db`: it answered with error -32000: a b"),
            "{}",
            failure.message
        );
        assert!(failure.message.len() < 1_200 && !failure.message.contains(['\n', '\u{1b}']));
    }

    #[test]
    fn an_effect_is_unknown_only_where_the_call_was_sent() {
        let lost = Fault::Lost("gone".to_owned());
        assert!(lost.failure("db", true).message.contains("may have taken effect"));
        assert!(!lost.failure("db", false).message.contains("may have taken effect"));
        assert!(
            !Fault::Refused { code: 1, message: String::new() }
                .failure("db", true)
                .message
                .contains("may have taken effect")
        );
    }
}
