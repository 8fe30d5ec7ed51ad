//! Reads the files back.

use std::collections::BTreeMap;

use super::*;
use crate::testing::{front, listed, named};

fn read(fleet: &Fleet) -> BTreeMap<&'static str, Value> {
    let files = files(fleet, &front(), &"/etc/envoy".parse().unwrap()).unwrap();
    assert_eq!(files.last().unwrap().0, "envoy.json");
    files.into_iter().map(|(name, text)| (name, serde_json::from_str(&text).unwrap())).collect()
}

/// The cluster that a request goes to by the routes in their order; `None`: it is answered.
fn cluster_of(routes: &Value, path: &str, node: Option<&str>) -> Option<String> {
    let routes = routes["resources"][0]["virtual_hosts"][0]["routes"].as_array().unwrap();
    let found = routes.iter().find(|route| {
        let rule = &route["match"];
        let path_matches = rule["path"].as_str().is_none_or(|exact| exact == path);
        let header = &rule["headers"][0];
        let exact = header["string_match"]["exact"].as_str();
        let header_matches = match (header["name"].as_str(), exact) {
            (None, _) => true,
            (Some(name), exact) => {
                assert_eq!(name, "cofferdam-node");
                node.is_some_and(|node| exact.is_none_or(|exact| exact == node))
            }
        };
        path_matches && header_matches
    });
    found.unwrap()["route"]["cluster"].as_str().map(str::to_owned)
}

#[test]
fn requests_go_by_the_header_then_by_the_method() {
    let files = read(&listed());
    let routes = &files["routes.json"];
    let list = "/cofferdam.v1.RunService/ListRuns";
    for (path, node, cluster) in [
        (list, Some("1"), Some("node-1")),
        (CREATE_RUN, Some("20"), Some("node-20")),
        (CREATE_RUN, None, Some("create")),
        (list, None, Some("any")),
        (list, Some("2"), None),
        (list, Some("1,20"), None),
        (CREATE_RUN, Some(""), None),
    ] {
        assert_eq!(cluster_of(routes, path, node).as_deref(), cluster, "{path} {node:?}");
    }
}

#[test]
fn clusters_have_the_nodes_their_health_and_their_weights() {
    let files = read(&listed());
    let clusters = files["clusters.json"]["resources"].as_array().unwrap();
    let shown: Vec<_> = clusters
        .iter()
        .map(|cluster| {
            let hosts = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array().unwrap();
            let host = |host: &Value| {
                let endpoint = &host["endpoint"];
                let address = &endpoint["address"]["socket_address"];
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let name = text(&endpoint["hostname"]);
                format!("{} {name} {}", text(&address["address"]), host["load_balancing_weight"])
            };
            let health = &cluster["health_checks"][0]["grpc_health_check"]["service_name"];
            let names = (cluster["name"].as_str().unwrap(), health.as_str().unwrap());
            (names, hosts.iter().map(host).collect::<Vec<_>>())
        })
        .collect();
    let one = "node-1.example.org node-1.example.org 3".to_owned();
    let twenty = "192.0.2.20 node-20.example.org 1".to_owned();
    let expected = [
        (("create", CREATION), vec![one.clone(), twenty.clone()]),
        (("any", LIVENESS), vec![one.clone(), twenty.clone()]),
        (("node-1", LIVENESS), vec![one]),
        (("node-20", LIVENESS), vec![twenty]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn both_sides_show_and_check_certificates() {
    let files = read(&listed());
    for cluster in files["clusters.json"]["resources"].as_array().unwrap() {
        let tls = &cluster["transport_socket"]["typed_config"];
        assert_eq!((&tls["auto_host_sni"], &tls["auto_sni_san_validation"]), (&json!(true), &json!(true)));
        let common = &tls["common_tls_context"];
        assert_eq!(common["validation_context_sds_secret_config"]["name"], "nodes");
        assert_eq!(common["tls_certificate_sds_secret_configs"][0]["name"], "balancer");
        assert_eq!(cluster["common_lb_config"]["healthy_panic_threshold"]["value"], 0);
    }
    let chain = &files["envoy.json"]["static_resources"]["listeners"][0]["filter_chains"][0];
    assert_eq!(chain["transport_socket"]["typed_config"]["require_client_certificate"], true);
    let internal = &chain["filters"][0]["typed_config"]["internal_address_config"];
    assert_eq!(internal["cidr_ranges"], json!([{ "address_prefix": "255.255.255.255", "prefix_len": 32 }]));
    let key = &files["balancer.json"]["resources"][0]["tls_certificate"]["private_key"]["filename"];
    assert_eq!(key, "/etc/balancer/node tls/key.pem");
    let authority = &files["clients.json"]["resources"][0]["validation_context"]["trusted_ca"]["filename"];
    assert_eq!(authority, "/etc/balancer/tls/ca.pem");
}

#[test]
fn each_file_that_is_named_is_there() {
    let files = read(&listed());
    let mut named = Vec::new();
    let mut rest: Vec<&Value> = files.values().collect();
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                named.extend(fields.get("path_config_source").map(|source| &source["path"]));
                rest.extend(fields.values());
            }
            Value::Array(items) => rest.extend(items),
            _ => {}
        }
    }
    assert!(named.len() >= 6);
    for path in named {
        let file = path.as_str().unwrap().strip_prefix("/etc/envoy/").unwrap();
        assert!(files.contains_key(file), "{file}");
    }
}

#[test]
fn a_name_with_addresses_is_followed_and_a_service_refused() {
    let files = read(&named("fleet.example.org"));
    let pool = &files["clusters.json"]["resources"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"];
    let address = json!({ "socket_address": { "address": "fleet.example.org", "port_value": 7443 } });
    assert_eq!(*pool, json!([{ "endpoint": { "address": address, "hostname": "fleet.example.org" } }]));
    assert_eq!(cluster_of(&files["routes.json"], "/x", Some("2")).as_deref(), Some("node-2"));
    let at = "/etc/envoy".parse().unwrap();
    let service = super::files(&named("_cofferd._tcp.fleet.example.org"), &front(), &at);
    assert_eq!(service, Err(NoServices));
}
