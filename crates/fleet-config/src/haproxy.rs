//! The configuration of HAProxy, 2.6 or later, as one text.

use node_id::NODE_METADATA;

use crate::fleet::{Fleet, MAX_WEIGHT, Node, Pool};
use crate::health::{SERVING, request};
use crate::names::{DnsName, Host};
use crate::{
    CONNECTIONS, CREATE_RUN, CREATION, Front, LIVENESS, NO_NODE, STREAM_WINDOW, STREAMS, UNKNOWN_NODE,
};

/// Interval of the checks that tell if a node lives, and of those that tell if it makes runs.
const LIVES_EVERY: &str = "500ms";
const CREATES_EVERY: &str = "1s";

/// Maximum number of connections of one address, so that none takes the places of all others.
const ADDRESS_CONNECTIONS: u32 = CONNECTIONS / 4;
/// Maximum number of its connections without a finished TLS handshake, which clients without a certificate can hold.
const ADDRESS_HANDSHAKES: u32 = CONNECTIONS / 64;
/// Address of a client, as it is counted: a network of 64 bits is one of IPv6.
const ADDRESS: &str = "src,ipmask(32,64)";
/// Name of the table that counts the connections of an address with a finished handshake.
const PROVEN: &str = "proven";

/// Returns the text.
pub fn text(fleet: &Fleet, front: &Front) -> String {
    let mut lines = vec!["# Written by `coffer fleet haproxy`.".to_owned()];
    lines.extend(settings());
    lines.extend(frontend(fleet, front));
    lines.extend(proven());
    let scale = scale(fleet);
    match &fleet.pool {
        Pool::Listed => {
            lines.extend(backend("create", Some(CREATION), true));
            lines.extend(fleet.nodes.iter().map(|node| {
                let agent = node.agent.as_ref().map(|agent| {
                    format!("{} agent-addr {} agent-port {}", agent_check(), agent.host, agent.port)
                });
                let name = node.server_name.to_string();
                server(
                    node,
                    (front, scale),
                    &format!("{}{}", checked(&name, CREATES_EVERY), agent.unwrap_or_default()),
                )
            }));
            lines.extend(backend("any", None, true));
            let tracked =
                |node: &Node| server(node, (front, scale), &format!(" track {0}/{0}", name_of(node)));
            lines.extend(fleet.nodes.iter().map(tracked));
        }
        Pool::Named { name, port, agent_port } => {
            let agent = agent_port.map(|port| format!("{} agent-port {port}", agent_check()));
            for (backend_name, health, every, agent) in
                [("create", CREATION, CREATES_EVERY, agent), ("any", LIVENESS, LIVES_EVERY, None)]
            {
                lines.extend(backend(backend_name, Some(health), true));
                lines.push(template(
                    (name, *port),
                    fleet.nodes.len(),
                    front,
                    every,
                    &agent.unwrap_or_default(),
                ));
            }
        }
    }
    for node in &fleet.nodes {
        lines.extend(backend(&name_of(node), Some(LIVENESS), false));
        let name = node.server_name.to_string();
        // A host that lost its power closes no connection.
        let check = format!("{} on-marked-down shutdown-sessions", checked(&name, LIVES_EVERY));
        let resolved = if is_followed(fleet, node) { RESOLVED } else { "" };
        lines.push(server(node, (front, scale), &format!("{resolved}{check}")));
    }
    if matches!(fleet.pool, Pool::Named { .. }) {
        lines.extend(resolvers());
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Options of a server whose address DNS may change.
const RESOLVED: &str = " resolvers dns init-addr none";

fn name_of(node: &Node) -> String {
    format!("node-{}", node.id)
}

/// Returns true if DNS is asked for the node's address while HAProxy runs.
///
/// Names of a list are looked up at its start, as the host does, with `/etc/hosts`.
fn is_followed(fleet: &Fleet, node: &Node) -> bool {
    matches!((&fleet.pool, &node.endpoint.host), (Pool::Named { .. }, Host::Name(_)))
}

fn settings() -> Vec<String> {
    let failure = |status: u16| {
        format!(
            "\n    http-error status {status} file /dev/null hdr grpc-status 14 hdr grpc-message 'the node does not answer'"
        )
    };
    let failures = [502, 503, 504].map(failure).concat();
    let settings = format!(
        "
global
    maxconn {CONNECTIONS}
    tune.h2.max-concurrent-streams {STREAMS}
    tune.h2.initial-window-size {STREAM_WINDOW}
    ssl-default-bind-options ssl-min-ver TLSv1.3
    ssl-default-server-options ssl-min-ver TLSv1.3

defaults
    mode http
    # A stream may be silent until a person has decided. TCP finds out if a peer is gone.
    timeout client 24d
    timeout server 24d
    # Before 3.1 a handshake has the time of the client: the frontend bounds how many of an address are under way.
.if version_atleast(3.1)
    timeout client-hs 10s
.endif
    option clitcpka
    clitcpka-idle 30s
    clitcpka-intvl 10s
    clitcpka-cnt 3
    option srvtcpka
    srvtcpka-idle 30s
    srvtcpka-intvl 10s
    srvtcpka-cnt 3
    timeout connect 1s
    timeout check 1s
    timeout queue 5s
    timeout http-request 10s
    timeout http-keep-alive 1h
    # A request is sent again only if no connection could be made.
    retries 2
    retry-on conn-failure
    option redispatch 1
    # What was on its way to a node that dies fails in the form of gRPC.{failures}
    # Requests of several clients share a connection: a node has few connections for one address.
    http-reuse always
    default-server fall 2 rise 1"
    );
    settings.lines().map(str::to_owned).collect()
}

fn frontend(fleet: &Fleet, front: &Front) -> Vec<String> {
    let value = format!("req.fhdr({NODE_METADATA})");
    let count = format!("req.fhdr_cnt({NODE_METADATA})");
    let unknown = answer(9, UNKNOWN_NODE);
    let mut lines = vec![
        String::new(),
        "frontend fleet".to_owned(),
        format!(
            "    bind {} ssl crt '{}' ca-file '{}' verify required alpn h2",
            front.listen,
            front.tls.file("cert.pem"),
            front.tls.file("ca.pem")
        ),
        TABLE.to_owned(),
        format!("    tcp-request connection track-sc0 {ADDRESS}"),
        format!("    tcp-request connection reject if {{ sc0_conn_cur gt {ADDRESS_CONNECTIONS} }}"),
        format!("    tcp-request connection set-var(sess.{PROVEN}) {ADDRESS},table_conn_cur({PROVEN})"),
        format!("    tcp-request connection reject if {{ sc0_conn_cur,sub(sess.{PROVEN}) gt {ADDRESS_HANDSHAKES} }}"),
        format!("    tcp-request session track-sc1 {ADDRESS} table {PROVEN}"),
        "    http-after-response set-header content-type application/grpc if !{ res.hdr(content-type) -m found }"
            .to_owned(),
        format!("    acl names_a_node {count} gt 0"),
    ];
    // Several lines of one name are alternatives.
    lines.extend(fleet.nodes.iter().map(|node| format!("    acl known {value} -m str {}", node.id)));
    lines.push(format!("    http-request {unknown} if {{ {count} gt 1 }}"));
    lines.push(format!("    http-request {unknown} if names_a_node !known"));
    lines.extend(
        fleet
            .nodes
            .iter()
            .map(|node| format!("    use_backend {} if {{ {value} -m str {} }}", name_of(node), node.id)),
    );
    lines.push(format!("    use_backend create if {{ path -m str {CREATE_RUN} }}"));
    lines.push("    default_backend any".to_owned());
    lines
}

/// A table of connections by address.
const TABLE: &str = "    stick-table type ipv6 size 100k expire 1m store conn_cur";

/// Returns the section of the table of connections with a finished handshake. A section has one table.
fn proven() -> [String; 3] {
    [String::new(), format!("backend {PROVEN}"), TABLE.to_owned()]
}

/// Returns the action that answers with a status of gRPC.
fn answer(status: u8, message: &'static str) -> String {
    format!("return status 200 hdr grpc-status {status} hdr grpc-message '{message}'")
}

fn backend(name: &str, health: Option<&'static str>, is_shared: bool) -> Vec<String> {
    let mut lines = vec![String::new(), format!("backend {name}")];
    if is_shared {
        lines.push("    balance roundrobin".to_owned());
    }
    if let Some(service) = health {
        lines.push(format!(
            "    # Health of `{service}`: the request and the answer SERVING, as bytes of HTTP/2."
        ));
        lines.push("    option tcp-check".to_owned());
        lines.push("    tcp-check connect default".to_owned());
        lines.push(format!("    tcp-check send-binary {}", request(service)));
        lines.push(format!("    tcp-check expect binary {SERVING}"));
    }
    lines.push(format!("    http-request {} if {{ nbsrv eq 0 }}", answer(14, NO_NODE)));
    lines
}

/// Returns the options of a connection to a host whose certificate has `name`.
fn tls(front: &Front, name: &str) -> String {
    let (certificate, authority) = (front.node_tls.file("cert.pem"), front.node_tls.file("ca.pem"));
    format!(
        " ssl crt '{certificate}' ca-file '{authority}' verify required sni str({name}) verifyhost {name} alpn h2"
    )
}

fn checked(name: &str, every: &str) -> String {
    format!(" check inter {every} check-sni {name} check-alpn h2")
}

fn agent_check() -> &'static str {
    " agent-check agent-inter 1s"
}

/// Returns the factor by which weights are written.
///
/// HAProxy keeps the whole part of a weight that an agent check has changed, and a server of weight 0 gets no request.
fn scale(fleet: &Fleet) -> u16 {
    let largest = fleet.nodes.iter().map(|node| node.weight).max().unwrap_or(1);
    MAX_WEIGHT / largest.max(1)
}

fn server(node: &Node, (front, scale): (&Front, u16), options: &str) -> String {
    let (name, endpoint, weight) = (name_of(node), &node.endpoint, node.weight.saturating_mul(scale));
    format!(
        "    server {name} {endpoint} weight {weight}{}{options}",
        tls(front, &node.server_name.to_string())
    )
}

/// Returns as many servers as there may be nodes, each for one host that DNS has.
fn template((name, port): (&DnsName, u16), slots: usize, front: &Front, every: &str, agent: &str) -> String {
    let host = name.host().to_string();
    let target = match name {
        DnsName::Addresses(host) => format!("{host}:{port}"),
        DnsName::Service(service, _) => service.clone(),
    };
    let options = [RESOLVED, &tls(front, &host), &checked(&host, every), agent].concat();
    format!("    server-template node- 1-{slots} {target} weight {MAX_WEIGHT}{options}")
}

fn resolvers() -> Vec<String> {
    let resolvers = "
resolvers dns
    parse-resolv-conf
    accepted_payload_size 8192
    timeout resolve 1s
    timeout retry 1s
    hold valid 5s
    hold obsolete 10s";
    resolvers.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{front, listed, named};

    /// The lines of a section, without the blanks before them.
    fn section<'t>(text: &'t str, head: &str) -> Vec<&'t str> {
        let lines = text.lines().skip_while(|line| *line != head).skip(1);
        lines.take_while(|line| !line.is_empty()).map(str::trim).collect()
    }

    fn servers<'t>(text: &'t str, head: &str) -> Vec<&'t str> {
        section(text, head).into_iter().filter(|line| line.starts_with("server")).collect()
    }

    #[test]
    fn requests_go_by_the_header_then_by_the_method() {
        let text = text(&listed(), &front());
        let expected = [
            "bind 0.0.0.0:7443 ssl crt '/etc/balancer/tls/cert.pem' ca-file '/etc/balancer/tls/ca.pem' verify required alpn h2",
            "stick-table type ipv6 size 100k expire 1m store conn_cur",
            "tcp-request connection track-sc0 src,ipmask(32,64)",
            "tcp-request connection reject if { sc0_conn_cur gt 1024 }",
            "tcp-request connection set-var(sess.proven) src,ipmask(32,64),table_conn_cur(proven)",
            "tcp-request connection reject if { sc0_conn_cur,sub(sess.proven) gt 64 }",
            "tcp-request session track-sc1 src,ipmask(32,64) table proven",
            "http-after-response set-header content-type application/grpc if !{ res.hdr(content-type) -m found }",
            "acl names_a_node req.fhdr_cnt(cofferdam-node) gt 0",
            "acl known req.fhdr(cofferdam-node) -m str 1",
            "acl known req.fhdr(cofferdam-node) -m str 20",
            "http-request return status 200 hdr grpc-status 9 hdr grpc-message 'the balancer has no node with this number' if { req.fhdr_cnt(cofferdam-node) gt 1 }",
            "http-request return status 200 hdr grpc-status 9 hdr grpc-message 'the balancer has no node with this number' if names_a_node !known",
            "use_backend node-1 if { req.fhdr(cofferdam-node) -m str 1 }",
            "use_backend node-20 if { req.fhdr(cofferdam-node) -m str 20 }",
            "use_backend create if { path -m str /cofferdam.v1.RunService/CreateRun }",
            "default_backend any",
        ];
        assert_eq!(section(&text, "frontend fleet"), expected);
        assert_eq!(section(&text, "backend proven"), [expected[1]]);
    }

    #[test]
    fn backends_have_the_nodes_their_health_and_their_weights() {
        let text = text(&listed(), &front());
        let tls = |name: &str| {
            format!(
                "ssl crt '/etc/balancer/node tls/cert.pem' ca-file '/etc/balancer/node tls/ca.pem' verify required sni str({name}) verifyhost {name} alpn h2"
            )
        };
        let (one, twenty) = ("node-1.example.org", "node-20.example.org");
        let check = |name: &str, every: &str| format!("check inter {every} check-sni {name} check-alpn h2");
        let agent = "agent-check agent-inter 1s agent-addr 192.0.2.1 agent-port 7445";
        assert_eq!(
            servers(&text, "backend create"),
            [
                format!("server node-1 {one}:7443 weight 255 {} {} {agent}", tls(one), check(one, "1s")),
                format!("server node-20 192.0.2.20:7443 weight 85 {} {}", tls(twenty), check(twenty, "1s")),
            ]
        );
        assert_eq!(
            servers(&text, "backend any"),
            [
                format!("server node-1 {one}:7443 weight 255 {} track node-1/node-1", tls(one)),
                format!("server node-20 192.0.2.20:7443 weight 85 {} track node-20/node-20", tls(twenty)),
            ]
        );
        let down = "on-marked-down shutdown-sessions";
        assert_eq!(
            servers(&text, "backend node-20"),
            [format!(
                "server node-20 192.0.2.20:7443 weight 85 {} {} {down}",
                tls(twenty),
                check(twenty, "500ms")
            )]
        );
        for (head, health) in
            [("backend create", CREATION), ("backend node-1", LIVENESS), ("backend node-20", LIVENESS)]
        {
            let sent = format!("tcp-check send-binary {}", request(health));
            assert!(section(&text, head).contains(&sent.as_str()), "{head}");
        }
        assert!(!text.contains("resolvers"));
    }

    #[test]
    fn the_hosts_of_a_name_are_followed() {
        for (name, target) in [
            ("fleet.example.org", "fleet.example.org:7443"),
            ("_cofferd._tcp.fleet.example.org", "_cofferd._tcp.fleet.example.org"),
        ] {
            let text = text(&named(name), &front());
            let create = servers(&text, "backend create");
            assert_eq!(create.len(), 1);
            let begin =
                format!("server-template node- 1-2 {target} weight 256 resolvers dns init-addr none ssl ");
            assert!(create[0].starts_with(&begin), "{create:?}");
            assert!(create[0].contains("verifyhost fleet.example.org"), "{create:?}");
            assert!(create[0].ends_with("agent-check agent-inter 1s agent-port 7445"), "{create:?}");
            assert!(!servers(&text, "backend any")[0].contains("agent-check"));
            let node = servers(&text, "backend node-2");
            assert!(node[0].contains("verifyhost node-2.fleet.example.org"), "{node:?}");
            assert!(node[0].contains("resolvers dns"), "{node:?}");
            assert!(section(&text, "resolvers dns").contains(&"parse-resolv-conf"));
        }
    }
}
