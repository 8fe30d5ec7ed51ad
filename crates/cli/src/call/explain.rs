//! Explains a call instead of making it, for `coffer policy explain`.

use wire::v1::call_request::Request;
use wire::v1::{ExplainPolicyRequest, ExplainPolicyResponse, Verdict};

use super::{CallOptions, Target, prepare};
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::ui::Ui;

/// Asks for the policy's verdict on the call, and prints it.
pub(super) async fn explain(
    context: &Context,
    target: &Target,
    options: CallOptions,
    request: impl Into<Request>,
) -> Ended {
    let client = context.connect().await?;
    let call = prepare(&client, target, options, request).await?;
    let request = ExplainPolicyRequest { call: Some(call) };
    let explained = client.policy().explain_policy(quick(request)).await?.into_inner();
    show(context.ui, &explained)
}

pub(crate) fn show(ui: Ui, explained: &ExplainPolicyResponse) -> Ended {
    ui.answer(explained, render)
}

pub(crate) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
        Verdict::Unspecified => "unknown",
    }
}

fn render(explained: &ExplainPolicyResponse, page: &mut Output) {
    let style = match explained.verdict() {
        Verdict::Allow => Style::Green,
        Verdict::Ask => Style::Yellow,
        Verdict::Deny | Verdict::Unspecified => Style::Red,
    };
    page.styled(style, word(explained.verdict())).own(" ").word(&explained.operation).end_line();
    let mut facts = vec![("rule", explained.rule.clone()), ("because", explained.justification.clone())];
    for (name, value) in [("risk", &explained.risk), ("reason", &explained.reason)] {
        if !value.is_empty() {
            facts.push((name, value.clone()));
        }
    }
    if let Some(time) = &explained.decision_time {
        let time = crate::time::brief(std::time::Duration::from_secs(time.seconds.unsigned_abs()));
        facts.push(("decision", format!("within {time} ({})", explained.decision_time_from)));
    }
    facts.push(("policy", explained.policy_digest.clone()));
    page.facts(&facts);
    let rows = explained.considered.iter().map(|considered| {
        let mark = if considered.decides { "decides" } else { "" };
        vec![
            word(considered.verdict()).to_owned(),
            considered.rule.clone(),
            mark.to_owned(),
            considered.justification.clone(),
        ]
    });
    page.own("\n").table(&["SAYS", "RULE", "", "BECAUSE"], rows);
}
