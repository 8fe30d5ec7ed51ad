//! The configuration of Envoy, as files of one directory.
//!
//! Envoy reads `envoy.json` once. It watches the others, and takes one that is replaced by another file (rename(2))
//! without a new process: streams go on, also those to a node that is gone from the list.

use serde_json::{Value, json};

use crate::fleet::{Fleet, Node, Pool};
use crate::names::{Directory, DnsName};
use crate::{
    CONNECTIONS, CREATE_RUN, CREATION, Front, LIVENESS, NO_NODE, STREAM_WINDOW, STREAMS, UNKNOWN_NODE,
};

const CLUSTER: &str = "config.cluster.v3.Cluster";
const ROUTES: &str = "config.route.v3.RouteConfiguration";
const SECRET: &str = "extensions.transport_sockets.tls.v3.Secret";
const UPSTREAM_TLS: &str = "extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const DOWNSTREAM_TLS: &str = "extensions.transport_sockets.tls.v3.DownstreamTlsContext";
const HTTP_OPTIONS: &str = "extensions.upstreams.http.v3.HttpProtocolOptions";
const MANAGER: &str = "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "extensions.filters.http.router.v3.Router";
const OTHER_HOST: &str = "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
const MOST_CONNECTIONS: &str =
    "extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig";

/// Returns the files of the directory `at`, by name: first those that `envoy.json` names, then itself.
pub fn files(
    fleet: &Fleet,
    front: &Front,
    at: &Directory,
) -> Result<Vec<(&'static str, String)>, NoServices> {
    let files = [
        ("clusters.json", resources(&clusters(fleet, at)?)),
        ("routes.json", resources(&[routes(fleet)])),
        ("listener.json", resources(&[certificate("listener", &front.tls)])),
        ("clients.json", resources(&[authority("clients", &front.tls)])),
        ("balancer.json", resources(&[certificate("balancer", &front.node_tls)])),
        ("nodes.json", resources(&[authority("nodes", &front.node_tls)])),
        ("envoy.json", bootstrap(front, at)),
    ];
    Ok(files.into_iter().map(|(name, file)| (name, format!("{file:#}\n"))).collect())
}

/// Refusal of a DNS name that Envoy cannot follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Envoy reads no SRV records: give a name with addresses (A or AAAA), or a list of nodes")]
pub struct NoServices;

/// Returns a message with the name of its type.
fn typed(name: &str, mut message: Value) -> Value {
    message["@type"] = format!("type.googleapis.com/envoy.{name}").into();
    message
}

fn resources(resources: &[Value]) -> Value {
    json!({ "resources": resources })
}

/// Returns the source of resources in a file that Envoy watches.
fn watched(at: &Directory, file: &'static str) -> Value {
    json!({ "path_config_source": { "path": at.file(file) }, "resource_api_version": "V3" })
}

fn certificate(name: &str, tls: &Directory) -> Value {
    let pair = json!({
        "certificate_chain": { "filename": tls.file("cert.pem") },
        "private_key": { "filename": tls.file("key.pem") },
        "watched_directory": { "path": tls.to_string() },
    });
    typed(SECRET, json!({ "name": name, "tls_certificate": pair }))
}

fn authority(name: &str, tls: &Directory) -> Value {
    let context = json!({
        "trusted_ca": { "filename": tls.file("ca.pem") },
        "watched_directory": { "path": tls.to_string() },
    });
    typed(SECRET, json!({ "name": name, "validation_context": context }))
}

fn tls(at: &Directory, certificate: (&str, &'static str), authority: (&str, &'static str)) -> Value {
    let secret = |(name, file)| json!({ "name": name, "sds_config": watched(at, file) });
    json!({
        "alpn_protocols": ["h2"],
        "tls_params": { "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" },
        "tls_certificate_sds_secret_configs": [secret(certificate)],
        "validation_context_sds_secret_config": secret(authority),
    })
}

fn http2() -> Value {
    json!({
        "max_concurrent_streams": STREAMS,
        "initial_stream_window_size": STREAM_WINDOW,
        "initial_connection_window_size": 2 * STREAM_WINDOW,
        "connection_keepalive": { "interval": "30s", "timeout": "10s" },
    })
}

fn clusters(fleet: &Fleet, at: &Directory) -> Result<Vec<Value>, NoServices> {
    let listed = |node: &Node| {
        json!({
            "load_balancing_weight": node.weight,
            "endpoint": endpoint(&node.endpoint.host.to_string(), node.endpoint.port, &node.server_name.to_string()),
        })
    };
    let pool: Vec<Value> = match &fleet.pool {
        Pool::Listed => fleet.nodes.iter().map(listed).collect(),
        Pool::Named { name: DnsName::Service(..), .. } => return Err(NoServices),
        Pool::Named { name: DnsName::Addresses(host), port, .. } => {
            vec![json!({ "endpoint": endpoint(&host.to_string(), *port, &host.to_string()) })]
        }
    };
    let mut create = cluster("create", &pool, CREATION, at);
    create["outlier_detection"] = ejection();
    let mut clusters = vec![create, cluster("any", &pool, LIVENESS, at)];
    clusters.extend(fleet.nodes.iter().map(|node| {
        let mut cluster = cluster(&name_of(node), &[listed(node)], LIVENESS, at);
        // A host that lost its power closes no connection.
        cluster["close_connections_on_host_health_failure"] = true.into();
        cluster
    }));
    Ok(clusters)
}

fn name_of(node: &Node) -> String {
    format!("node-{}", node.id)
}

/// Returns a host. The certificate must have `server_name`.
fn endpoint(host: &str, port: u16, server_name: &str) -> Value {
    json!({
        "address": { "socket_address": { "address": host, "port_value": port } },
        "hostname": server_name,
    })
}

fn cluster(name: &str, hosts: &[Value], health: &str, at: &Directory) -> Value {
    let options = json!({ "explicit_http_config": { "http2_protocol_options": http2() } });
    let tls = json!({
        "auto_host_sni": true,
        "auto_sni_san_validation": true,
        "common_tls_context": tls(at, ("balancer", "balancer.json"), ("nodes", "nodes.json")),
    });
    let cluster = json!({
        "name": name,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_PREFERRED",
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        // Without healthy hosts Envoy would send to the others.
        "common_lb_config": { "healthy_panic_threshold": { "value": 0 } },
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": hosts }] },
        "health_checks": [{
            "grpc_health_check": { "service_name": health },
            "timeout": "1s",
            "interval": "0.5s",
            "no_traffic_interval": "0.5s",
            "unhealthy_threshold": 2,
            "healthy_threshold": 1,
        }],
        "circuit_breakers": { "thresholds": [{
            "max_connections": CONNECTIONS,
            "max_pending_requests": CONNECTIONS,
            "max_requests": CONNECTIONS * STREAMS,
            "max_retries": STREAMS,
        }] },
        "upstream_connection_options": {
            "tcp_keepalive": { "keepalive_time": 30, "keepalive_interval": 10, "keepalive_probes": 3 },
        },
        "transport_socket": { "name": "tls", "typed_config": typed(UPSTREAM_TLS, tls) },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(HTTP_OPTIONS, options),
        },
    });
    typed(CLUSTER, cluster)
}

/// Returns the rules by which a node that cannot be reached, or says UNAVAILABLE in a row, makes no runs for a while.
///
/// Answers that a client can cause, such as errors of its request, do not count, but for DEADLINE_EXCEEDED, which is a 504 to
/// Envoy.
fn ejection() -> Value {
    json!({
        "interval": "1s",
        "base_ejection_time": "10s",
        "max_ejection_percent": 50,
        "split_external_local_origin_errors": true,
        "consecutive_gateway_failure": 5,
        "enforcing_consecutive_gateway_failure": 100,
        "consecutive_local_origin_failure": 3,
        "enforcing_consecutive_local_origin_failure": 100,
        "enforcing_consecutive_5xx": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
    })
}

/// Returns the routes: a node's by the header, then runs that are created, then all others.
fn routes(fleet: &Fleet) -> Value {
    let header = |mut condition: Value| {
        condition["name"] = node_id::NODE_METADATA.into();
        json!({ "prefix": "/", "headers": [condition] })
    };
    let mut routes: Vec<Value> = fleet
        .nodes
        .iter()
        .map(|node| {
            let exact = header(json!({ "string_match": { "exact": node.id.to_string() } }));
            json!({ "match": exact, "route": to(&name_of(node)) })
        })
        .collect();
    let overwritten = |key, value| {
        let header = json!({ "key": key, "value": value });
        json!({ "header": header, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD" })
    };
    routes.push(json!({
        "match": header(json!({ "present_match": true })),
        "direct_response": { "status": 200 },
        // FAILED_PRECONDITION. The status of HTTP alone would become another one.
        "response_headers_to_add": [overwritten("grpc-status", "9"), overwritten("grpc-message", UNKNOWN_NODE)],
    }));
    routes.push(json!({ "match": { "path": CREATE_RUN }, "route": to("create") }));
    routes.push(json!({ "match": { "prefix": "/" }, "route": to("any") }));
    let host = json!({ "name": "fleet", "domains": ["*"], "routes": routes });
    typed(ROUTES, json!({ "name": "fleet", "virtual_hosts": [host] }))
}

/// Returns the way to a cluster: without time limits, because a stream may be silent until a person has decided.
fn to(cluster: &str) -> Value {
    json!({
        "cluster": cluster,
        "timeout": "0s",
        "idle_timeout": "0s",
        "retry_policy": {
            "retry_on": "connect-failure,refused-stream",
            "num_retries": 2,
            "host_selection_retry_max_attempts": 5,
            "retry_host_predicate": [{
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": typed(OTHER_HOST, json!({})),
            }],
        },
    })
}

fn bootstrap(front: &Front, at: &Directory) -> Value {
    let manager = json!({
        "stat_prefix": "fleet",
        "codec_type": "HTTP2",
        "use_remote_address": true,
        // Envoy obeys headers from internal addresses, such as one that has it retry. An empty list means all private
        // addresses, so this one is of no client.
        "internal_address_config": { "cidr_ranges": [{ "address_prefix": "255.255.255.255", "prefix_len": 32 }] },
        "forward_client_cert_details": "SANITIZE",
        "generate_request_id": false,
        "server_header_transformation": "PASS_THROUGH",
        "max_request_headers_kb": 16,
        "request_headers_timeout": "10s",
        "request_timeout": "0s",
        "stream_idle_timeout": "0s",
        "common_http_protocol_options": { "idle_timeout": "3600s" },
        "http2_protocol_options": http2(),
        "local_reply_config": { "mappers": [{
            "filter": { "response_flag_filter": { "flags": ["UH"] } },
            "body": { "inline_string": NO_NODE },
        }] },
        "rds": { "route_config_name": "fleet", "config_source": watched(at, "routes.json") },
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": typed(ROUTER, json!({ "suppress_envoy_headers": true })),
        }],
    });
    let tls = json!({
        "require_client_certificate": true,
        "common_tls_context": tls(at, ("listener", "listener.json"), ("clients", "clients.json")),
    });
    let (ip, port) = (front.listen.ip().to_string(), front.listen.port());
    let most = json!({ "max_active_downstream_connections": CONNECTIONS });
    json!({
        "node": { "id": "balancer", "cluster": "fleet" },
        "dynamic_resources": { "cds_config": watched(at, "clusters.json") },
        "static_resources": { "listeners": [{
            "name": "fleet",
            "address": { "socket_address": { "address": ip, "port_value": port } },
            "per_connection_buffer_limit_bytes": 2 * STREAM_WINDOW,
            "filter_chains": [{
                "transport_socket": { "name": "tls", "typed_config": typed(DOWNSTREAM_TLS, tls) },
                "transport_socket_connect_timeout": "5s",
                "filters": [{ "name": "http", "typed_config": typed(MANAGER, manager) }],
            }],
        }] },
        "overload_manager": { "resource_monitors": [{
            "name": "envoy.resource_monitors.global_downstream_max_connections",
            "typed_config": typed(MOST_CONNECTIONS, most),
        }] },
    })
}

#[cfg(test)]
mod tests;
