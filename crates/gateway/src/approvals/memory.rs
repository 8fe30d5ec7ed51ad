//! Consent that is remembered for the rest of a run, in one of two explicit forms.
//!
//! The form *digest* covers exactly this call again: operation, arguments, directory, environment, image, policy and
//! everything that the call uses, but not the call's id. The form *prefix* covers command lines that begin with the
//! same words.
//!
//! Never remembered: critical calls, git's writes, scripts, programs that run another program from their arguments, and
//! variables that turn a program into another one. A prefix is offered only for programs of the image that write and
//! run nothing, whatever arguments follow. It covers only command lines for which the gateway knows that, and none for which
//! consent needs a director, several approvers, or a passkey.
//!
//! A remembered consent ends with its run, with any change of the policy, and when it is revoked. It replaces the
//! question to a reviewer, and nothing else: it never permits a call that the policy denies.

use std::collections::BTreeMap;

use operations::{Effect, Exec};
use timestamp::UnixMillis;

use super::approval::Approval;
use crate::admission::Ticket;
use crate::consent::{Consent, Covers, MAX_PER_RUN, MAX_WORDS, NotRemembered, Remember};
use crate::exec::plain_argv;
use command_rules::only_reads;
use policy::{Form, Level, Risk, Terms, Words};

/// Returns the forms in which a consent to this call may be remembered.
pub(super) fn offers(ticket: &Ticket) -> Vec<Form> {
    let operation = &ticket.operation;
    let possible = |form: &Form| match (operation.command(), operation.effect()) {
        _ if ticket.decision.risk == Risk::Critical => false,
        (Some(exec), _) => match form {
            Form::Digest => rememberable(exec).is_some(),
            // A command that begins with the same words may be of a higher risk, which needs more than one approver's word.
            Form::Prefix => is_least(&ticket.terms) && prefixable(exec).is_some(),
        },
        (None, Effect::Runs | Effect::Commits) => false,
        (None, _) => *form == Form::Digest,
    };
    ticket.terms.remember.iter().copied().filter(possible).collect()
}

/// Returns true if one approver consents, without a signature.
fn is_least(terms: &Terms) -> bool {
    terms.needed <= 1 && terms.level == Level::Approver && !terms.passkey
}

/// Returns the words of a command of which a prefix can be remembered: its program only reads, whatever its arguments
/// are.
pub(super) fn prefixable(exec: &Exec) -> Option<Vec<String>> {
    let argv = rememberable(exec)?;
    let (program, rest) = argv.split_first()?;
    let name = operations::deny::base_name(program);
    // A bare name or a path in a system directory is a program of the image, not of the workspace.
    let of_image = Words::of(std::slice::from_ref(&name))?.begin_exactly(program, rest);
    (of_image && only_reads(program, rest)).then_some(argv)
}

/// Returns the words of a command that may be remembered at all: a plain one, and not git.
///
/// A remembered git command would bypass the rule that each of git's writes needs consent.
fn rememberable(exec: &Exec) -> Option<Vec<String>> {
    let argv = plain_argv(exec)?;
    let name = operations::deny::base_name(argv.first()?);
    (name != "git" && !name.starts_with("git-")).then_some(argv)
}

/// Returns the consent that the reviewer wants remembered, or an error if this call's consent cannot be.
pub(super) fn wanted(
    approval: &Approval,
    remember: &Remember,
) -> Result<Option<(Form, Covers)>, NotRemembered> {
    let (form, covers) = match remember {
        Remember::Once => return Ok(None),
        Remember::Digest => (Form::Digest, Covers::Digest(approval.consent_digest.clone())),
        Remember::Prefix(words) => (Form::Prefix, Covers::Prefix(words.clone())),
    };
    if !approval.offers.contains(&form) {
        let offered: Vec<_> =
            ["once"].into_iter().chain(approval.offers.iter().map(|form| form.as_str())).collect();
        return Err(NotRemembered::NotOffered { form, offered: offered.join(", ") });
    }
    match &covers {
        Covers::Prefix(words)
            if words.is_empty() || words.len() > MAX_WORDS || !approval.argv.starts_with(words) =>
        {
            Err(NotRemembered::NotItsPrefix)
        }
        _ => Ok(Some((form, covers))),
    }
}

/// The remembered consents of all runs.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    all: BTreeMap<String, Consent>,
}

impl Memory {
    /// Returns true if the run may have another remembered consent.
    pub(crate) fn has_room(&self, run_id: &str) -> bool {
        self.all.values().filter(|consent| consent.run_id == run_id).count() < MAX_PER_RUN
    }

    pub(crate) fn add(&mut self, consent: Consent) {
        if self.has_room(&consent.run_id) {
            self.all.insert(consent.consent_id.clone(), consent);
        }
    }

    /// Removes the consents that match, and returns them.
    pub(crate) fn take(&mut self, which: impl Fn(&Consent) -> bool) -> Vec<Consent> {
        let gone: Vec<Consent> = self.all.values().filter(|consent| which(consent)).cloned().collect();
        for consent in &gone {
            self.all.remove(&consent.consent_id);
        }
        gone
    }

    /// Lists consents, oldest first, because their ids ascend.
    pub(crate) fn list(&self, run_id: Option<&str>) -> Vec<Consent> {
        let wanted = |consent: &&Consent| run_id.is_none_or(|run_id| consent.run_id == run_id);
        self.all.values().filter(wanted).cloned().collect()
    }

    /// Returns the form of a consent that may cover the call, judged by its run and operation alone.
    ///
    /// If there are consents of both forms it is `Digest`.
    pub(crate) fn may_have(&self, ticket: &Ticket) -> Option<Form> {
        let forms = self.all.values().filter(|consent| {
            consent.run_id == ticket.caller.run_id && consent.operation == ticket.operation.name()
        });
        let form = |consent: &Consent| match consent.covers {
            Covers::Digest(_) => Form::Digest,
            Covers::Prefix(_) => Form::Prefix,
        };
        forms.map(form).min()
    }

    /// Returns the consent that covers this call: of its run and policy, and for its digest or for the first words of
    /// its command.
    pub(crate) fn find(&self, ticket: &Ticket, digest: &str, policy_digest: &str) -> Option<&Consent> {
        let offered = offers(ticket);
        let argv = ticket.operation.command().and_then(prefixable);
        self.all.values().find(|consent| {
            consent.run_id == ticket.caller.run_id
                && consent.policy_digest == policy_digest
                && consent.operation == ticket.operation.name()
                && match &consent.covers {
                    Covers::Digest(covered) => offered.contains(&Form::Digest) && covered == digest,
                    Covers::Prefix(words) => {
                        offered.contains(&Form::Prefix)
                            && argv.as_ref().and_then(|argv| argv.split_first()).is_some_and(
                                |(program, args)| {
                                    Words::of(words).is_some_and(|words| words.begin_exactly(program, args))
                                },
                            )
                    }
                }
        })
    }
}

/// Makes the remembered consent that an approval includes.
pub(super) fn consent(approval: &Approval, covers: Covers, by: &str, at: UnixMillis) -> Consent {
    Consent {
        consent_id: node_id::new_id().to_string(),
        approval_id: approval.approval_id.clone(),
        run_id: approval.run_id.clone(),
        operation: approval.operation.clone(),
        covers,
        policy_digest: approval.policy_digest.clone(),
        given_by: by.to_owned(),
        given_at: at,
    }
}

#[cfg(test)]
mod tests {
    use super::prefixable;
    use crate::testing::exec;

    #[test]
    fn a_prefix_is_offered_only_for_programs_that_always_read() {
        for argv in [
            &["cat", "a"][..],
            &["grep", "-rn", "x", "."],
            &["/usr/bin/wc", "-l"],
            &["ls"],
            &["head", "-n", "3", "a"],
        ] {
            assert!(prefixable(&exec(argv)).is_some(), "{argv:?}");
        }
        // Programs that write or run something if they are told to, those that nobody knows, and words that are not known.
        for argv in [
            &["sh"][..],
            &["bash", "a.sh"],
            &["dash"],
            &["make"],
            &["make", "-f", "-"],
            &["sed", "-n", "1p"],
            &["sed", "1e cmd"],
            &["tar", "-tf", "a"],
            &["find", "."],
            &["sort", "a"],
            &["awk", "1"],
            &["python3", "-V"],
            &["cargo", "test"],
            &["env", "cat", "a"],
            &["busybox", "cat", "a"],
            &["/workspace/cat", "a"],
            &["git", "log"],
            &["tail", "-f", "a"],
            &["grep", "-f", "a"],
            &["cat", "--no-such-option"],
        ] {
            assert_eq!(prefixable(&exec(argv)), None, "{argv:?}");
        }
    }
}
