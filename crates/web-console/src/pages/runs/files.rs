//! The files of a run: directories and texts, as its own calls read them.

use maud::{Markup, html};
use wire::v1::entry::Type;
use wire::v1::{ListResult, ReadResult};

use super::super::elements::{address, id_path, table, typed};
use super::super::{figures, foreign};

/// Entries of a page. More than that are counted.
pub(crate) const ENTRIES: u32 = 500;
/// Lines of a text that are shown at once.
pub(crate) const LINES: u64 = 1_000;

/// Result of looking at a path.
pub(crate) enum Seen {
    Directory(ListResult),
    Text(ReadResult),
    /// The call did not succeed. A person reads the reason.
    Refused(String),
}

pub(crate) fn render(run: &str, path: &str, seen: &Seen) -> Markup {
    html! {
        (super::head(run, "files"))
        p.note { "Each look is a call of this run: under its policy and its limits, and on record." }
        form.filter method="get" action=[id_path("/runs/", run, "/files")] {
            label { "Path " input type="text" name="path" value=(typed(path)) maxlength="4096" autocomplete="off"; }
            button type="submit" { "Look" }
        }
        h2 { (foreign::heading(if path.is_empty() { "@project" } else { path })) }
        @match seen {
            Seen::Directory(list) => (directory(run, list)),
            Seen::Text(read) => (text(run, read)),
            Seen::Refused(reason) => p.note { "Not shown: " (foreign::line(reason)) },
        }
    }
}

fn directory(run: &str, list: &ListResult) -> Markup {
    let files = id_path("/runs/", run, "/files").unwrap_or_default();
    let rows = list.entries.iter().map(|entry| {
        let opens = matches!(entry.r#type(), Type::File | Type::Directory);
        let name = html! { (foreign::heading(&entry.name)) @if entry.r#type() == Type::Directory { "/" } };
        vec![
            html! {
                @if opens {
                    @let kind = if entry.r#type() == Type::File { "text" } else { "" };
                    a href=(address(&files, &[("path", &entry.path), ("kind", kind)])) { (name) }
                } @else { (name) }
            },
            html! { (figures::word(entry.r#type().as_str_name())) },
            html! { @if entry.r#type() == Type::File { (figures::size(entry.size_bytes)) } },
            figures::moment(Some(&wire::Timestamp { seconds: entry.modified_unix_seconds, nanos: 0 })),
            html! { @if entry.r#type() == Type::File { (download(run, &entry.path)) } },
        ]
    });
    html! {
        @if let Some(above) = above(&list.path) { p { a href=(address(&files, &[("path", above)])) { "Directory above" } } }
        @if list.entries.is_empty() { p { "No entries. " (foreign::line(&list.hint)) } }
        @else { (table("Entries", &["Name", "Kind", "Size", "Changed", "Download"], rows)) }
        @if list.truncated { p.note { "There are more entries: at least " (list.total_entries) ". Name a directory beneath." } }
    }
}

/// Returns the directory that has this one, in alias form.
fn above(path: &str) -> Option<&str> {
    path.trim_end_matches('/').rsplit_once('/').map(|(above, _)| above).filter(|above| !above.is_empty())
}

fn text(run: &str, read: &ReadResult) -> Markup {
    let files = id_path("/runs/", run, "/files").unwrap_or_default();
    let next = (read.end_line + 1).to_string();
    html! {
        p {
            (figures::size(read.size_bytes)) ", SHA-256 " code { (foreign::heading(&read.sha256)) } " "
            (download(run, &read.path))
        }
        @if let Some(above) = above(&read.path) { p { a href=(address(&files, &[("path", above)])) { "Its directory" } } }
        @if read.binary { p.note { "The file is not UTF-8 text. " (foreign::line(&read.hint)) } }
        @else {
            @if read.total_lines > 0 { p { "Lines " (read.start_line) " to " (read.end_line) " of " (read.total_lines) } }
            (foreign::block(&read.content))
            @if read.end_line > 0 && read.end_line < read.total_lines {
                p.pager { a rel="next" href=(address(&files, &[("path", &read.path), ("kind", "text"), ("line", &next)])) { "Next lines" } }
            }
        }
    }
}

fn download(run: &str, path: &str) -> Markup {
    html! {
        @if let Some(download) = id_path("/runs/", run, "/download") {
            a href=(address(&download, &[("path", path)])) { "Download" span.visually-hidden { " " (foreign::heading(path)) } }
        }
    }
}

/// Returns the value of `Content-Disposition` for a file. Its name becomes plain ASCII, so that it cannot break the header or look like
/// another kind of file.
pub(crate) fn disposition(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let name: String = name.chars().take(100).map(plain).collect();
    let name = name.trim_start_matches('.');
    format!("attachment; filename=\"{}\"", if name.is_empty() { "file" } else { name })
}

#[cfg(test)]
mod tests {
    use wire::v1::Entry;

    use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    const ID: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

    #[test]
    fn names_and_contents_are_harmless() {
        let hostile = || HOSTILE.to_owned();
        let entry = |kind: Type| Entry {
            path: hostile(),
            name: hostile(),
            r#type: kind.into(),
            ..Default::default()
        };
        let entries = vec![entry(Type::File), entry(Type::Directory), entry(Type::Symlink)];
        let list = ListResult { path: hostile(), entries, hint: hostile(), ..Default::default() };
        let read = ReadResult {
            path: hostile(),
            content: hostile(),
            hint: hostile(),
            sha256: hostile(),
            ..Default::default()
        };
        let binary = ReadResult { binary: true, ..read.clone() };
        for seen in [Seen::Directory(list), Seen::Text(read), Seen::Text(binary), Seen::Refused(hostile())] {
            for run in [ID, HOSTILE] {
                assert_harmless(&render(run, HOSTILE, &seen));
            }
        }
    }

    #[test]
    fn names_of_downloads_are_plain() {
        assert_eq!(disposition("@project/src/main.rs"), "attachment; filename=\"main.rs\"");
        assert_eq!(
            disposition("a/\"; x=\r\nfdp\u{202e}gnp.exe"),
            "attachment; filename=\"___x___fdp_gnp.exe\""
        );
        for none in ["", "a/", "..", "a/..."] {
            assert_eq!(disposition(none), "attachment; filename=\"file\"", "{none}");
        }
        assert!(disposition(&"x".repeat(1_000)).len() < 130);
    }

    #[test]
    fn long_texts_have_a_next_page() {
        let read = ReadResult {
            path: "@project/a b".to_owned(),
            start_line: 1,
            end_line: 1_000,
            total_lines: 1_001,
            ..Default::default()
        };
        let shown = render(ID, "a b", &Seen::Text(read)).0;
        assert!(
            shown.contains(&format!("/runs/{ID}/files?path=%40project%2Fa+b&amp;kind=text&amp;line=1001")),
            "{shown}"
        );
    }

    #[test]
    fn directories_lead_up_to_their_mount() {
        assert_eq!(
            (above("@project/a/b"), above("@project/a"), above("@project")),
            (Some("@project/a"), Some("@project"), None)
        );
        assert_eq!(above("/etc"), None);
    }
}
