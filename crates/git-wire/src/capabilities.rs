//! Capabilities that a client asks for with the first command of a push (gitprotocol-capabilities(5)).

use crate::object_id::ObjectFormat;

/// Most bytes of a name in a message.
const MOST_SHOWN: usize = 40;

/// Form of the report that a client expects after a push.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Report {
    /// None: the client takes every response for a success.
    #[default]
    None,
    /// `report-status`
    V1,
    /// `report-status-v2`, whose lines for refused refs are those of `report-status`.
    V2,
}

/// Capabilities of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Form of the report.
    pub report: Report,
    /// The response is divided into bands (`side-band-64k`).
    pub has_side_band: bool,
    /// Either all refs change or none (`atomic`).
    pub is_atomic: bool,
    /// Options for the hooks of the server come after the commands (`push-options`).
    pub has_options: bool,
    /// Format of all ids.
    pub format: ObjectFormat,
    /// Program and version that the client says it is (`agent`); anything can be in it.
    pub agent: Option<String>,
}

impl Capabilities {
    /// Reads a list of capabilities, and the first fault of it.
    ///
    /// A capability that is not known is a fault, because it could change how the rest is read. The others are returned all the
    /// same, so that the refusal has the form that the client reads.
    pub(crate) fn scan(list: &[u8]) -> (Self, Result<(), BadCapability>) {
        let mut found = Self::default();
        let Ok(list) = std::str::from_utf8(list) else { return (found, Err(BadCapability::Character)) };
        let (mut fault, mut has_format) = (None, false);
        for word in list.split(' ').filter(|word| !word.is_empty()) {
            if !word.bytes().all(|sign| sign.is_ascii_graphic()) {
                fault = fault.or(Some(BadCapability::Character));
                continue;
            }
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let is_repeated = match (name, value) {
                ("report-status", None) => {
                    found.report = if found.report == Report::None { Report::V1 } else { found.report };
                    false
                }
                ("report-status-v2", None) => {
                    found.report = Report::V2;
                    false
                }
                ("side-band-64k", None) => {
                    found.has_side_band = true;
                    false
                }
                ("atomic", None) => {
                    found.is_atomic = true;
                    false
                }
                ("push-options", None) => {
                    found.has_options = true;
                    false
                }
                ("object-format", Some(value)) => {
                    match ObjectFormat::parse(value) {
                        Some(format) => found.format = format,
                        None => fault = fault.or(Some(BadCapability::Format)),
                    }
                    std::mem::replace(&mut has_format, true)
                }
                ("agent", Some(value)) => found.agent.replace(value.to_owned()).is_some(),
                ("quiet" | "delete-refs" | "ofs-delta" | "no-thin", None) | ("session-id", Some(_)) => false,
                _ => {
                    let name = name.get(..MOST_SHOWN).unwrap_or(name);
                    fault = fault.or_else(|| Some(BadCapability::Unknown(name.to_owned())));
                    false
                }
            };
            if is_repeated {
                fault = fault.or(Some(BadCapability::Repeated));
            }
        }
        (found, fault.map_or(Ok(()), Err))
    }
}

/// A capability that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCapability {
    #[error("a capability has a character other than visible ASCII")]
    Character,
    #[error("the capability `{0}` is not known here; push without it")]
    Unknown(String),
    #[error("a capability with a value is there twice")]
    Repeated,
    #[error("the capability `object-format` is neither `sha1` nor `sha256`")]
    Format,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capabilities_of_stock_clients_are_read() {
        let list = b" report-status-v2 side-band-64k quiet atomic push-options object-format=sha256 agent=git/2.47.3";
        let expected = Capabilities {
            report: Report::V2,
            has_side_band: true,
            is_atomic: true,
            has_options: true,
            format: ObjectFormat::Sha256,
            agent: Some("git/2.47.3".to_owned()),
        };
        assert_eq!(Capabilities::scan(list), (expected, Ok(())));
        let expected = Capabilities { report: Report::V1, ..Capabilities::default() };
        assert_eq!(Capabilities::scan(b"report-status delete-refs ofs-delta"), (expected, Ok(())));
        assert_eq!(Capabilities::scan(b""), (Capabilities::default(), Ok(())));
    }

    #[test]
    fn version_2_of_the_report_wins_in_either_order() {
        for list in [&b"report-status report-status-v2"[..], b"report-status-v2 report-status"] {
            assert_eq!(Capabilities::scan(list).0.report, Report::V2);
        }
    }

    #[test]
    fn a_fault_does_not_hide_the_form_of_the_report() {
        for (list, fault) in [
            (
                &b"push-cert=nonce report-status side-band-64k"[..],
                BadCapability::Unknown("push-cert".to_owned()),
            ),
            (b"report-status side-band side-band-64k", BadCapability::Unknown("side-band".to_owned())),
            (
                b"report-status=1 report-status side-band-64k",
                BadCapability::Unknown("report-status".to_owned()),
            ),
            (
                b"agent object-format=sha1 report-status side-band-64k",
                BadCapability::Unknown("agent".to_owned()),
            ),
            (b"object-format=md5 report-status side-band-64k", BadCapability::Format),
            (b"object-format=sha1 object-format=sha1 report-status side-band-64k", BadCapability::Repeated),
            (b"agent=a agent=b report-status side-band-64k", BadCapability::Repeated),
            (b"agent=a\x01 report-status side-band-64k", BadCapability::Character),
            (b"agent=\xc3\xa4 report-status side-band-64k", BadCapability::Character),
        ] {
            let (found, result) = Capabilities::scan(list);
            assert_eq!(result, Err(fault), "{}", String::from_utf8_lossy(list));
            assert!(found.report == Report::V1 && found.has_side_band, "{found:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_in_its_message() {
        let (_, result) = Capabilities::scan("x".repeat(60_000).as_bytes());
        assert_eq!(result, Err(BadCapability::Unknown("x".repeat(MOST_SHOWN))));
    }
}
