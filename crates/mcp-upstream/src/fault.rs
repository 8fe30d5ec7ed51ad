//! Why a server gave no usable answer. One table says what the agent is told.

use ops::{Reason, ToolFailure};

use super::text::one_line;

/// Bytes of a server's own words in a message to the agent.
const SAID: usize = 1_024;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It could not be started or reached.
    #[error("it is not there: {0}")]
    Absent(String),
    /// It ended, or its stream did, while it was needed.
    #[error("it was lost: {0}")]
    Lost(String),
    /// It did not answer in time.
    #[error("it did not answer in time")]
    TimedOut,
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// It sent a message that is not the protocol, or too much.
    #[error("it broke the protocol: {0}")]
    Broken(String),
    /// It answered with an error of its own.
    #[error("it answered with error {code}: {message}")]
    Refused {
        /// As JSON-RPC has it.
        code: i64,
        message: String,
    },
    /// As many requests wait for it as may.
    #[error("too much waits for it")]
    Busy,
}

impl Fault {
    /// Whether the connection is no longer of use.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Absent(_) | Self::Lost(_) | Self::Broken(_))
    }

    /// The failure that the agent sees. `sent`: the call may have reached the server.
    pub(super) fn failure(&self, server: &str, sent: bool) -> ToolFailure {
        let (reason, kind) = match self {
            Self::TimedOut => (Reason::TimedOut, "timed_out"),
            Self::Cancelled => (Reason::Cancelled, "cancelled"),
            Self::Busy => (Reason::Overloaded, "busy"),
            Self::Absent(_) => (Reason::UpstreamFailed, "absent"),
            Self::Lost(_) => (Reason::UpstreamFailed, "lost"),
            Self::Broken(_) => (Reason::UpstreamFailed, "protocol"),
            Self::Refused { .. } => (Reason::UpstreamFailed, "refused"),
        };
        let unknown =
            sent && matches!(self, Self::Lost(_) | Self::TimedOut | Self::Cancelled | Self::Broken(_));
        let rest = if unknown {
            "; whether the call had an effect is not known: look before you repeat it"
        } else {
            ""
        };
        let said = one_line(&self.to_string(), SAID);
        ToolFailure::new(reason, format!("the MCP server `{server}`: {said}{rest}"))
            .with("server", server)
            .with("kind", kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_told_on_bounded_and_on_one_line() {
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
        assert!(lost.failure("db", true).message.contains("not known"));
        assert!(!lost.failure("db", false).message.contains("not known"));
        assert!(
            !Fault::Refused { code: 1, message: String::new() }
                .failure("db", true)
                .message
                .contains("not known")
        );
    }
}
