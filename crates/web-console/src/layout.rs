//! The frame around each page.

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use url::form_urlencoded;

use crate::shown::line;
use crate::viewer::Viewer;

/// Pages in the navigation. A module with pages adds its own.
const PAGES: [(&str, &str); 8] = [
    ("/overview", "Overview"),
    ("/approvals", "Approvals"),
    ("/runs", "Runs"),
    ("/calls", "Calls"),
    ("/audit", "Audit log"),
    ("/alerts", "Alerts"),
    ("/policy", "Policy"),
    ("/passkeys", "Passkeys"),
];
/// Longest path to which a sign-in leads back, bytes.
const LONGEST_PATH: usize = 512;

/// Returns a page. `title` is also the name of the entry of the navigation that is current.
#[expect(clippy::needless_pass_by_value, reason = "callers make it for this page alone")]
pub(crate) fn page(title: &str, viewer: Option<&Viewer>, main: Markup) -> Response {
    Html(whole(title, viewer, &main, None).into_string()).into_response()
}

/// Returns a page with parts that are shown again when `events` has an event. Each part has an `id` and `data-live`.
#[expect(clippy::needless_pass_by_value, reason = "callers make it for this page alone")]
pub(crate) fn live_page(title: &str, viewer: &Viewer, events: &str, main: Markup) -> Response {
    Html(whole(title, Some(viewer), &main, Some(events)).into_string()).into_response()
}

fn whole(title: &str, viewer: Option<&Viewer>, main: &Markup, events: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Cofferdam" }
                link rel="stylesheet" href="/assets/console.css";
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                script src="/assets/console.js" defer {}
            }
            body data-events=[events] {
                a.skip href="#main" { "Skip to the content" }
                header {
                    p.brand { "Cofferdam" }
                    @if let Some(viewer) = viewer { (navigation(title, viewer)) }
                }
                main id="main" tabindex="-1" { (main) }
                p.connection id="connection" role="status" {}
            }
        }
    }
}

fn navigation(title: &str, viewer: &Viewer) -> Markup {
    html! {
        nav aria-label="Pages" {
            ul {
                @for (path, name) in PAGES {
                    li { a href=(path) aria-current=[(name == title).then_some("page")] { (name) } }
                }
            }
        }
        form.account method="post" action="/sign-out" {
            (csrf(viewer))
            span { "Signed in as " (line(&viewer.name)) }
            button type="submit" { "Sign out" }
        }
    }
}

/// Returns the hidden field that each form of a session needs.
pub(crate) fn csrf(viewer: &Viewer) -> Markup {
    html! { input type="hidden" name="csrf" value=(viewer.session.csrf()); }
}

/// Returns a page from which the browser asks again, from this site. It then sends its cookie.
pub(crate) fn again(path: &str) -> Response {
    Html(asking_again(own_path(path)).into_string()).into_response()
}

/// Returns the page that leads to `path`: by itself to approvals, for links in notices, and by a click to others.
///
/// Some of them do more than show: a look at a file is a call on record, and a download is kept. No other site may have a browser do that.
fn asking_again(path: &str) -> Markup {
    let is_by_itself = path == "/" || path.starts_with("/approvals");
    leading(path, is_by_itself, "Continue to the console")
}

/// Returns the page that leads to an issuer. A browser would not follow a redirect there: the policy of pages lets no form lead elsewhere.
pub(crate) fn leave(url: &str, issuer: &str) -> Response {
    let words = format!("Continue to {}", text::one_line(issuer));
    Html(leading(url, true, &words).into_string()).into_response()
}

/// Returns a page with one link, which the browser follows by itself if it may.
fn leading(url: &str, is_by_itself: bool, words: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                @if is_by_itself { meta http-equiv="refresh" content={ "0;url=" (url) }; }
                title { "Cofferdam" }
                link rel="stylesheet" href="/assets/console.css";
            }
            body { main { p { a href=(url) { (words) } } } }
        }
    }
}

/// Returns the path of the sign-in that leads back to `path`.
pub(crate) fn sign_in_for(path: &str) -> String {
    match own_path(path) {
        "/" => "/sign-in".to_owned(),
        path => {
            format!("/sign-in?to={}", form_urlencoded::byte_serialize(path.as_bytes()).collect::<String>())
        }
    }
}

/// Returns `path` if it is one of this console, and otherwise the first page. A link must not lead elsewhere.
pub(crate) fn own_path(path: &str) -> &str {
    let is_plain = path
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"' | b'\'' | b'<' | b'>' | b';'));
    let is_own = path.starts_with('/') && !path.starts_with("//") && path.len() <= LONGEST_PATH;
    if is_own && is_plain { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sites_lead_to_approvals_alone_without_a_click() {
        for path in ["/", "/approvals", "/approvals/one?page=2"] {
            assert!(asking_again(path).0.contains(&format!("content=\"0;url={path}\"")), "{path}");
        }
        for path in ["/runs/one/download?path=a", "/runs/one/files", "/runs/one/recordings/two"] {
            let shown = asking_again(path).0;
            assert!(!shown.contains("http-equiv") && shown.contains(&format!("href=\"{path}\"")), "{shown}");
        }
    }

    #[test]
    fn a_path_leads_nowhere_else() {
        assert_eq!(own_path("/approvals/one?page=2"), "/approvals/one?page=2");
        for bad in [
            "",
            "//evil.example.org",
            "/\\evil.example.org",
            "https://evil.example.org",
            "a",
            "/a b",
            "/a;url=//b",
            "/\"x",
        ] {
            assert_eq!(own_path(bad), "/", "{bad}");
        }
        assert_eq!(own_path(&"/a".repeat(500)), "/");
        assert_eq!(sign_in_for("/approvals?page=2"), "/sign-in?to=%2Fapprovals%3Fpage%3D2");
        assert_eq!(sign_in_for("//x"), "/sign-in");
    }
}
