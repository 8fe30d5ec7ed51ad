//! Scripts of the pages with a terminal: xterm.js, which is fetched before the build, and our own.
//!
//! xterm.js puts `style` elements into its page. Our script gives each of them the nonce of the page ([`crate::nonce`]).

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tonic::codegen::http::header::CONTENT_TYPE;

use crate::State;

/// xterm.js as it was fetched: its script and its style. The build without it has none.
pub(super) struct Xterm {
    script: &'static [u8],
    style: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/xterm.rs"));

const SCRIPT: &str = include_str!("../../assets/terminal.js");

/// Returns true if this build has xterm.js.
pub(super) fn has_xterm() -> bool {
    XTERM.is_some()
}

pub(super) fn routes() -> Router<State> {
    let routes = Router::new().route(
        "/assets/terminal.js",
        get(async || file("text/javascript; charset=utf-8", SCRIPT.as_bytes())),
    );
    match XTERM {
        Some(Xterm { script, style }) => routes
            .route(
                "/assets/xterm.js",
                get(move || async move { file("text/javascript; charset=utf-8", script) }),
            )
            .route("/assets/xterm.css", get(move || async move { file("text/css; charset=utf-8", style) })),
        None => routes,
    }
}

fn file(kind: &'static str, content: &'static [u8]) -> Response {
    ([(CONTENT_TYPE, kind)], content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_script_makes_no_markup_of_text() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
        assert!(SCRIPT.lines().count() < 250);
    }
}
