mod unseen;

use std::collections::BTreeMap;

use operations::{Exec, Reason, Shell};

use super::judge::{judge, judge_script};
use crate::testing::{builtin, builtin_and, exec, path, shell};
use policy::Policy;
use policy::Verdict::{self, Allow, Ask, Deny};

/// Variables that make a program into another one.
const DANGEROUS: [&str; 16] = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "PATH",
    "HOME",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_COUNT",
    "NODE_OPTIONS",
    "PERL5OPT",
    "GOFLAGS",
    "CARGO_HOME",
    "BASH_FUNC_ls",
];

fn verdict_in(policy: &Policy, profile: &str, argv: &[&str]) -> Verdict {
    judge(policy.profile(profile).unwrap(), &exec(argv)).verdict
}

fn verdict(profile: &str, argv: &[&str]) -> Verdict {
    verdict_in(&builtin(), profile, argv)
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn wrappers_never_match_an_allow_rule() {
    assert_eq!(verdict("build", &["cargo", "test"]), Allow);
    for argv in [
        &["env", "cargo", "test"][..],
        &["nice", "cargo", "test"],
        &["timeout", "5", "cargo", "test"],
        &["xargs", "cargo", "test"],
        &["sh", "-c", "cargo test"],
        &["busybox", "ls"],
    ] {
        assert_eq!(verdict("build", argv), Ask, "{argv:?}");
    }
}

#[test]
fn a_variable_that_redirects_is_like_a_wrapper() {
    let policy = builtin_and(
        "profiles:\n  loose:\n    operations: {exec: allow}\n    exec:\n      env: ['*']\n      default: ask\n      rules:\n        - {prefix: [make], decision: allow, justification: it builds}\n",
    );
    let with = |name: &str| {
        let env = [(name.to_owned(), "x".to_owned())].into();
        judge(policy.profile("loose").unwrap(), &Exec { env, ..exec(&["make"]) }).verdict
    };
    assert_eq!(with("CI"), Allow);
    for name in DANGEROUS {
        assert_eq!(with(name), Ask, "{name}");
    }
}

#[test]
fn variables_need_leave() {
    for name in DANGEROUS {
        let env: BTreeMap<_, _> = [(name.to_owned(), "/opt/x".to_owned())].into();
        for profile in ["review", "build", "strict"] {
            let ruling =
                judge(builtin().profile(profile).unwrap(), &Exec { env: env.clone(), ..exec(&["make"]) });
            assert_eq!(
                (ruling.verdict, ruling.reason),
                (Deny, Reason::PermissionDenied),
                "{profile}: {name}"
            );
            assert!(ruling.message.contains(name), "{}", ruling.message);
        }
        // `*`: the operator has chosen so.
        let ruling = judge(builtin().profile("open").unwrap(), &Exec { env, ..exec(&["make"]) });
        assert_eq!(ruling.verdict, Allow, "{name}");
    }
    let cased = [("ci".to_owned(), "1".to_owned())].into();
    let ruling = judge(builtin().profile("build").unwrap(), &Exec { env: cased, ..exec(&["make"]) });
    assert_eq!(ruling.verdict, Deny, "names count exactly");
}

#[test]
fn a_run_may_have_the_variables_that_a_call_may_set_unless_rules_stand_on_their_absence() {
    let loose = builtin_and(
        "profiles:\n  loose:\n    operations: {exec: allow}\n    exec:\n      env: ['*']\n      default: ask\n",
    );
    let refused = |policy: &Policy, profile: &str, name: &str, value: &str| {
        let env = [(name.to_owned(), value.to_owned())].into();
        policy.profile(profile).unwrap().exec.refuses_for_a_run(&env)
    };
    for name in DANGEROUS {
        for profile in ["review", "build", "strict"] {
            let why = refused(&builtin(), profile, name, "/opt/x").unwrap();
            assert!(why.contains(name), "{why}");
        }
        assert!(refused(&loose, "loose", name, "x").unwrap().contains("where a reviewer is asked"), "{name}");
        for profile in ["open", "harness"] {
            assert_eq!(refused(&builtin(), profile, name, "x"), None, "{profile}: {name}");
        }
    }
    assert_eq!(refused(&loose, "loose", "CI", "1"), None);
    assert_eq!(refused(&builtin(), "review", "CI", "1"), None);
    assert!(refused(&builtin(), "strict", "CI", "1").is_some());
    assert_eq!(refused(&builtin(), "build", "PYTHONPATH", "/workspace/src:/workspace/lib"), None);
    for elsewhere in ["src", "", "@project/lib", "/workspace:lib", "/state/x", "/opt"] {
        assert!(refused(&builtin(), "build", "PYTHONPATH", elsewhere).is_some(), "{elsewhere}");
    }
}

/// Each path of the list counts, and a command that finds its modules in the workspace is the one that the rule is for.
#[test]
fn paths_for_modules_stay_within_the_workspace() {
    let verdict = |name: &str, value: &str| {
        let env = [(name.to_owned(), value.to_owned())].into();
        let cwd = path("app");
        judge(builtin().profile("build").unwrap(), &Exec { env, cwd, ..exec(&["pytest"]) })
    };
    for name in ["PYTHONPATH", "NODE_PATH", "VIRTUAL_ENV"] {
        for within in ["src", "/workspace", "/workspace/a:lib", ":src:", "", "@project/x", "a/./b"] {
            assert_eq!(verdict(name, within).verdict, Allow, "{name}={within}");
        }
        for outside in [
            "/opt/x",
            "/workspace/a:/usr/lib",
            "/workspace/../usr",
            "../x",
            "src:..",
            "/state/x",
            "/pkg",
            "/workspacex",
            "/",
        ] {
            let ruling = verdict(name, outside);
            assert_eq!((ruling.verdict, ruling.reason), (Deny, Reason::PermissionDenied), "{name}={outside}");
            assert!(ruling.message.contains("within the workspace"), "{}", ruling.message);
        }
    }
    assert_eq!(verdict("LD_LIBRARY_PATH", "/workspace/x").verdict, Deny);
}

#[test]
fn read_only_commands() {
    for line in [
        "cat README.md",
        "/bin/cat a b",
        "/usr/bin/wc -l /workspace/README.md",
        "cat -n -- -odd-name",
        "cat -",
        "cat --version",
        "head -n 5 a",
        "head -n5 a",
        "head -5 a",
        "head --lines=5 --quiet a",
        "head --lines 5 a",
        "tail -c +10K a",
        "tail +5 a",
        "tail -n -3 /state/log",
        "wc -lwc a",
        "find",
        "find . -name *.rs -type f -maxdepth 3",
        "find src ( -name a -o ! -empty ) -print0",
        "find . -newer a -printf %p",
        "wc -l @project/a",
    ] {
        assert_eq!(verdict("review", &words(line)), Allow, "{line}");
    }
    for line in [
        "cat /etc/passwd",
        "cat ../x",
        "cat a/../../x",
        "cat /workspace/../etc/passwd",
        "cat @elsewhere/a",
        "cat .git/config",
        "cat .GIT/config",
        "find . -newer /etc/passwd",
        "/usr/local/bin/cat a",
        "/workspace/cat a",
        "CAT a",
        "cat --unknown a",
        "tail -f a",
        "tail -F a",
        "tail -qf a",
        "tail --follow a",
        "tail --follow=name a",
        "tail --pid=1 a",
        "tail --retry a",
        "tail -s 1 a",
        "tail +5f a",
        "tail -5f a",
        "head a -n ../x",
        "head -n",
        "wc --files0-from=a",
        "find . -delete",
        "find . -exec cat {} ;",
        "find . -execdir cat {} ;",
        "find . -ok cat {} ;",
        "find . -okdir cat {} ;",
        "find . -fprint out",
        "find . -fprintf out x",
        "find . -fprint0 out",
        "find . -fls out",
        "find . -files0-from a",
        "find -L .",
        "find -H .",
        "find -D tree .",
        "find . -name",
        "find /",
        "ls",
        "make",
    ] {
        assert_eq!(verdict("review", &words(line)), Ask, "{line}");
    }
}

#[test]
fn read_only_paths_are_relative_to_the_working_directory() {
    let policy = builtin();
    let review = policy.profile("review").unwrap();
    let inside =
        |cwd: &str, arg: &str| judge(review, &Exec { cwd: path(cwd), ..exec(&["cat", arg]) }).verdict;
    assert_eq!(inside(".git", "HEAD"), Allow);
    assert_eq!(inside(".git", "config"), Ask);
    assert_eq!(inside(".git/hooks", "pre-commit"), Ask);
    assert_eq!(inside("@state", "a"), Allow);
}

#[test]
fn a_call_that_may_only_read_is_refused_when_it_does_more_in_every_profile() {
    use Reason::{CommandNotAllowed, SandboxViolation};
    let policy = builtin();
    for profile in ["review", "strict", "build", "open"].map(|name| policy.profile(name).unwrap()) {
        let judged = |exec: Exec| judge(profile, &Exec { only_reads: true, ..exec });
        assert_eq!(judged(exec(&["find", ".", "-name", "a"])).verdict, Allow);
        for (line, reason, says) in [
            ("find . -delete", CommandNotAllowed, "`-delete` is not known to be harmless"),
            ("find . -exec touch x ;", CommandNotAllowed, "`-exec` is not known to be harmless"),
            ("find . -fprint x", CommandNotAllowed, "`-fprint` is not known to be harmless"),
            ("tail -f a", CommandNotAllowed, "`-f` is not known to be harmless"),
            ("wc --fil=a", CommandNotAllowed, "`--fil=a` is not known to be harmless"),
            ("ls", CommandNotAllowed, "only cat, head, tail, find and wc"),
            ("/workspace/cat a", CommandNotAllowed, "only cat, head, tail, find and wc"),
            ("cat /etc/passwd", SandboxViolation, "/etc/passwd"),
            ("cat ../../x", SandboxViolation, "../../x"),
            ("cat .git/hooks/pre-commit", SandboxViolation, ".git/hooks/pre-commit"),
            ("cat /dev/zero", SandboxViolation, "/dev/zero"),
            ("find . -newer /etc/passwd", SandboxViolation, "/etc/passwd"),
        ] {
            let ruling = judged(exec(&words(line)));
            assert_eq!((ruling.verdict, ruling.reason), (Deny, reason), "{line}: {}", ruling.message);
            assert!(ruling.message.contains(says), "{line}: {}", ruling.message);
        }
        let env = [("LC_ALL".to_owned(), "C".to_owned())].into();
        assert_eq!(judged(Exec { env, ..exec(&["cat", "a"]) }).verdict, Deny);
    }
}

/// A command may have put another program in its place.
#[test]
fn under_a_writable_root_no_command_counts_as_reading() {
    let policy = builtin();
    let judged = |profile: &str| judge(policy.profile(profile).unwrap(), &exec(&["cat", "a"]));
    assert!(judged("open").reads.is_some());
    let harness = judged("harness");
    assert_eq!((harness.verdict, harness.reads, harness.rule.as_str()), (Allow, None, "exec.default"));
}

#[test]
fn rules_for_delete_hold_for_find() {
    let policy = builtin_and(
        "profiles:\n  none: {operations: {exec: allow, delete: deny, shell: allow}, exec: {default: allow}}\n  \
         silent: {operations: {exec: allow}, exec: {default: allow}}\n  \
         closed: {operations: {exec: allow, delete: ask}, exec: {default: deny}}\n",
    );
    for (profile, expected) in [("open", Ask), ("none", Deny), ("silent", Ask), ("closed", Deny)] {
        let judged = judge(policy.profile(profile).unwrap(), &exec(&["find", ".", "-delete"]));
        assert_eq!(judged.verdict, expected, "{profile}");
    }
    let script = |profile| {
        let script = shell("cd src && find . -name '*.o' -delete");
        judge_script(policy.profile(profile).unwrap(), &script).map(|ruling| ruling.verdict)
    };
    assert_eq!((script("open"), script("none")), (Some(Ask), Some(Deny)));
    assert_eq!(verdict("open", &["find", ".", "-name", "-delete"]), Allow);
}

#[test]
fn no_allow_rule_covers_arguments_that_run_or_delete() {
    let policy = builtin_and(
        "profiles:\n  p:\n    operations: {exec: allow, delete: ask}\n    exec:\n      default: ask\n      rules:\n        \
         - {prefix: [[find, sed, awk, sort, tar]], decision: allow, justification: text}\n",
    );
    for (line, expected) in [
        ("find . -name a", Allow),
        ("find . -delete", Ask),
        ("sed -i s/a/b/ x", Allow),
        ("sed 1ewho x", Ask),
        ("awk {print} x", Allow),
        ("awk BEGIN{system(1)}", Ask),
        ("sort -o x x", Allow),
        ("sort --comp=x x", Ask),
        ("sort --co=x x", Ask),
        ("sed -n 1,2p x", Allow),
        ("sed y/a/b/ x", Ask),
        ("find . -fprint x", Ask),
        ("tar -xf x", Allow),
        ("tar -tf x --to-command=y", Ask),
    ] {
        assert_eq!(verdict_in(&policy, "p", &words(line)), expected, "{line}");
    }
}

#[test]
fn programs_in_node_modules_bin_are_refused() {
    for argv in [
        &["/workspace/node_modules/.bin/tsc"][..],
        &["env", "node_modules/.bin/tsc"],
        &["sh", "-c", "./node_modules/.bin/tsc"],
    ] {
        let ruling = judge(builtin().profile("open").unwrap(), &exec(argv));
        assert_eq!((ruling.verdict, ruling.reason), (Deny, Reason::SandboxViolation), "{argv:?}");
    }
}

#[test]
fn the_strictest_rule_wins_in_any_order() {
    let policy = builtin_and(
        "profiles:\n  p:\n    operations: {exec: allow}\n    exec:\n      default: allow\n      deny: ['curl*']\n      read_only_commands: true\n      rules:\n        - {prefix: [git, push], decision: deny, justification: nothing leaves}\n        - {prefix: [git], decision: allow, justification: git}\n        - {prefix: [git, [fetch, pull]], decision: ask, justification: network}\n        - {prefix: [cat, secret], decision: ask, justification: secret}\n",
    );
    let judged = |line: &str| verdict_in(&policy, "p", &words(line));
    assert_eq!(judged("git push"), Deny);
    assert_eq!(judged("/workspace/GIT push"), Deny);
    assert_eq!(judged("env git push"), Deny);
    assert_eq!(verdict_in(&policy, "p", &["sh", "-c", "true; git push origin"]), Deny);
    assert_eq!(judged("git pull"), Ask);
    assert_eq!(judged("nice git fetch"), Ask);
    assert_eq!(judged("git log"), Allow);
    assert_eq!(judged("cat secret"), Ask);
    assert_eq!(judged("cat other"), Allow);
    assert_eq!(judged("curl-config"), Deny);
    let ruling = judge(policy.profile("p").unwrap(), &exec(&["git", "push"]));
    assert_eq!(
        (ruling.rule.as_str(), ruling.justification.as_str()),
        ("exec rule 1: git push", "nothing leaves")
    );
}

#[test]
fn long_scripts_are_judged_quickly() {
    const BYTES: usize = 64 * 1024;
    let policy = builtin();
    let judge = |script: &Shell| judge_script(policy.profile("open").unwrap(), script);
    for piece in [
        "A=x; $A$A ",
        "{a,b}",
        "a {b,c} ",
        "$(",
        "`",
        "((",
        "case a in b) ",
        "<<E ",
        "cat <<E\n",
        "${a:-",
        "{a,",
        "x\n",
        "sh -c ",
        "[a*]",
        "\\",
        "\"$(",
        "f() { $@; }; f a b c d; ",
        "$@ $@ ",
        "f aaaaaaaaaaaaaaa; $@; ",
    ] {
        effort::assert_linear(BYTES, |bytes| shell(&piece.repeat(bytes / piece.len())), judge);
    }
    for use_of_it in ["$@ ", "$@"] {
        let script = |size: usize| {
            shell(&format!("f() {{ $@; }}; f {}; {}", "a ".repeat(2 * size), use_of_it.repeat(size)))
        };
        effort::assert_linear(8_000, script, judge);
    }
    // As long as an honest one may be.
    let script = (0..).map(|n| format!("run_step --number {n} > log/{n}.txt\n"));
    let script: String = script
        .scan(0, |bytes, line| {
            *bytes += line.len();
            (*bytes < BYTES).then_some(line)
        })
        .collect();
    assert_eq!(judge_script(policy.profile("open").unwrap(), &shell(&script)), None);
}

#[test]
fn a_relative_program_is_judged_as_its_whole_path() {
    let policy = builtin_and(
        "profiles:\n  p:\n    operations: {exec: allow}\n    exec:\n      default: ask\n      rules:\n        \
         - {prefix: [./gradlew, test], decision: allow, justification: x, match: [[./gradlew, test]], not_match: [[gradlew, test]]}\n        \
         - {prefix: [/workspace/deploy], decision: deny, justification: x}\n",
    );
    let verdict = |profile: &str, argv: &[&str], cwd: &str| {
        let exec = Exec { cwd: path(cwd), ..exec(argv) };
        judge(policy.profile(profile).unwrap(), &exec).verdict
    };
    for (argv, cwd, expected) in [
        (&["./gradlew", "test"][..], ".", Allow),
        (&["/workspace/gradlew", "test"], "sub", Allow),
        (&["../gradlew", "test"], "sub", Allow),
        (&["@project/gradlew", "test"], "sub", Allow),
        (&["./gradlew", "test"], "sub", Ask),
        (&["./sub/gradlew", "test"], ".", Ask),
        (&["./gradlew", "publish"], ".", Ask),
        (&["gradlew", "test"], ".", Ask),
        (&["./deploy"], ".", Deny),
        (&["./deploy"], "sub", Deny),
    ] {
        assert_eq!(verdict("p", argv, cwd), expected, "{argv:?} in {cwd}");
    }
    for profile in policy.profile_names() {
        for (relative, whole) in
            [("./run.sh", "/workspace/run.sh"), ("bin/rm", "/workspace/bin/rm"), ("./cat", "/workspace/cat")]
        {
            assert_eq!(
                verdict(profile, &[relative], "."),
                verdict(profile, &[whole], "."),
                "{profile}: {relative}"
            );
        }
    }
    assert_eq!(verdict("open", &["./RM"], "."), Deny);
    assert_eq!(verdict("open", &["./node_modules/.bin/tsc"], "."), Deny);
    assert_eq!(verdict("open", &["../.bin/tsc"], "node_modules/x"), Deny);
}
