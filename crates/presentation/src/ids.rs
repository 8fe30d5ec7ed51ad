//! Ids as users type them: a whole id, or an end (otherwise a beginning) that only one of the candidates has.

use std::str::FromStr;

use crate::failure::Failure;

const SHORT: usize = 8;
/// Number of candidates that an error names.
const SHOWN: usize = 5;

/// Returns the end of an id, which distinguishes it from its neighbours. The beginning of a UUIDv7 is the time.
pub fn short(id: &str) -> &str {
    if !is_whole(id) {
        return id;
    }
    id.get(id.len() - SHORT..).unwrap_or(id)
}

/// Returns a function that shortens each id of a list to an end that no other id of the list has.
pub fn ends<'a>(ids: impl Iterator<Item = &'a str> + Clone) -> impl Fn(&str) -> String {
    let all: Vec<String> = ids.map(str::to_owned).collect();
    move |id: &str| {
        if !is_whole(id) {
            return id.to_owned();
        }
        let is_shared = |end: &str| all.iter().filter(|other| *other != id).any(|other| other.ends_with(end));
        let ends = (SHORT..id.len()).map(|length| &id[id.len() - length..]);
        // Skips ends with a leading dash, which is not part of a word.
        let mut ends = ends.filter(|end| !end.starts_with('-'));
        ends.find(|end| !is_shared(end)).unwrap_or(id).to_owned()
    }
}

/// Returns true if this is a whole UUID, which needs no search.
pub fn is_whole(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

/// Returns the whole id that `text` names: `text` itself, or the only id of `known` that ends or begins with it.
pub async fn resolve(
    text: &str,
    noun: &str,
    list: &str,
    known: impl AsyncFnOnce() -> Result<Vec<String>, Failure>,
) -> Result<String, Failure> {
    if is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let known = known().await?;
    pick(known.iter().map(String::as_str), text, noun, list).map(str::to_owned)
}

/// An argument that is an id, a unique beginning or end of one, or a tag.
#[derive(Debug, Clone)]
pub struct Named(String);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("is empty".to_owned()) } else { Ok(Self(text.to_owned())) }
    }
}

impl Named {
    /// Returns the whole id that the argument names, among the ids and tags of `known`, the oldest first.
    ///
    /// If several have the tag, it returns the newest, because a restarted server often gets the same tag again.
    pub async fn resolve(
        &self,
        noun: &str,
        list: &str,
        known: impl AsyncFnOnce() -> Result<Vec<(String, String)>, Failure>,
    ) -> Result<String, Failure> {
        if is_whole(&self.0) {
            return Ok(self.0.to_ascii_lowercase());
        }
        let known = known().await?;
        if let Some((id, _)) = known.iter().rev().find(|(_, tag)| *tag == self.0) {
            return Ok(id.clone());
        }
        let found = pick(known.iter().map(|(id, _)| id.as_str()), &self.0, noun, list);
        found.map(str::to_owned).map_err(|failure| {
            let tags: Vec<&str> = known.iter().map(|(_, tag)| tag.as_str()).collect();
            failure.and_hint(&meant(&self.0, &tags).unwrap_or_default())
        })
    }
}

/// Parses an argument that is an id or part of one.
pub fn part(text: &str) -> Result<String, String> {
    if may_be_part(text) { Ok(text.to_ascii_lowercase()) } else { Err("is not an id or part of one".into()) }
}

/// Returns `text`, or a dash if it is empty.
pub fn or_dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn may_be_part(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Returns the only id among `ids` that ends with `part`, or else begins with it.
pub fn pick<'a>(
    ids: impl IntoIterator<Item = &'a str>,
    part: &str,
    noun: &str,
    list: &str,
) -> Result<&'a str, Failure> {
    let part = part.to_ascii_lowercase();
    if !may_be_part(&part) {
        return Err(Failure::usage(format!("`{part}` is neither a whole {noun} id nor part of one"))
            .with_hint(format!("`{list}` shows them")));
    }
    let known: Vec<&str> = ids.into_iter().collect();
    let (ending, beginning): (Vec<&str>, Vec<&str>) = known
        .iter()
        .copied()
        .filter(|id| id.ends_with(&part) || id.starts_with(&part))
        .partition(|id| id.ends_with(&part));
    let found = if ending.is_empty() { beginning } else { ending };
    match found[..] {
        [one] => Ok(one),
        [] => Err(Failure::failed(format!("no {noun} has an id that begins or ends with `{part}`"))
            .with_hint(meant_id(&part, &known).unwrap_or_default())
            .and_hint(&format!("`{list}` shows yours; only operators see those of other users"))),
        _ => {
            let some = found.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
            let more = if found.len() > SHOWN { ", …" } else { "" };
            Err(Failure::usage(format!("`{part}` matches {} {noun} ids", found.len()))
                .with_hint(format!("give more of its last characters: {some}{more}")))
        }
    }
}

/// Returns the only object of `known` whose id ends with `part`, or else begins with it.
pub fn find<T>(
    known: Vec<T>,
    id_of: impl Fn(&T) -> &str,
    part: &str,
    noun: &str,
    list: &str,
) -> Result<T, Failure> {
    let id = pick(known.iter().map(&id_of), part, noun, list)?.to_owned();
    let found = known.into_iter().find(|object| id_of(object) == id);
    found.ok_or_else(|| Failure::failed(format!("{noun} {id} is gone")))
}

/// Asks if one of the most similar words was meant. `None` if no word is similar.
pub fn meant(given: &str, known: &[&str]) -> Option<String> {
    question(&document::similar(given, known))
}

/// Asks if one of the ids was meant whose end or beginning is most similar to `part`.
fn meant_id(part: &str, known: &[&str]) -> Option<String> {
    let length = part.len();
    let ends = known.iter().filter_map(|id| id.get(id.len().checked_sub(length)?..));
    let beginnings = known.iter().filter_map(|id| id.get(..length));
    let mut words: Vec<&str> = ends.chain(beginnings).collect();
    words.sort_unstable();
    words.dedup();
    // Two ids with random digits are similar in a word of three characters.
    if length < 4 { None } else { question(&document::similar(part, &words)) }
}

fn question(words: &[&str]) -> Option<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match &quoted[..] {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [first @ .., last] => Some(format!("did you mean {} or {last}?", first.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    const A: &str = "0198a1b2-0000-7000-8000-00000000aaaa";
    const B: &str = "0198a1b2-0000-7000-8000-00000000bbbb";

    fn find(part: &str) -> Result<&'static str, Failure> {
        pick([A, B], part, "run", "coffer run list")
    }

    #[test]
    fn whole_ids_and_short_ones() {
        assert!(is_whole(A));
        assert!(!is_whole("0198a1b2"));
        assert!(!is_whole(&A.replace('-', "0")));
        assert_eq!(short(A), "0000aaaa");
        assert_eq!(short("é"), "é");
    }

    #[test]
    fn shown_ends_of_ids_are_as_long_as_needed() {
        let neighbours = [A, B, "0198a1b2-0000-7000-8001-00000000bbbb", "x"];
        let end = ends(neighbours.into_iter());
        assert_eq!(neighbours.map(end), ["0000aaaa", "0-00000000bbbb", "1-00000000bbbb", "x"]);
        assert_eq!(ends([A, A].into_iter())(A), "0000aaaa", "the same twice");
    }

    #[test]
    fn the_end_of_an_id_takes_precedence_over_its_beginning() {
        let ends = "0198a1b2-0000-7000-8000-000000000198";
        assert_eq!(pick([A, B, ends], "0198", "run", "coffer run list").unwrap(), ends);
    }

    #[test]
    fn one_match_is_enough() {
        assert_eq!(find("aaaa").unwrap(), A);
        assert_eq!(find("BBBB").unwrap(), B);
        assert_eq!(find(A).unwrap(), A);
    }

    #[test]
    fn an_unknown_part_of_an_id_suggests_the_nearest_ids() {
        let none = find("aaba").unwrap_err();
        assert_eq!(none.exit(), Exit::Failed);
        assert!(none.to_string().contains("hint: did you mean `aaaa`?; `coffer run list`"), "{none}");
        let beginning = find("0198a1c2").unwrap_err().to_string();
        assert!(beginning.contains("did you mean `0198a1b2`?"), "{beginning}");
        let far = find("ffff").unwrap_err().to_string();
        assert!(!far.contains("did you mean"), "{far}");
    }

    #[tokio::test]
    async fn an_unknown_tag_suggests_the_nearest_tags() {
        async fn known() -> Result<Vec<(String, String)>, Failure> {
            Ok(vec![(A.to_owned(), "build".to_owned()), (B.to_owned(), String::new())])
        }
        let named = |text: &str| text.parse::<Named>().unwrap();
        let id = named("build").resolve("process", "coffer process list RUN", known).await;
        assert_eq!(id.unwrap(), A);
        let none = named("biuld").resolve("process", "coffer process list RUN", known).await;
        assert!(none.unwrap_err().to_string().ends_with("; did you mean `build`?"));
    }

    #[test]
    fn at_most_three_words_are_suggested() {
        let known = ["build1", "build2", "build3", "build4", "review"];
        assert_eq!(meant("build", &known).unwrap(), "did you mean `build1`, `build2` or `build3`?");
        assert_eq!(meant("reveiw", &known).unwrap(), "did you mean `review`?");
        assert_eq!(meant("zzzzzz", &known), None);
        assert_eq!(meant("review", &[]), None);
    }

    #[test]
    fn no_match_and_several_matches_give_different_messages() {
        assert_eq!(find("ffff").unwrap_err().exit(), Exit::Failed);
        assert_eq!(find("").unwrap_err().exit(), Exit::Usage);
        assert_eq!(find("../x").unwrap_err().exit(), Exit::Usage);
        let many = find("0198").unwrap_err();
        assert_eq!(many.exit(), Exit::Usage);
        assert!(many.to_string().contains(A) && many.to_string().contains(B));
    }
}
