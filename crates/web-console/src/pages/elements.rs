//! Elements that pages share: tables, facts, notes, links to the next page.

use maud::{Markup, html};

/// Result of one request of a page, or the reason why its part is not shown.
pub(crate) type Part<T> = Result<T, String>;

/// Returns a table. Its caption names it for readers of screens; the table scrolls on small ones.
pub(crate) fn table(caption: &str, heads: &[&str], rows: impl IntoIterator<Item = Vec<Markup>>) -> Markup {
    html! {
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for row in rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

/// Returns names and values. Values that are `None` are left out.
pub(crate) fn facts(facts: impl IntoIterator<Item = (&'static str, Option<Markup>)>) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts {
                @if let Some(value) = value { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Returns the part of a page that a request answered, or the reason why there is none.
pub(crate) fn part<T>(part: &Part<T>, render: impl FnOnce(&T) -> Markup) -> Markup {
    match part {
        Ok(found) => render(found),
        Err(reason) => html! { p.note { "Not shown: " (super::foreign::line(reason)) } },
    }
}

/// Returns the link to the next page of a list, if there is one.
pub(crate) fn next(path: &str, query: &[(&str, &str)], token: &str) -> Markup {
    html! {
        @if !token.is_empty() {
            p.pager { a rel="next" href=(address(path, &[query, &[("page", token)]].concat())) { "Next page" } }
        }
    }
}

/// Returns the address of a page, with the fields that are not empty.
pub(crate) fn address(path: &str, query: &[(&str, &str)]) -> String {
    let mut fields = url::form_urlencoded::Serializer::new(String::new());
    fields.extend_pairs(query.iter().filter(|(_, value)| !value.is_empty()));
    let fields = fields.finish();
    if fields.is_empty() { path.to_owned() } else { format!("{path}?{fields}") }
}

/// Returns a select of a form.
pub(crate) fn select(name: &str, label: &str, options: &[(&str, &str)], chosen: &str) -> Markup {
    html! {
        label { (label) " "
            select name=(name) {
                @for (value, text) in options { option value=(value) selected[*value == chosen] { (text) } }
            }
        }
    }
}

/// Returns a text field of a form.
pub(crate) fn field(name: &str, label: &str, value: &str) -> Markup {
    html! { label { (label) " " input type="text" name=(name) value=(typed(value)) maxlength="256" autocomplete="off"; } }
}

/// Returns the value of a text field. A field cannot mark hidden characters, so a value with some is left out.
pub(crate) fn typed(value: &str) -> &str {
    if value.chars().any(text::is_hidden) { "" } else { value }
}

/// Returns a state with a class for its colour. The words say it, too.
pub(crate) fn state(words: &str) -> Markup {
    let class = match words {
        "ready" | "running" | "succeeded" | "allow" | "approved" | "delivered" | "good" => "good",
        "failed" | "denied" | "deny" | "critical" | "high" | "full" | "locked" | "over" | "missing" => "bad",
        "paused" | "pending approval" | "ask" | "open" | "medium" | "low" | "limited" | "interrupted" => {
            "warn"
        }
        _ => "calm",
    };
    html! { span.state.(class) { (crate::shown::visible(words, text::Shape::Line)) } }
}

/// Returns true if this has the form of an id of the API: a UUID in lower case.
pub(crate) fn is_id(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    let fits = |(at, byte): (usize, u8)| {
        if dashes.contains(&at) { byte == b'-' } else { matches!(byte, b'0'..=b'9' | b'a'..=b'f') }
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

/// Returns the path of a page about a thing with an id. `None` for a text that is no id.
pub(crate) fn id_path(before: &str, id: &str, after: &str) -> Option<String> {
    is_id(id).then(|| format!("{before}{id}{after}"))
}

/// Returns a link to the page of a run, by the end of its id.
pub(crate) fn run_link(id: &str) -> Markup {
    id_link("/runs/", id)
}

/// Returns a link to the page of a call.
pub(crate) fn call_link(id: &str) -> Markup {
    id_link("/calls/", id)
}

/// Returns a link by an id. A text that is none is shown and leads nowhere.
fn id_link(path: &str, id: &str) -> Markup {
    html! {
        @if is_id(id) { a href={ (path) (id) } title=(id) { code { (&id[28..]) } } }
        @else { (super::foreign::line(id)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    #[test]
    fn fields_of_an_address_are_encoded() {
        assert_eq!(address("/a", &[("b", ""), ("c", "")]), "/a");
        assert_eq!(
            address("/a", &[("path", "x&y=\"<\u{202e}"), ("c", "")]),
            "/a?path=x%26y%3D%22%3C%E2%80%AE"
        );
        assert!(next("/a", &[("x", "1")], "t/+").0.contains("href=\"/a?x=1&amp;page=t%2F%2B\""));
        assert_eq!(next("/a", &[], "").0, "");
    }

    #[test]
    fn only_ids_are_links() {
        let id = "0198a1b2-0000-7000-8000-00000000aaaa";
        assert!(run_link(id).0.contains("href=\"/runs/0198a1b2-0000-7000-8000-00000000aaaa\""));
        for none in
            ["", "0198a1b2", "0198a1b2-0000-7000-8000-00000000AAAA", "0198a1b2-0000-7000-8000-00000000aaa/"]
        {
            assert!(!run_link(none).0.contains("href"), "{none}");
        }
        assert_harmless(&call_link(HOSTILE));
        assert!(!call_link(HOSTILE).0.contains("href"));
    }

    #[test]
    fn the_reason_of_a_missing_part_is_shown_as_text() {
        assert_harmless(&part(&Err::<(), _>(HOSTILE.to_owned()), |()| html! {}));
        assert_harmless(&html! { (field("n", "l", HOSTILE)) (state(HOSTILE)) });
        assert!(field("n", "l", "\"x").0.contains("value=\"&quot;x\""));
        assert_harmless(&table("t", &["h"], [vec![super::super::foreign::line(HOSTILE)]]));
    }
}
