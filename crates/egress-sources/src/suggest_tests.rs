use std::path::Path;

use policy::Policy;

use super::*;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn suggested(host: &Host) -> (Suggestions, String) {
    let suggestions = suggest(host);
    let output = suggestions.to_string();
    (suggestions, output)
}

/// Loads the output in a profile, as `coffer policy check` does.
fn pasted(output: &str) -> Policy {
    Policy::from_part("p.yaml", &format!("profiles:\n  mine:\n    operations: {{}}\n{output}"))
        .unwrap_or_else(|problems| panic!("{problems:?}\n{output}"))
}

#[test]
fn each_rule_names_its_setting_and_the_section_is_valid() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "etc/pip.conf", "[global]\nindex-url = https://user:secret@pip.example.org/simple\n");
    write(
        root.path(),
        "home/u/.npmrc",
        "registry=https://npm.example.org:8443/\n//npm.example.org/:_authToken=secret\n",
    );
    write(root.path(), "etc/apt/sources.list", "deb http://apt.example.org/debian stable main\n");
    write(root.path(), "etc/gitconfig", "[url \"http://git:secret@apt.example.org/\"]\n\tinsteadOf = apt:\n");
    let host = Host::of(
        root.path(),
        "/home/u/work",
        &[("HOME", "/home/u"), ("GOPROXY", "https://pip.example.org,direct")],
    );
    let (_, output) = suggested(&host);
    assert_eq!(
        output,
        "    # Servers that the tools of this host are configured to use. Read each rule before a profile gets it.
    egress:
      rules:
        # pip: index-url in /etc/pip.conf
        # go: GOPROXY
        - { host: \"pip.example.org\", ports: [443], decision: allow }
        # npm: registry in /home/u/.npmrc
        - { host: \"npm.example.org\", ports: [8443], decision: allow }
        # apt: /etc/apt/sources.list
        # git: url.*.insteadOf in /etc/gitconfig
        # git also needs POST to fetch over HTTP; POST would open pushes as well
        - { host: \"apt.example.org\", ports: [80], scheme: http, methods: [GET, HEAD], decision: allow }
    # cargo: not configured; if runs need it, add a rule that names its registry or server
    # Docker: not configured; if runs need it, add a rule that names its registry or server
    # no rule: go: GOPROXY: `direct` gets modules from their own hosts, which are not listed here
    # Redirects: a registry may serve files from another host, which no configuration names; `coffer run connections` shows refused names.
    # Private addresses: a name that resolves to one also needs `networks`.
"
    );
    let policy = pasted(&output);
    assert_eq!(policy.profile("mine").unwrap().egress.settings().rules.len(), 3);
    assert!(!output.contains("secret"), "{output}");
}

#[test]
fn git_over_ssh_can_be_rewritten_to_https() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "home/u/work/.git/config",
        "[remote \"origin\"]\n\turl = git@git.example.org:org/app.git\n",
    );
    let (_, output) = suggested(&Host::of(root.path(), "/home/u/work", &[("HOME", "/home/u")]));
    let setting = "git config --global url.\"https://git.example.org/\".insteadOf git@git.example.org:";
    assert!(output.contains(&format!("`scheme: git` names repositories and refs: {setting}\n")), "{output}");
    assert_eq!(pasted(&output).profile("mine").unwrap().egress.settings().rules.len(), 1);
}

#[test]
fn a_host_without_configuration_gets_advice_and_no_host_name() {
    let root = tempfile::tempdir().unwrap();
    let (report, output) = suggested(&Host::of(root.path(), "/", &[("HOME", "/root")]));
    assert_eq!(report.not_configured, ["pip", "npm", "cargo", "go", "apt", "git", "Docker"]);
    assert!(report.rules.is_empty() && report.not_used.is_empty(), "{report:?}");
    assert!(output.contains("      rules: []\n"), "{output}");
    assert!(pasted(&output).profile("mine").unwrap().egress.is_nothing());
}

#[test]
fn servers_that_a_policy_refuses_are_notes() {
    let root = tempfile::tempdir().unwrap();
    let host = Host::of(
        root.path(),
        "/",
        &[
            ("PIP_INDEX_URL", "http://u:secret@10.1.2.3:8081/simple"),
            (
                "PIP_EXTRA_INDEX_URL",
                "http://127.1/ https://localhost:3000/ http://[::ffff:10.0.0.1]/ http://a.example.org:443/ https://a.example.org/",
            ),
        ],
    );
    let (report, output) = suggested(&host);
    let hosts: Vec<String> = report.rules.iter().map(|suggested| suggested.rule.host.to_string()).collect();
    assert_eq!(hosts, ["a.example.org"], "{output}");
    for note in [
        "10.1.2.3:8081: 10.1.2.3 is a private address (10.0.0.0/8, RFC 1918); `networks` has to allow it",
        "127.0.0.1:80: 127.0.0.1 is a loopback address",
        "this host itself",
        "10.0.0.1:80: 10.0.0.1 is a private address",
        "a.example.org:443: contradicts rule 1",
    ] {
        assert!(output.contains(note), "{note}\n{output}");
    }
    assert!(!output.contains("secret"), "{output}");
    pasted(&output);
}

#[test]
fn hostile_files_change_nothing_but_their_own_rules() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "etc/apt/sources.list.d/a\n    x: [\u{2028}\u{85}.list",
        "deb http://apt.example.org/ a b\n",
    );
    write(
        root.path(),
        "home/u/.npmrc",
        "@a\u{202e}b:registry=https://npm.example.org/\n@\"}, {:registry=https://x\"} ]/\n",
    );
    let many: Vec<String> =
        (0..2_000).map(|number| format!("deb http://h{number}.example.org/ a b\n")).collect();
    write(root.path(), "etc/apt/sources.list", &many.concat());
    let (report, output) = suggested(&Host::of(root.path(), "/", &[("HOME", "/home/u")]));
    assert_eq!(report.rules.len(), Settings::MOST_RULES);
    let policy = pasted(&output);
    assert_eq!(policy.profile("mine").unwrap().egress.settings().rules.len(), Settings::MOST_RULES);
    assert!(output.lines().all(|line| line.starts_with("    ")), "{output}");
}

#[test]
fn programs_get_the_rules_in_the_form_of_a_policy() {
    let root = tempfile::tempdir().unwrap();
    let (report, _) = suggested(&Host::of(root.path(), "/", &[("PIP_INDEX_URL", "http://pip.example.org/")]));
    let report = serde_json::to_value(report).unwrap();
    assert_eq!(
        report["rules"],
        serde_json::json!([{
            "host": "pip.example.org", "ports": [80], "scheme": "http", "methods": ["GET", "HEAD"], "decision": "allow",
            "from": ["pip: PIP_INDEX_URL"],
        }])
    );
}
