//! Identifiers: UUIDv7, RFC 9562, so that they sort by time. Every id from a client is parsed before it is used.

use std::fmt;
use std::time::{Duration, SystemTime};

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

/// Largest distance of the time of an id that a client chose.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

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

    /// Checks that a client may choose this id for a new run: its time is within a day of now.
    ///
    /// Ids of deleted runs are kept for as long as this check lets them pass. So the log has one run under each id, beside attempts to create it
    /// that were refused or cut off.
    pub fn check_is_of_now(self) -> Result<(), Refusal> {
        if self.is_within_a_day_of(SystemTime::now()) {
            return Ok(());
        }
        let problem =
            "has a time that is more than a day before or after now: make a new version 7 UUID for each run";
        Err(Refusal::invalid("run_id", problem))
    }

    /// Returns the last moment at which [`Self::check_is_of_now`] lets the id pass, in milliseconds since 1970.
    pub fn chosen_until(self) -> u64 {
        u64::try_from(self.made() + DAY.as_millis()).unwrap_or(u64::MAX)
    }

    fn is_within_a_day_of(self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        self.made().abs_diff(now) <= DAY.as_millis()
    }

    /// Returns the time of the id: its first 48 bits are the milliseconds since 1970 (RFC 9562, 5.7).
    fn made(self) -> u128 {
        self.0.as_u128() >> 80
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_id_for_a_new_run_has_a_time_of_about_now() {
        assert!(RunId::new().check_is_of_now().is_ok());
        let id = RunId::parse("0198a1b2-0000-7000-8000-00000000aaaa").unwrap();
        assert_eq!(id.check_is_of_now().unwrap_err().reason, Reason::InvalidArgument);
        let made = SystemTime::UNIX_EPOCH + Duration::from_millis(0x0198_a1b2_0000);
        let moment = Duration::from_millis(1);
        for now in [made, made + DAY, made - DAY] {
            assert!(id.is_within_a_day_of(now));
        }
        assert_eq!(u128::from(id.chosen_until()), 0x0198_a1b2_0000 + DAY.as_millis());
        for now in [made + DAY + moment, made - DAY - moment, SystemTime::UNIX_EPOCH] {
            assert!(!id.is_within_a_day_of(now));
        }
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
