//! The servers over TLS that rules have in place of hosts.

use crate::narrowed::Narrowed;

impl Narrowed {
    /// Returns true if a rule sends the requests of its hosts to another server over TLS.
    pub fn has_tls_upstream(&self) -> bool {
        let mut rules = self.lists().flat_map(|list| &list.settings().rules);
        rules.any(|rule| rule.upstream.as_ref().is_some_and(|upstream| upstream.tls))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Narrowed, Rules};

    #[test]
    fn only_an_upstream_over_tls_needs_authorities() {
        for (upstream, needs) in [("https://api.example.org", true), ("http://api.example.org", false)] {
            let rules = format!(
                r#"{{"rules": [{{"host": "model.internal", "ports": [80], "scheme": "http", "upstream": "{upstream}",
                    "decision": "allow"}}]}}"#
            );
            let rules = Narrowed::new(Rules::from_json(&rules).unwrap());
            assert_eq!(rules.has_tls_upstream(), needs, "{upstream}");
        }
        assert!(!Narrowed::new(Rules::none()).has_tls_upstream());
    }
}
