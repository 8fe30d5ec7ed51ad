//! The files of all pages, in the binary.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tonic::codegen::http::header::CONTENT_TYPE;

use crate::State;

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/assets/console.css", get(async || file("text/css; charset=utf-8", STYLE)))
        .route("/assets/console.js", get(async || file("text/javascript; charset=utf-8", SCRIPT)))
        .route("/assets/icon.svg", get(async || file("image/svg+xml", ICON)))
}

fn file(kind: &'static str, content: &'static str) -> Response {
    ([(CONTENT_TYPE, kind)], content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_makes_no_markup_of_text() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
        assert!(SCRIPT.lines().count() < 250);
        assert!(!STYLE.contains("http") && !STYLE.contains("@import") && !STYLE.contains("url("));
    }
}
