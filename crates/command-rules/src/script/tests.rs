use proptest::prelude::*;

use super::{Script, parse};

fn programs(script: &str) -> Vec<String> {
    parse(script).commands.into_iter().map(|command| command[0].clone()).collect()
}

/// Asserts that `program` is among the commands of each script, or among those of none.
fn each(program: &str, seen: bool, scripts: &[&str]) {
    for script in scripts {
        let found = programs(script);
        assert_eq!(found.iter().any(|found| found == program), seen, "{script:?}: {found:?}");
    }
}

#[test]
fn finds_every_command() {
    for (script, expected) in [
        ("rm -rf x", &["rm"][..]),
        ("cd a && make; ls|wc -l &", &["cd", "make", "ls", "wc"]),
        ("r\"\"m x; \\rm y; 'r'm z", &["rm", "rm", "rm"]),
        ("A=1 B=2 rm x", &["rm"]),
        ("if true; then rm x; fi", &["true", "rm", "fi"]),
        ("echo $(rm x) `rm y` \"a $(rm \"z\") b `rm w` c\" d", &["echo", "rm", "rm", "rm", "rm"]),
        (">out 2>&1 rm x", &["rm"]),
        ("cat <in >out; (rm x)", &["cat", "rm"]),
        ("diff <(rm x) y", &["diff", "rm"]),
        ("tee >(rm x)", &["tee", "rm"]),
        ("echo \"$(true)\" rm", &["true", "echo"]),
        ("A=$(date) rm x", &["date", "rm"]),
        ("f() { rm x; }; function g { rm y; }", &["rm", "rm"]),
        ("case x in a) rm y;; esac", &["rm"]),
        ("echo $(rm x", &["rm", "echo"]),
        ("echo rm # rm\nrm", &["echo", "rm"]),
        ("{ rm x; }", &["rm"]),
        ("for i in a b; do rm $i; done", &["rm", "rm", "done"]),
        ("a\\\nb", &["ab"]),
        ("grep rm file", &["grep"]),
        ("", &[]),
        ("A=1", &[]),
    ] {
        let found = programs(script);
        for program in expected {
            assert!(found.iter().any(|found| found == program), "{script:?}: {program} not in {found:?}");
        }
        if !expected.contains(&"rm") {
            assert!(!found.iter().any(|found| found == "rm"), "{script:?}: {found:?}");
        }
    }
}

#[test]
fn every_spelling_of_a_word_is_seen_through() {
    each(
        "rm",
        true,
        &[
            "$'rm' x",
            r"echo $'\''; rm x",
            "$\"rm\" x",
            "r\\\nm x",
            "a[0]=1 rm x",
            "a=((\nrm x\n",
            "a=(<<<\nrm x\nx)",
            "a[; rm x; ]=1",
            "a[$(rm x)]=1",
            "a[$i]+=1 rm x",
            "$UNSET rm x",
            "echo `echo \\`rm x\\``",
            "echo \"`echo \\\"$(rm x)\\\"`\"",
            "x=`rm y`",
            "! rm x",
            "coproc rm x",
            "while rm x; do :; done",
            "[ -e x ] && rm x",
            "cmds=($(rm x))",
            "true & rm x",
            "true |& rm x",
            "true &>out; rm x",
            "if case a in b) true;; esac; then rm x; fi",
        ],
    );
}

#[test]
fn quoted_text_is_not_a_command() {
    each(
        "rm",
        false,
        &[
            "echo 'rm x'",
            "echo \"; rm x\"",
            "echo \\; rm",
            "cat <<EOF\nrm x\nEOF\n",
            "cat > notes.md <<'EOF'\n```\nrm -rf build\n$(rm x)\n```\nEOF\nls",
            "cat <<-END\n\trm x\n\tEND\n",
            "cat <<A <<B\nrm x\nA\nrm y\nB\n",
            "case $1 in rm) echo gone;; *) ls;; esac",
            "case $1 in\n  (rm | del)\n    ls ;;\n  r*)\n ls\n ;;\nesac",
            "case $1 in @(rm|ls)) ls;; rm) ls;& rm) ls;;& esac",
            "rm() { ls; }",
            "cmds=(rm x); echo ${cmds[0]}",
            "echo a >rm",
            "# rm x",
            "printf %s $((1 << 2))\nls",
        ],
    );
}

#[test]
fn here_documents_hide_nothing_else() {
    each(
        "rm",
        true,
        &[
            "cat <<EOF\nx\nEOF\nrm x",
            "cat <<'EOF' | wc; rm x\nx\nEOF\n",
            "cat <<EOF\n$(rm x)\nEOF\n",
            "cat <<EOF\n\"`rm x`\"\nEOF\n",
            "cat <<EOF\n$(cat <<IN\n`rm x`\nIN\n)\nEOF\n",
            // No end, or no here-document at all.
            "cat <<EOF\nrm x",
            ": $((1 << 2))\nrm x\n2\n",
            "((a = 1 << 2))\nrm x\n2\n",
            "cat <<< x\nrm x\nx\n",
            "echo '<<EOF'\nrm x\nEOF\n",
            "echo x # <<EOF\nrm x\nEOF\n",
        ],
    );
    let script = parse("bash <<A <<< 'rm b' <in >>out 2>err\nrm a\nA\n");
    assert_eq!(script.inputs, ["rm b", "rm a\n"]);
    assert_eq!(script.files, ["in", "out", "err"]);
}

#[test]
fn case_patterns_hide_nothing_else() {
    each(
        "rm",
        true,
        &[
            "case x in x) rm y;; esac",
            "case x in x) true;; y) rm y;; esac",
            "case x in x) case y in y) rm z;; esac;; esac",
            "case x in x) true;; esac; rm y",
            "case x in esac; rm y",
            "\"case\" x in; rm y",
            "case x \"in\"; rm y",
            "case $(rm x) in y) true;; esac",
            "case x in $(rm x)) true;; esac",
            "echo $(case x in x) rm y;; esac)",
            "(case x in x) true;; esac; rm y)",
            "echo case x in; rm y",
            "A=1 case x in\nrm y\n",
            ">out case x in\nrm y\n",
            "\"if\" case x in\nrm y\n",
        ],
    );
}

#[test]
fn values_and_targets_may_be_files() {
    let script = parse("F=a.sh; for f in b.sh c.sh; do sh $f; done; G=(e.sh); cat < d.sh");
    assert_eq!(script.files, ["a.sh", "b.sh", "c.sh", "", "e.sh", "d.sh"]);
}

#[test]
fn texts_in_texts_are_bounded() {
    let deep = (0..40).fold("rm x".to_owned(), |text, n| format!("cat <<E{n}\n$({text}\n)\nE{n}\n"));
    assert!(parse(&deep).too_deep);
    let wide = "A=x; $A ".repeat(8_000);
    assert!(parse(&wide).commands.len() < 40_000);
    assert_eq!(parse(" \n;;&|"), Script::default());
}

proptest! {
    #[test]
    fn any_text_is_survived(script in "[a-z '\"`$(){}<>&|;#\\\\\n=]{0,60}") {
        for command in parse(&script).commands {
            prop_assert!(!command.is_empty());
        }
    }

    #[test]
    fn any_pieces_are_survived(pieces in prop::collection::vec(
        prop::sample::select(vec![
            "case ", " in ", "esac", ";;", ")", "(", "((", "$(", "`", "<<E", "\nE\n", "\n", "'", "\"", "\\", "$'",
            "rm ", "{a,b}", "A=x ", "$A ", "${A:-b} ", "for i in ", "; do ", "<<<", "#", "é",
        ]), 0..40)
    ) {
        for command in parse(&pieces.concat()).commands {
            prop_assert!(!command.is_empty());
        }
    }

    #[test]
    fn a_command_on_a_separate_line_is_found_after_any_line(before in "[a-z =./-]{0,30}") {
        let script = format!("{before}\nrm x");
        prop_assert!(programs(&script).iter().any(|program| program == "rm"), "{script:?}");
    }
}
