use std::os::unix::fs::PermissionsExt as _;

use super::super::testing::{keys, parse};

fn file(directory: &std::path::Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

#[test]
fn notices_and_push_are_off_by_default_and_printed_without_secrets() {
    let config = parse("{}").unwrap();
    assert!(config.notices.push.is_none());
    assert!(config.notices.open().unwrap().is_empty());
    let directory = tempfile::tempdir().unwrap();
    let secret = file(directory.path(), "secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let url = file(directory.path(), "url", "https://chat.example.org/services/T0K3N");
    let text = format!(
        "notices: {{ webhooks: [ \
            {{ name: pager, url: 'https://example.org/S3CR3T', secret_file: {secret} }}, \
            {{ name: team, form: slack, url_file: {url}, details: true, batch: 10s, max_per_minute: 2 }}] }}\n\
         push: {{ hosts: [push.example.org, 'updates.example.org:8443'], contact: 'mailto:security@example.org' }}\n\
         console: {{}}"
    );
    let config = parse(&text).unwrap();
    let hooks = config.notices.open().unwrap();
    assert!(hooks[0].endpoint.secret.is_some() && !hooks[0].details && hooks[0].per_minute == 6);
    assert!(hooks[1].endpoint.secret.is_none() && hooks[1].details && hooks[1].per_minute == 2);
    let printed = config.to_string();
    for hidden in ["S3CR3T", "T0K3N", "MfKQ"] {
        assert!(!printed.contains(hidden) && !format!("{config:?}").contains(hidden), "{printed}");
    }
    assert_eq!(
        parse(&printed.replace("https://example.org/REDACTED", "https://example.org/S3CR3T"))
            .unwrap()
            .to_string(),
        printed
    );
}

#[test]
fn all_problems_of_notices_are_reported() {
    let text = "notices: { webhooks: [
        { name: a, form: slack, url: 'https://example.org/', secret_file: /x, details: 2 },
        { name: b, url_file: /x, batch: 0s, max_per_minute: 0, form: fax }] }";
    let expected = [
        "notices.webhooks[0].url",
        "notices.webhooks[0].secret_file",
        "notices.webhooks[0]",
        "notices.webhooks[0].details",
        "notices.webhooks[1].form",
        "notices.webhooks[1].batch",
        "notices.webhooks[1].max_per_minute",
    ];
    let found = keys(text);
    for key in expected {
        assert!(found.iter().any(|found| found.starts_with(key)), "{key}: {found:?}");
    }
    for (text, key) in [
        ("console: {}\npush: { hosts: ['*.example.org'], contact: 'mailto:a@example.org' }", "push.hosts[0]"),
        ("console: {}\npush: { hosts: [], contact: 'mailto:a@example.org' }", "push.hosts"),
        ("console: {}\npush: { hosts: [push.example.org], contact: somebody }", "push.contact"),
        ("push: { hosts: [push.example.org], contact: 'mailto:a@example.org' }", "push"),
    ] {
        assert_eq!(keys(text), [key], "{text}");
    }
}
