//! Reads `notices` and `push`: how people learn of approvals that wait.

use std::path::PathBuf;
use std::time::Duration;

use document::{At, Fields, time_or};
use notices::{Form, Hook, Hosts, PushSettings};
use serde_json::{Value, json};
use webhook::Target;

use super::endpoint::{self, Endpoint};
use super::values::{self, number_or, path};
use super::{seconds, secret_file};

const FORMS: [(&str, Form); 3] =
    [("standard", Form::Standard), ("slack", Form::Slack), ("teams", Form::Teams)];
/// Maximum number of webhooks. Each has a task.
const MAX_WEBHOOKS: usize = 16;
/// Maximum length of a contact, bytes.
const MAX_CONTACT: usize = 256;

/// Settings of notices and push.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices {
    webhooks: Vec<Webhook>,
    /// Web push; `None` if there is none.
    pub(crate) push: Option<PushSettings>,
}

/// A webhook that learns of approvals.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Webhook {
    name: String,
    to: To,
    form: Form,
    details: bool,
    batch: Duration,
    per_minute: u32,
}

/// Receiver of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
enum To {
    /// Gets signed messages.
    Signed(Endpoint),
    /// Knows messages by its URL, which is in a file.
    Chat { url_file: PathBuf, timeout: Duration, attempts: u32, first_retry: Duration },
}

impl Notices {
    /// Returns the webhooks, with their secrets read.
    pub(crate) fn open(&self) -> anyhow::Result<Vec<Hook>> {
        let hooks = self.webhooks.iter().map(Webhook::open).collect::<Result<_, _>>();
        hooks.map_err(|error| anyhow::anyhow!("notices.webhooks: {error}"))
    }

    /// Returns true if both have the same webhooks, also in the parts that are not shown.
    pub(super) fn has_webhooks_of(&self, other: &Self) -> bool {
        self.webhooks == other.webhooks
    }

    /// Adds the sections in the form of the configuration file.
    pub(super) fn show(&self, shown: &mut Value) {
        if !self.webhooks.is_empty() {
            shown["notices"] =
                json!({ "webhooks": self.webhooks.iter().map(Webhook::shown).collect::<Vec<_>>() });
        }
        if let Some(push) = &self.push {
            shown["push"] = json!({ "hosts": push.hosts.shown(), "contact": push.contact });
        }
    }
}

impl Webhook {
    fn open(&self) -> Result<Hook, String> {
        let endpoint = match &self.to {
            To::Signed(endpoint) => endpoint.open(&self.name)?,
            To::Chat { url_file, timeout, attempts, first_retry } => webhook::Endpoint {
                name: self.name.clone(),
                target: chat(url_file)?,
                secret: None,
                timeout: *timeout,
                attempts: *attempts,
                first_retry: *first_retry,
            },
        };
        let Self { form, details, batch, per_minute, .. } = *self;
        Ok(Hook { endpoint, form, details, batch, per_minute })
    }

    fn shown(&self) -> Value {
        let mut shown = match &self.to {
            To::Signed(endpoint) => endpoint.shown(),
            To::Chat { url_file, timeout, attempts, first_retry } => json!({
                "url_file": url_file,
                "timeout": seconds(*timeout),
                "attempts": attempts,
                "first_retry": seconds(*first_retry),
            }),
        };
        shown["name"] = self.name.as_str().into();
        shown["form"] = FORMS.iter().find(|(_, form)| *form == self.form).map_or("", |(name, _)| name).into();
        shown["details"] = self.details.into();
        shown["batch"] = seconds(self.batch).into();
        shown["max_per_minute"] = self.per_minute.into();
        shown
    }
}

/// Reads the URL of a chat's incoming hook.
fn chat(file: &std::path::Path) -> Result<Target, String> {
    let url = secret_file::read(file)?;
    Target::parse(&url, false).map_err(|problem| format!("the URL in {} {problem}", file.display()))
}

/// Reads the sections.
pub(super) fn read(top: &Fields<'_>) -> Notices {
    let section = top.section("notices", &["webhooks"]);
    Notices { webhooks: webhooks(&section), push: push(top) }
}

fn webhooks(section: &Fields<'_>) -> Vec<Webhook> {
    let mut found: Vec<Webhook> = Vec::new();
    for (index, at) in section.items("webhooks").iter().enumerate() {
        if index == MAX_WEBHOOKS {
            section.at("webhooks").problem(format!("has more than {MAX_WEBHOOKS}"));
            break;
        }
        let own = ["name", "form", "url_file", "details", "batch", "max_per_minute"];
        let fields = at.fields(&[&own[..], &endpoint::KEYS].concat());
        let name = fields.required("name").and_then(|at| {
            let name = values::name(at)?;
            let is_new = !found.iter().any(|before| before.name == name);
            if !is_new {
                at.problem(format!("{name:?} is listed twice"));
            }
            is_new.then_some(name)
        });
        let form = fields.get("form").map_or(Some(Form::Standard), |at| at.one_of(&FORMS));
        let to = form.and_then(|form| to(&fields, form));
        let (details, batch) = (fields.flag_or("details", false), time_or(&fields, "batch", (1, 300), 5));
        let per_minute = number_or(&fields, "max_per_minute", 1..=60, 6);
        let (Some(name), Some(form), Some(to)) = (name, form, to) else { continue };
        found.push(Webhook { name, to, form, details, batch, per_minute });
    }
    found
}

fn to(fields: &Fields<'_>, form: Form) -> Option<To> {
    if form == Form::Standard {
        if let Some(at) = fields.get("url_file") {
            at.problem("is for the forms slack and teams: write `url` and `secret_file`");
        }
        return Endpoint::read(fields).map(To::Signed);
    }
    for key in ["url", "secret_file", "allow_http"] {
        if let Some(at) = fields.get(key) {
            at.problem(
                "is for the form standard: a chat knows messages by their URL, which is in `url_file`",
            );
        }
    }
    let url_file = fields.required("url_file").and_then(|at| {
        let file = path(at)?;
        chat(&file).map_err(|problem| at.problem(problem)).is_ok().then_some(file)
    });
    Some(To::Chat {
        url_file: url_file?,
        timeout: time_or(fields, "timeout", (1, 60), 10),
        attempts: number_or(fields, "attempts", 1..=20, 12),
        first_retry: time_or(fields, "first_retry", (1, 600), 5),
    })
}

fn push(top: &Fields<'_>) -> Option<PushSettings> {
    let at = top.get("push")?;
    let fields = at.fields(&["hosts", "contact"]);
    if top.get("console").is_none() {
        at.problem("needs the console, in which browsers subscribe: add `console: {}`");
    }
    let items = fields.required("hosts")?.items();
    let written: Vec<&str> = items.iter().filter_map(At::text).collect();
    if written.len() < items.len() {
        return None;
    }
    let hosts = Hosts::parse(written.iter().copied());
    let hosts =
        hosts.map_err(|(index, problem)| items.get(index).unwrap_or(&fields.at("hosts")).problem(problem));
    if items.is_empty() {
        fields.at("hosts").problem("is empty: name the push services of the reviewers' browsers");
    }
    let contact = fields.required("contact").and_then(|at| {
        let contact = at.text()?;
        let is_address = contact.strip_prefix("mailto:").is_some_and(|address| address.contains('@'))
            || contact.starts_with("https://");
        if !is_address || contact.len() > MAX_CONTACT || !contact.bytes().all(|byte| byte.is_ascii_graphic())
        {
            at.problem(
                "must be an address for the push service's operator, such as mailto:security@example.org",
            );
            return None;
        }
        Some(contact.to_owned())
    });
    Some(PushSettings { hosts: hosts.ok()?, contact: contact? })
}

#[cfg(test)]
#[path = "notices_tests.rs"]
mod tests;
