//! Forms of a message: Standard Webhooks, and the incoming hooks of two chats.
//!
//! Text that an agent may have written is in fields that its receiver shows as plain text.

use serde_json::{Value, json};
use text::{Shape, excerpt_of};
use timestamp::UnixMillis;

use crate::board::{MAX_PREVIEW, Notice};

/// Most approvals of one message that are listed. The rest is counted.
const MAX_LISTED: usize = 20;
/// Most of the listed approvals whose previews are shown in a chat.
const MAX_PREVIEWS: usize = 5;

/// Form of the messages that a hook sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Standard Webhooks.
    Standard,
    /// Incoming hook of Slack.
    Slack,
    /// Incoming hook of Teams: a message with an adaptive card.
    Teams,
}

/// The news of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) run_id: String,
    /// Approvals that the receiver was not told of, oldest first.
    pub(crate) new: Vec<Notice>,
    /// Approvals that it was told of and that no longer wait, with their states.
    pub(crate) ended: Vec<(String, &'static str)>,
    /// Number of approvals that wait in all runs.
    pub(crate) waiting: usize,
}

/// Makes the body of a message. `link` makes the link to an approval.
pub(crate) fn body(
    form: Form,
    news: &News,
    details: bool,
    link: &dyn Fn(&str) -> String,
    now: UnixMillis,
) -> Value {
    match form {
        Form::Standard => standard(news, details, link, now),
        Form::Slack => slack(news, details, link, now),
        Form::Teams => teams(news, details, link, now),
    }
}

fn standard(news: &News, details: bool, link: &dyn Fn(&str) -> String, now: UnixMillis) -> Value {
    let approvals = news.new.iter().take(MAX_LISTED).map(|notice| {
        let mut shown = json!({
            "approval_id": notice.approval_id,
            "operation": notice.operation,
            "profile": notice.profile,
            "risk": notice.risk,
            "expires_at_ms": notice.expires_at.0,
            "left_s": left(notice, now),
            "link": link(&notice.approval_id),
        });
        if details {
            shown["preview"] = preview(notice).into();
        }
        shown
    });
    let approvals: Vec<Value> = approvals.collect();
    let ended: Vec<Value> =
        news.ended.iter().map(|(id, state)| json!({ "approval_id": id, "state": state })).collect();
    json!({
        "type": if news.new.is_empty() { "approval.ended" } else { "approval.waiting" },
        "timestamp_ms": now.0,
        "data": {
            "run_id": news.run_id,
            "approvals": approvals,
            "more": news.new.len().saturating_sub(MAX_LISTED),
            "ended": ended,
            "waiting_in_all": news.waiting,
        },
    })
}

fn slack(news: &News, details: bool, link: &dyn Fn(&str) -> String, now: UnixMillis) -> Value {
    let plain = |text: &str| json!({ "type": "plain_text", "text": text, "emoji": false });
    let mut blocks = vec![json!({ "type": "section", "text": plain(&headline(news)) })];
    for (index, notice) in news.new.iter().take(MAX_LISTED).enumerate() {
        let mut text = line(notice, now);
        if details && index < MAX_PREVIEWS {
            text = format!("{text}\n{}", preview(notice));
        }
        let mut block = json!({ "type": "section", "text": plain(&text) });
        let link = link(&notice.approval_id);
        if !link.is_empty() {
            block["accessory"] = json!({ "type": "button", "text": plain("Review"), "url": link });
        }
        blocks.push(block);
    }
    blocks.extend(rest(news).map(|rest| json!({ "type": "section", "text": plain(&rest) })));
    // Shown in notifications. It has nothing that an agent chose.
    json!({ "text": headline(news), "blocks": blocks })
}

fn teams(news: &News, details: bool, link: &dyn Fn(&str) -> String, now: UnixMillis) -> Value {
    // A TextBlock has markup, a TextRun has none.
    let plain =
        |text: &str| json!({ "type": "RichTextBlock", "inlines": [{ "type": "TextRun", "text": text }] });
    let mut cards = vec![plain(&headline(news))];
    for (index, notice) in news.new.iter().take(MAX_LISTED).enumerate() {
        cards.push(plain(&line(notice, now)));
        if details && index < MAX_PREVIEWS {
            cards.push(plain(&preview(notice)));
        }
    }
    cards.extend(rest(news).map(|rest| plain(&rest)));
    let oldest = news.new.first().map(|notice| link(&notice.approval_id)).filter(|link| !link.is_empty());
    let actions: Vec<Value> = oldest
        .map(|link| json!({ "type": "Action.OpenUrl", "title": "Review", "url": link }))
        .into_iter()
        .collect();
    json!({
        "type": "message",
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "type": "AdaptiveCard",
                "version": "1.4",
                "body": cards,
                "actions": actions,
            },
        }],
    })
}

fn headline(news: &News) -> String {
    let run = short(&news.run_id);
    match news.new.len() {
        0 => format!("Cofferdam: approvals of run {run} no longer wait"),
        1 => format!("Cofferdam: a call of run {run} waits for approval"),
        many => format!("Cofferdam: {many} calls of run {run} wait for approval"),
    }
}

/// Returns the sentences after the list.
fn rest(news: &News) -> impl Iterator<Item = String> {
    let more = news.new.len().saturating_sub(MAX_LISTED);
    let more = (more > 0).then(|| format!("and {more} more"));
    let states: Vec<_> = news
        .ended
        .iter()
        .take(MAX_LISTED)
        .map(|(id, state)| format!("{} {}", short(id), state.to_ascii_lowercase()))
        .collect();
    let ended = (!states.is_empty()).then(|| format!("no longer waiting: {}", states.join(", ")));
    more.into_iter().chain(ended)
}

fn line(notice: &Notice, now: UnixMillis) -> String {
    let Notice { operation, profile, risk, approval_id, .. } = notice;
    let operation = text::one_line(operation);
    format!(
        "{operation}, {risk} risk, profile {profile}, {} s left ({})",
        left(notice, now),
        short(approval_id)
    )
}

fn left(notice: &Notice, now: UnixMillis) -> u64 {
    notice.expires_at.since(now).as_secs()
}

fn preview(notice: &Notice) -> String {
    excerpt_of(&notice.preview, Shape::Block, MAX_PREVIEW)
}

/// Returns the end of an id, as the command line shows it.
fn short(id: &str) -> &str {
    id.get(id.len().saturating_sub(8)..).unwrap_or(id)
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
