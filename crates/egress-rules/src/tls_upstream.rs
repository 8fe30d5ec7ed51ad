//! The servers over TLS that rules have in place of hosts.

use crate::narrowed::Narrowed;

impl Narrowed {
    /// Returns true if a rule sends the requests of its hosts to another server over TLS.
    pub fn has_tls_upstream(&self) -> bool {
        let mut rules = self.lists().flat_map(|list| &list.settings().rules);
        rules.any(|rule| rule.upstream.as_ref().is_some_and(|upstream| upstream.tls))
    }
}
