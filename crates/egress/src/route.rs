//! The way of a connection to its server, or to the server that a rule has in place of it.

use std::net::IpAddr;
use std::sync::Arc;

use egress_rules::Destination;
use wire::worker::v1::Tunnel;
use wire::worker::v1::to_egress::Body;

use crate::decide::State;
use crate::events;
use crate::messages::{dial, message};
use crate::session::Session;
use crate::upstream::UpstreamProxy;

impl Session {
    /// Lets a connection go out, after the process has looked at it if its rule wants that.
    ///
    /// Its intent is on disk before its name is looked up outside.
    pub(crate) async fn go_out(self: Arc<Self>, number: u64) {
        let state = &self.state;
        let (event, host, port, server, proxy, companion) = {
            let mut live = self.live.lock();
            let Some(live) = live.get_mut(&number) else { return };
            let upstream = live.verdict.opening.upstream.as_ref();
            let server = upstream.map_or_else(
                || (live.destination.clone(), live.port),
                |upstream| (upstream.host.clone(), upstream.port),
            );
            let companion = live.companion().cloned();
            let proxy = state.outside.proxy(&server.0).filter(|_| companion.is_none());
            live.is_proxied = proxy.is_some();
            (events::intent(&state.run, live), live.host(), live.port, server, proxy, companion)
        };
        let why = if state.control.record(event).await {
            let order = match &companion {
                Some(name) => self.to_companion(name, port).await,
                None => state.route(&server.0, server.1, proxy).await,
            };
            match order {
                Ok(order) => {
                    if let Some(live) = self.live.lock().get_mut(&number) {
                        live.may_connect = true;
                    }
                    self.send(message(number, order)).await;
                    return;
                }
                Err(why) => why,
            }
        } else {
            "the audit log takes no records".to_owned()
        };
        state.refuse(&host, port, "egress: address", &why);
        self.end_for(number, why).await;
    }
}

impl State {
    /// Returns the order to connect to a destination, or the reason that it cannot be reached.
    pub(crate) async fn route(
        &self,
        destination: &Destination,
        port: u16,
        proxy: Option<&UpstreamProxy>,
    ) -> Result<Body, String> {
        let Some(proxy) = proxy else {
            let found = self.look_up(destination).await?;
            return Ok(dial(&self.checked(found)?, port, None));
        };
        // The proxy resolves names, and so has to check their addresses.
        if let Destination::Address(address) = destination {
            self.checked(vec![*address])?;
        }
        let tunnel = Tunnel {
            authority: format!("{destination}:{port}"),
            authorization: proxy.authorization().to_owned(),
        };
        let addresses = self.look_up(&proxy.host).await;
        let addresses =
            addresses.map_err(|why| format!("the daemon's upstream proxy is not found: {why}"))?;
        Ok(dial(&addresses, proxy.port, Some(tunnel)))
    }

    /// Returns the addresses of a destination. They are not checked.
    async fn look_up(&self, destination: &Destination) -> Result<Vec<IpAddr>, String> {
        match destination {
            Destination::Address(address) => Ok(vec![*address]),
            Destination::Name(name) => self.outside.resolve(name).await.map_err(|error| {
                tracing::debug!(run = self.run, %name, %error, "a name was not resolved");
                format!("the name server has no address of {name}, or did not answer")
            }),
        }
    }

    /// Returns those of the addresses to which a connection may go, or the reason that there is none.
    fn checked(&self, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, String> {
        let (rules, block) = (self.control.rules(), self.table.lock().pool().block());
        let mut refused = None;
        let mut open: Vec<IpAddr> = Vec::new();
        for address in found {
            match rules.check(address, Some(block)) {
                Ok(()) if open.contains(&address) => {}
                Ok(()) => open.push(address),
                Err(range) => refused = refused.or(Some(format!("its address {address} is {range}"))),
            }
        }
        if open.is_empty() {
            return Err(refused.unwrap_or_else(|| "it has no address".to_owned()));
        }
        Ok(open)
    }
}
