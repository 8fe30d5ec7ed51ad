//! The top of each page of a run: its name, and the way to its other pages.

use maud::{Markup, html};

use super::super::elements::{address, id_path};
use super::super::foreign;

/// Pages of a run: the end of the path, the name, and the word in the title.
const TABS: [(&str, &str, &str); 6] = [
    ("", "run", "Run"),
    ("/files", "files", "Files"),
    ("/changes", "changes", "Changes"),
    ("/connections", "connections", "Connections"),
    ("/recordings", "recordings", "Recordings"),
    ("/terminal", "terminal", "Terminal"),
];

/// Returns the heading and the links. `current` is the name of the page.
pub(crate) fn head(id: &str, current: &str) -> Markup {
    html! {
        h1 { "Run " (foreign::heading(id)) }
        nav.tabs aria-label="Pages of this run" {
            ul {
                @for (end, name, title) in TABS {
                    @if let Some(path) = id_path("/runs/", id, end) {
                        li { a href=(path) aria-current=[(name == current).then_some("page")] { (title) } }
                    }
                }
                li { a href=(address("/calls", &[("run", id)])) { "Calls" } }
                li { a href=(address("/audit", &[("run", id)])) { "Records" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn the_current_page_is_marked() {
        let shown = head("0198a1b2-0000-7000-8000-00000000aaaa", "files").0;
        assert_eq!(shown.matches("aria-current").count(), 1);
        assert!(shown.contains("/files\" aria-current=\"page\""));
        assert_harmless(&head(HOSTILE, "files"));
    }
}
