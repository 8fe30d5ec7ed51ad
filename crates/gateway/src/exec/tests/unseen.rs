//! What is cannot be judged in advance: it asks wherever a profile asks, and the reviewer is told.

use operations::{Exec, Shell};

use super::{quote, verdict_in, words};
use crate::exec::judge::{judge, judge_script};
use crate::testing::{builtin, builtin_and, exec, shell};
use policy::Policy;
use policy::Verdict::{self, Allow, Ask, Deny};

/// The profiles that ask about commands.
const ASKING: [&str; 3] = ["review", "build", "strict"];

/// A command line, what it reads, and what it does under `open`.
type Line = (&'static [&'static str], &'static str, Verdict);

/// Command lines that end in `rm`, one way or another.
const LINES: &[Line] = &[
    // In bash.
    (&["bash", "-c", "let 'x=a[$(rm -f v)]'"], "", Allow),
    (&["bash", "-c", "[[ -v 'a[$(rm -f v)]' ]]"], "", Allow),
    (&["bash", "-c", "compgen -C 'rm -f v' x"], "", Allow),
    (&["bash", "-c", "printf -v c '%s' rm; $c -f v"], "", Allow),
    (&["bash", "-c", "IFS=,;c='rm,-f,v';$c"], "", Allow),
    (&["bash", "-c", "ln -s /bin/rm zq; ./zq -f v"], "", Allow),
    (&["bash", "-c", "cp /bin/rm ./zz; ./zz -f v"], "", Allow),
    (&["bash", "-c", "C=rm; $C -f v"], "", Allow),
    (&["bash", "-c", "{rm,-f,v}"], "", Allow),
    (&["bash", "-c", r"$'\x72m' -f v"], "", Allow),
    (&["bash", "-c", "/bin/r? -f v"], "", Allow),
    (&["bash", "-c", "f() { $@; }; f rm -f v"], "", Allow),
    (&["bash", "-c", "set -- rm -f v; \"$@\""], "", Allow),
    (&["bash", "-c", "for c in rm; do $c -f v; done"], "", Allow),
    (&["bash", "-c", "a=(rm -f v); \"${a[@]}\""], "", Allow),
    (&["bash", "-c", "${c:-rm} -f v"], "", Allow),
    (&["bash", "-c", "base64 -d <<< cm0gLWYgdgo= | bash"], "", Allow),
    (&["bash", "-c", "unset 'a[$(rm -f v)]'"], "", Allow),
    (&["bash", "-c", "test -v 'a[$(rm -f v)]'"], "", Allow),
    (&["bash", "-c", "read 'a[$(rm -f v)]' < x"], "", Allow),
    (&["bash", "-c", "declare 'a[$(rm -f v)]=1'"], "", Allow),
    // In other programs' arguments.
    (&["awk", "BEGIN{system(\"rm -f v\")}"], "", Allow),
    (&["git", "-c", "alias.x=!rm -f v", "x"], "", Allow),
    (&["sed", "1e rm -f v", "s.sh"], "", Allow),
    (&["make", "-f", "-"], "x:\n\trm -f v\n", Allow),
    (&["make", "--file=/dev/stdin"], "x:\n\trm -f v\n", Allow),
    (&["make", "--eval", "x: ; rm -f v"], "", Allow),
    (&["make", "CC=sh -c 'rm -f v'"], "", Allow),
    (&["make", "SHELL=/bin/rm"], "", Allow),
    (&["python3", "-c", "import os; os.remove('v')"], "", Allow),
    (&["python3"], "import os; os.remove('v')\n", Allow),
    (&["perl", "-e", "unlink 'v'"], "", Allow),
    (&["ruby", "-e", "File.delete 'v'"], "", Allow),
    (&["node", "-e", "fs.rmSync('v')"], "", Allow),
    (&["node", "--test", "--eval", "fs.rmSync('v')"], "", Allow),
    (&["cmake", "-E", "rm", "v"], "", Allow),
    (&["cargo", "test", "--config", "build.rustc-wrapper=\"/bin/rm\""], "", Allow),
    (&["go", "test", "-exec", "rm -f v"], "", Allow),
    (&["gcc", "-wrapper", "rm,-f,v", "x.c"], "", Allow),
    (&["npm", "test", "--script-shell=/bin/rm"], "", Allow),
    (&["sh", "-c", "xargs -a names ls"], "", Allow),
    // Named plainly: refused, whoever consents.
    (&["rm", "-f", "v"], "", Deny),
    (&["sh", "-c", "rm -f v"], "", Deny),
    (&["bash", "-c", "echo $(rm -f v)"], "", Deny),
    (&["bash", "-c", "if true; then rm -f v; fi"], "", Deny),
    (&["bash", "-c", "x=1 r''m -f v"], "", Deny),
    (&["bash", "-s"], "rm -f v\n", Deny),
    (&["env", "-S", "rm -f v"], "", Deny),
    (&["env", "A=1", "nice", "rm", "-f", "v"], "", Deny),
    (&["xargs", "rm", "-f"], "v\n", Deny),
    (&["find", ".", "-name", "v", "-exec", "rm", "{}", ";"], "", Deny),
    (&["busybox", "rm", "-f", "v"], "", Deny),
];

fn judged(policy: &Policy, profile: &str, argv: &[&str], stdin: &str) -> (Verdict, String) {
    let ruling = judge(policy.profile(profile).unwrap(), &Exec { stdin: stdin.into(), ..exec(argv) });
    (ruling.verdict, ruling.justification)
}

#[test]
fn unseen_commands_need_approval_where_a_profile_asks() {
    let policy = builtin();
    for (argv, stdin, open) in LINES {
        assert_eq!(judged(&policy, "open", argv, stdin).0, *open, "open: {argv:?}");
        for profile in ASKING {
            let (verdict, why) = judged(&policy, profile, argv, stdin);
            let expected = if *open == Deny { Deny } else { Ask };
            assert_eq!(verdict, expected, "{profile}: {argv:?}");
            // Two that are plain words: what `./zq` is, is not.
            let is_plain = argv.iter().any(|word| word.contains("./z"));
            let says = why.starts_with("cannot be judged in advance: ");
            assert!(expected == Deny || says != is_plain, "{profile}: {argv:?}: {why}");
        }
    }
}

/// The same as scripts, where a profile lets plain ones run by themselves.
#[test]
fn a_script_that_is_not_plain_words_asks_even_where_scripts_do_not() {
    let policy = builtin_and(
        "profiles:\n  p:\n    operations: {exec: allow, shell: allow}\n    exec:\n      default: ask\n      rules:\n        \
         - {prefix: [make], decision: allow, justification: it builds}\n",
    );
    let of = |profile: &str, script: &str, stdin: &str| {
        let shell = Shell { stdin: stdin.into(), ..shell(script) };
        judge_script(policy.profile(profile).unwrap(), &shell)
            .map(|ruling| (ruling.verdict, ruling.justification))
    };
    for (argv, stdin, open) in LINES {
        let script = match argv {
            ["bash", "-c", script] => (*script).to_owned(),
            argv => argv.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "),
        };
        let (verdict, why) = of("p", &script, stdin).unwrap_or((Allow, String::new()));
        let is_plain = script.contains("./z");
        let expected = if *open == Deny {
            Deny
        } else if is_plain {
            Allow
        } else {
            Ask
        };
        assert_eq!(verdict, expected, "{script}");
        assert!(expected != Ask || why.starts_with("cannot be judged in advance: "), "{script}: {why}");
        assert_eq!(of("open", &script, stdin).map_or(Allow, |(verdict, _)| verdict), *open, "open: {script}");
    }
    for script in
        ["ls", "make 2>&1 | tail -n 5", "cd a && make 'two words'\nls > out.txt", "env make", "sed s/a/b/ x"]
    {
        assert_eq!(of("p", script, ""), None, "{script}");
    }
    let why = |script| of("p", script, "").unwrap().1;
    assert_eq!(why("ls $X"), "cannot be judged in advance: a script with `$` in it");
    assert_eq!(why("ls; eval ls"), "cannot be judged in advance: a script with `eval` in it");
    assert_eq!(
        why("ls | xargs wc"),
        "cannot be judged in advance: `xargs` runs commands that it reads or makes from its arguments"
    );
    assert_eq!(why("awk 1 x"), "cannot be judged in advance: `awk` takes code");
    assert_eq!(why("git -c a=b x"), "cannot be judged in advance: `git` takes code with `-c`");
    assert_eq!(why("ls | python3"), "cannot be judged in advance: `python3` reads code from its input");
}

#[test]
fn a_rule_allows_code_only_if_it_names_the_word_for_it() {
    let policy = builtin_and(
        "profiles:\n  p:\n    operations: {exec: allow}\n    exec:\n      default: ask\n      rules:\n        \
         - {prefix: [[git, python3, perl, awk, sed, find, make]], decision: allow, justification: text}\n        \
         - {prefix: [ruby, -e], decision: allow, justification: text}\n  \
         closed: {operations: {exec: allow}, exec: {rules: [{prefix: [git], decision: allow, justification: text}]}}\n",
    );
    for (line, expected) in [
        ("git log", Allow),
        ("git -c a=b log", Ask),
        ("python3 x.py", Allow),
        ("python3 -c 1", Ask),
        ("python3", Ask),
        ("perl -ne 1 x", Ask),
        ("ruby -e 1", Allow),
        ("ruby -we 1", Ask),
        ("ruby x.rb", Ask),
        ("awk 1 x", Allow),
        ("awk BEGIN{system(1)}", Ask),
        ("sed s/a/b/ x", Allow),
        ("sed -f x.sed x", Ask),
        ("sed 1ewho x", Ask),
        ("find . -exec ls ;", Ask),
        ("make -f other.mk", Allow),
        ("make -f -", Ask),
    ] {
        assert_eq!(verdict_in(&policy, "p", &words(line)), expected, "{line}");
    }
    assert_eq!(verdict_in(&policy, "closed", &words("git log")), Allow);
    assert_eq!(verdict_in(&policy, "closed", &words("git -c a=b log")), Deny, "as its default");
}
