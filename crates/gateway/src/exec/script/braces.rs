//! `{a,b}`: one word that bash makes several of.

/// Words that one may become. More is no honest use, and is left as it is.
const MAX_WORDS: usize = 64;

/// The words that `word` becomes; none when there is nothing in it to expand.
pub(super) fn expand(word: &str) -> Vec<String> {
    let mut words = vec![word.to_owned()];
    let mut changed = false;
    let mut at = 0;
    while let Some(word) = words.get(at) {
        match split(word) {
            Some(parts) if words.len() + parts.len() <= MAX_WORDS => {
                words.splice(at..=at, parts);
                changed = true;
            }
            _ => at += 1,
        }
    }
    if changed { words } else { Vec::new() }
}

/// The alternatives of the first brace with a comma in it.
fn split(word: &str) -> Option<Vec<String>> {
    word.match_indices('{').find_map(|(open, _)| {
        let mut depth = 0_usize;
        let mut commas = Vec::new();
        let (close, _) = word[open..].char_indices().find(|&(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 1 => commas.push(open + at),
                _ => {}
            }
            depth == 0
        })?;
        if commas.is_empty() {
            return None;
        }
        let (before, after) = (&word[..open], &word[open + close + 1..]);
        let starts = std::iter::once(open).chain(commas.iter().copied());
        let ends = commas.iter().copied().chain([open + close]);
        Some(
            starts
                .zip(ends)
                .map(|(start, end)| format!("{before}{}{after}", &word[start + 1..end]))
                .collect(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_with_commas_are_expanded() {
        for (word, expected) in [
            ("{rm,-rf,x}", &["rm", "-rf", "x"][..]),
            ("/bin/{rm,ls}", &["/bin/rm", "/bin/ls"]),
            ("r{m,}", &["rm", "r"]),
            ("{a,{b,c}d}", &["a", "bd", "cd"]),
            ("{a}{b,c}", &["{a}b", "{a}c"]),
            ("{a}", &[]),
            ("{a,b", &[]),
            ("a,b}", &[]),
            ("é{ä,ö}ü", &["éäü", "éöü"]),
            ("", &[]),
        ] {
            assert_eq!(expand(word), expected, "{word}");
        }
        assert!(expand(&"{a,b}".repeat(30)).len() <= MAX_WORDS);
    }
}
