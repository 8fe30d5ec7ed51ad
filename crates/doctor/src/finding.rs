//! The result of one check of the host.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;

use crate::remedy::Remedy;

/// Meaning of a finding for a daemon on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Sufficient.
    Good,
    /// The daemon runs, without some of its features.
    Limited,
    /// The daemon does not run.
    Missing,
}

/// Result of a check, and its consequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check, in a word or two.
    pub topic: Cow<'static, str>,
    pub verdict: Verdict,
    pub found: String,
    /// Consequence and remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// Command that may set it right, which `follows` shows as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
}

impl Finding {
    pub fn good(topic: &'static str, found: impl Into<String>) -> Self {
        Self { topic: topic.into(), verdict: Verdict::Good, found: found.into(), follows: None, remedy: None }
    }

    pub fn limited(topic: &'static str, found: impl Into<String>, follows: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            verdict: Verdict::Limited,
            found: found.into(),
            follows: Some(follows.into()),
            remedy: None,
        }
    }

    pub fn missing(topic: &'static str, found: impl Into<String>, follows: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            verdict: Verdict::Missing,
            found: found.into(),
            follows: Some(follows.into()),
            remedy: None,
        }
    }

    /// Adds the command that may set it right, also to the hint.
    #[must_use]
    pub fn with_remedy(mut self, remedy: Option<Remedy>) -> Self {
        if let Some(remedy) = &remedy {
            let hint = format!("to {}, run `{}`", remedy.why, remedy.shown());
            self.follows = Some(match self.follows.take().filter(|follows| !follows.is_empty()) {
                Some(follows) => format!("{follows}; {hint}"),
                None => hint,
            });
        }
        self.remedy = remedy;
        self
    }
}

/// Returns the remedies of the findings with their topics. Each command is returned once.
pub fn remedies(findings: &[Finding]) -> Vec<(&str, &Remedy)> {
    let mut seen = HashSet::new();
    let all = findings.iter().filter_map(|finding| Some((&*finding.topic, finding.remedy.as_ref()?)));
    all.filter(|(_, remedy)| seen.insert(&remedy.command)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_offered_once_with_its_topic() {
        let command = vec!["sysctl".to_owned()];
        let set = Some(Remedy { why: "set it".into(), command });
        let findings = [
            Finding::good("engine", "version 1"),
            Finding::limited("links", "off", "why").with_remedy(set.clone()),
            Finding::limited("memory", "open", "why").with_remedy(set),
            Finding::missing("openat2", "refused", "none"),
        ];
        let offered: Vec<_> = remedies(&findings).into_iter().map(|(topic, _)| topic).collect();
        assert_eq!(offered, ["links"]);
    }
}
