//! Pages of a long list.

use maud::{Markup, html};

/// Entries on a page.
pub(super) const PER_PAGE: usize = 50;

/// A part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pager {
    page: usize,
    pages: usize,
}

impl Pager {
    /// Returns the page that a query asks for, or the nearest that exists. The first is 1.
    pub(super) fn new(asked: &str, entries: usize) -> Self {
        let pages = entries.div_ceil(PER_PAGE).max(1);
        Self { page: asked.parse::<usize>().unwrap_or(1).clamp(1, pages), pages }
    }

    /// Returns the entries of the page.
    pub(super) fn part<T>(self, all: &[T]) -> &[T] {
        let start = (self.page - 1) * PER_PAGE;
        all.get(start..all.len().min(start + PER_PAGE)).unwrap_or_default()
    }

    /// Shows the ways to the other pages of `path`.
    pub(super) fn links(self, path: &str) -> Markup {
        html! {
            @if self.pages > 1 {
                nav.pages aria-label="Pages of this list" {
                    @if self.page > 1 { a href={ (path) "?page=" (self.page - 1) } rel="prev" { "Previous" } }
                    span { "Page " (self.page) " of " (self.pages) }
                    @if self.page < self.pages { a href={ (path) "?page=" (self.page + 1) } rel="next" { "Next" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_on_one_page() {
        let all: Vec<usize> = (0..120).collect();
        let of = |asked| Pager::new(asked, all.len()).part(&all);
        assert_eq!((of("1"), of("2"), of("3")), (&all[..50], &all[50..100], &all[100..]));
        for (asked, same) in [("", "1"), ("0", "1"), ("-1", "1"), ("99999999999999999999", "1"), ("4", "3")] {
            assert_eq!(of(asked), of(same), "{asked}");
        }
        assert!(Pager::new("7", 0).part::<usize>(&[]).is_empty());
        assert_eq!(Pager::new("1", 50).links("/x").into_string(), "");
        let links = Pager::new("2", 120).links("/x").into_string();
        assert!(links.contains("/x?page=1") && links.contains("/x?page=3") && links.contains("Page 2 of 3"));
    }
}
