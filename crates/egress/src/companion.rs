//! Companions of a run: containers beside it, which its programs reach by name without a rule.
//!
//! The daemon connects, because a companion is in another network namespace. The process gets the connection as a handle.

use egress_rules::{Decision, Destination, HostName, Opening, Scheme, Verdict};
use wire::worker::v1::Dial;
use wire::worker::v1::to_egress::Body;

use crate::decide::State;
use crate::live::Live;
use crate::session::Session;

/// Beginning of the rule that decides about connections to companions. No rule of a policy has it.
const RULE: &str = "companion: ";

impl State {
    /// Decides about a connection to a companion. `None` if it goes elsewhere.
    pub(crate) fn of_companion(&self, destination: &Destination, port: u16) -> Option<Verdict> {
        let Destination::Name(name) = destination else { return None };
        let (decision, words) = match self.control.companion(name, port)? {
            Ok(()) => (Decision::Allow, format!("{name} is a companion of the run.")),
            Err(why) => (Decision::Deny, why),
        };
        Some(Verdict {
            decision,
            scheme: Scheme::Tcp,
            methods: None,
            opening: Opening::default(),
            rule: format!("{RULE}{name}"),
            words,
        })
    }
}

impl Live {
    /// Returns the companion that it goes to.
    pub(crate) fn companion(&self) -> Option<&HostName> {
        match &self.destination {
            Destination::Name(name) if self.verdict.rule.starts_with(RULE) => Some(name),
            _ => None,
        }
    }
}

impl Session {
    /// Connects to a companion, and returns the order with the connection.
    pub(crate) async fn to_companion(&self, name: &HostName, port: u16) -> Result<Body, String> {
        let connection = self.state.control.connect(name, port).await?;
        let handle = self.handles.number();
        let given = self.handles.send(handle, connection).await;
        given.map_err(|error| {
            tracing::warn!(run = self.state.run, %name, %error, "coffer-egress took no connection to a companion");
            "coffer-egress did not take the connection".to_owned()
        })?;
        Ok(Body::Dial(Dial { handle, port: port.into(), ..Dial::default() }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use audit::Kind;
    use host_launch::numbered;
    use serde_json::json;
    use wire::worker::v1::from_egress::Body as From;
    use wire::worker::v1::to_egress::Body as To;
    use wire::worker::v1::{ConnectionEnded, ConnectionOpened, ResolveName};

    use crate::testing::{Played, rules};

    /// Opens connection 2 to the companion, and returns the first order about it.
    async fn open(played: &mut Played, port: u32) -> To {
        played.say(1, From::Resolve(ResolveName { name: "db".to_owned() })).await;
        let To::Resolved(resolved) = played.hear().await else { panic!("no address") };
        assert_eq!(resolved.address.len(), 4, "it has an address of the pool");
        let opened = ConnectionOpened { address: resolved.address, port, ..ConnectionOpened::default() };
        played.say(2, From::Opened(opened)).await;
        played.hear().await
    }

    #[tokio::test]
    async fn a_companion_is_reached_without_a_rule_by_a_connection_of_the_daemon() {
        let mut played = Played::new("{}");
        let To::Dial(dial) = open(&mut played, 5432).await else { panic!("not connected") };
        assert_eq!((dial.port, dial.addresses.len(), dial.tunnel.is_none()), (5432, 0, true));
        let (handle, end) = numbered::receive(&played.handles).unwrap().unwrap();
        assert_eq!(dial.handle, handle);
        let mut read = [0; 5];
        UnixStream::from(end).read_exact(&mut read).unwrap();
        assert_eq!(&read, b"hello");
        let intent = played.recorded(Kind::EgressIntent).await;
        let expected = json!(["companion:db", 5432, "TCP", "companion: db"]);
        let found = ["host", "port", "scheme", "rule"].map(|key| intent[key].clone());
        assert_eq!(json!(found), expected);
        // Rules that change do not close it.
        *played.daemon.rules.lock() = rules(r#"{"max_connections": 5}"#);
        tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
        played.say(2, From::Ended(ConnectionEnded { bytes_in: 5, ..ConnectionEnded::default() })).await;
        let receipt = played.recorded(Kind::EgressReceipt).await;
        assert_eq!((&receipt["host"], &receipt["why"]), (&json!("companion:db"), &json!(null)));
    }

    #[tokio::test]
    async fn other_ports_and_servers_that_do_not_accept_are_refused_with_a_reason() {
        for (port, kind, why) in [
            (22, Kind::EgressRefused, "not open at this port"),
            (5433, Kind::EgressRefused, "accepts no connection"),
        ] {
            let mut played = Played::new("{}");
            assert!(matches!(open(&mut played, port).await, To::End(_)), "{port}");
            let refused = played.recorded(kind).await;
            assert!(refused["why"].as_str().unwrap().contains(why), "{refused}");
            assert_eq!(refused["host"], "companion:db");
        }
    }
}
