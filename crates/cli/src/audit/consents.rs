//! `coffer audit consents`: checks signed consents offline, from the log alone.

use std::path::PathBuf;

use ::audit::{Against, Reader, VerifierKey};
use clap::Args;
use consent_proof::{Consent, Entry, Ledger};
use serde::Serialize;
use serde_json::Value;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};
use crate::quantity::count;

/// Prove that consents were given by who the log says, each signed with a passkey; exits with 1 if one was not.
///
/// Verifies the log first, and then each signature: over the digest of the call, the digest of what was shown, the
/// decision and its comment, with the key that the log names for the reviewer. No daemon is needed.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit consents /var/lib/cofferdam/audit --approval 3f2a9c01")]
pub(crate) struct Consents {
    /// Directory of the log.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Only this approval, or the approval of this call: its id, or the end of it.
    #[arg(long, value_name = "ID")]
    approval: Option<String>,
    /// A trusted public key, as `coffer audit key` prints it. Default: the first key that the log names.
    #[arg(long = "key", value_name = "VKEY")]
    keys: Vec<VerifierKey>,
}

/// One consent, as it is printed.
#[derive(Debug, Serialize)]
struct Line {
    sequence: u64,
    approval_id: String,
    call_id: String,
    principal: String,
    decision: String,
    passkey: String,
    /// Empty: the signature holds.
    flaw: String,
}

impl Consents {
    #[allow(clippy::unused_async)] // like every other verb
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("the log in {} cannot be read: {error}", self.dir.display()))
        };
        let against = Against { keys: self.keys.clone(), ..Against::default() };
        let report = ::audit::verify_with(&self.dir, against, &mut |_| ()).map_err(|error| failed(&error))?;
        if report.segments == 0 {
            return Err(Failure::failed(format!("{} holds no audit log", self.dir.display())));
        }
        if let ::audit::Integrity::Broken(broken) = &report.integrity {
            return Err(Failure::failed(format!("the log is broken, so it proves no consent: {broken}")));
        }
        let (mut ledger, mut lines) = (Ledger::default(), Vec::new());
        for record in Reader::from(&self.dir, report.removed) {
            let record = record.map_err(|error| failed(&error))?;
            let event = record.event;
            let entry = Entry {
                kind: event.kind.as_str(),
                approval_id: event.approval_id.as_deref(),
                redactions: event.redactions.unwrap_or(0),
                details: event.details.as_ref().unwrap_or(&Value::Null),
            };
            let Some(consent) = ledger.take(entry) else { continue };
            let call = event.call_id.unwrap_or_default();
            if self
                .approval
                .as_deref()
                .is_none_or(|id| consent.approval_id.ends_with(id) || call.ends_with(id))
            {
                lines.push(line(record.sequence, call, consent));
            }
        }
        if self.approval.is_some() && lines.is_empty() {
            return Err(Failure::failed("the log has no signed consent of this approval"));
        }
        let exit = if lines.iter().all(|line| line.flaw.is_empty()) { Exit::Ok } else { Exit::Failed };
        context.ui.answer(lines, |lines, page| render(&lines, page))?;
        Ok(exit)
    }
}

fn line(sequence: u64, call_id: String, consent: Consent) -> Line {
    let Consent { approval_id, principal, decision, passkey, flaw } = consent;
    Line { sequence, approval_id, call_id, principal, decision, passkey, flaw: flaw.unwrap_or_default() }
}

fn render(lines: &[Line], page: &mut Output) {
    for line in lines {
        let Line { sequence, approval_id, principal, decision, passkey, flaw, .. } = line;
        if flaw.is_empty() {
            page.styled(Style::Green, "proved");
        } else {
            page.styled(Style::Red, "NOT PROVED");
        }
        page.own(" record ")
            .word(&sequence.to_string())
            .own(": ")
            .word(decision)
            .own(" of ")
            .word(approval_id);
        page.own(" by ").word(principal);
        if !passkey.is_empty() {
            page.own(" with ").word(passkey);
        }
        if !flaw.is_empty() {
            page.own(": ").word(flaw);
        }
        page.end_line();
    }
    let proved = lines.iter().filter(|line| line.flaw.is_empty()).count();
    page.word(&count(proved as u64, "signed consent holds", "signed consents hold"));
    page.own(" of ").word(&lines.len().to_string()).end_line();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_consent_and_the_sum() {
        let consent = |flaw: Option<&str>| Consent {
            approval_id: "a1".into(),
            principal: "token:phone".into(),
            decision: "approve".into(),
            passkey: "phone".into(),
            flaw: flaw.map(str::to_owned),
        };
        let lines =
            [line(7, "c1".into(), consent(None)), line(9, "c2".into(), consent(Some("it was changed")))];
        let mut page = Output::new(Look::PIPE);
        render(&lines, &mut page);
        assert_eq!(
            page.as_str(),
            "proved record 7: approve of a1 by token:phone with phone\n\
             NOT PROVED record 9: approve of a1 by token:phone with phone: it was changed\n\
             1 signed consent holds of 2\n"
        );
    }
}
