#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod lines;
mod problem;
mod suggest;
mod tree;
mod units;
mod walk;

pub use lines::{Step, line_of};
pub use problem::{Problem, list};
pub use suggest::{nearest, similar};
pub use tree::{MAX_FILE_BYTES, Malformed, Node, parse};
pub use units::{
    NEVER, age_or, meant_duration, meant_size, parse_duration, parse_size, show_size, size, size_or, time,
    time_or,
};
pub use walk::{At, Fields, Sink};

use std::io::{self, Read};

/// Reads a text up to one byte beyond [`MAX_FILE_BYTES`]. The parser then refuses it for its length.
pub fn bounded(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the value that `values` makes of the one document in `text`, or every problem in it.
///
/// An empty document is an empty mapping. `file` is its name in problems.
pub fn read<T>(file: &str, text: &str, values: impl FnOnce(&At<'_>) -> T) -> Result<T, Vec<Problem>> {
    let tree = match parse(text) {
        Ok(Node::Null) => Node::Map(Vec::new()),
        Ok(tree) => tree,
        Err(malformed) => return Err(vec![malformed.in_file(file)]),
    };
    let sink = Sink::default();
    let read = values(&At::top(&tree, &sink));
    let problems = sink.into_problems(file, text);
    if problems.is_empty() { Ok(read) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_number_is_text_or_a_number() {
        let read = |text: &str| {
            read("f.yaml", &format!("usd: {text}\n"), |top| {
                top.fields(&["usd"]).get("usd").and_then(At::decimal)
            })
        };
        for (text, decimal) in
            [("5", "5"), ("0.25", "0.25"), ("\"5.00\"", "5.00"), ("0.0000001", "0.0000001")]
        {
            assert_eq!(read(text), Ok(Some(decimal.to_owned())), "{text}");
        }
        for text in ["-5", "true", "[5]", "\" \""] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_more_of_a_text_is_read_than_the_parser_needs_to_refuse_it() {
        assert_eq!(bounded(&b"a: 1\n"[..]).unwrap(), "a: 1\n");
        let text = bounded(io::repeat(b'#')).unwrap();
        assert_eq!(text.len(), MAX_FILE_BYTES + 1);
        assert!(parse(&text).is_err() && parse(&text[1..]).is_ok());
        assert!(bounded(&[0xff][..]).is_err());
    }

    #[test]
    fn every_problem_has_its_line_and_a_missing_key_that_of_its_section() {
        let text = "# a file\nlamp:\n  colour: gren\n  colour: red\n  wats: 5\n";
        let problems = read("f.yaml", text, |top| {
            let lamp = top.fields(&["lamp", "door"]).section("lamp", &["colour", "watts"]);
            lamp.get("colour").map(|at| at.one_of(&[("green", 1), ("red", 2)]));
            lamp.at("watts").problem("is needed for this colour");
        });
        let told: Vec<_> = problems.unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "f.yaml:2: lamp.watts: is needed for this colour",
                "f.yaml:3: lamp.colour: unknown value `gren` (did you mean `green`?)",
                "f.yaml:4: lamp.colour: given more than once (keep one)",
                "f.yaml:5: lamp.wats: unknown key (did you mean `watts`?)",
            ]
        );
        assert_eq!(read("f.yaml", "", |top| top.fields(&["lamp"]).get("lamp").is_none()), Ok(true));
        assert_eq!(read("f.yaml", "a: [", |_| ()).unwrap_err().len(), 1);
    }
}
