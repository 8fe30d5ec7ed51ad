//! The files of all pages, in the binary.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tonic::codegen::http::header::CONTENT_TYPE;

use crate::State;

const STYLE: &str = concat!(include_str!("../assets/console.css"), include_str!("../assets/pages.css"));
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

    /// The preview has the class `diff`, and the arguments have no `tabindex`.
    #[test]
    fn no_text_that_a_reviewer_decides_on_scrolls_in_its_own_frame() {
        let cut = STYLE.lines().filter(|rule| rule.contains("max-height") || rule.contains("overflow-y"));
        let cut: Vec<_> =
            cut.filter_map(|rule| rule.split_once(" {").map(|(selector, _)| selector)).collect();
        assert_eq!(cut, ["pre.text[tabindex]:not(.diff), pre.lines"]);
    }
}
