//! The page of all ways to sign in.

use axum::response::Response;
use maud::{Markup, html};
use oidc_sign_in::SignIns;

use crate::State;
use crate::connection::Connection;
use crate::layout::page;
use crate::shown::line;

/// Returns the page.
pub(crate) fn sign_in(state: &State, to: &str, connection: &Connection) -> Response {
    page("Sign in", None, ways(state, to, connection, None))
}

/// Returns the page, with the reason why the last way did not work.
pub(crate) fn refused(state: &State, to: &str, connection: &Connection, problem: &str) -> Response {
    page("Sign in", None, ways(state, to, connection, Some(problem)))
}

fn ways(state: &State, to: &str, connection: &Connection, problem: Option<&str>) -> Markup {
    html! {
        h1 { "Sign in" }
        @if let Some(problem) = problem {
            p.notice.bad role="alert" { (line(problem)) }
        }
        (at_issuers(state.0.access.issuers.as_ref(), to))
        section.card {
            h2 { "With a link" }
            p { "On the daemon's host, or wherever " code { "coffer" } " reaches it:" }
            pre { "coffer console" }
            p { "The link works once, for a minute." }
        }
        @if let Some(certificate) = &connection.certificate {
            form.card method="post" action="/sign-in/certificate" {
                h2 { "With the certificate of this browser" }
                p { "It names " (line(&certificate.name)) "." }
                input type="hidden" name="to" value=(to);
                button type="submit" { "Sign in with the certificate" }
            }
        }
        form.card method="post" action="/sign-in/token" {
            h2 { "With a token" }
            input type="hidden" name="to" value=(to);
            label for="token" { "API token, or token of your issuer" }
            input #token type="password" name="token" autocomplete="off" spellcheck="false" required;
            button type="submit" { "Sign in with the token" }
        }
    }
}

/// Returns a form for each issuer.
fn at_issuers(issuers: Option<&SignIns>, to: &str) -> Markup {
    html! {
        @for name in issuers.into_iter().flat_map(SignIns::names) {
            form.card method="post" action="/sign-in/issuer" {
                h2 { "With " (line(name)) }
                input type="hidden" name="to" value=(to);
                input type="hidden" name="issuer" value=(name);
                button type="submit" { "Sign in with " (line(name)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oidc_sign_in::Client;

    use super::*;

    #[test]
    fn each_issuer_has_a_form_and_nothing_else_has() {
        let client = |name: &str| Client {
            name: name.to_owned(),
            issuer: String::new(),
            id: String::new(),
            secret: None,
            scopes: Vec::new(),
        };
        let tls = webhook::Tls::trusting([]).unwrap();
        let issuers = SignIns::new(vec![client("corp"), client("<b>lab")], String::new(), tls);
        let shown = at_issuers(Some(&issuers), "/runs").0;
        assert_eq!(shown.matches("action=\"/sign-in/issuer\"").count(), 2);
        assert!(shown.contains("name=\"to\" value=\"/runs\"") && shown.contains("value=\"corp\""), "{shown}");
        assert!(!shown.contains("<b>"), "{shown}");
        assert_eq!(at_issuers(None, "/").0, "");
    }
}
