//! Names that a file system treats as another name.
//!
//! A workspace may be on HFS+, APFS, NTFS, vfat or a case-folding ext4 directory, today or after a copy. Each maps
//! several spellings to one file. The rules here are the union of theirs, after git's `is_hfs_dotgit` and
//! `is_ntfs_dotgit`, extended to all code points that Unicode calls default-ignorable.

/// Returns true if `component` is `.git` on any of those file systems.
pub(crate) fn is_dot_git(component: &str) -> bool {
    is_name(component, ".git") || is_name(component, "git~1")
}

/// Returns true if `component` is `name` (lower-case ASCII that ends in no dot or space) on any of those file systems.
///
/// NTFS treats a backslash as a separator, so one component may contain several names.
pub(crate) fn is_name(component: &str, name: &str) -> bool {
    component.split('\\').any(|part| folds_to(part, name))
}

/// Compares in lower case, and ignores characters that file systems ignore.
///
/// These are ignorable code points, an NTFS stream (`.git::$INDEX_ALLOCATION`), and the dots and spaces that NTFS drops
/// at the end. This runs for every component of every path in a search, so it stops at the first difference.
fn folds_to(part: &str, name: &str) -> bool {
    let mut folded =
        part.chars().filter(|&c| !is_ignorable(c)).map(|c| c.to_ascii_lowercase()).take_while(|&c| c != ':');
    name.chars().all(|c| folded.next() == Some(c)) && folded.all(|c| matches!(c, ' ' | '.'))
}

/// Returns true for Unicode's `Default_Ignorable_Code_Point`, with unassigned ones, which includes the list of HFS+.
const fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{115F}'..='\u{1160}' | '\u{17B4}'..='\u{17B5}'
        | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}'
        | '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_dot_git() {
        for name in [
            ".git",
            ".GIT",
            ".Git",
            ".git ",
            ".git.",
            ".git . .",
            "git~1",
            "GIT~1",
            "git~1.",
            ".git::$INDEX_ALLOCATION",
            ".git\\config",
            "x\\.git",
            ".g\u{200c}it",
            "\u{feff}.git",
            ".git\u{200d}",
            ".gi\u{ad}t",
            ".g\u{206f}i\u{fe0f}t",
            ".git\u{200c} .",
        ] {
            assert!(is_dot_git(name), "{name:?}");
        }
    }

    #[test]
    fn other_names_stay_usable() {
        for name in [
            ".gitignore",
            ".github",
            ".gitmodules",
            "git",
            "dot.git",
            ".git2",
            "git~2",
            ".gitx ",
            "a.git",
            ". git",
        ] {
            assert!(!is_dot_git(name), "{name:?}");
        }
    }

    #[test]
    fn folds_other_names_alike() {
        assert!(is_name("Node_Modules.", "node_modules"));
        assert!(!is_name("node_modules2", "node_modules"));
    }
}
