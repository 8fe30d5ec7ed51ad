//! Suggests a known word for an unknown one.

/// Returns `did you mean …` if a known word is near, else the list of known words.
pub fn nearest(given: &str, known: &[&str]) -> String {
    // A word as long as a book is not a typing error.
    let near = known
        .iter()
        .filter(|_| given.len() <= 64)
        .map(|word| {
            // `commit` is meant for `git.commit`.
            let last = word.rsplit('.').next().unwrap_or(word);
            (distance(given, word).min(distance(given, last)), word)
        })
        .min()
        .filter(|(distance, word)| *distance <= 1 + word.len() / 4);
    match near {
        Some((_, word)) => format!("did you mean `{word}`?"),
        None if known.is_empty() => "none is defined".to_owned(),
        None => format!("known: {}", known.join(", ")),
    }
}

/// Number of words that [`similar`] returns at most.
const MOST_SIMILAR: usize = 3;
/// Longest word that is compared, in bytes. A longer one is not a typing error.
const LONGEST: usize = 64;

/// Returns the known words that are most similar to `given`, the most similar first and at most three.
pub fn similar<'k>(given: &str, known: &[&'k str]) -> Vec<&'k str> {
    if given.len() > LONGEST {
        return Vec::new();
    }
    let near = |word: &'k str| (distance(given, word), word);
    let is_similar = |(distance, word): &(usize, &str)| *distance <= 1 + word.len() / 4;
    let short = known.iter().copied().filter(|word| (1..=2 * LONGEST).contains(&word.len()));
    let mut found: Vec<(usize, &str)> = short.map(near).filter(is_similar).collect();
    found.sort_unstable();
    found.truncate(MOST_SIMILAR);
    found.into_iter().map(|(_, word)| word).collect()
}

/// Counts the edits (insert, delete, replace, swap of neighbours) from `a` to `b`, without regard to case.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_three_similar_words_are_found_the_nearest_first() {
        let known = ["builds", "bulid", "build2", "build3", "review"];
        assert_eq!(similar("build2", &known), ["build2", "build3", "builds"]);
        assert_eq!(similar("REVEIW", &known), ["review"]);
        assert!(similar("nothing", &known).is_empty() && similar(&"x".repeat(65), &known).is_empty());
        assert!(similar("build", &[]).is_empty() && similar("x", &[""]).is_empty());
    }

    #[test]
    fn near_words_are_suggested() {
        let known = ["allow", "ask", "deny"];
        assert_eq!(nearest("alow", &known), "did you mean `allow`?");
        assert_eq!(nearest("Deny", &known), "did you mean `deny`?");
        assert_eq!(nearest("wirte", &["write", "read"]), "did you mean `write`?");
        assert_eq!(nearest("perhaps", &known), "known: allow, ask, deny");
        assert_eq!(nearest("x", &[]), "none is defined");
    }
}
