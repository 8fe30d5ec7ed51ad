//! The connections of a run to hosts outside.

use maud::{Markup, html};
use wire::v1::connection::Phase;
use wire::v1::{Connection, Egress, RefusedHost};

use super::super::elements::{Part, call_link, facts, part, state, table};
use super::super::{figures, foreign};

/// Requests of a connection that are shown.
const REQUESTS: usize = 20;
/// Calls of a connection that are shown.
const CALLS: usize = 5;

/// Connections of a run, as the daemon keeps them.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    pub(crate) connections: Vec<Connection>,
    pub(crate) refused: Vec<RefusedHost>,
}

pub(crate) fn render(run: &str, egress: &Part<Egress>, connections: &Part<Connections>) -> Markup {
    html! {
        (super::head(run, "connections"))
        (part(egress, rules))
        h2 { "Connections" }
        (part(connections, |found| html! {
            @if found.connections.is_empty() { p { "None." } }
            // The newest first: the daemon has the oldest first.
            @else { (table("Connections, newest first", HEADS, found.connections.iter().rev().map(row))) }
            h2 { "Refused" }
            @if found.refused.is_empty() { p { "None." } }
            @else { (table("Hosts that were refused", REFUSED, found.refused.iter().rev().map(refused))) }
        }))
    }
}

const HEADS: &[&str] = &["Opened", "Host", "Scheme", "State", "Rule", "Requests", "Out", "In", "Calls"];

const REFUSED: &[&str] = &["Host", "Port", "Rule", "Reason", "Times", "Last"];

fn rules(egress: &Egress) -> Markup {
    html! {
        h2 { "Rules" }
        (foreign::block(&egress.words))
        (facts([("Digest", Some(foreign::line(&egress.digest)))]))
    }
}

fn row(connection: &Connection) -> Vec<Markup> {
    let words = match connection.phase() {
        Phase::Unspecified => "not known".to_owned(),
        known => figures::word(known.as_str_name()),
    };
    vec![
        figures::moment(connection.opened_at.as_ref()),
        html! {
            (foreign::line(&connection.host)) ":" (connection.port)
            @if !connection.server_name.is_empty() && connection.server_name != connection.host {
                " as " (foreign::line(&connection.server_name))
            }
            @if !connection.address.is_empty() { " at " (foreign::line(&connection.address)) }
            @if !connection.upstream.is_empty() { " to " (foreign::line(&connection.upstream)) }
            @if !connection.companion.is_empty() { " from the companion " (foreign::line(&connection.companion)) }
        },
        foreign::line(&connection.scheme),
        html! { (state(&words)) @if !connection.end.is_empty() { " " (foreign::line(&connection.end)) } },
        html! {
            (foreign::line(&connection.rule))
            @if !connection.injected.is_empty() { " with the secret " (foreign::line(&connection.injected.join(", "))) }
        },
        html! {
            @for request in connection.requests.iter().take(REQUESTS) {
                div { (foreign::line(&format!("{} {}", request.method, request.path))) @if request.status > 0 { " " (request.status) } }
            }
            @if connection.requests.len() > REQUESTS { (connection.requests.len() - REQUESTS) " more" }
        },
        html! { (figures::size(connection.bytes_out)) },
        html! { (figures::size(connection.bytes_in)) },
        html! { @for call in connection.call_ids.iter().take(CALLS) { (call_link(call)) " " } },
    ]
}

fn refused(host: &RefusedHost) -> Vec<Markup> {
    vec![
        html! {
            (foreign::line(&host.host))
            @if !host.companion.is_empty() { " from the companion " (foreign::line(&host.companion)) }
        },
        html! { @if host.port > 0 { (host.port) } @else { "name" } },
        foreign::line(&host.rule),
        foreign::line(&host.reason),
        html! { (host.count) },
        figures::moment(host.last_at.as_ref()),
    ]
}

#[cfg(test)]
mod tests {
    use wire::v1::HttpRequest;

    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn texts_of_connections_are_harmless() {
        let hostile = || HOSTILE.to_owned();
        let connection = Connection {
            host: hostile(),
            scheme: hostile(),
            rule: hostile(),
            end: hostile(),
            server_name: format!("{HOSTILE}."),
            address: hostile(),
            upstream: hostile(),
            injected: vec![hostile()],
            call_ids: vec![hostile()],
            requests: vec![
                HttpRequest { method: hostile(), path: hostile(), ..Default::default() };
                REQUESTS + 1
            ],
            ..Default::default()
        };
        let refused = RefusedHost {
            host: hostile(),
            rule: hostile(),
            reason: hostile(),
            companion: hostile(),
            ..Default::default()
        };
        let found = Connections { connections: vec![connection], refused: vec![refused] };
        let egress = Egress { words: hostile(), digest: hostile(), ..Default::default() };
        assert_harmless(&render(HOSTILE, &Ok(egress), &Ok(found)));
        assert_harmless(&render(HOSTILE, &Err(hostile()), &Err(hostile())));
    }
}
