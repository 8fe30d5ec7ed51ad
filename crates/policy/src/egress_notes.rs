//! Rules for connections that are valid, and that an operator should look at twice.

use egress_rules::{Decision, HostPattern};

use crate::Policy;

impl Policy {
    /// Returns a note on each wildcard that opens something, with the name of its profile.
    pub fn egress_notes(&self) -> impl Iterator<Item = (&str, String)> {
        let profiles = self.profile_names().filter_map(|name| Some((name, self.profile(name)?)));
        profiles.flat_map(|(name, profile)| {
            let rules = profile.egress.settings().rules.iter().enumerate();
            let open = rules.filter(|(_, rule)| rule.decision != Decision::Deny);
            open.filter_map(move |(number, rule)| {
                let note = note(&rule.host)?;
                Some((name, format!("egress rule {}: `{}`: {note}", number + 1, rule.host)))
            })
        })
    }
}

fn note(host: &HostPattern) -> Option<String> {
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
