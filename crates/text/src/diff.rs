//! Kinds of the lines of a unified diff, for readers who see them in colours.
//!
//! A line of a hunk has the kind of its sign alone. Otherwise a deleted line `-- x` and an added one `++ x` would look like the names of
//! files, and content could draw a diff of its own.

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Name of the old or the new file, outside of hunks.
    Name,
    /// Begin of a hunk.
    Place,
    Gone,
    Come,
    Other,
}

/// Number of lines that the current hunk still has, of the old text and of the new one.
#[derive(Debug, Default)]
pub struct Hunk {
    old: usize,
    new: usize,
}

impl Hunk {
    /// Reads a line such as `@@ -1,2 +1,3 @@`.
    fn begun_by(line: &str) -> Self {
        let count = |range: Option<&str>, sign: char| -> Option<usize> {
            let range = range?.strip_prefix(sign)?;
            range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok())
        };
        let mut ranges = line.split(' ').skip(1);
        let (old, new) = (count(ranges.next(), '-'), count(ranges.next(), '+'));
        Self { old: old.unwrap_or(0), new: new.unwrap_or(0) }
    }

    /// Returns the kind of the next line of the diff, with or without its line end.
    pub fn kind_of(&mut self, line: &str) -> Kind {
        let is_within = self.old > 0 || self.new > 0;
        if !is_within && (line.starts_with("--- ") || line.starts_with("+++ ")) {
            return Kind::Name;
        }
        match line.as_bytes() {
            [b'@', b'@', ..] => {
                *self = Self::begun_by(line);
                Kind::Place
            }
            [b'-', ..] => {
                self.old = self.old.saturating_sub(1);
                Kind::Gone
            }
            [b'+', ..] => {
                self.new = self.new.saturating_sub(1);
                Kind::Come
            }
            [] | [b' ' | b'\n', ..] => {
                (self.old, self.new) = (self.old.saturating_sub(1), self.new.saturating_sub(1));
                Kind::Other
            }
            _ => {
                // No line of a hunk begins so. A hunk that was cut, or has fewer lines because a secret in it is hidden, ends here.
                if line.starts_with("diff --git ") {
                    *self = Self::default();
                }
                Kind::Other
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_content_looks_like_the_name_of_a_file() {
        let diff = "diff --git a/x b/x\n--- a\n+++ b\n@@ -1,2 +1,2 @@\n--- gone\n same\n+++ come; evil()\n\
                    --- c\n+++ d\n@@ -3 +3 @@\n--- x\n+++ y\n--- e\n@@ -1,2 +1,1 @@\n\n--- f\n+++ g\n";
        let (name, place, gone, come, other) = (Kind::Name, Kind::Place, Kind::Gone, Kind::Come, Kind::Other);
        let first = [other, name, name, place, gone, other, come];
        let second = [name, name, place, gone, come, name];
        let third = [place, other, gone, name];
        let kinds = |lines: Vec<&str>| {
            let mut hunk = Hunk::default();
            lines.into_iter().map(|line| hunk.kind_of(line)).collect::<Vec<_>>()
        };
        let expected = [&first[..], &second, &third].concat();
        assert_eq!(kinds(diff.split_inclusive('\n').collect()), expected);
        assert_eq!(kinds(diff.split_terminator('\n').collect()), expected);
    }

    #[test]
    fn a_hunk_that_was_cut_ends_with_the_next_file() {
        let mut hunk = Hunk::default();
        let cut = "@@ -1,9 +1,9 @@\n-a\n!! a part is left out\n--- b\ndiff --git a/y b/y\n--- y\n+++ y\n@@ -1 +1 @@\n--- z\n";
        let kinds: Vec<_> = cut.lines().map(|line| hunk.kind_of(line)).collect();
        let (name, place, gone, other) = (Kind::Name, Kind::Place, Kind::Gone, Kind::Other);
        assert_eq!(kinds, [place, gone, other, gone, other, name, name, place, gone]);
    }

    #[test]
    fn a_hunk_without_counts_has_no_lines() {
        assert!(Hunk::begun_by("@@ -1,2 +").old == 2 && Hunk::begun_by("@@").new == 0);
        let mut hunk = Hunk::default();
        assert_eq!(hunk.kind_of("@@ -1,x +1,99999999999999999999999 @@"), Kind::Place);
        assert_eq!(hunk.kind_of("--- a"), Kind::Name);
        assert_eq!((hunk.kind_of("---"), hunk.kind_of("+++")), (Kind::Gone, Kind::Come));
    }
}
