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
    fn near_words_are_suggested() {
        let known = ["allow", "ask", "deny"];
        assert_eq!(nearest("alow", &known), "did you mean `allow`?");
        assert_eq!(nearest("Deny", &known), "did you mean `deny`?");
        assert_eq!(nearest("wirte", &["write", "read"]), "did you mean `write`?");
        assert_eq!(nearest("perhaps", &known), "known: allow, ask, deny");
        assert_eq!(nearest("x", &[]), "none is defined");
    }
}
