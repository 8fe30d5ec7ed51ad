//! The form of a decision, and the ballot that it makes.

use maud::{Markup, html};
use tonic::codegen::http::StatusCode;
use wire::v1::Approval;
use wire::v1::approval::Remember;
use wire::v1::decide_approval_request::Decision;

use crate::error::Problem;
use crate::form::Fields;
use crate::layout::csrf;
use crate::viewer::Viewer;

/// Most characters of a comment.
const COMMENT: usize = 4_096;
/// Between the id of an approval and its digest in a field.
const BOUND: char = ':';

/// Shows the form that decides on these approvals, which its page shows in full.
pub(super) fn form(viewer: &Viewer, approvals: &[Approval], path: &str) -> Markup {
    let Some(first) = approvals.first() else { return Markup::default() };
    if !viewer.may_decide() {
        return html! { p.notice { "You may look at approvals. To decide on them takes the role approver or director." } };
    }
    let is_one = approvals.len() == 1;
    let needs_passkey = approvals.iter().any(|one| one.needs_passkey);
    let offers = |form| approvals.iter().all(|one| one.remember_options().any(|offered| offered == form));
    html! {
        form #decide.card method="post" action=(path) data-approval=[is_one.then_some(&first.approval_id)] aria-labelledby="decide-title" {
            h2 #decide-title { @if is_one { "Decide" } @else { "Decide all " (approvals.len()) } }
            (csrf(viewer))
            // The first button is the one that Enter in a field presses. It is disabled, so that Enter there decides nothing.
            button type="submit" disabled hidden {}
            @for one in approvals {
                input type="hidden" name="approval" value={ (one.approval_id) (BOUND) (one.digest) };
            }
            fieldset {
                legend { "An approval counts for" }
                (choice("once", "this request alone", true))
                @if offers(Remember::Digest) {
                    @if first.call_id.is_empty() { (choice("digest", "connections of the run to this host, port and scheme, until the run ends", false)) }
                    @else { (choice("digest", "the same call again in its run, while the files that it names do not change", false)) }
                }
                @if is_one && offers(Remember::Prefix) {
                    (choice("prefix", "commands of the run that begin with these words, separated by spaces:", false))
                    input #prefix type="text" name="prefix" maxlength="1024" spellcheck="false" autocomplete="off" aria-label="First words of the commands";
                }
            }
            label for="comment" { "Comment, for the record and, after a denial, for the agent" }
            textarea #comment name="comment" maxlength=(COMMENT) rows="2" {}
            p.buttons {
                @if needs_passkey && is_one {
                    button.approve type="submit" name="decision" value="approve" data-sign="1" aria-keyshortcuts="a" { "Approve with a passkey" }
                } @else {
                    button.approve type="submit" name="decision" value="approve" aria-keyshortcuts="a" { "Approve" @if !is_one { " all " (approvals.len()) } }
                    @if is_one { button type="submit" name="decision" value="approve" data-sign="1" { "Approve with a passkey" } }
                }
                button.deny type="submit" name="decision" value="deny" aria-keyshortcuts="d" { "Deny" @if !is_one { " all " (approvals.len()) } }
            }
            @if needs_passkey && !is_one { p.notice { "Each of these has to be approved on its own page, with a passkey." } }
            @if is_one {
                p #passkey-state role="status" {}
                script src="/assets/passkey.js" defer {}
            }
            p.keys { "Keys: " kbd { "a" } " approve, " kbd { "d" } " deny (twice, or with Enter), " kbd { "r" } " remember, " kbd { "j" } " next, " kbd { "k" } " previous." }
        }
    }
}

fn choice(value: &str, name: &str, is_chosen: bool) -> Markup {
    html! { label.choice { input type="radio" name="remember" value=(value) checked[is_chosen]; " " (name) } }
}

/// A decision as its form has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ballot {
    pub(super) decision: Decision,
    pub(super) remember: Remember,
    pub(super) prefix: Vec<String>,
    pub(super) comment: String,
}

impl Ballot {
    pub(super) fn parse(fields: &Fields) -> Result<Self, Problem> {
        let bad = |message| Problem::Bad(StatusCode::BAD_REQUEST, message);
        let decision = match fields.get("decision") {
            "approve" => Decision::Approve,
            "deny" => Decision::Deny,
            _ => return Err(bad("Choose to approve or to deny.")),
        };
        let words = || fields.get("prefix").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (remember, prefix) = match fields.get("remember") {
            // A denial is for this request alone.
            _ if decision == Decision::Deny => (Remember::Once, Vec::new()),
            "" | "once" => (Remember::Once, Vec::new()),
            "digest" => (Remember::Digest, Vec::new()),
            "prefix" => (Remember::Prefix, words()),
            _ => return Err(bad("This form of remembering is unknown.")),
        };
        // Browsers send the ends of lines as two characters.
        let comment = fields.get("comment").replace("\r\n", "\n").trim().to_owned();
        if comment.chars().count() > COMMENT {
            return Err(bad("A comment has at most 4,096 characters."));
        }
        Ok(Self { decision, remember, prefix, comment })
    }
}

/// Returns the approvals of a form, each with the digest that its page has shown.
pub(super) fn bound(fields: &Fields) -> Vec<(String, String)> {
    let bound = fields.all("approval").filter_map(|field| field.split_once(BOUND));
    bound.map(|(id, digest)| (id.to_owned(), digest.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(form: &str) -> Option<Ballot> {
        Ballot::parse(&Fields::parse(form.as_bytes())).ok()
    }

    #[test]
    fn a_form_is_a_ballot_or_refused() {
        let approve = |remember, prefix: &[&str], comment: &str| Ballot {
            decision: Decision::Approve,
            remember,
            prefix: prefix.iter().map(ToString::to_string).collect(),
            comment: comment.into(),
        };
        assert_eq!(ballot("decision=approve"), Some(approve(Remember::Once, &[], "")));
        assert_eq!(
            ballot("decision=approve&remember=digest&prefix=x&comment=+a%0D%0Ab+"),
            Some(approve(Remember::Digest, &[], "a\nb"))
        );
        assert_eq!(
            ballot("decision=approve&remember=prefix&prefix=cargo++test"),
            Some(approve(Remember::Prefix, &["cargo", "test"], ""))
        );
        let deny = ballot("decision=deny&remember=prefix&prefix=x").unwrap();
        assert_eq!((deny.decision, deny.remember, deny.prefix.len()), (Decision::Deny, Remember::Once, 0));
        for bad in ["", "decision=APPROVE", "decision=", "decision=approve&remember=all"] {
            assert_eq!(ballot(bad), None, "{bad}");
        }
        let long = "\u{e4}".repeat(COMMENT);
        assert!(ballot(&format!("decision=deny&comment={long}")).is_some());
        assert!(ballot(&format!("decision=deny&comment={long}a")).is_none());
    }

    #[test]
    fn each_approval_has_the_digest_that_was_shown() {
        let fields = Fields::parse(b"approval=a:1&approval=b:2&approval=c&approval=:3");
        let of = |id: &str, digest: &str| (id.to_owned(), digest.to_owned());
        assert_eq!(bound(&fields), [of("a", "1"), of("b", "2"), of("", "3")]);
    }
}
