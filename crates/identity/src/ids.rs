//! Identifiers: UUIDv7, RFC 9562, so that they sort by time. Every id from a client is parsed before it is used.

use std::fmt;

use node_id::NodeId;
use operations::Reason;
use refusal::Refusal;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        #[allow(clippy::new_without_default)] // no two are the same
        impl $name {
            pub fn new() -> Self {
                Self(node_id::new_id())
            }

            /// Parses the hyphenated form. Any other text is refused as an unknown id.
            pub fn parse(text: &str) -> Result<Self, Refusal> {
                let none = || Refusal::new(Reason::NotFound, concat!("there is no such ", $what)).with("resource", $what);
                if text.is_empty() {
                    return Err(Refusal::new(Reason::InvalidArgument, concat!($what, "_id is missing")));
                }
                // Uuid parses several forms; only the printed one is an id.
                let id = Uuid::parse_str(text).map_err(|_| none())?;
                if id.hyphenated().to_string() == text { Ok(Self(id)) } else { Err(none()) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

id!(RunId, "run");
id!(CallId, "call");
id!(
    /// Identifies an operator's session at a terminal.
    SessionId,
    "session"
);
id!(AlertId, "alert");
id!(
    /// Identifies a client's connection to a server in a run.
    ConnectionId,
    "connection"
);

id!(BaseId, "base");
id!(
    /// Identifies a checkpoint of a run.
    CheckpointId,
    "checkpoint"
);
id!(PermissionId, "permission");
id!(TokenId, "token");

/// Longest name that a client may choose for a request, task or correlation, bytes.
const MAX_CLIENT_NAME: usize = 128;

/// Longest name of a principal that a client may ask about, bytes. Credentials give shorter ones, and the policy lists no longer ones.
const MAX_PRINCIPAL: usize = 512;

/// Checks a name that a client chose. `field` names it in the error.
pub fn check_client_name(field: &'static str, name: &str) -> Result<(), Refusal> {
    check_name(field, name, MAX_CLIENT_NAME)
}

/// Checks the name of a principal that a client asks about. `field` names it in the error.
pub fn check_principal_name(field: &'static str, name: &str) -> Result<(), Refusal> {
    check_name(field, name, MAX_PRINCIPAL)
}

fn check_name(field: &'static str, name: &str, most: usize) -> Result<(), Refusal> {
    if name.len() <= most && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Refusal::invalid(field, format!("must be at most {most} bytes without control characters")))
}

impl RunId {
    /// Returns the last 32 bits, which differ between runs, also between those of one node.
    pub fn low_bits(self) -> u32 {
        let bytes = self.0.as_bytes();
        u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]])
    }

    /// Parses an id that a client chose: a version 7 UUID that names no other node.
    pub fn chosen(text: &str) -> Result<Self, Refusal> {
        let id = Self::parse(text).ok().filter(|id| id.0.get_version_num() == 7).ok_or_else(|| {
            Refusal::invalid("run_id", "is not a version 7 UUID in hyphenated lower-case form")
        })?;
        match (NodeId::of(id.0), NodeId::own()) {
            (Some(named), own) if own != Some(named) => Err(Refusal::wrong_node(named, own)),
            _ => Ok(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use node_id::NodeId;
    use operations::Reason;

    use super::{RunId, check_client_name, check_principal_name};

    #[test]
    fn principals_may_have_the_long_names_that_issuers_give() {
        let subject = format!("oidc:corp:{}", "s".repeat(256));
        assert!(check_principal_name("principal", &subject).is_ok());
        assert!(check_client_name("request_id", &subject).is_err());
        for bad in ["x".repeat(513), "uid:1\n".to_owned()] {
            let refused = check_principal_name("principal", &bad).unwrap_err();
            assert_eq!(refused.reason, Reason::InvalidArgument);
        }
    }

    #[test]
    fn a_chosen_id_may_not_name_another_node() {
        // This process is no node.
        let elsewhere = NodeId::try_from(7).unwrap().new_id().to_string();
        let refused = RunId::chosen(&elsewhere).unwrap_err();
        assert_eq!(refused.reason, Reason::WrongNode);
        assert_eq!(refused.metadata, [("asked".into(), "7".to_owned())]);
        assert_eq!(RunId::parse(&elsewhere).unwrap().to_string(), elsewhere, "it may be looked for");
    }

    #[test]
    fn an_id_parses_back_and_nothing_else_does() {
        let id = RunId::new();
        assert_eq!(RunId::parse(&id.to_string()).unwrap(), id);
        assert_eq!(RunId::chosen(&id.to_string()).unwrap(), id);
        assert_eq!(RunId::parse("").unwrap_err().reason, Reason::InvalidArgument);
        let upper = id.to_string().to_uppercase();
        for bad in ["x", "../..", upper.as_str(), "{00000000-0000-0000-0000-000000000000}"] {
            assert_eq!(RunId::parse(bad).unwrap_err().reason, Reason::NotFound, "{bad}");
        }
        assert_eq!(
            RunId::chosen("00000000-0000-4000-8000-000000000000").unwrap_err().reason,
            Reason::InvalidArgument
        );
    }
}
