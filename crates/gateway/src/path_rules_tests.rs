//! Rules for paths of a profile, as calls meet them.

use operations::{Git, Operation, Reason};
use policy::{Form, Policy, Problems};

use crate::testing::{TestClock, caller, delete, exec, path, run, write};
use crate::{Admission, Gateway};

const RULES: &str = "
      - { path: '**', except: ['src/**'], access: write, decision: ask, justification: Outside of src., match: [a.txt], not_match: [src/a.rs] }
      - { path: [secrets/**, '**/*.pem'], decision: deny, justification: Keys are kept from agents., match: [secrets/key, src/x.pem], not_match: [secret] }";

fn load(rules: &str) -> Result<Policy, Vec<String>> {
    let yaml = format!(
        "roles: {{worker: {{allow: '*'}}}}\nprofiles:\n  p:\n    operations: {{read: allow, list: allow, grep: allow, glob: allow, write: allow, edit: allow, patch: allow, delete: allow, exec: allow, git.add: allow, git.diff: allow, git.status: allow}}\n    exec: {{deny_list: 'off', default: allow}}\n    paths:{rules}\n"
    );
    Policy::from_files([("p.yaml", yaml)])
        .map_err(|Problems(problems)| problems.iter().map(ToString::to_string).collect())
}

fn said(policy: &Policy, operation: Operation) -> (&'static str, String) {
    let gateway = Gateway::new(policy.clone(), TestClock::new());
    match gateway.admit(&gateway.policy(), &run("p"), &caller("worker"), "call", operation) {
        Admission::Permit(permit) => {
            let rules = permit.into_parts().bounds.path_rules.rules.len();
            ("allow", rules.to_string())
        }
        Admission::Ask(ticket) => ("ask", ticket.decision().rule.clone()),
        Admission::Refuse(refusal) => {
            assert_eq!(refusal.reason, Reason::PermissionDenied);
            ("deny", refusal.rule)
        }
    }
}

#[test]
fn named_paths_are_judged_and_the_strictest_rule_decides() {
    let policy = load(RULES).unwrap();
    let read = |name: &str| Operation::Read(operations::Read::new(path(name)));
    let add =
        |names: &[&str]| Operation::Git(Git::Add { paths: names.iter().map(|name| path(name)).collect() });
    let (ask, deny) = ("profile p: paths[0]", "profile p: paths[1]");
    for (operation, verdict, rule) in [
        (read("a.txt"), "allow", "2"),
        (read("secrets/key"), "deny", deny),
        (read("/workspace/./secrets//key"), "deny", deny),
        (read("src/x.pem"), "deny", deny),
        (Operation::Write(write("src/a.rs")), "allow", "2"),
        (Operation::Write(write("a.txt")), "ask", ask),
        (Operation::Write(write("secrets/key")), "deny", deny),
        (Operation::Delete(delete("src/a.rs")), "allow", "2"),
        (Operation::Delete(delete("b")), "ask", ask),
        (add(&["src/a.rs"]), "allow", "2"),
        (add(&["src/a.rs", "b"]), "ask", ask),
        (add(&["src/a.rs", "src/x.pem"]), "deny", deny),
        (Operation::Git(Git::Status), "allow", "2"),
        (Operation::Exec(exec(&["cat", "secrets/key"])), "deny", deny),
        (Operation::Exec(exec(&["cat", "a.txt"])), "allow", "2"),
        // It names all that is beneath.
        (Operation::Exec(exec(&["find", "."])), "deny", deny),
        // Other commands are not seen through.
        (Operation::Exec(exec(&["sh", "-c", "cat secrets/key"])), "allow", "2"),
    ] {
        let shown = format!("{operation:?}");
        assert_eq!(said(&policy, operation), (verdict, rule.to_owned()), "{shown}");
    }
    let again = Policy::from_files([("again.yaml", policy.to_yaml().unwrap())]).unwrap();
    assert_eq!(again.digest(), policy.digest(), "the policy that is shown is the same policy");
}

#[test]
fn a_consent_is_to_the_named_paths_and_to_no_prefix_of_a_command() {
    let rules = "
      - { path: 'private/**', decision: ask, justification: Notes. }";
    let policy = load(rules).unwrap();
    let gateway = Gateway::new(policy, TestClock::new());
    let asked =
        |operation| match gateway.admit(&gateway.policy(), &run("p"), &caller("worker"), "call", operation) {
            Admission::Ask(ticket) => ticket,
            other => panic!("{other:?}"),
        };
    let ticket = asked(Operation::Write(write("private/a")));
    assert_eq!(ticket.bounds.path_rules.consented, [path("private/a")]);
    let ticket = asked(Operation::Exec(exec(&["cat", "private/a"])));
    assert_eq!(ticket.bounds.path_rules.consented, [path("private/a")]);
    assert!(!ticket.terms.remember.contains(&Form::Prefix));
}
