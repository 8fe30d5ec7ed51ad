//! The deny list, asked for a program as it is written in a command line or a script.

use ops::deny::{NAMES, base_name, is_denied_with};

/// Whether this program is on the deny list or among a profile's `extra` names, or is a pattern that a shell may expand to
/// one of them: `/bin/r?`.
pub(super) fn is_denied(program: &str, extra: &[String]) -> bool {
    is_denied_with(program, extra) || is_pattern(program) && could_be_denied(&base_name(program), extra)
}

/// A pattern without any letter is more often a list of files than a program, unless it is a path.
fn is_pattern(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    let wild = name.contains(['*', '?']) || name.contains('[') && name.contains(']');
    wild && (program.contains('/') || name.contains(char::is_alphanumeric))
}

fn could_be_denied(pattern: &str, extra: &[String]) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let extra = extra.iter().map(|name| name.trim_end_matches('*').to_ascii_lowercase());
    let mut names = NAMES.iter().map(|name| (*name).to_owned()).chain(extra);
    names.any(|name| matches(&pattern, &name.chars().collect::<Vec<_>>()))
}

/// Whether a shell's pattern stands for a name.
fn matches(pattern: &[char], name: &[char]) -> bool {
    // Where the last `*` stands, and how much of the name it has taken.
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut n) = (0, 0);
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, n));
            p += 1;
        } else if let Some(length) = pattern.get(p..).and_then(|rest| one(rest, name[n])) {
            p += length;
            n += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            (p, n) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// How many characters of the pattern stand for this one character; `None` when they do not.
fn one(pattern: &[char], c: char) -> Option<usize> {
    let first = *pattern.first()?;
    if first == '?' {
        return Some(1);
    }
    let close = pattern.iter().skip(2).position(|c| *c == ']').map(|at| at + 2);
    let Some(close) = close.filter(|_| first == '[') else { return (first == c).then_some(1) };
    // Ranges and classes are taken to hold any character: a class that spells out a program has no honest use.
    let set = &pattern[1..close];
    let any = set.contains(&'-') || set.contains(&':') || matches!(set.first(), Some('!' | '^'));
    (any || set.contains(&c)).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_seen_through() {
        for program in [
            "rm",
            "/bin/r?",
            "r[m]",
            "/???/r*",
            "/bin/[r]m",
            "s?do",
            "/bin/[!a]m",
            "RM",
            "/*/??",
            "do?ker",
            "r[l-n]",
        ] {
            assert!(is_denied(program, &["docker*".into()]), "{program}");
        }
        for program in ["*", "[", "[[", "*.txt", "./test_*.sh", "ls*", "r?x", "r[ab]", "r[m", "/bin/ls", "??"]
        {
            assert!(!is_denied(program, &["docker*".into()]), "{program}");
        }
    }

    #[test]
    fn many_stars_cost_little() {
        let pattern: Vec<char> = "a*".repeat(5_000).chars().chain(['c']).collect();
        let name: Vec<char> = "a".repeat(10_000).chars().chain(['b']).collect();
        assert!(!matches(&pattern, &name));
    }
}
