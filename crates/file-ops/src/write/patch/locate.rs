//! Finds lines in a file. The lines are numbered, so that a search is linear in the file for any content.

use std::collections::HashMap;

/// Lines of a file as numbers: equal lines have equal numbers.
pub(super) struct Index<'f> {
    numbers: HashMap<&'f [u8], u32>,
    lines: Vec<u32>,
}

/// Number of a line that does not occur in the file.
const ABSENT: u32 = u32::MAX;

impl<'f> Index<'f> {
    pub(super) fn of(lines: &[&'f [u8]]) -> Self {
        let mut numbers = HashMap::new();
        let lines = lines
            .iter()
            .map(|&line| {
                let next = u32::try_from(numbers.len()).unwrap_or(ABSENT);
                *numbers.entry(line).or_insert(next)
            })
            .collect();
        Self { numbers, lines }
    }

    /// Returns the numbers of the lines to find.
    pub(super) fn needle<L: AsRef<[u8]>>(&self, lines: impl IntoIterator<Item = L>) -> Vec<u32> {
        lines.into_iter().map(|line| self.numbers.get(line.as_ref()).copied().unwrap_or(ABSENT)).collect()
    }

    /// Returns true if the lines are at index `at`.
    pub(super) fn is_at(&self, needle: &[u32], at: usize) -> bool {
        !needle.contains(&ABSENT)
            && at.checked_add(needle.len()).and_then(|end| self.lines.get(at..end)) == Some(needle)
    }

    /// Returns the index at which the lines would be the file's last.
    pub(super) fn last(&self, needle: &[u32]) -> Option<usize> {
        let at = self.lines.len().checked_sub(needle.len())?;
        self.is_at(needle, at).then_some(at)
    }

    /// Returns every index from `from` on at which the lines occur, overlapping ones too (Knuth, Morris, Pratt).
    ///
    /// `needle` must not be empty.
    pub(super) fn all(&self, needle: &[u32], from: usize) -> Vec<usize> {
        if needle.is_empty() || needle.contains(&ABSENT) {
            return Vec::new();
        }
        let border = borders(needle);
        let (mut found, mut matched) = (Vec::new(), 0);
        for (at, line) in self.lines.iter().enumerate().skip(from) {
            while matched > 0 && needle.get(matched) != Some(line) {
                matched = border[matched - 1];
            }
            if needle.get(matched) == Some(line) {
                matched += 1;
            }
            if matched == needle.len() {
                found.push(at + 1 - matched);
                matched = border[matched - 1];
            }
        }
        found
    }
}

/// Returns for each prefix of `needle` the length of its longest proper prefix that is also its suffix.
fn borders(needle: &[u32]) -> Vec<usize> {
    let mut border = vec![0; needle.len()];
    let mut length = 0;
    for at in 1..needle.len() {
        while length > 0 && needle[at] != needle[length] {
            length = border[length - 1];
        }
        if needle[at] == needle[length] {
            length += 1;
        }
        border[at] = length;
    }
    border
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_result_equals_a_plain_search(
            file in prop::collection::vec(0_u8..3, 0..40),
            needle in prop::collection::vec(0_u8..3, 1..5),
            from in 0_usize..10,
        ) {
            let lines: Vec<[u8; 1]> = file.iter().map(|&line| [line]).collect();
            let lines: Vec<&[u8]> = lines.iter().map(<[u8; 1]>::as_slice).collect();
            let index = Index::of(&lines);
            let numbers = index.needle(needle.iter().map(|&line| [line]));
            let plain: Vec<usize> =
                (from..file.len()).filter(|&at| file[at..].starts_with(&needle)).collect();
            for &at in &plain {
                prop_assert!(index.is_at(&numbers, at));
            }
            prop_assert_eq!(index.last(&numbers).is_some(), file.ends_with(&needle));
            prop_assert_eq!(index.all(&numbers, from), plain);
        }
    }
}
