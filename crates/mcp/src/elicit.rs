//! Asks the person at the client about a call that waits for an approval.
//!
//! ```text
//!  without an Approver:  wait │ go on without it │ cancel the call     within the rights of its token
//!  with an Approver:     approve │ deny │ leave it to others           decided by the bridge's user, if the daemon allows it
//! ```
//!
//! A client's answer may come from its person, from its model, or from no reader at all. So an answer decides only if the user that
//! started the bridge allows it, and then with that user's identity: see [`crate::Approver`].
//!
//! Consent needs the whole text that is consented to. If the text is too long to be shown here, approving is not among the answers.

use std::fmt::Write as _;

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, InputRequest, InputRequests, InputRequiredResult, RequestMetaObject,
};
use serde_json::{Value, json};
use text::{Shape, without_hidden};
use wire::v1::Approval;

/// Key of the answer when the client calls again (MCP 2026-07-28, multi round-trip requests).
pub(crate) const KEY: &str = "approval";
/// Most bytes that are shown of a call that is not decided here.
const MOST_SHOWN: usize = 2 * 1024;
/// Most bytes of a preview that can be consented to here.
const MOST_DECIDED: usize = 32 * 1024;
/// Most characters of a comment.
const MOST_COMMENT: usize = 1_000;

/// The person's choice for a waiting call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Hold the request until a reviewer has decided.
    Wait,
    /// Answer now that it waits.
    Leave,
    /// Cancel the call.
    Cancel,
    Decide {
        approve: bool,
        comment: String,
    },
}

/// The question to a person.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    message: String,
    choices: &'static [(&'static str, &'static str)],
    field: &'static str,
    decides: bool,
}

/// Returns true if a client can ask its person with a form.
pub(crate) fn can_ask(capabilities: Option<&ClientCapabilities>) -> bool {
    let elicitation = capabilities.and_then(|capabilities| capabilities.elicitation.as_ref());
    // By MCP 2025-11-25, a client that names no mode supports forms.
    elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

impl Question {
    /// Returns the question about a call on which others decide.
    pub(crate) fn whether_to_wait(tool: &str, arguments_json: &str, approval_id: &str) -> Self {
        let mut message =
            format!("The call of {} needs a reviewer's approval ({approval_id}).\n", plain(tool));
        let (shown, left_out) = cut(arguments_json, MOST_SHOWN);
        let _ = write!(message, "Arguments: {}", plain(shown));
        if left_out > 0 {
            let _ = write!(message, "… ({left_out} more bytes)");
        }
        message.push_str(
            "\nYour answer does not approve the call. It only chooses what to do until a reviewer decides.",
        );
        let choices = &[
            ("wait", "Wait for the reviewer"),
            ("leave", "Go on without it; the call is made when it is approved"),
            ("cancel", "Cancel the call"),
        ];
        Self { message, choices, field: "until_decided", decides: false }
    }

    /// Returns the question about a call on which the person decides.
    pub(crate) fn whether_to_approve(approval: &Approval) -> Self {
        let mut message = format!(
            "{} asks to {} (risk {}, approval {}).\n",
            plain(&approval.agent_id),
            plain(&approval.operation),
            plain(&approval.risk),
            approval.approval_id
        );
        if !approval.justification.is_empty() {
            let _ = writeln!(message, "Why you are asked: {}", plain(&approval.justification));
        }
        let (shown, left_out) = cut(&approval.preview, MOST_DECIDED);
        let _ = write!(message, "{}", plain(shown));
        if left_out > 0 {
            let id = &approval.approval_id;
            let _ = write!(
                message,
                "\n… {left_out} more bytes. A call that cannot be shown in full is not approved here. To see it: coffer approval show {id}"
            );
        }
        let choices: &'static [(&str, &str)] = if left_out > 0 {
            &[("deny", "Deny"), ("leave", "Leave it to another reviewer")]
        } else {
            &[
                ("approve", "Approve: it runs once"),
                ("deny", "Deny"),
                ("leave", "Leave it to another reviewer"),
            ]
        };
        Self { message, choices, field: "decision", decides: true }
    }

    /// Returns the question for `elicitation/create`.
    pub(crate) fn params(&self) -> Result<ElicitRequestParams, ErrorData> {
        let options: Vec<Value> =
            self.choices.iter().map(|(value, title)| json!({ "const": value, "title": title })).collect();
        let mut properties = json!({ self.field: { "type": "string", "oneOf": options } });
        if self.decides {
            properties["comment"] = json!({
                "type": "string",
                "description": "For the record and, when denied, for the agent",
                "maxLength": MOST_COMMENT,
            });
        }
        let schema = json!({ "type": "object", "properties": properties, "required": [self.field] });
        let requested_schema: ElicitationSchema = serde_json::from_value(schema)
            .map_err(|_| ErrorData::internal_error("the question cannot be put as a form", None))?;
        let meta: Option<RequestMetaObject> = None;
        Ok(ElicitRequestParams::FormElicitationParams {
            meta,
            message: self.message.clone(),
            requested_schema,
        })
    }

    /// Returns the question as the result of a call that the client repeats with the answer. `state` then names the call.
    pub(crate) fn required(&self, state: &str) -> Result<InputRequiredResult, ErrorData> {
        let request = InputRequest::Elicitation(ElicitRequest::new(self.params()?));
        let requests: InputRequests = [(KEY.to_owned(), request)].into();
        Ok(InputRequiredResult::new(Some(requests), Some(state.to_owned())))
    }

    /// Returns the choice that an answer means. An invalid answer changes nothing.
    pub(crate) fn choice(&self, answer: &ElicitResult) -> Choice {
        let content = answer.content.as_ref();
        let text = |field: &str| content.and_then(|content| content.get(field)).and_then(Value::as_str);
        match answer.action {
            ElicitationAction::Accept => {}
            // A refusal of the question.
            ElicitationAction::Decline if self.decides => {
                return Choice::Decide { approve: false, comment: String::new() };
            }
            _ => return Choice::Leave,
        }
        let comment = || text("comment").unwrap_or_default().chars().take(MOST_COMMENT).collect();
        // Only offered choices count.
        match text(self.field).filter(|said| self.choices.iter().any(|(value, _)| value == said)) {
            Some("wait") => Choice::Wait,
            Some("cancel") => Choice::Cancel,
            Some("approve") => Choice::Decide { approve: true, comment: comment() },
            Some("deny") => Choice::Decide { approve: false, comment: comment() },
            _ => Choice::Leave,
        }
    }
}

/// Returns the beginning of a text, and the number of bytes after it.
fn cut(text: &str, most: usize) -> (&str, usize) {
    let most = most.min(text.len());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    (&text[..end], text.len() - end)
}

/// Returns a run's text for a person's eyes, without characters that move a terminal's cursor or reverse the text's direction
/// (CVE-2021-42574).
pub(crate) fn plain(text: &str) -> String {
    without_hidden(text, Shape::Block, |_, shown| shown.push(char::REPLACEMENT_CHARACTER)).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
    use serde_json::{Value, json};
    use wire::v1::Approval;

    use super::{Choice, MOST_DECIDED, Question, can_ask, plain};

    fn approval(preview: String) -> Approval {
        Approval {
            approval_id: "a-1".to_owned(),
            agent_id: "alice".to_owned(),
            operation: "exec".to_owned(),
            risk: "high".to_owned(),
            preview,
            ..Default::default()
        }
    }

    fn accept(content: Value) -> ElicitResult {
        ElicitResult::new(ElicitationAction::Accept).with_content(content)
    }

    #[test]
    fn without_an_approver_no_answer_decides() {
        let question = Question::whether_to_wait("exec", "{}", "a-1");
        for (said, choice) in [
            (json!({"until_decided": "wait"}), Choice::Wait),
            (json!({"until_decided": "cancel"}), Choice::Cancel),
            (json!({"until_decided": "approve"}), Choice::Leave),
            (json!({"decision": "approve"}), Choice::Leave),
            (json!({"until_decided": true}), Choice::Leave),
            (json!(["wait"]), Choice::Leave),
            (Value::Null, Choice::Leave),
        ] {
            assert_eq!(question.choice(&accept(said.clone())), choice, "{said}");
        }
        assert_eq!(question.choice(&ElicitResult::new(ElicitationAction::Decline)), Choice::Leave);
    }

    #[test]
    fn with_one_the_answer_decides_and_silence_does_not() {
        let question = Question::whether_to_approve(&approval("rm x".to_owned()));
        let decide = |approve, comment: &str| Choice::Decide { approve, comment: comment.to_owned() };
        let said = accept(json!({"decision": "approve", "comment": "ok"}));
        assert_eq!(question.choice(&said), decide(true, "ok"));
        assert_eq!(question.choice(&accept(json!({"decision": "deny"}))), decide(false, ""));
        assert_eq!(question.choice(&ElicitResult::new(ElicitationAction::Decline)), decide(false, ""));
        assert_eq!(question.choice(&ElicitResult::new(ElicitationAction::Cancel)), Choice::Leave);
        assert_eq!(question.choice(&accept(json!({}))), Choice::Leave);
    }

    #[test]
    fn truncated_question_cannot_be_approved() {
        let question = Question::whether_to_approve(&approval("ä".repeat(MOST_DECIDED)));
        assert!(
            question.message.contains("32768 more bytes")
                && question.message.contains("coffer approval show a-1")
        );
        assert_eq!(question.choice(&accept(json!({"decision": "approve"}))), Choice::Leave);
        let denied = Choice::Decide { approve: false, comment: String::new() };
        assert_eq!(question.choice(&accept(json!({"decision": "deny"}))), denied);
    }

    #[test]
    fn question_is_a_form_of_primitives() {
        let question = Question::whether_to_approve(&approval("cargo test".to_owned()));
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } =
            question.params().unwrap()
        else {
            panic!("no form");
        };
        assert!(message.contains("cargo test") && message.contains("risk high"), "{message}");
        let schema = serde_json::to_value(requested_schema).unwrap();
        assert_eq!(schema["properties"]["decision"]["oneOf"][0]["const"], "approve");
        assert_eq!(schema["required"], json!(["decision"]));
    }

    #[test]
    fn only_clients_that_say_so_are_asked() {
        let can = |capabilities: Value| can_ask(serde_json::from_value(capabilities).ok().as_ref());
        assert!(can(json!({"elicitation": {}})) && can(json!({"elicitation": {"form": {}, "url": {}}})));
        assert!(!can(json!({})) && !can(json!({"elicitation": {"url": {}}})) && !can_ask(None));
    }

    proptest! {
        #[test]
        fn only_the_approving_answer_approves(said in "\\PC{0,12}|approve|deny|leave|wait|cancel") {
            let waits = Question::whether_to_wait("t", "{}", "a");
            let decides = Question::whether_to_approve(&approval("x".to_owned()));
            let content = json!({"decision": said, "until_decided": said});
            let decided = matches!(waits.choice(&accept(content.clone())), Choice::Decide { .. });
            prop_assert!(!decided);
            let approved = matches!(decides.choice(&accept(content)), Choice::Decide { approve: true, .. });
            prop_assert_eq!(approved, said == "approve");
        }

        #[test]
        fn elicited_text_has_no_control_characters(text in any::<String>()) {
            let shown = plain(&text);
            prop_assert!(shown.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
            prop_assert_eq!(shown.chars().count(), text.chars().count());
        }
    }
}
