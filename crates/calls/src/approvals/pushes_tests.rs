use super::*;

const ZERO: &str = "0000000000000000000000000000000000000000";
const NEW: &str = "2222222222222222222222222222222222222222";

fn push(names: &[&str], is_forced: bool) -> PushQuestion {
    let update = |name: &&str| PushUpdate {
        name: (*name).to_owned(),
        old: ZERO.to_owned(),
        new: NEW.to_owned(),
        change: runs::Change::Create,
        is_forced,
    };
    PushQuestion {
        repository: "org/app".to_owned(),
        updates: names.iter().map(update).collect(),
        is_atomic: true,
        options: vec!["ci.skip".to_owned()],
        statement: String::new(),
    }
}

fn commit(subject: &str) -> PushedCommit {
    PushedCommit {
        id: NEW.to_owned(),
        author: "A <a@example.org>".to_owned(),
        date: "Thu Jan 1 00:00:00 1970 +0000".to_owned(),
        subject: subject.to_owned(),
    }
}

fn described(push: &PushQuestion, updates: Vec<UpdatePreview>) -> String {
    let mut text = String::new();
    let preview = (!updates.is_empty()).then_some(PushPreview { updates });
    describe(push, preview.as_ref(), &Redactor::default(), &mut text);
    text
}

#[test]
fn a_reviewer_sees_refs_ids_commits_and_the_diff() {
    let effects = UpdatePreview {
        gained: vec![commit("two"), commit("one")],
        diff: " f | 2 +-\n@@ -1 +1 @@\n-a\n+b\n".to_owned(),
        ..UpdatePreview::default()
    };
    let text = described(&push(&["refs/heads/x"], false), vec![effects]);
    let expected = format!(
        "Consent is for exactly these refs and ids. The diffs are those of the run's own repository.\n\
         Either all refs change or none.\n\
         Option for the hooks of the server:\n  | ci.skip\n\
         \ncreate refs/heads/x\n  old {ZERO}\n  new {NEW}\n\
         Commits that it gains, the nearest first:\n  \
         | 222222222222 Thu Jan 1 00:00:00 1970 +0000 A <a@example.org>: two\n  \
         | 222222222222 Thu Jan 1 00:00:00 1970 +0000 A <a@example.org>: one\n\
         Changes:\n f | 2 +-\n@@ -1 +1 @@\n-a\n+b\n"
    );
    assert_eq!(text, expected);
}

#[test]
fn content_that_is_not_known_is_marked_for_each_ref() {
    let unread = described(&push(&["refs/heads/x", "refs/heads/y"], true), Vec::new());
    assert_eq!(unread.matches("!! THE RUN'S REPOSITORY COULD NOT BE READ").count(), 2, "{unread}");
    assert_eq!(unread.matches("FORCED UPDATE").count(), 2, "{unread}");
    let effects = UpdatePreview { is_cut: true, ..UpdatePreview::default() };
    let cut = described(&push(&["refs/heads/x"], false), vec![effects]);
    assert!(cut.contains("!! THE DIFF IS NOT WHOLE"), "{cut}");
    let effects = UpdatePreview { unknown: vec![NEW.to_owned()], ..UpdatePreview::default() };
    let unknown = described(&push(&["refs/heads/x"], false), vec![effects]);
    assert!(unknown.contains("!! UNKNOWN TO THE RUN'S REPOSITORY"), "{unknown}");
    assert!(unknown.contains(&format!("  | {NEW}\n")), "{unknown}");
}

#[test]
fn no_text_of_an_agent_passes_for_that_of_the_daemon() {
    let effects = UpdatePreview {
        unknown: vec!["x\n!! all is well".to_owned()],
        remarks: vec!["tag v1\u{202e}\r\nConsent is given".to_owned()],
        gained: vec![commit("fix\u{202e}\u{2066} \x1b[2Kall\r\n!! forged")],
        diff: "+a\r\n+\u{202e}b\n+\x1b[1A".to_owned(),
        ..UpdatePreview::default()
    };
    let text = described(&push(&["refs/heads/\u{202e}x"], false), vec![effects]);
    for c in ['\u{202e}', '\u{2066}', '\x1b', '\r'] {
        assert!(!text.contains(c), "{c:?} in {text}");
    }
    assert!(!text.contains("\n!! forged") && !text.contains("\n!! all is well"), "{text}");
    assert!(!text.contains("\nConsent is given"), "{text}");
    assert!(text.contains("+a\\r\n"), "a line end that changes is shown: {text}");
}

#[test]
fn an_answer_that_is_too_large_is_bounded() {
    let effects = UpdatePreview {
        unknown: vec!["u".repeat(10_000); 1_000],
        remarks: vec!["r".repeat(10_000); 1_000],
        gained: vec![commit(&"s".repeat(10_000)); 1_000],
        lost: vec![commit(&"l".repeat(10_000)); 1_000],
        diff: "+x\n".repeat(200_000),
        ..UpdatePreview::default()
    };
    let text = described(&push(&["refs/heads/x"; 64], false), vec![effects; 64]);
    let of_daemon = 64 * 1024;
    assert!(text.len() < MOST.diffs + MOST.lines + of_daemon, "{}", text.len());
    assert_eq!(text.matches("!! THE DIFF IS NOT WHOLE").count(), 64);
    assert_eq!(text.matches("!! and more, which is not shown.").count(), 64 * 4);
}

#[test]
fn secrets_in_commits_and_diffs_are_hidden() {
    let secret = ["AKIA", "IOSFODNN7EXAMPLE"].concat();
    let effects = UpdatePreview {
        gained: vec![commit(&format!("key {secret}"))],
        diff: format!("+key = {secret}\n"),
        ..UpdatePreview::default()
    };
    let text = described(&push(&["refs/heads/x"], false), vec![effects]);
    assert!(!text.contains(&secret) && text.contains("[redacted:"), "{text}");
}

#[test]
fn programs_see_each_update() {
    let value = json(&push(&["refs/heads/x"], false));
    let update =
        json!({ "ref": "refs/heads/x", "old": ZERO, "new": NEW, "change": "create", "forced": false });
    let expected =
        json!({ "repository": "org/app", "updates": [update], "atomic": true, "options": ["ci.skip"] });
    assert_eq!(value, expected);
}
