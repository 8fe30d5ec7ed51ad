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

/// The alternatives of the first brace with a comma in it. One pass, however many braces are never closed.
fn split(word: &str) -> Option<Vec<String>> {
    let mut open: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut first: Option<(usize, Vec<usize>, usize)> = None;
    for (at, c) in word.char_indices() {
        match c {
            '{' => open.push((at, Vec::new())),
            ',' => {
                if let Some((_, commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            '}' => {
                if let Some((start, commas)) = open.pop().filter(|(_, commas)| !commas.is_empty())
                    && first.as_ref().is_none_or(|(earlier, ..)| start < *earlier)
                {
                    first = Some((start, commas, at));
                }
            }
            _ => {}
        }
    }
    let (open, commas, close) = first?;
    let (before, after) = (&word[..open], &word[close + 1..]);
    let starts = std::iter::once(open).chain(commas.iter().copied());
    let ends = commas.iter().copied().chain([close]);
    Some(starts.zip(ends).map(|(start, end)| format!("{before}{}{after}", &word[start + 1..end])).collect())
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
            ("{{{rm,x}", &["{{rm", "{{x"]),
            ("}{a,b}", &["}a", "}b"]),
            ("a,b}", &[]),
            ("é{ä,ö}ü", &["éäü", "éöü"]),
            ("", &[]),
        ] {
            assert_eq!(expand(word), expected, "{word}");
        }
        assert!(expand(&"{a,b}".repeat(30)).len() <= MAX_WORDS);
    }

    #[test]
    fn braces_that_are_not_closed_cost_one_pass() {
        effort::assert_linear(170_000, |n| "{a,{a,".repeat(n), |word| assert_eq!(expand(word), [""; 0]));
    }
}
