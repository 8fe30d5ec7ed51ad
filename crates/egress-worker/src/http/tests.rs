use egress_rules::PathPattern;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Request};
use wire::worker::v1::connection_ended::Cause;

use super::requests::remove_alike;
use super::rule::Rule;
use crate::orders::{Inspect, Scheme, Upstream};

fn rule(name: &str, destination: &str) -> Rule {
    with_methods(name, destination, &["GET"])
}

fn inspect(name: &str) -> Inspect {
    Inspect {
        scheme: Scheme::Http,
        name: name.to_owned(),
        methods: Vec::new(),
        paths: Vec::new(),
        upstream: None,
        is_opened: false,
        asks: false,
        meters: false,
        is_git: false,
    }
}

fn with_methods(name: &str, destination: &str, methods: &[&str]) -> Rule {
    let methods = methods.iter().map(|method| (*method).to_owned()).collect();
    Rule::new(Inspect { methods, ..inspect(name) }, destination.parse().unwrap())
}

fn check(rule: &Rule, method: &str, target: &str, hosts: &[&str]) -> Option<Cause> {
    let mut request = Request::builder().method(method).uri(target);
    for host in hosts {
        request = request.header("host", *host);
    }
    rule.check(&request.body(()).unwrap()).err().map(|refused| refused.cause)
}

#[test]
fn a_request_has_exactly_the_host_of_the_rule() {
    let rule = rule("files.example.org", "11.0.0.7:8080");
    for host in ["files.example.org", "files.example.org:8080", "FILES.example.ORG"] {
        assert_eq!(check(&rule, "GET", "/", &[host]), None, "{host}");
    }
    for hosts in [
        &[][..],
        &[""],
        &["files.example.org", "files.example.org"],
        &["files.example.org", "other.example.org"],
        &["other.example.org"],
        &["files.example.org."],
        &["files.example.org:80"],
        &["files.example.org:"],
        &["files.example.org:8080:8080"],
        &["files.example.org, other.example.org"],
        &["files.example.org@other.example.org"],
        &["files.example.org/"],
        &["xfiles.example.org"],
        &["11.0.0.7"],
    ] {
        assert_eq!(check(&rule, "GET", "/", hosts), Some(Cause::WrongHost), "{hosts:?}");
    }
}

#[test]
fn a_target_in_absolute_form_agrees_with_the_rule() {
    let rule = rule("files.example.org", "11.0.0.7:8080");
    let host = ["files.example.org"];
    for target in ["http://files.example.org/", "http://Files.example.org:8080/a"] {
        assert_eq!(check(&rule, "GET", target, &host), None, "{target}");
    }
    for target in [
        "http://other.example.org/",
        "https://files.example.org/",
        "http://files.example.org:80/",
        "http://user@files.example.org/",
        "files.example.org:8080",
    ] {
        assert_eq!(check(&rule, "GET", target, &host), Some(Cause::WrongHost), "{target}");
    }
}

#[test]
fn methods_that_the_rule_lacks_are_refused() {
    let rule = rule("files.example.org", "11.0.0.7:8080");
    for method in ["POST", "get", "DELETE", "CONNECT"] {
        let refused = check(&rule, method, "/", &["files.example.org"]);
        assert_eq!(refused, Some(Cause::WrongMethod), "{method}");
    }
}

#[test]
fn a_rule_for_an_address_has_the_address_as_its_host() {
    assert_eq!(check(&rule("", "192.0.2.1:80"), "GET", "/", &["192.0.2.1"]), None);
    assert_eq!(check(&rule("", "[2001:db8::1]:80"), "GET", "/", &["[2001:db8::1]:80"]), None);
    assert_eq!(check(&rule("", "192.0.2.1:80"), "GET", "/", &["files.example.org"]), Some(Cause::WrongHost));
}

/// Returns the fields of a request after the check, or the cause of its refusal.
fn upgrade(rule: &Rule, asked: &[&str]) -> Result<(bool, HeaderMap), Cause> {
    let mut request = Request::builder().header("connection", "Upgrade, HTTP2-Settings");
    for protocol in asked {
        request = request.header("upgrade", *protocol);
    }
    let mut fields = request.body(()).unwrap().headers().clone();
    let upgrade = rule.upgrade(&mut fields).map_err(|refused| refused.cause)?;
    Ok((upgrade, fields))
}

#[test]
fn only_a_websocket_may_change_the_protocol() {
    let rule = with_methods("files.example.org", "11.0.0.7:8080", &[]);
    for asked in ["websocket", "WebSocket"] {
        let (is_upgrade, fields) = upgrade(&rule, &[asked]).unwrap();
        assert!(is_upgrade && fields.len() == 2, "{fields:?}");
    }
    for asked in [&["h2c"][..], &["websocket, h2c"], &["websocket", "h2c"], &["TLS/1.0"], &[""]] {
        let (is_upgrade, fields) = upgrade(&rule, asked).unwrap();
        assert!(!is_upgrade && fields.is_empty(), "{fields:?}");
    }
    let (is_upgrade, fields) = upgrade(&rule, &[]).unwrap();
    assert!(!is_upgrade && fields.len() == 1, "{fields:?}");
}

#[test]
fn a_rule_with_methods_has_no_websocket() {
    let rule = rule("files.example.org", "11.0.0.7:8080");
    assert_eq!(upgrade(&rule, &["websocket"]), Err(Cause::WrongMethod));
    assert_eq!(upgrade(&rule, &["h2c"]), Ok((false, HeaderMap::new())));
}

#[test]
fn a_path_matches_a_pattern_of_each_list() {
    let list = |patterns: &[&str]| {
        patterns.iter().map(|pattern| PathPattern::parse(pattern).unwrap()).collect::<Vec<_>>()
    };
    let paths = vec![list(&["/v1/*", "/health"]), list(&["/*", "/v1/models"])];
    let rule = Rule::new(Inspect { paths, ..inspect("files.example.org") }, "11.0.0.7:80".parse().unwrap());
    let host = ["files.example.org"];
    for target in ["/v1/models", "/v1/a/b?x=../y", "/health", "http://files.example.org/v1/x"] {
        assert_eq!(check(&rule, "GET", target, &host), None, "{target}");
    }
    for target in ["/", "/v2/models", "/v1/../v2", "/v1/%2e%2e/v2", "/v1//x", "/v1/a%2fb", "*", "/health/"] {
        assert_eq!(check(&rule, "OPTIONS", target, &host), Some(Cause::WrongPath), "{target}");
    }
}

#[test]
fn a_rule_that_counts_tokens_or_is_for_git_has_no_websocket() {
    let meters = Inspect { meters: true, ..inspect("files.example.org") };
    let git = Inspect { is_git: true, ..inspect("files.example.org") };
    for inspect in [meters, git] {
        let rule = Rule::new(inspect, "11.0.0.7:80".parse().unwrap());
        assert_eq!(upgrade(&rule, &["websocket"]), Err(Cause::WrongMethod));
    }
}

#[test]
fn a_request_over_http2_has_the_host_of_the_rule_wherever_it_has_one() {
    let opened = Inspect { scheme: Scheme::Https, is_opened: true, ..inspect("files.example.org") };
    let rule = Rule::new(opened, "11.0.0.7:443".parse().unwrap());
    let check = |target: &str, hosts: &[&str]| {
        let mut request = Request::builder().version(hyper::Version::HTTP_2).uri(target);
        for host in hosts {
            request = request.header("host", *host);
        }
        rule.check(&request.body(()).unwrap()).err().map(|refused| refused.cause)
    };
    let ours = "https://files.example.org/a";
    assert_eq!(check(ours, &[]), None);
    assert_eq!(check("https://files.example.org:443/a", &["Files.example.org"]), None);
    assert_eq!(check("/a", &["files.example.org"]), None);
    for (target, hosts) in [
        ("/a", &[][..]),
        ("https://other.example.org/a", &[]),
        ("http://files.example.org/a", &[]),
        (ours, &["other.example.org"]),
        (ours, &["files.example.org", "files.example.org"]),
    ] {
        assert_eq!(check(target, hosts), Some(Cause::WrongHost), "{target} {hosts:?}");
    }
}

#[test]
fn a_path_does_not_leave_that_of_an_upstream() {
    let to = |path: &str| {
        let upstream =
            Upstream { tls: true, host: "api.example.org".to_owned(), port: 443, path: path.to_owned() };
        let inspect = Inspect { upstream: Some(upstream), ..inspect("model.internal") };
        Rule::new(inspect, "11.0.0.7:80".parse().unwrap())
    };
    for target in ["/../admin", "/%2e%2e/admin", "/v1/../../admin", "/..%2fadmin", "//admin"] {
        assert_eq!(
            check(&to("/base"), "GET", target, &["model.internal"]),
            Some(Cause::WrongPath),
            "{target}"
        );
        assert_eq!(check(&to(""), "GET", target, &["model.internal"]), None, "{target}");
    }
    assert_eq!(check(&to("/base"), "GET", "/v1/a?b=../c", &["model.internal"]), None);
}

#[test]
fn a_header_does_not_bring_another_method_or_another_path() {
    let paths = vec![vec![PathPattern::parse("/v1/*").unwrap()]];
    let with_paths = Inspect { paths, ..inspect("files.example.org") };
    let git = Inspect { is_git: true, ..inspect("files.example.org") };
    let rule_of = |inspect: Inspect| Rule::new(inspect, "11.0.0.7:80".parse().unwrap());
    let check = |rule: &Rule, name: &str, value: &str| {
        let request = Request::post("/v1/a").header("host", "files.example.org").header(name, value);
        rule.check(&request.body(()).unwrap()).err().map(|refused| refused.cause)
    };
    let posts = with_methods("files.example.org", "11.0.0.7:80", &["POST", "GET"]);
    let (none, paths, git) = (rule_of(inspect("files.example.org")), rule_of(with_paths), rule_of(git));
    for name in ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_Method_Override"] {
        assert_eq!(check(&posts, name, "DELETE"), Some(Cause::WrongMethod), "{name}");
        assert_eq!(check(&posts, name, "get"), None, "{name}");
        assert_eq!(check(&git, name, "GET"), Some(Cause::WrongMethod), "{name}");
        assert_eq!((check(&none, name, "DELETE"), check(&paths, name, "DELETE")), (None, None), "{name}");
    }
    for name in ["X-Original-URL", "x-rewrite-url", "X_Original_URL"] {
        assert_eq!(check(&paths, name, "/admin"), Some(Cause::WrongPath), "{name}");
        assert_eq!(check(&git, name, "/admin"), Some(Cause::WrongPath), "{name}");
        assert_eq!((check(&none, name, "/admin"), check(&posts, name, "/admin")), (None, None), "{name}");
    }
}

#[test]
fn a_header_that_a_server_may_read_as_the_one_that_is_set_is_removed() {
    let names = ["x-api-key", "X_Api-Key", "x_api_key", "x-api-key-2", "xapikey"].map(str::to_lowercase);
    for set in ["x-api-key", "x_api_key"] {
        let mut fields = HeaderMap::new();
        for name in &names {
            fields.append(HeaderName::try_from(name).unwrap(), HeaderValue::from_static("own"));
        }
        remove_alike(&mut fields, &HeaderName::from_static(set));
        let mut left: Vec<&str> = fields.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["x-api-key-2", "xapikey"], "{set}");
    }
}
