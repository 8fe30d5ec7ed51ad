use super::{Effect, effect};

/// The same lines are run for real by `tests/security/read_only.rs`.
const LINES: &str = include_str!("../../testdata/command_lines.txt");

struct Line {
    verdict: String,
    word: String,
    argv: Vec<String>,
}

fn lines() -> impl Iterator<Item = Line> {
    LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| {
        let mut words = words(line).into_iter();
        let mut next = || words.next().unwrap_or_else(|| panic!("{line}"));
        let (verdict, _, word) = (next(), next(), next());
        Line { verdict, word, argv: words.collect() }
    })
}

/// As a shell parts them that knows single quotes and nothing else.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in line.split('\'').enumerate() {
        let plain = |c: char| c.is_ascii_alphanumeric() || " -_./:=+@%,{}^~".contains(c);
        if index % 2 == 1 {
            words.last_mut().unwrap().push_str(part);
            continue;
        }
        assert!(part.chars().all(plain), "{line}: a shell would read it in another way");
        let mut pieces = part.split(' ');
        words.last_mut().unwrap().push_str(pieces.next().unwrap());
        words.extend(pieces.map(str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn command_lines_have_the_effects_of_the_table() {
    let mut wrong = Vec::new();
    for Line { verdict, word, argv } in lines() {
        let found = effect(&argv[0], &argv[1..]);
        let (does, by) = match &found {
            Effect::Reads(_) => ("reads", "-"),
            Effect::Unknown(word) => ("unknown", *word),
            Effect::Writes(word) => ("writes", *word),
            Effect::Deletes(word) => ("deletes", *word),
            Effect::Runs(word) => ("runs", *word),
        };
        if (does, by) != (verdict.as_str(), word.as_str()) {
            wrong.push(format!("{argv:?} {verdict} by {word}: {does} by {by}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines().count() >= 150);
}

#[test]
fn the_paths_that_are_read_are_found() {
    for (line, expected) in [
        ("cat -n a -- -b", &["a", "-b"][..]),
        ("head -n 5 a", &["a"]),
        ("head -5 a b", &["a", "b"]),
        // Not every program looks for options here.
        ("head a -n 5", &["-n", "5", "a"]),
        ("tail +5 a -", &["a"]),
        ("wc a --lines", &["--lines", "a"]),
        ("find a b -name c -newer d -newermt e", &["a", "b", "d"]),
        ("find ! -samefile a", &["a"]),
        ("grep -e x a b", &["a", "b"]),
        ("grep x a", &["a"]),
        ("grep --exclude-from=l x a", &["l", "a"]),
        ("sed r/etc/passwd a", &["/etc/passwd", "a"]),
        ("tr a b", &[]),
    ] {
        let argv = words(&line.replace('!', "'!'"));
        assert_eq!(effect(&argv[0], &argv[1..]), Effect::Reads(expected.to_vec()), "{line}");
    }
}

/// Of a line that is not understood the worst is taken that a word of it may mean.
#[test]
fn unknown_options_count_as_their_worst_effect() {
    for (line, expected) in [
        ("find . -frob -delete", Effect::Deletes("-delete")),
        ("find . -frob x -exec rm {} +", Effect::Runs("-exec")),
        ("sort -Qo out a", Effect::Writes("-Qo")),
        ("sort --o a", Effect::Writes("--o")),
        ("diff -l a b", Effect::Runs("-l")),
        ("gawk -oout {print}", Effect::Writes("-oout")),
        ("sed -n -e p --in", Effect::Writes("--in")),
        ("tar tfI a.tar x", Effect::Runs("tfI")),
        ("BusyBox find . -delete", Effect::Runs("BusyBox")),
        ("/usr/bin/FIND . -delete", Effect::Deletes("-delete")),
    ] {
        let argv = words(line);
        assert_eq!(effect(&argv[0], &argv[1..]), expected, "{line}");
    }
}
