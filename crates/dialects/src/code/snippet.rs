//! The changed lines of a file, taken from a unified diff of it.

use std::fmt::Write as _;

/// Most lines that are shown.
const MOST: usize = 60;

/// Returns the lines after the change with their numbers, and `...` between separate changes. Returns an empty text if `diff` is no diff.
pub(super) fn of(diff: &str) -> String {
    let mut text = String::new();
    let (mut number, mut shown) = (None, 0);
    for line in diff.split_inclusive('\n') {
        let line = line.strip_suffix('\n').unwrap_or(line);
        if let Some(first) = hunk(line) {
            if shown > 0 {
                text.push_str("...\n");
            }
            number = Some(first);
            continue;
        }
        let Some(now) = number else { continue };
        let Some(kept) = line.strip_prefix([' ', '+']) else { continue };
        number = now.checked_add(1);
        shown += 1;
        if shown > MOST {
            text.push_str("[more lines have changed]\n");
            break;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{now:6}\t{kept}");
    }
    text
}

/// Returns the first line of `@@ -1,2 +3,4 @@` in the new file.
fn hunk(line: &str) -> Option<u64> {
    let (_, new) = line.strip_prefix("@@ -")?.split_once(" +")?;
    new.split([',', ' ']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn the_new_lines_are_shown_with_their_numbers() {
        let diff = "--- a/x\n+++ b/x\n@@ -8,3 +8,4 @@ fn f\n a\n-b\n+B\n+C\n d\n@@ -90 +91 @@\n-x\n+@@ -1 +1 @@\n\\ No newline at end of file\n";
        assert_eq!(of(diff), "     8\ta\n     9\tB\n    10\tC\n    11\td\n...\n    91\t@@ -1 +1 @@\n");
    }

    #[test]
    fn long_change_is_cut_and_invalid_diff_is_empty() {
        let lines: Vec<String> = (0..100).map(|n| format!("+{n}\n")).collect();
        let text = of(&format!("@@ -0,0 +1,100 @@\n{}", lines.concat()));
        assert_eq!(text.lines().count(), 61);
        assert!(text.ends_with("    60\t59\n[more lines have changed]\n"));
        for none in ["", "+++ b/x\n+a\n", "@@ x\n+a\n", "@@ -1 +99999999999999999999 @@\n+a"] {
            assert_eq!(of(none), "", "{none:?}");
        }
    }
}
