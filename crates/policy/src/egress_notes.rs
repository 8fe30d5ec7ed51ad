//! Rules for connections that are valid, and that an operator should look at twice.

use std::collections::BTreeSet;

use egress_rules::{Decision, HostPattern, Injection, Rule, SecretName, Settings};

use crate::Policy;

impl Policy {
    /// Returns a note on each wildcard that opens something, and on secrets and budgets that are not used as they may be meant, with
    /// the name of the profile.
    pub fn egress_notes(&self) -> impl Iterator<Item = (&str, String)> {
        let profiles = self.profile_names().filter_map(|name| Some((name, self.profile(name)?)));
        profiles.flat_map(|(name, profile)| {
            let of_run = notes(profile.egress.settings());
            let of_companions = profile.companions.egress.iter().flat_map(|(image, rules)| {
                notes(rules.settings()).into_iter().map(move |note| format!("companions of {image}: {note}"))
            });
            of_run.into_iter().chain(of_companions).map(move |note| (name, note))
        })
    }
}

fn notes(settings: &Settings) -> Vec<String> {
    let mut all = Vec::new();
    for (number, rule) in settings.rules.iter().enumerate() {
        let is_open = rule.decision != Decision::Deny;
        let host = is_open.then(|| note_of_host(&rule.host)).flatten();
        for note in host.into_iter().chain(note_of_secrets(rule)).chain(note_of_clear_text(rule)) {
            all.push(format!("egress rule {}: `{}`: {note}", number + 1, rule.host));
        }
    }
    let injected: BTreeSet<&SecretName> =
        settings.rules.iter().flat_map(|rule| &rule.inject).flat_map(Injection::secrets).collect();
    for (variable, placeholder) in &settings.placeholders {
        if !injected.contains(&placeholder.secret) {
            let secret = &placeholder.secret;
            all.push(format!(
                "egress placeholder `{variable}`: no rule injects the secret `{secret}`, so it is worth nothing anywhere"
            ));
        }
    }
    if !settings.budget.is_unbounded() && settings.rules.iter().all(|rule| rule.meter.is_none()) {
        all.push("egress budget: it bounds nothing, because no rule has `meter: tokens`".to_owned());
    }
    all
}

fn note_of_host(host: &HostPattern) -> Option<String> {
    match host {
        HostPattern::EveryName => Some(
            "every public host is open, and any of them can get what the run reads; only refused address ranges \
             stay closed"
                .to_owned(),
        ),
        HostPattern::Below(parent) if !parent.as_str().contains('.') => Some(format!(
            "this is a channel to everybody who registers a name below `{parent}`; name the domain"
        )),
        HostPattern::Below(_) => Some(
            "a wildcard is a channel to whoever runs that domain's name server, because each name that is looked \
             up can carry data; name the hosts if you can"
                .to_owned(),
        ),
        HostPattern::Name(_) | HostPattern::Network(_) => None,
    }
}

/// Returns a note on secrets that more than one host gets.
fn note_of_secrets(rule: &Rule) -> Option<String> {
    let hosts = match &rule.host {
        HostPattern::Below(parent) => format!("every host below `{parent}`"),
        HostPattern::Network(network) if network.prefix_len() < network.max_prefix_len() => {
            format!("every host in `{network}`")
        }
        HostPattern::Name(_) | HostPattern::EveryName | HostPattern::Network(_) => return None,
    };
    secrets(rule).map(|secrets| format!("{hosts} gets {secrets}; name the hosts that need it"))
}

/// Returns a note on secrets that go over a network without TLS.
fn note_of_clear_text(rule: &Rule) -> Option<String> {
    let secrets = secrets(rule).filter(|_| rule.inject_over_http)?;
    Some(format!("{secrets} goes over the network in the clear (`inject_over_http`)"))
}

/// Returns the secrets of a rule in words. `None` if it has none.
fn secrets(rule: &Rule) -> Option<String> {
    let names: BTreeSet<&SecretName> = rule.inject.iter().flat_map(Injection::secrets).collect();
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => None,
        [one] => Some(format!("the secret {one}")),
        several => Some(format!("each of the secrets {}", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    fn notes(egress: &str) -> Vec<String> {
        let policy = format!(
            "{{profiles: {{p: {{operations: {{}}, egress: {{{egress}}}}}}}, roles: {{r: {{allow: \"*\"}}}}}}"
        );
        let policy = Policy::from_files([("p.yaml", policy)]).unwrap();
        policy.egress_notes().map(|(_, note)| note).collect()
    }

    #[test]
    fn a_secret_that_many_hosts_get_is_noted() {
        let rule = |host: &str, inject: &str| {
            let inject = format!("inject: {inject}");
            let rule = format!("{{host: \"{host}\", ports: [443], {inject}, decision: allow}}");
            notes(&format!("rules: [{rule}], networks: [\"10.20.0.0/16\"]"))
        };
        let one = "{header: x, value: \"${secret:model}\"}";
        let two = "[{header: x, value: \"${secret:b} ${secret:a}\"}, {header: y, value: \"${secret:a}\"}]";
        let noted = rule("*.example.org", one);
        assert_eq!(noted.len(), 2, "{noted:?}");
        assert_eq!(
            noted[1],
            "egress rule 1: `*.example.org`: every host below `example.org` gets the secret `model`; name the hosts that need it"
        );
        let noted = rule("10.20.0.0/24", two);
        assert_eq!(
            noted,
            [
                "egress rule 1: `10.20.0.0/24`: every host in `10.20.0.0/24` gets each of the secrets `a`, `b`; name the hosts that need it"
            ]
        );
        assert!(rule("10.20.0.7", one).is_empty());
        assert!(rule("api.example.org", two).is_empty());
    }

    #[test]
    fn a_secret_in_the_clear_is_noted() {
        let rule = "host: api.example.org, ports: [80], scheme: http, inject: {header: x, value: \"${secret:model}\"}";
        let noted = notes(&format!("rules: [{{{rule}, inject_over_http: true, decision: allow}}]"));
        assert_eq!(
            noted,
            [
                "egress rule 1: `api.example.org`: the secret `model` goes over the network in the clear (`inject_over_http`)"
            ]
        );
    }

    #[test]
    fn a_placeholder_without_an_injection_and_a_budget_without_a_meter_are_noted() {
        let rule = "host: api.example.org, ports: [443], inject: {header: x, value: \"${secret:model}\"}";
        let rules = |meter: &str| format!("rules: [{{{rule}{meter}, decision: allow}}]");
        let rest = "placeholders: {A: {secret: model, shape: \"{16}\"}, B: {secret: other, shape: \"{16}\"}}, budget: {run: {tokens: 5}}";
        let other =
            "egress placeholder `B`: no rule injects the secret `other`, so it is worth nothing anywhere";
        let budget = "egress budget: it bounds nothing, because no rule has `meter: tokens`";
        assert_eq!(notes(&format!("{}, {rest}", rules(""))), [other, budget]);
        assert_eq!(notes(&format!("{}, {rest}", rules(", meter: tokens"))), [other]);
    }
}
