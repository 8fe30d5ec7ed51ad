//! Checks each request before anything else of it is read, and closes each answer to other sites.
//!
//! A browser sends requests that other sites make it send. They are known by `Host` (a name that leads here, DNS rebinding), by
//! `Origin`, and by the fetch metadata that pages cannot set. A form also needs the secret of its session (`form.rs`).

use std::time::Duration;

use axum::extract::{Request, State as Extracted};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;
use tonic::codegen::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use tonic::codegen::http::{HeaderMap, Method, StatusCode, Uri};

use crate::State;
use crate::error::Problem;
use crate::nonce::StyleNonce;
use crate::origin::Origin;

const FETCH_SITE: &str = "sec-fetch-site";
const FETCH_MODE: &str = "sec-fetch-mode";
const FETCH_DEST: &str = "sec-fetch-dest";
/// Header of requests that a page makes by itself.
const REFRESH: &str = "cofferdam-refresh";

/// Time for an answer. A stream has its own end.
const ANSWER: Duration = Duration::from_secs(30);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Headers of each answer.
const CLOSED: [(HeaderName, &str); 10] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    // `no-referrer` would have browsers send `Origin: null` with our own forms, which are then refused (Fetch, "append a request
    // `Origin` header"). Other sites learn as little of an address by this one.
    (REFERRER_POLICY, "same-origin"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    (HeaderName::from_static("x-robots-tag"), "noindex"),
];

/// Serves a request that comes from this console or from its reader.
pub(crate) async fn guard(Extracted(state): Extracted<State>, request: Request, next: Next) -> Response {
    let origin = &state.0.doors.origin;
    let mut answer = match check(origin, request.method(), request.uri(), request.headers()) {
        Ok(()) => timeout(ANSWER, next.run(request)).await.unwrap_or_else(|_| {
            let message = "The daemon took longer than 30 s to answer.";
            Problem::Bad(StatusCode::GATEWAY_TIMEOUT, message).into_response()
        }),
        Err((status, message)) => Problem::Bad(status, message).into_response(),
    };
    let nonce = answer.extensions_mut().remove::<StyleNonce>();
    let headers = answer.headers_mut();
    for (name, value) in CLOSED {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Only the pages with a terminal have one.
    if let Some(policy) = nonce.and_then(|nonce| HeaderValue::from_str(&with_nonce(&nonce)).ok()) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    answer
}

/// Returns the policy of a page whose script makes style elements with a nonce.
fn with_nonce(nonce: &StyleNonce) -> String {
    POLICY.replace("style-src 'self'", &format!("style-src 'self' 'nonce-{}'", nonce.as_str()))
}

/// Returns true for a request that a page makes by itself, so that it does not show that a person is there.
pub(crate) fn is_own_request(headers: &HeaderMap) -> bool {
    headers.contains_key(REFRESH) || one(headers, "accept") == Some("text/event-stream")
}

/// Returns true if another site led the browser here.
///
/// The browser then sent no cookie, even if it has one, unless that site has another port or another name of the same domain.
pub(crate) fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    matches!(one(headers, FETCH_SITE), Some("cross-site" | "same-site"))
}

type Refused = (StatusCode, &'static str);

fn check(origin: &Origin, method: &Method, target: &Uri, headers: &HeaderMap) -> Result<(), Refused> {
    let host =
        one(headers, HOST.as_str()).ok_or((StatusCode::BAD_REQUEST, "Send exactly one Host header."))?;
    let authority = target.authority().is_none_or(|authority| origin.is_host(authority.as_str()));
    if !origin.is_host(host) || !authority {
        return Err((
            StatusCode::MISDIRECTED_REQUEST,
            "The console is not served under this name. Its address is that of `coffer console`, or console.origin.",
        ));
    }
    let site = headers.contains_key(FETCH_SITE).then(|| one(headers, FETCH_SITE).unwrap_or_default());
    let elsewhere = (StatusCode::FORBIDDEN, "Another site has sent this request.");
    match *method {
        Method::GET | Method::HEAD => match site {
            None | Some("same-origin" | "none") => Ok(()),
            // A link on another site may lead here. No other site may load a page or a file into its pages.
            Some(_) if is_navigation(headers) => Ok(()),
            Some(_) => Err(elsewhere),
        },
        Method::POST => {
            let from = one(headers, ORIGIN.as_str()).is_some_and(|from| origin.is(from));
            let is_same = site.is_none_or(|site| site == "same-origin");
            if from && is_same { Ok(()) } else { Err(elsewhere) }
        }
        _ => Err((StatusCode::METHOD_NOT_ALLOWED, "Use GET or POST.")),
    }
}

fn is_navigation(headers: &HeaderMap) -> bool {
    one(headers, FETCH_MODE) == Some("navigate") && one(headers, FETCH_DEST) == Some("document")
}

/// Returns the value of a header that is sent exactly once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: &Method, target: &str, sent: &[(&'static str, &str)]) -> u16 {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, value.parse().unwrap());
        }
        let origin = Origin::of_loopback("127.0.0.1:7465".parse().unwrap());
        let checked = check(&origin, method, &target.parse().unwrap(), &headers);
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    const OWN: (&str, &str) = ("host", "console.localhost:7465");

    #[test]
    fn a_request_for_another_host_is_refused() {
        let get = |target, sent: &[(&'static str, &str)]| status(&Method::GET, target, sent);
        assert_eq!(get("/", &[OWN]), 200);
        assert_eq!(get("http://console.localhost:7465/", &[OWN]), 200);
        assert_eq!(get("http://evil.example.org/", &[OWN]), 421);
        for host in [
            "evil.example.org",
            "evil.example.org:7465",
            "127.0.0.1:7465",
            "console.localhost",
            "console.localhost:7465.",
            "",
        ] {
            assert_eq!(get("/", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(get("/", &[]), 400);
        assert_eq!(get("/", &[OWN, OWN]), 400);
    }

    #[test]
    fn a_form_of_another_site_is_refused() {
        let post = |sent: &[(&'static str, &str)]| status(&Method::POST, "/", &[&[OWN], sent].concat());
        let own = ("origin", "http://console.localhost:7465");
        assert_eq!(post(&[own]), 200);
        assert_eq!(post(&[own, (FETCH_SITE, "same-origin")]), 200);
        assert_eq!(post(&[]), 403);
        for origin in [
            "null",
            "http://localhost:3000",
            "https://console.localhost:7465",
            "http://console.localhost:7466",
        ] {
            assert_eq!(post(&[("origin", origin)]), 403, "{origin}");
        }
        assert_eq!(post(&[own, own]), 403);
        for site in ["same-site", "cross-site", "none", ""] {
            assert_eq!(post(&[own, (FETCH_SITE, site)]), 403, "{site}");
        }
    }

    /// With `no-referrer`, a form's origin is `null` also for its own site (Fetch, "append a request `Origin` header").
    #[test]
    fn no_answer_has_browsers_hide_the_origin_of_our_forms() {
        let policies: Vec<_> = CLOSED.into_iter().filter(|(name, _)| *name == REFERRER_POLICY).collect();
        assert_eq!(policies, [(REFERRER_POLICY, "same-origin")]);
    }

    #[test]
    fn other_sites_may_link_to_a_page_and_load_none() {
        let get =
            |sent: &[(&'static str, &str)]| status(&Method::GET, "/approvals", &[&[OWN], sent].concat());
        for site in ["same-site", "cross-site"] {
            assert_eq!(get(&[(FETCH_SITE, site)]), 403);
            let navigation = [(FETCH_SITE, site), (FETCH_MODE, "navigate"), (FETCH_DEST, "document")];
            assert_eq!(get(&navigation), 200);
            assert_eq!(get(&[(FETCH_SITE, site), (FETCH_MODE, "navigate"), (FETCH_DEST, "iframe")]), 403);
            assert_eq!(get(&[(FETCH_SITE, site), (FETCH_MODE, "no-cors"), (FETCH_DEST, "script")]), 403);
        }
        assert_eq!(get(&[(FETCH_SITE, "same-origin")]), 200);
        assert_eq!(get(&[(FETCH_SITE, "none")]), 200);
    }

    #[test]
    fn another_port_and_another_name_of_the_domain_are_elsewhere() {
        let from = |site: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(FETCH_SITE, site.parse().unwrap());
            is_from_elsewhere(&headers)
        };
        assert!(from("cross-site") && from("same-site"));
        assert!(!from("same-origin") && !from("none") && !is_from_elsewhere(&HeaderMap::new()));
    }

    #[test]
    fn a_nonce_allows_styles_and_nothing_else() {
        let nonce = StyleNonce::new();
        let policy = with_nonce(&nonce);
        let allowed = format!(" 'nonce-{}'", nonce.as_str());
        assert_eq!(policy.replacen(&allowed, "", 1), POLICY);
        assert!(
            policy.contains(&format!("style-src 'self'{allowed};")) && !POLICY.contains("nonce"),
            "{policy}"
        );
    }

    #[test]
    fn other_methods_are_refused() {
        for method in [Method::PUT, Method::DELETE, Method::OPTIONS, Method::TRACE] {
            assert_eq!(status(&method, "/", &[OWN]), 405, "{method}");
        }
    }
}
