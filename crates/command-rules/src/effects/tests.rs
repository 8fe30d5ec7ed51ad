use super::{deletes, may_do_more, only_reads, reads};

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

/// A line that reads is known to, and no other one. One that runs or deletes something is never taken for one that does not.
#[test]
fn command_lines_do_what_the_list_says() {
    let mut wrong = Vec::new();
    for Line { verdict, word, argv } in lines() {
        let (program, args) = argv.split_first().unwrap();
        let harmless = reads(program, args);
        let is_right = match verdict.as_str() {
            // Not every program that may read has a shape that says so.
            "reads" => harmless.is_ok() || harmless == Err(program) && !may_do_more(program, args),
            "unknown" => harmless == Err(&word) || harmless == Err(program),
            "writes" => harmless.is_err(),
            "runs" => harmless.is_err() && may_do_more(program, args),
            _ => deletes(program, args) == Some(&word) && may_do_more(program, args),
        };
        if !is_right || only_reads(program, args) && verdict != "reads" {
            wrong.push(format!("{argv:?} {verdict} by {word}: {harmless:?}"));
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
        ("tail +5 a -", &["a"]),
        ("find a b -name c -newer d -newermt e", &["a", "b", "d"]),
        ("find ! -samefile a", &["a"]),
    ] {
        let argv = words(&line.replace('!', "'!'"));
        assert_eq!(reads(&argv[0], &argv[1..]), Ok(expected.to_vec()), "{line}");
    }
}

#[test]
fn words_that_are_not_on_the_list_are_not_harmless() {
    for line in [
        "cat --num a",
        "cat a -n",
        "head -n",
        "head -n5% a",
        "head --lines",
        "tail --lin=5 a",
        "wc -lx a",
        "grep -nR x",
        "find . -fprint out -delete",
        "BusyBox cat a",
    ] {
        let argv = words(line);
        assert!(reads(&argv[0], &argv[1..]).is_err() && !only_reads(&argv[0], &argv[1..]), "{line}");
    }
    assert!(!only_reads("/proc/self/root/bin/cat", &[]), "the path does not show which program it is");
    for (line, may) in [
        ("sort -t, -k2,2n a", false),
        ("sort -o out a", false),
        ("sort --o a", true),
        ("sort --c=./program a", true),
        ("diff -ru a b", false),
        ("diff -lu a b", true),
        ("gawk {print} a", false),
        ("tar tfI a.tar x", true),
        ("tar czf a.tar x", false),
        ("tar -xf a.tar -C dir", false),
        ("tar -xf a.tar x --to-command=./program", true),
        ("sed -i s/one/1/ a", false),
        ("sed -n -e 1,2p -e '$p' a", false),
        ("sed -n -e p --in", true),
        ("sed 's/a;1e touch ran/b/' a", false),
        ("sed 's/a\\/b/e;p' a", true),
        ("/usr/bin/FIND . -delete", true),
        ("BusyBox find . -delete", true),
    ] {
        let argv = words(line);
        assert_eq!(may_do_more(&argv[0], &argv[1..]), may, "{line}");
    }
}

#[test]
fn find_that_deletes_is_seen_whatever_else_it_does() {
    for line in ["find . -frob -delete", "find . -delete -exec true {} +", "gfind . -rm", "/bin/FIND -delete"]
    {
        let argv = words(line);
        assert!(deletes(&argv[0], &argv[1..]).is_some(), "{line}");
    }
    assert_eq!(deletes("find", &words(". -name -delete")), None);
    assert_eq!(deletes("finder", &words("-delete")), None);
}
