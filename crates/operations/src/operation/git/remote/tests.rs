use super::*;

#[test]
fn remotes_are_names_or_plain_https_urls() {
    for good in ["", "origin", "up-stream_2", "https://git.example.org/org/app.git"] {
        let parsed = GitRemote::parse("f", good).unwrap();
        assert_eq!(parsed.as_str(), if good.is_empty() { "origin" } else { good });
    }
    assert!(GitRemote::parse("f", "https://git.example.org:8443/a").is_ok());
    let long = format!("https://git.example.org/{}", "a".repeat(1_024));
    for bad in [
        "-n",
        ".hidden",
        "a b",
        "a/b",
        "a..b",
        "a.lock",
        "git@git.example.org:org/app",
        "ssh://git.example.org/a",
        "http://git.example.org/a",
        "file:///etc",
        "HTTPS://git.example.org/a",
        "https://user:word@git.example.org/a",
        "https://git.example.org",
        "https://git.example.org/",
        "https:///a",
        "https://git.example.org:0/a",
        "https://git.example.org:x/a",
        "https://[::1]/a",
        "https://git.example.org/a?b",
        "https://git.example.org/a#b",
        "https://git.example.org/../a",
        "https://git.example.org/a b",
        "https://git.example.org/a\r\nHost: b",
        long.as_str(),
    ] {
        assert!(GitRemote::parse("f", bad).is_err(), "{bad:?}");
    }
}

#[test]
fn references_are_branches_and_tags() {
    for (typed, full) in [
        ("main", "refs/heads/main"),
        ("agent/a-1", "refs/heads/agent/a-1"),
        ("refs/tags/v1.0", "refs/tags/v1.0"),
        ("ä", "refs/heads/ä"),
    ] {
        assert_eq!(GitRefName::parse(typed).as_ref().map(GitRefName::as_str), Some(full));
    }
    let long = "a".repeat(300);
    for bad in [
        "",
        "HEAD",
        "@",
        "-d",
        "refs/",
        "refs/heads/",
        "refs/notes/a",
        "a..b",
        "a/",
        "/a",
        "a//b",
        ".a",
        "a/.b",
        "a.lock",
        "a.",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "+a",
        "a*",
        "a?",
        "a[",
        "a\\b",
        "a@{1}",
        "a\n",
        "a\0",
        &long,
    ] {
        // A plus sign is part of a valid name for git.
        assert_eq!(GitRefName::parse(bad).is_some(), bad == "+a", "{bad:?}");
    }
}

fn push(refs: Vec<v1::GitPushRef>, force: bool) -> Result<GitPush, Malformed> {
    GitPush::parse(v1::GitPush { remote: String::new(), refs, force })
}

#[test]
fn a_push_names_each_reference_once_and_a_forced_one_its_id() {
    let to = |remote_ref: &str| v1::GitPushRef { remote_ref: remote_ref.into(), ..Default::default() };
    let id = "1".repeat(40);
    let parsed = push(vec![to("main"), v1::GitPushRef { delete: true, ..to("old") }], false).unwrap();
    assert_eq!(parsed.refs[0].local, Some(GitRevision::default()));
    assert_eq!(parsed.refs[1].local, None);
    assert_eq!(GitPush::parse(parsed.message()), Ok(parsed));
    let leased = v1::GitPushRef { expected: id.clone(), ..to("main") };
    assert!(push(vec![leased.clone()], true).is_ok());
    for (refs, force) in [
        (vec![], false),
        (vec![to("main"); 2], false),
        (vec![to("main"), to("refs/heads/main")], false),
        (vec![to("main"), v1::GitPushRef { delete: true, ..to("main") }], false),
        (vec![to("main")], true),
        (vec![v1::GitPushRef { delete: true, ..to("") }], false),
        (vec![v1::GitPushRef { delete: true, local: "HEAD".into(), ..to("a") }], false),
        (vec![v1::GitPushRef { expected: "1a".into(), ..to("a") }], false),
        (vec![v1::GitPushRef { local: "--all".into(), ..to("a") }], false),
        ((0..33).map(|n| to(&format!("b{n}"))).collect(), false),
    ] {
        assert!(push(refs.clone(), force).is_err(), "{refs:?}");
    }
}
