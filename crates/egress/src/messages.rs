//! Messages to the process.

use std::net::IpAddr;

use egress_rules::{Destination, PathPattern, Scheme, Upstream, Verdict};
use wire::worker::v1::inspect::Scheme as WireScheme;
use wire::worker::v1::to_egress::Body;
use wire::worker::v1::{Dial, EndConnection, Inspect, PathList, ToEgress, Tunnel, Upstream as WireUpstream};
use worker_protocol::address::MAX_ADDRESSES;
pub(crate) use worker_protocol::address::{address, octets};

/// Port of connections over HTTP, at which a refusal can be said in words.
const HTTP: u16 = 80;

pub(crate) fn message(id: u64, body: Body) -> ToEgress {
    ToEgress { id, body: Some(body) }
}

/// Returns the order to look at a connection as the verdict says. `None` if there is nothing to look at.
pub(crate) fn inspect(destination: &Destination, verdict: &Verdict) -> Option<Body> {
    let scheme = match verdict.scheme {
        // Requests of git are seen within TLS.
        Scheme::Https | Scheme::Git => WireScheme::Https,
        Scheme::Http => WireScheme::Http,
        Scheme::Tcp => return None,
    };
    let upstream = verdict.opening.upstream.as_ref().map(upstream);
    Some(look(destination, verdict, (scheme, verdict.opens_tls()), upstream))
}

/// Returns the order to look at a connection of a call, whose requests go over TLS to the host itself.
pub(crate) fn inspect_served(destination: &Destination, port: u16, verdict: &Verdict) -> Body {
    let host = Upstream { tls: true, host: destination.clone(), port, path: String::new() };
    look(destination, verdict, (WireScheme::Http, false), Some(upstream(&host)))
}

fn look(
    destination: &Destination,
    verdict: &Verdict,
    (scheme, open): (WireScheme, bool),
    upstream: Option<WireUpstream>,
) -> Body {
    let lists =
        verdict.opening.paths.iter().map(|list| PathList {
            patterns: list.iter().map(PathPattern::as_str).map(str::to_owned).collect(),
        });
    Body::Inspect(Inspect {
        scheme: scheme.into(),
        name: name(destination),
        methods: verdict.methods.iter().flatten().cloned().collect(),
        paths: lists.collect(),
        open,
        upstream,
        ask: verdict.asks_each_request(),
        meter: verdict.opening.is_metered,
        git: verdict.is_git(),
    })
}

fn upstream(upstream: &Upstream) -> WireUpstream {
    let Upstream { tls, host, port, path } = upstream;
    let host = match host {
        Destination::Name(name) => name.to_string(),
        // Without the brackets of a URL.
        Destination::Address(address) => address.to_string(),
    };
    WireUpstream { tls: *tls, host, port: (*port).into(), path: path.clone() }
}

/// Orders to read a request over HTTP, which gets a refusal as its response.
pub(crate) fn inspect_to_refuse(destination: &Destination) -> Body {
    let name = name(destination);
    Body::Inspect(Inspect { scheme: WireScheme::Http.into(), name, ..Inspect::default() })
}

/// Orders to connect, through the tunnel of a proxy at the addresses if there is one.
pub(crate) fn dial(addresses: &[IpAddr], port: u16, tunnel: Option<Tunnel>) -> Body {
    let addresses = addresses.iter().take(MAX_ADDRESSES).map(|address| octets(*address)).collect();
    Body::Dial(Dial { addresses, port: port.into(), tunnel, handle: 0 })
}

/// Orders the end of a connection. An empty text resets it.
pub(crate) fn end(http_body: impl Into<String>) -> Body {
    Body::End(EndConnection { http_body: http_body.into() })
}

fn name(destination: &Destination) -> String {
    match destination {
        Destination::Name(name) => name.to_string(),
        Destination::Address(_) => String::new(),
    }
}

/// Returns true if a refusal can be sent as a response.
pub(crate) fn speaks_http(destination: &Destination, port: u16, verdict: &Verdict) -> bool {
    matches!(destination, Destination::Name(_)) && (port == HTTP || verdict.scheme == Scheme::Http)
}

/// Returns the text of a refusal, for an agent.
pub(crate) fn words(host: &str, port: u16, verdict: &Verdict) -> String {
    format!("Cofferdam refused the connection to {host}:{port}. {} ({})\n", verdict.words, verdict.rule)
}
