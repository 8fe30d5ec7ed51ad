use operations::{Exec, Git, Glob, Grep, Operation, Read};

use crate::exec::judge_operation;
use crate::testing::{builtin, builtin_and, delete, exec, path, write};
use policy::Policy;
use policy::Risk::{self, Critical, High, Low, Medium};

fn risk_in(policy: &Policy, profile: &str, operation: &Operation) -> Risk {
    let profile = policy.profile(profile).unwrap();
    let reads = judge_operation(profile, operation).and_then(|ruling| ruling.reads);
    super::risk_of(profile, operation, reads.as_deref())
}

fn risk(operation: &Operation) -> Risk {
    risk_in(&builtin(), "build", operation)
}

fn command(line: &str) -> Operation {
    Operation::Exec(exec(&line.split(' ').collect::<Vec<_>>()))
}

fn grep(at: &str, glob: Option<&str>) -> Operation {
    Operation::Grep(Grep { glob: glob.map(str::to_owned), ..Grep::new(path(at), "x") })
}

fn read(at: &str) -> Operation {
    Operation::Read(Read::new(path(at)))
}

#[test]
fn a_command_that_only_reads_is_low_and_the_same_that_changes_is_not() {
    for (line, expected) in [
        ("find . -name *.rs", Low),
        ("find . -name *.rs -delete", High),
        ("find . -exec rm {} ;", High),
        ("find . -fprint out", High),
        ("cat README.md", Low),
        ("cat README.md .env", Medium),
        ("head -5 certs/server.pem", Medium),
        ("wc -l id_rsa", Medium),
        ("find .ssh -type f", Medium),
        // A flag that is not known to be harmless.
        ("tail -f README.md", High),
        ("/usr/bin/cat README.md", Low),
        ("/workspace/cat README.md", High),
        ("CAT README.md", High),
        ("cat /etc/passwd", High),
    ] {
        assert_eq!(risk(&command(line)), expected, "{line}");
    }
    let with_env = Exec { env: [("LC_ALL".into(), "C".into())].into(), ..exec(&["cat", "a"]) };
    assert_eq!(risk(&Operation::Exec(with_env)), High);
}

#[test]
fn reading_names_like_secrets_is_at_least_medium_risk() {
    let glob = |pattern: &str| {
        let (path, pattern) = (path("."), pattern.to_owned());
        Operation::Glob(Glob { path, pattern, include_ignored: false, max_results: 10 })
    };
    let diff = |paths: &[&str]| {
        Operation::Git(Git::Diff { flags: vec![], paths: paths.iter().map(|at| path(at)).collect() })
    };
    for (operation, expected) in [
        (read("src/main.rs"), Low),
        (read(".env"), Medium),
        (read("@state/keys/ID_RSA"), Medium),
        (read("certs/a.pem"), Medium),
        (grep(".", None), Low),
        (grep(".env", None), Medium),
        (grep(".ssh", None), Medium),
        (grep(".", Some("*.rs")), Low),
        (grep(".", Some("*.pem")), Medium),
        (grep(".", Some("**/.env*")), Medium),
        (glob("**/*.rs"), Low),
        (glob("**/*.key"), Medium),
        (diff(&[]), Low),
        (diff(&["src"]), Low),
        (diff(&["src", ".env"]), Medium),
        (command("cat .netrc"), Medium),
    ] {
        assert_eq!(risk(&operation), expected, "{operation:?}");
    }
}

#[test]
fn a_profile_raises_any_risk_and_lowers_marked_ones() {
    let policy = builtin_and(
        "risk: {lowerable: [write, delete]}
profiles:
  p:
    operations: {read: allow}
    risk: {read: medium, exec: critical, exec.read_only: medium, write: low, delete: high}
",
    );
    let risk = |operation: &Operation| risk_in(&policy, "p", operation);
    assert_eq!(risk(&read("README.md")), Medium);
    assert_eq!(risk(&command("make")), Critical);
    assert_eq!(risk(&command("cat a")), Medium);
    assert_eq!(risk(&Operation::Write(write("a"))), Low);
    assert_eq!(risk(&Operation::Write(write(".env"))), Medium, "what the arguments name still counts");
    assert_eq!(risk(&Operation::Delete(delete("a"))), High);
    assert_eq!(risk(&grep(".", None)), Low);
}
