//! Decides which values of a new configuration take effect while the daemon runs, and which need a restart.

use serde_json::Value;

use super::Config;

/// Difference between the configuration in force and a new one.
pub(crate) struct Change {
    /// The configuration in force after the reload.
    pub(crate) next: Config,
    /// Keys whose values take effect.
    pub(crate) applied: Vec<String>,
    /// Keys whose values need a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl Config {
    /// Compares the configuration in force with the one in the file.
    pub(crate) fn change_to(&self, file: Self) -> Change {
        let mut next = self.clone();
        let (before, wanted) = (self.shown(), file.shown());
        let unshown = self.unshown_changes(&file);
        (next.digest, next.text) = (file.digest, file.text);
        (next.access, next.certified) = (file.access, file.certified);
        next.webhooks = file.webhooks;
        (next.approval_timeout, next.allow_self_approval) = (file.approval_timeout, file.allow_self_approval);
        next.calls = file.calls;
        next.log_level = file.log_level;
        next.oidc = file.oidc;
        next.secrets = file.secrets;
        if next.workspace_roots == file.workspace_roots {
            next.policy_dir = file.policy_dir;
        }
        // The token is that of its listener: a listener on loopback may need none, and the one in force would lose its own.
        if let (Some(metrics), Some(file)) = (&mut next.metrics, file.metrics)
            && metrics.address == file.address
        {
            metrics.token_file = file.token_file;
        }
        // A listener without TLS does not get it, and one with TLS does not lose it.
        if let (Some(tls), Some(file)) =
            (next.tcp.as_mut().and_then(|tcp| tcp.tls.as_mut()), file.tcp.and_then(|tcp| tcp.tls))
        {
            *tls = file;
        }
        let after = next.shown();
        let (mut applied, mut needs_restart) = (differing(&before, &after), differing(&after, &wanted));
        let taken: Vec<&str> = self.unshown_changes(&next).collect();
        for key in unshown {
            add(if taken.contains(&key) { &mut applied } else { &mut needs_restart }, key);
        }
        Change { next, applied, needs_restart }
    }

    /// Returns the keys of endpoints that differ. The path of an endpoint may be secret, so it is not in [`Config::shown`].
    fn unshown_changes(&self, other: &Self) -> impl Iterator<Item = &'static str> + use<> {
        let (own_hook, other_hook) = (&self.audit.hooks.webhook, &other.audit.hooks.webhook);
        let changes = [
            ("alerts.webhooks", self.webhooks != other.webhooks),
            ("audit.checkpoint.webhook", own_hook != other_hook),
            ("console", self.console != other.console),
            ("notices.webhooks", !self.notices.has_webhooks_of(&other.notices)),
            ("traces", self.traces != other.traces),
        ];
        changes.into_iter().filter_map(|(key, differs)| differs.then_some(key))
    }
}

/// Returns the keys whose values differ, or that only one of the two has, in order. A list is one value.
fn differing(one: &Value, other: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", one, other, &mut found);
    found.sort();
    found
}

/// Adds a key in order, unless it, a part of it or its section is there.
fn add(keys: &mut Vec<String>, key: &str) {
    let is_within = |one: &str, other: &str| {
        one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if !keys.iter().any(|known| is_within(known, key) || is_within(key, known)) {
        keys.push(key.to_owned());
        keys.sort();
    }
}

fn compare(key: &str, one: &Value, other: &Value, found: &mut Vec<String>) {
    let (Value::Object(ones), Value::Object(others)) = (one, other) else {
        if one != other {
            found.push(key.to_owned());
        }
        return;
    };
    let more = others.keys().filter(|name| !ones.contains_key(*name));
    for name in ones.keys().chain(more) {
        let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
        compare(
            &key,
            ones.get(name).unwrap_or(&Value::Null),
            others.get(name).unwrap_or(&Value::Null),
            found,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// Keys whose values take effect at a reload. All others need a restart.
    ///
    /// The files that they name are read again at each reload. `policy_dir` needs a restart, too, if `workspace_roots` changes with it: a run must
    /// not be able to change the policy.
    const AT_ONCE: [&str; 12] = [
        "access",
        "alerts.webhooks",
        "approvals.allow_self_approval",
        "approvals.timeout",
        "limits.calls",
        "limits.calls_waiting",
        "listen.tcp.tls",
        "log.level",
        "metrics.token_file",
        "oidc",
        "policy_dir",
        "secrets",
    ];

    use super::super::read::KEYS;
    use super::super::testing::parse;
    use super::*;

    #[test]
    fn every_key_that_differs_is_named() {
        let was = parse("limits: { runs: 5 }\naccess: [{ uid: 1000, roles: [auditor] }]").unwrap().shown();
        for (text, keys) in [
            ("limits: { runs: 5 }\naccess: [{ uid: 1000, roles: [auditor] }]", &[][..]),
            ("access: [{ uid: 1000, roles: [auditor] }]", &["limits.runs"]),
            (
                "limits: { runs: 6 }\naccess: [{ uid: 1001, roles: [auditor] }]\nmcp: { http: {} }",
                &["access", "limits.runs", "mcp"],
            ),
            (
                "limits: { runs: 5 }\naccess: [{ uid: 1000, roles: [auditor] }]\napprovals: { timeout: 60s, allow_self_approval: true }",
                &["approvals.allow_self_approval", "approvals.timeout"],
            ),
        ] {
            assert_eq!(differing(&was, &parse(text).unwrap().shown()), keys, "{text}");
        }
    }

    /// A change of each key that takes effect at once does, and no other key changes with it.
    #[test]
    fn each_key_that_is_listed_takes_effect_and_each_other_needs_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().display();
        let token = directory.path().join("token");
        fs::write(&token, "0123456789").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let tls = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
            let place = directory.path().join(name);
            fs::create_dir(&place).unwrap();
            fs::write(place.join("cert"), params.self_signed(&key).unwrap().pem()).unwrap();
            fs::write(place.join("key"), key.serialize_pem()).unwrap();
            fs::set_permissions(place.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
            let tls = format!("{{ certificate: {root}/{name}/cert, key: {root}/{name}/key }}");
            format!("listen: {{ tcp: {{ tls: {tls}, tokens: {{}} }} }}")
        };
        let (tls, other_tls) = (tls("one"), tls("other"));
        let issuer = "oidc: [{ name: corp, issuer: 'https://login.example.org/', audience: cofferdam, jwks: { url: 'https://login.example.org/keys' }, \
                      grants: [{ claim: groups, value: ml, roles: [auditor] }] }]";
        let webhook = format!(
            "alerts: {{ webhooks: [{{ name: pager, url: \"https://hooks.example.org/x\", secret_file: {root}/hook }}] }}"
        );
        let hook = directory.path().join("hook");
        fs::write(&hook, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o600)).unwrap();
        let changes: [(&str, String, String); AT_ONCE.len()] = [
            ("access", String::new(), "access: [{ uid: 7, roles: [auditor] }]".into()),
            ("alerts.webhooks", String::new(), webhook),
            (
                "approvals.allow_self_approval",
                String::new(),
                "approvals: { allow_self_approval: true }".into(),
            ),
            ("approvals.timeout", "approvals: { timeout: 5m }".into(), "approvals: { timeout: 6m }".into()),
            ("limits.calls", String::new(), "limits: { calls: 7 }".into()),
            ("limits.calls_waiting", String::new(), "limits: { calls_waiting: 7 }".into()),
            ("listen.tcp.tls", tls, other_tls),
            ("log.level", String::new(), "log: { level: debug }".into()),
            (
                "metrics.token_file",
                "metrics: {}".into(),
                format!("metrics: {{ token_file: {} }}", token.display()),
            ),
            ("oidc", String::new(), issuer.into()),
            ("policy_dir", String::new(), "policy_dir: /etc/cofferdam/policy".into()),
            ("secrets", String::new(), "secrets: { model: { env: MODEL } }".into()),
        ];
        assert_eq!(changes.each_ref().map(|(key, ..)| *key), AT_ONCE);
        for (key, before, after) in changes {
            let after = parse(&after).unwrap();
            let digest = after.digest.clone();
            let change = parse(&before).unwrap().change_to(after);
            let within = |changed: &String| {
                changed == key || changed.starts_with(&format!("{key}."))
                // The whole section came into being.
                || key.starts_with(&format!("{changed}."))
            };
            assert!(
                !change.applied.is_empty() && change.applied.iter().all(within),
                "{key}: {:?}",
                change.applied
            );
            assert!(change.needs_restart.is_empty(), "{key}: {:?}", change.needs_restart);
            assert_eq!(change.next.digest, digest);
        }
        for (text, key) in [
            ("limits: { runs: 7 }", "limits.runs"),
            ("log: { format: json }", "log.format"),
            ("pool: { min: 1, max: 1 }", "pool"),
            ("metrics: {}", "metrics"),
            ("listen: { tcp: { plaintext: true, address: \"127.0.0.1:1\", tokens: {} } }", "listen.tcp"),
        ] {
            let change = parse("").unwrap().change_to(parse(text).unwrap());
            assert!(change.applied.is_empty(), "{key}: {:?}", change.applied);
            assert!(change.needs_restart.iter().all(|changed| changed.starts_with(key)), "{text}");
            assert!(!change.needs_restart.is_empty(), "{text}");
        }
    }

    #[test]
    fn a_change_of_a_path_that_is_not_shown_is_named() {
        let traces =
            |path: &str| parse(&format!("traces: {{ endpoint: 'http://127.0.0.1:4317/{path}' }}")).unwrap();
        assert_eq!(differing(&traces("one").shown(), &traces("other").shown()), Vec::<String>::new());
        let change = traces("one").change_to(traces("other"));
        assert_eq!((change.applied.len(), change.needs_restart), (0, vec!["traces".to_owned()]));
        let change = traces("one").change_to(traces("one"));
        assert_eq!((change.applied.len(), change.needs_restart.len()), (0, 0));
        let mut keys = vec!["alerts".to_owned(), "traces.sample".to_owned()];
        for key in ["traces", "alerts.webhooks", "alert", "notices.webhooks"] {
            add(&mut keys, key);
        }
        assert_eq!(keys, ["alert", "alerts", "notices.webhooks", "traces.sample"]);
    }

    #[test]
    fn the_policy_does_not_move_while_the_roots_of_workspaces_do() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("work");
        fs::create_dir(&root).unwrap();
        let before = parse(&format!("workspace_roots: [{}]", root.display())).unwrap();
        // In the file's own roots the policy would be safe, but not in those in force.
        let file = parse(&format!("policy_dir: {}/policy", root.display())).unwrap();
        let change = before.change_to(file);
        assert_eq!((change.next.policy_dir, change.applied.len()), (None, 0));
        assert_eq!(change.needs_restart, ["policy_dir", "workspace_roots"]);
    }

    #[test]
    fn the_listener_for_metrics_keeps_its_token_until_it_moves() {
        let directory = tempfile::tempdir().unwrap();
        let token = |name: &str| {
            let file = directory.path().join(name);
            fs::write(&file, "0123456789").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            format!("token_file: {}", file.display())
        };
        let (one, other) = (token("one"), token("other"));
        let metrics = |port: u16, token: &str| {
            parse(&format!("metrics: {{ listen: '127.0.0.1:{port}', {token} }}")).unwrap()
        };
        for (token, restart) in [
            ("", &["metrics.listen", "metrics.token_file"][..]),
            (other.as_str(), &["metrics.listen", "metrics.token_file"]),
            (one.as_str(), &["metrics.listen"]),
        ] {
            let change = metrics(1, &one).change_to(metrics(2, token));
            assert!(
                change.applied.is_empty() && change.needs_restart == restart,
                "{:?}",
                change.needs_restart
            );
            assert!(change.next.metrics.unwrap().token().unwrap().is_some(), "{token}");
        }
        let change = metrics(1, &one).change_to(metrics(1, ""));
        assert!(change.applied == ["metrics.token_file"] && change.needs_restart.is_empty());
        assert_eq!(change.next.metrics.unwrap().token().unwrap(), None);
        assert_eq!(metrics(1, "").change_to(metrics(2, &one)).applied.len(), 0);
    }

    #[test]
    fn the_reference_says_of_each_key_if_a_reload_takes_it() {
        let page = include_str!("../../../../docs/src/operating/reload.md");
        let (mut sections, mut at_once) = (BTreeSet::new(), BTreeSet::new());
        let code = |cell: &'static str| cell.strip_prefix('`')?.strip_suffix('`');
        for row in page.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|')) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let &[section, taken, restart] = &cells[..] else { continue };
            let Some(section) = code(section) else { continue };
            assert!(!taken.is_empty() || !restart.is_empty(), "{section}");
            assert!(sections.insert(section), "{section} has two rows");
            at_once.extend(taken.split(", ").filter_map(code));
        }
        assert_eq!(sections, KEYS.into(), "the table has a row for each key of the configuration");
        assert_eq!(at_once, AT_ONCE.into());
    }
}
