//! Responses in place of the server's, in the form that a git client shows.

use crate::capabilities::{Capabilities, Report};
use crate::commands::CommandList;
use crate::packet::{FLUSH, MAX_DATA, append};
use crate::request::Service;

/// Most bytes of a reason.
const MOST: usize = 400;

/// Band of the report, of words for people, and of words before the end.
const REPORT: u8 = 1;
const WORDS: u8 = 2;
const END: u8 = 3;

/// A response to a request that does not go to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Refusal {
    /// Refuses a push whose commands are known. `whys` has a reason for each command; `words` are for people.
    ///
    /// Git shows `! [remote rejected] main -> main (WHY)` for each, and the words after `remote:`. A client that asked for no report
    /// would take any response for a success, and gets a status for it.
    pub fn of_push(list: &CommandList, whys: &[String], words: &str) -> Self {
        let mut report = Vec::new();
        append(&mut report, b"unpack ok\n");
        for (number, command) in list.commands.iter().enumerate() {
            let why = whys.get(number).map_or(words, String::as_str);
            append(&mut report, format!("ng {} {}\n", command.name(), one_line(why)).as_bytes());
        }
        report.extend_from_slice(FLUSH);
        Self::with_report(&list.capabilities, &report, words)
    }

    /// Refuses a push with a fault. Without the capabilities, which are there if the fault is after them, git shows the status alone.
    pub fn of_fault(capabilities: Option<&Capabilities>, fault: &str) -> Self {
        let Some(capabilities) = capabilities else { return Self::plain(fault) };
        let mut report = Vec::new();
        append(&mut report, format!("unpack {}\n", one_line(fault)).as_bytes());
        report.extend_from_slice(FLUSH);
        Self::with_report(capabilities, &report, fault)
    }

    fn with_report(capabilities: &Capabilities, report: &[u8], words: &str) -> Self {
        let has_report = capabilities.report != Report::None;
        let body = match (has_report, capabilities.has_side_band) {
            (false, false) => return Self::plain(words),
            (true, false) => report.to_vec(),
            (has_report, true) => {
                let mut body = Vec::new();
                let words = format!("{}\n", one_line(words));
                append_band(&mut body, if has_report { WORDS } else { END }, words.as_bytes());
                if has_report {
                    append_band(&mut body, REPORT, report);
                }
                body.extend_from_slice(FLUSH);
                body
            }
        };
        Self { status: 200, content_type: Service::ReceivePack.result_type(), body }
    }

    /// Refuses the request for refs with which a fetch or a push begins. Git shows `fatal: remote error: WHY`.
    pub fn of_discovery(service: Service, why: &str) -> Self {
        let mut body = Vec::new();
        append(&mut body, format!("# service={}\n", service.as_str()).as_bytes());
        body.extend_from_slice(FLUSH);
        append_error(&mut body, why);
        Self { status: 200, content_type: service.advertisement_type(), body }
    }

    /// Refuses a fetch. Git shows `fatal: remote error: WHY`.
    pub fn of_fetch(why: &str) -> Self {
        let mut body = Vec::new();
        append_error(&mut body, why);
        Self { status: 200, content_type: Service::UploadPack.result_type(), body }
    }

    /// Refuses a request of Git LFS, in the form of its errors.
    pub fn of_lfs(why: &str) -> Self {
        let message = one_line(why).replace('\\', "\\\\").replace('"', "\\\"");
        let body = format!("{{\"message\":\"{message}\"}}").into_bytes();
        Self { status: 403, content_type: "application/vnd.git-lfs+json", body }
    }

    /// Refuses any other request. Git shows the text if it is the answer to its first request.
    pub fn plain(why: &str) -> Self {
        let body = format!("{}\n", one_line(why)).into_bytes();
        Self { status: 403, content_type: "text/plain; charset=utf-8", body }
    }
}

fn append_error(body: &mut Vec<u8>, why: &str) {
    append(body, format!("ERR {}\n", one_line(why)).as_bytes());
}

/// Appends bytes to a band.
fn append_band(body: &mut Vec<u8>, band: u8, bytes: &[u8]) {
    for part in bytes.chunks(MAX_DATA - 1) {
        append(body, &[&[band], part].concat());
    }
}

/// Returns the text on one line without control characters, and bounded.
fn one_line(text: &str) -> String {
    let mut line: String =
        text.trim().chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect();
    if line.len() > MOST {
        let end = (0..=MOST).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    // An empty reason could be read as none.
    if line.is_empty() { "refused".to_owned() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{MAX_PACKET, Packet};
    use crate::testing::{ONE, ZERO, command, list};

    fn one(report: Report, has_side_band: bool) -> CommandList {
        let mut list = list(vec![command(ZERO, ONE, "refs/heads/x")]);
        list.capabilities = Capabilities { report, has_side_band, ..Capabilities::default() };
        list
    }

    fn body(list: &CommandList) -> (u16, String) {
        let refusal = Refusal::of_push(list, &["no rule".to_owned()], "Ask\nfirst.");
        (refusal.status, String::from_utf8(refusal.body).unwrap())
    }

    #[test]
    fn the_report_has_the_form_that_the_client_asked_for() {
        let report = "000eunpack ok\n001cng refs/heads/x no rule\n0000";
        for version in [Report::V1, Report::V2] {
            assert_eq!(body(&one(version, false)), (200, report.to_owned()));
            let bands = format!("0010\u{2}Ask first.\n0033\u{1}{report}0000");
            assert_eq!(body(&one(version, true)), (200, bands));
        }
        assert_eq!(body(&one(Report::None, true)), (200, "0010\u{3}Ask first.\n0000".to_owned()));
        assert_eq!(body(&one(Report::None, false)), (403, "Ask first.\n".to_owned()));
    }

    #[test]
    fn a_fault_is_reported_as_the_failure_of_the_whole() {
        let capabilities = Capabilities { report: Report::V1, ..Capabilities::default() };
        let refusal = Refusal::of_fault(Some(&capabilities), "two commands");
        assert_eq!(refusal.body, b"0018unpack two commands\n0000");
        assert_eq!(refusal.content_type, "application/x-git-receive-pack-result");
        assert_eq!(Refusal::of_fault(None, "two commands"), Refusal::plain("two commands"));
    }

    #[test]
    fn errors_come_where_a_client_looks_for_them() {
        let refusal = Refusal::of_discovery(Service::UploadPack, "no rule");
        assert_eq!(refusal.body, b"001e# service=git-upload-pack\n00000010ERR no rule\n");
        assert_eq!(refusal.content_type, "application/x-git-upload-pack-advertisement");
        assert_eq!(Refusal::of_fetch("no rule").body, b"0010ERR no rule\n");
        assert_eq!(Refusal::of_lfs("no \"rule\"\\\n").body, b"{\"message\":\"no \\\"rule\\\"\\\\\"}");
    }

    #[test]
    fn a_reason_does_not_leave_its_line() {
        let refusal =
            Refusal::of_push(&one(Report::V1, false), &["a\nok refs/heads/x\0\u{1b}[2J".to_owned()], "");
        assert!(refusal.body.ends_with(b"ng refs/heads/x a ok refs/heads/x  [2J\n0000"));
        assert_eq!(one_line(" \n "), "refused");
        assert_eq!(one_line(&"ä".repeat(300)), format!("{}…", "ä".repeat(200)));
    }

    #[test]
    fn a_long_report_is_many_packets_of_the_band() {
        let commands = (0..3_000).map(|number| command(ZERO, ONE, &format!("refs/heads/{number}"))).collect();
        let mut list = list(commands);
        list.capabilities =
            Capabilities { report: Report::V2, has_side_band: true, ..Capabilities::default() };
        let body = Refusal::of_push(&list, &[], "no rule").body;
        let (mut rest, mut report, mut packets) = (&body[..], Vec::new(), 0);
        while let Some((packet, length)) = Packet::read(rest).unwrap() {
            if let Packet::Data([REPORT, part @ ..]) = packet {
                report.extend_from_slice(part);
                packets += 1;
            }
            assert!(length <= MAX_PACKET);
            rest = &rest[length..];
        }
        assert!(rest.is_empty() && packets == 2, "{packets}");
        assert_eq!(report.windows(3).filter(|window| window == b"ng ").count(), 3_000);
    }
}
