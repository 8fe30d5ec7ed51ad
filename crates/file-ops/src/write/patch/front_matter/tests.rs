//! What is kept, what is said to be lost, and what is no front matter.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn asked() -> FrontMatter {
    FrontMatter::new(SandboxPath::parse("@state/workflow.md").unwrap())
}

fn all() -> FrontMatter {
    FrontMatter {
        steps_completed_append: vec!["one".into(), "three".into()],
        variables_set: [("mode".to_owned(), json!("fast")), ("count".to_owned(), json!(3))].into(),
        decision_log_append: vec![json!({"step": "three", "why": "a: b"}).as_object().unwrap().clone()],
        artifacts_append: vec!["out/a.md".into()],
        current_node_id: Some("node-3".into()),
        updated_at: Some("2026-11-22T04:00:00Z".into()),
        ..asked()
    }
}

fn steps(steps: &[&str]) -> FrontMatter {
    FrontMatter { steps_completed_append: steps.iter().map(|&step| step.to_owned()).collect(), ..asked() }
}

fn variable(name: &str, value: serde_json::Value) -> FrontMatter {
    FrontMatter { variables_set: [(name.to_owned(), value)].into(), ..asked() }
}

#[test]
fn a_document_as_people_write_it() {
    let document = "---
# The workflow's state.
title: 'My workflow'   # kept
stepsCompleted:        # in order
  - one
  # two was hard
  - two

variables:
  mode: \"slow\"  # or fast
  # more to come
currentNodeId: node-2 # where we are
updatedAt: '2026-11-21T00:00:00Z'
---
# Body
---
not: yaml
no newline at the end";
    let updated = update(document, &all()).unwrap();
    let expected = "---
# The workflow's state.
title: 'My workflow'   # kept
stepsCompleted:        # in order
  - one
  # two was hard
  - two
  - three

variables:
  mode: \"fast\"  # or fast
  # more to come
  count: 3
currentNodeId: node-3 # where we are
updatedAt: '2026-11-22T04:00:00Z'
decisionLog:
- step: three
  why: 'a: b'
artifacts:
- out/a.md
---
# Body
---
not: yaml
no newline at the end";
    assert_eq!(updated.text, expected);
    assert_eq!(updated.notes, [""; 0]);
    // Only the decision is added again.
    let again = update(&updated.text, &FrontMatter { decision_log_append: Vec::new(), ..all() }).unwrap();
    assert_eq!(again.text, expected);
}

#[test]
fn each_form_of_a_list() {
    for (before, after) in [
        ("stepsCompleted: []\n", "stepsCompleted: [\"x\", \"w\"]\n"),
        ("stepsCompleted: [a, b] # why\n", "stepsCompleted: [a, b, \"x\", \"w\"] # why\n"),
        ("stepsCompleted:\n- a\n", "stepsCompleted:\n- a\n- x\n- w\n"),
        ("stepsCompleted:\n    - a\nz: 1\n", "stepsCompleted:\n    - a\n    - x\n    - w\nz: 1\n"),
        ("stepsCompleted:\nz: 1\n", "stepsCompleted:\n- x\n- w\nz: 1\n"),
        ("stepsCompleted: ~\n", "stepsCompleted:\n- x\n- w\n"),
        ("steps_completed: [a]\n", "steps_completed: [a, \"x\", \"w\"]\n"),
        ("z: 1\n", "z: 1\nstepsCompleted:\n- x\n- w\n"),
        ("# nothing yet\n", "# nothing yet\nstepsCompleted:\n- x\n- w\n"),
        ("", "stepsCompleted:\n- x\n- w\n"),
        (
            "stepsCompleted:\n- |\n  # no comment\n  text\n# comment\nz: 1\n",
            "stepsCompleted:\n- |\n  # no comment\n  text\n- x\n- w\n# comment\nz: 1\n",
        ),
    ] {
        let updated = update(&format!("---\n{before}---\nbody"), &steps(&["x", "w"])).unwrap();
        assert_eq!(
            updated,
            Updated { text: format!("---\n{after}---\nbody"), notes: Vec::new() },
            "{before}"
        );
    }
}

#[test]
fn lost_comments_are_noted() {
    let list = "---\nstepsCompleted: [a,  # first\n  b]\nz: 1 # kept\n---\n";
    let updated = update(list, &steps(&["x"])).unwrap();
    assert_eq!(updated.text, "---\nstepsCompleted:\n- a\n- b\n- x\nz: 1 # kept\n---\n");
    assert_eq!(updated.notes, ["comments within `stepsCompleted` were not kept"]);

    let shared = "---\nstepsCompleted: &s\n- a\nartifacts: *s\nother: {b: 1} # lost\n---\n";
    let updated = update(shared, &steps(&["x"])).unwrap();
    assert_eq!(updated.text, "---\nstepsCompleted:\n- a\n- x\nartifacts:\n- a\nother:\n  b: 1\n---\n");
    assert!(updated.notes[0].contains("written anew"), "{updated:?}");

    let braces = "---\n{z: 1, stepsCompleted: [a]}\n---\n";
    assert_eq!(update(braces, &steps(&["x"])).unwrap().text, "---\nz: 1\nstepsCompleted:\n- a\n- x\n---\n");
}

#[test]
fn members_of_variables() {
    for (before, name, value, after) in [
        ("variables: {}\n", "a", json!(1), "variables:\n  a: 1\n"),
        ("variables:\n  a: 1 # one\n  b: 2\n", "a", json!("x y"), "variables:\n  a: x y # one\n  b: 2\n"),
        (
            "variables:\n  a: 1\n  b: 2\n",
            "a",
            json!({"c": [1]}),
            "variables:\n  a:\n    c:\n    - 1\n  b: 2\n",
        ),
        (
            "variables:\n    a:\n      b: 1\n\n# end\n",
            "c",
            json!(null),
            "variables:\n    a:\n      b: 1\n    c: null\n\n# end\n",
        ),
        ("variables:\n  a: |\n    x\n    y\n  b: 2\n", "a", json!("z"), "variables:\n  a: z\n  b: 2\n"),
        ("variables:\n  a: 'it''s'\n", "a", json!("it's so"), "variables:\n  a: it's so\n"),
        ("variables:\n  'a': \"1\" # q\n", "a", json!("yes"), "variables:\n  'a': \"yes\" # q\n"),
        (
            "variables:\n  a: 1\n",
            "b",
            json!("two\nlines"),
            "variables:\n  a: 1\n  b: |-\n    two\n    lines\n",
        ),
        ("variables:\n  a: 1\n", "b", json!("yes"), "variables:\n  a: 1\n  b: 'yes'\n"),
        ("variables:\n  a: 1\n", "b", json!("2026-11-22"), "variables:\n  a: 1\n  b: '2026-11-22'\n"),
        ("variables:\n  a: 2026-11-21\n", "a", json!("2026-11-22"), "variables:\n  a: 2026-11-22\n"),
        ("variables:\n  a: b\n", "a", json!("12:30"), "variables:\n  a: '12:30'\n"),
        (
            "variables:\n  a: b\n",
            "c",
            json!({"d": "no", "e": 12}),
            "variables:\n  a: b\n  c:\n    d: 'no'\n    e: 12\n",
        ),
    ] {
        let updated = update(&format!("---\n{before}---\n"), &variable(name, value)).unwrap();
        assert_eq!(updated.text, format!("---\n{after}---\n"), "{before}");
    }
    let many = (0..100).map(|n| (format!("v{n}"), json!(n))).collect();
    let updated = update(
        "---\nvariables:\n  # gone\n  a: 1\nz: 1 # kept\n---\n",
        &FrontMatter { variables_set: many, ..asked() },
    );
    let updated = updated.unwrap();
    assert!(
        updated.text.contains("  a: 1\n  v0: 0\n") && updated.text.contains("z: 1 # kept"),
        "{updated:?}"
    );
    assert_eq!(updated.notes, ["comments within `variables` were not kept"]);
}

#[test]
fn line_endings_marks_and_files_without_front_matter() {
    let crlf = update("\u{feff}---\r\na: 1\r\n---\r\nbody\r\n", &steps(&["x"])).unwrap();
    assert_eq!(crlf.text, "\u{feff}---\r\na: 1\r\nstepsCompleted:\r\n- x\r\n---\r\nbody\r\n");
    let none = update("\u{feff}# Title\n", &steps(&["x"])).unwrap();
    assert_eq!(none.text, "\u{feff}---\nstepsCompleted:\n- x\n---\n# Title\n");
    assert_eq!(none.notes, ["there was no front matter: it was added"]);
    assert_eq!(update("", &steps(&["x"])).unwrap().text, "---\nstepsCompleted:\n- x\n---\n");
}

#[test]
fn invalid_front_matter_is_refused() {
    for (text, line, part) in [
        ("---\na: 1\n", Some(1), "no line `---` ends it"),
        ("---\na: 1\nb: @x\n---\n", Some(3), ""),
        ("---\na: 1\n  b: 2\n---\n", Some(3), ""),
        ("---\n- a\n---\n", Some(2), "not a mapping"),
        ("---\njust text\n---\n", Some(2), "not a mapping"),
        ("---\na: 1\na: 2\n---\n", None, "duplicate"),
        ("---\na: *b\n---\n", None, "unknown anchor"),
        ("---\nstepsCompleted: text\n---\n", None, "`stepsCompleted` is not a list"),
        ("---\nstepsCompleted: {a: 1}\n---\n", None, "`stepsCompleted` is not a list"),
    ] {
        let invalid = update(text, &steps(&["x"])).unwrap_err();
        assert!(invalid.message.contains(part), "{text:?}: {invalid:?}");
        assert!(line.is_none() || invalid.line == line, "{text:?}: {invalid:?}");
        let failure = invalid.failure(&asked().path);
        assert_eq!(failure.reason, Reason::InvalidFrontmatter);
        assert!(failure.message.starts_with("@state/workflow.md: ") && !failure.message.contains('\n'));
    }
    assert!(update("---\nvariables: [a]\n---\n", &variable("a", json!(1))).is_err());
}

#[test]
fn bombs_are_refused_quickly() {
    type Bomb = (usize, fn(usize) -> String);
    let doubling = |levels: usize| {
        (1..=levels).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
            text + &format!("a{i}: &a{i} [{}]\n", format!("*a{},", i - 1).repeat(9))
        })
    };
    let bombs: [Bomb; 12] = [
        (500, |n| "[".repeat(n)),
        (499, |n| "{a: ".repeat(n)),
        (499, |n| "['".repeat(n)),
        (30_000, |n| "- ".repeat(n)),
        (30_000, |n| "? ".repeat(n)),
        (20_000, |n| "a:\n".repeat(n)),
        (1_000, |n| (0..n).map(|i| " ".repeat(i % 200) + "a:\n").collect()),
        (20_000, |n| "&a ".repeat(n)),
        (20_000, |n| format!("a: {}1", "!x ".repeat(n))),
        (9, doubling),
        (12_000, |n| format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(n), "*a,".repeat(n))),
        (200_000, |n| "x".repeat(n)),
    ];
    for (size, bomb) in bombs {
        let document = |size| format!("---\n{}\n---\n", bomb(size));
        let text = document(size);
        assert!(update(&text, &all()).is_err(), "{}…", &text[..24]);
        effort::assert_linear(size, document, |text| update(text, &all()).is_err());
    }
}

fn words() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "a",
        "yes",
        "1",
        "",
        "x: y",
        "# z",
        "it's",
        "\"q\"",
        "- l",
        "[",
        "tab\there",
        "é\n",
        "~",
        "2026-01-01",
    ])
    .prop_map(str::to_owned)
}

fn lines() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "title: t",
        "stepsCompleted: [a]",
        "stepsCompleted:",
        "  - a",
        "- a",
        "variables:",
        "  a: 1",
        "  a: 'x' # c",
        "# comment",
        "  # comment",
        "",
        "currentNodeId: \"n\" # c",
        "decisionLog: []",
        "other: |",
        "  text # no comment",
        "artifacts: &l",
        "more: *l",
    ])
    .prop_map(|line| format!("{line}\n"))
}

proptest! {
    /// Whatever the text looks like: the values are exactly those that are wanted, and the body is the same.
    #[test]
    fn the_values_are_right_and_the_body_is_the_same(
        yaml in prop::collection::vec(lines(), 0..14),
        steps in prop::collection::vec(words(), 0..3),
        variables in prop::collection::btree_map(words(), words(), 0..3),
        node in prop::option::of(words()),
        body in "[ -~\n]{0,40}",
    ) {
        let yaml = yaml.concat();
        let document = format!("---\n{yaml}---\n{body}");
        let change = FrontMatter {
            steps_completed_append: steps,
            variables_set: variables.into_iter().map(|(name, value)| (name, json!(value))).collect(),
            current_node_id: node,
            ..asked()
        };
        if let Ok(updated) = update(&document, &change) {
            let mut wanted = yaml::parse(&yaml).unwrap();
            for change in change::all(&change, &wanted) {
                wanted = change.apply(&wanted).unwrap();
            }
            let block = Block::find(&updated.text).unwrap();
            prop_assert!(yaml::same(&yaml::parse(&block.yaml()).unwrap(), &wanted), "{}", updated.text);
            let kept = updated.text.ends_with(&["\n---\n", &body].concat());
            prop_assert!(kept, "{}", updated.text);
            if updated.notes.is_empty() {
                for comment in yaml.lines().filter(|line| line.starts_with('#')) {
                    prop_assert!(updated.text.contains(comment));
                }
            }
        }
    }
}
