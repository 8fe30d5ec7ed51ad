//! The section `agent_check` of the configuration.

use std::net::SocketAddr;

use document::Fields;
use serde_json::{Value, json};

const DEFAULT_ADDRESS: &str = "127.0.0.1:7445";

/// The listener for agent checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub address: SocketAddr,
}

impl Settings {
    /// Reads the section. `None`: there is none, or its address is wrong.
    pub fn read(top: &Fields<'_>) -> Option<Self> {
        let fields = top.get("agent_check")?.fields(&["listen"]);
        let address = match fields.get("listen") {
            Some(at) => at.text()?.parse().map_err(|_| {
                at.problem(format!(
                    "must be an address and a port, such as {DEFAULT_ADDRESS} or \"[::1]:7445\""
                ));
            }),
            None => DEFAULT_ADDRESS.parse().map_err(|_| ()),
        };
        address.ok().map(|address| Self { address })
    }

    /// Returns the section in the form of the configuration file.
    pub fn shown(&self) -> Value {
        json!({ "listen": self.address.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<String>, String> {
        let read = document::read("f", text, |top| Settings::read(&top.fields(&["agent_check"])));
        read.map(|settings| settings.map(|settings| settings.shown()["listen"].as_str().unwrap().to_owned()))
            .map_err(|problems| problems[0].to_string())
    }

    #[test]
    fn the_listener_is_off_by_default_and_on_loopback_alone() {
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read("agent_check: {}"), Ok(Some(DEFAULT_ADDRESS.to_owned())));
        let elsewhere = "192.0.2.7:7445".to_owned();
        assert_eq!(read("agent_check: { listen: '192.0.2.7:7445' }"), Ok(Some(elsewhere)));
        for wrong in ["{ listen: here }", "{ listen: 7445 }", "{ port: 1 }", "7445"] {
            let said = read(&format!("agent_check: {wrong}")).unwrap_err();
            assert!(said.contains("agent_check"), "{said}");
        }
    }
}
