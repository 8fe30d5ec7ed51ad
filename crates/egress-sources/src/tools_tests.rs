use std::path::Path;

use super::*;
use crate::found::Setting;

/// Reads files below a new root, with these variables; the home directory is `/home/u`, the current one `/home/u/work/src`.
fn found(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Found {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        write(root.path(), path, text);
    }
    read_below(root.path(), variables)
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read_below(root: &Path, variables: &[(&str, &str)]) -> Found {
    let variables = [&[("HOME", "/home/u")], variables].concat();
    read(&Host::of(root, "/home/u/work/src", &variables))
}

fn shown(found: &Found, tool: &str) -> Vec<String> {
    let of_tool = found.settings.iter().filter(|setting| setting.tool == tool);
    let shown = of_tool.map(|Setting { origin, remote, .. }| {
        let protocol = format!("{:?}", remote.protocol).to_lowercase();
        format!("{origin}: {protocol} {}:{}", remote.host, remote.port)
    });
    shown.collect()
}

#[test]
fn pip_has_files_of_all_places_and_variables() {
    let found = found(
        &[
            (
                "/etc/pip.conf",
                "[global]\nindex-url = https://a.example.org/simple\nextra-index-url =\n    https://b.example.org/x\n    https://c.example.org:8443/x\n",
            ),
            (
                "/home/u/.config/pip/pip.conf",
                "[install]\nExtra_Index_Url: http://d.example.org/\n# index-url = https://no.example.org\nfind-links = /srv/wheels https://e.example.org/w\ntrusted-host = no.example.org\n",
            ),
            ("/venv/pip.conf", "[global]\nindex_url=https://f.example.org/\n"),
        ],
        &[("VIRTUAL_ENV", "/venv"), ("PIP_EXTRA_INDEX_URL", "https://g.example.org/ https://h.example.org/")],
    );
    assert_eq!(
        shown(&found, "pip"),
        [
            "index-url in /etc/pip.conf: https a.example.org:443",
            "extra-index-url in /etc/pip.conf: https b.example.org:443",
            "extra-index-url in /etc/pip.conf: https c.example.org:8443",
            "extra-index-url in /home/u/.config/pip/pip.conf: http d.example.org:80",
            "find-links in /home/u/.config/pip/pip.conf: https e.example.org:443",
            "index-url in /venv/pip.conf: https f.example.org:443",
            "PIP_EXTRA_INDEX_URL: https g.example.org:443",
            "PIP_EXTRA_INDEX_URL: https h.example.org:443",
        ]
    );
    assert_eq!(found.notes, Vec::<String>::new());
}

#[test]
fn pip_without_files_has_its_variables_alone() {
    let files = [("/etc/pip.conf", "[global]\nindex-url = https://a.example.org/\n")];
    let found =
        found(&files, &[("PIP_CONFIG_FILE", "/dev/null"), ("PIP_INDEX_URL", "https://b.example.org")]);
    assert_eq!(shown(&found, "pip"), ["PIP_INDEX_URL: https b.example.org:443"]);
}

#[test]
fn npm_has_registries_of_scopes_and_no_tokens() {
    let found = found(
        &[
            (
                "/home/u/.npmrc",
                "registry = \"https://a.example.org/npm/\"\n@team:registry=https://b.example.org/\n//b.example.org/:_authToken=secret\n",
            ),
            (
                "/home/u/work/.npmrc",
                "; comment\n@e\u{301}vil:registry=https://c.example.org/\nregistry=${REGISTRY}\nproxy=http://no.example.org/\n",
            ),
        ],
        &[("npm_config_registry", "https://d.example.org/")],
    );
    assert_eq!(
        shown(&found, "npm"),
        [
            "registry in /home/u/.npmrc: https a.example.org:443",
            "registry of @team in /home/u/.npmrc: https b.example.org:443",
            "registry of a scope in /home/u/work/.npmrc: https c.example.org:443",
            "npm_config_registry: https d.example.org:443",
        ]
    );
    assert_eq!(found.notes, ["npm: registry in /home/u/work/.npmrc: the value is no URL of a server"]);
}

#[test]
fn cargo_has_replaced_sources_and_registries() {
    let found = found(
        &[
            (
                "/home/u/.cargo/config.toml",
                "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+https://a.example.org/index/\"\n[source.vendored]\ndirectory = \"vendor\"\n",
            ),
            (
                "/home/u/work/.cargo/config",
                "registries.own = { index = \"https://u:secret@b.example.org/git\" }\n[source.g]\ngit = \"ssh://git@c.example.org/x\"\n",
            ),
            ("/home/u/work/src/.cargo/config.toml", "[registries\nindex = \"https://secret.example.org\"\n"),
        ],
        &[("CARGO_REGISTRIES_OTHER_INDEX", "sparse+http://d.example.org:8080/")],
    );
    assert_eq!(
        shown(&found, "cargo"),
        [
            "source.*.registry in /home/u/.cargo/config.toml: https a.example.org:443",
            "source.*.git in /home/u/work/.cargo/config: tcp c.example.org:22",
            "registries.*.index in /home/u/work/.cargo/config: https b.example.org:443",
            "CARGO_REGISTRIES_OTHER_INDEX: http d.example.org:8080",
        ]
    );
    let note = "cargo: /home/u/work/src/.cargo/config.toml: not read, because it is not TOML";
    assert_eq!(found.notes, [note]);
}

#[test]
fn go_has_its_proxies_and_its_checksum_database() {
    let file = (
        "/home/u/.config/go/env",
        "GOPROXY=https://a.example.org|https://b.example.org,off\nGOSUMDB=sum.example.org+033de0ae+Ac4z\n",
    );
    let found_in_file = found(&[file], &[]);
    assert_eq!(
        shown(&found_in_file, "go"),
        [
            "GOPROXY in /home/u/.config/go/env: https a.example.org:443",
            "GOPROXY in /home/u/.config/go/env: https b.example.org:443",
            "GOSUMDB in /home/u/.config/go/env: https sum.example.org:443",
        ]
    );
    let variables = [("GOPROXY", "direct"), ("GOSUMDB", "sum.example.org https://c.example.org/sumdb")];
    let found_in_variables = found(&[file], &variables);
    assert_eq!(shown(&found_in_variables, "go"), ["GOSUMDB: https c.example.org:443"]);
    assert!(found_in_variables.notes[0].contains("`direct`"), "{:?}", found_in_variables.notes);
    let off = found(&[file], &[("GOENV", "off"), ("GOSUMDB", "off")]);
    assert_eq!(shown(&off, "go"), Vec::<String>::new());
    assert!(off.without.contains(&"go"));
}

#[test]
fn apt_has_both_formats_and_no_disabled_source() {
    let found = found(
        &[
            (
                "/etc/apt/sources.list",
                "# deb http://no.example.org/ x main\ndeb [arch=amd64 signed-by=/k.gpg] https://a.example.org/debian stable main # x\ndeb-src http://b.example.org:3142/debian stable main\ndeb cdrom:[Disk]/ stable main\n",
            ),
            (
                "/etc/apt/sources.list.d/c.sources",
                "Types: deb\nURIs: https://c.example.org/a\n  http://d.example.org/b\nSuites: x\n\nEnabled: no\nTypes: deb\nURIs: https://no.example.org/\n\n# x\nURIs: https://e.example.org/\n",
            ),
            ("/etc/apt/sources.list.d/old.list.save", "deb http://no.example.org/ x main\n"),
        ],
        &[],
    );
    assert_eq!(
        shown(&found, "apt"),
        [
            "/etc/apt/sources.list: https a.example.org:443",
            "/etc/apt/sources.list: http b.example.org:3142",
            "/etc/apt/sources.list.d/c.sources: https c.example.org:443",
            "/etc/apt/sources.list.d/c.sources: http d.example.org:80",
            "/etc/apt/sources.list.d/c.sources: https e.example.org:443",
        ]
    );
    assert_eq!(found.notes, Vec::<String>::new());
}

#[test]
fn git_has_replaced_urls_and_remotes_after_the_replacement() {
    let found = found(
        &[
            (
                "/home/u/.gitconfig",
                "[url \"https://u:secret@a.example.org/\"]\n\tinsteadOf = \"hub:\"\n\tpushInsteadOf = x\n[url \"ssh://git@b.example.org:2222/\"] insteadOf = hub:team/ ; longer\n[include]\n\tpath = other\n",
            ),
            (
                "/home/u/work/.git/config",
                "[core]\n\tbare = false\n[remote \"one\"]\n\turl = hub:x/y\n\tfetch = +refs/*:refs/*\n[remote \"two\"]\n\turl = hub:team/z\n[Remote \"three\"]\n\tURL = git@c.example.org:x/y.git\n[remote \"local\"]\n\turl = ../other\n[remote \"path\"]\n\turl = /srv/a:b\n",
            ),
        ],
        &[],
    );
    let base = "url.*.insteadOf in /home/u/.gitconfig";
    let remote = "remote.*.url in /home/u/work/.git/config";
    assert_eq!(
        shown(&found, "git"),
        [
            format!("{base}: https a.example.org:443"),
            format!("{base}: tcp b.example.org:2222"),
            format!("{remote}: https a.example.org:443"),
            format!("{remote}: tcp b.example.org:2222"),
            format!("{remote}: tcp c.example.org:22"),
        ]
    );
    assert_eq!(found.notes, ["git: /home/u/.gitconfig: files that it includes are not read"]);
}

#[test]
fn git_of_a_worktree_has_the_remotes_of_its_repository() {
    let found = found(
        &[
            ("/home/u/work/.git", "gitdir: /srv/repo/.git/worktrees/w\n"),
            ("/srv/repo/.git/worktrees/w/commondir", "../..\n"),
            ("/srv/repo/.git/worktrees/w/HEAD", ""),
            ("/srv/repo/.git/config", "[remote \"origin\"]\nurl = https://a.example.org/x\n"),
        ],
        &[],
    );
    let [setting] = &shown(&found, "git")[..] else { panic!("{found:?}") };
    assert!(setting.ends_with("https a.example.org:443"), "{setting}");
}

#[test]
fn docker_has_its_mirrors() {
    let file = (
        "/etc/docker/daemon.json",
        "{\"registry-mirrors\": [\"https://a.example.org:5000\", 7], \"debug\": true}",
    );
    let found_mirror = found(&[file], &[]);
    let expected = "registry-mirrors in /etc/docker/daemon.json: https a.example.org:5000";
    assert_eq!(shown(&found_mirror, "Docker"), [expected]);
    let broken = found(&[("/etc/docker/daemon.json", "{secret")], &[]);
    assert!(broken.notes[0].ends_with("not read, because the file is not JSON"), "{:?}", broken.notes);
}

#[test]
fn files_that_cannot_be_read_are_noted() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "/etc/pip.conf", &"#".repeat((1 << 20) + 1));
    write(root.path(), "/home/u/.npmrc/inside", "");
    write(root.path(), "/etc/docker/x", "");
    std::fs::write(root.path().join("etc/gitconfig"), b"[url \"\xff\"]\n").unwrap();
    let pipe = root.path().join("etc/docker/daemon.json");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let found = read_below(root.path(), &[]);
    assert_eq!(
        found.notes,
        [
            "pip: /etc/pip.conf: not read, because it is larger than 1 MiB",
            "npm: /home/u/.npmrc: not read, because it is no regular file",
            "git: /etc/gitconfig: not read, because it is not UTF-8",
            "Docker: /etc/docker/daemon.json: not read, because it is no regular file",
        ]
    );
}
