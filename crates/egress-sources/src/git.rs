//! git: `url.*.insteadOf`, and the remotes of the repository that the current directory is in.

use std::path::PathBuf;

use crate::found::Found;
use crate::host::Host;
use crate::remote::{Protocol, Remote};

/// Beginning of a URL that another replaces.
struct InsteadOf {
    instead: String,
    base: String,
}

pub(super) fn read(host: &Host, found: &mut Found) {
    let (mut rewrites, mut remotes) = (Vec::new(), Vec::new());
    for path in files(host, found) {
        let Some(text) = found.text(host, &path) else { continue };
        for Entry { section, name, key, value } in entries(&text) {
            match (section.as_str(), key.as_str()) {
                ("url", "insteadof") => {
                    add(&format!("url.*.insteadOf in {}", path.display()), &name, found);
                    rewrites.push(InsteadOf { instead: value, base: name });
                }
                ("remote", "url") => remotes.push((format!("remote.*.url in {}", path.display()), value)),
                ("include" | "includeif", "path") => {
                    found.note(&path.display().to_string(), "files that it includes are not read");
                }
                _ => {}
            }
        }
    }
    for (origin, url) in remotes {
        let longest = rewrites
            .iter()
            .filter_map(|rewrite| Some((rewrite, url.strip_prefix(rewrite.instead.as_str())?)))
            .max_by_key(|(rewrite, _)| rewrite.instead.len());
        match longest {
            Some((rewrite, rest)) => add(&origin, &format!("{}{rest}", rewrite.base), found),
            None => add(&origin, &url, found),
        }
    }
}

/// Adds the server of a URL in one of git's forms: `https://…`, or `user@host:path`. Paths have no server.
fn add(origin: &str, url: &str, found: &mut Found) {
    if url.contains("://") {
        return found.add(origin, url);
    }
    let Some((login, _)) = url.split_once(':').filter(|(login, _)| !login.contains('/')) else { return };
    let host = login.rsplit('@').next().unwrap_or(login);
    match Remote::of(host, 22, Protocol::Tcp) {
        Ok(remote) => found.add_remote(origin, remote),
        Err(problem) => found.note(origin, problem),
    }
}

fn files(host: &Host, found: &mut Found) -> Vec<PathBuf> {
    let mut files = vec![PathBuf::from("/etc/gitconfig")];
    files.extend(host.config().map(|config| config.join("git/config")));
    files.extend(host.home(".gitconfig"));
    files.extend(of_repository(host, found));
    files
}

/// Returns the configuration of the repository. In a worktree or submodule, `.git` is a file that names its directory.
fn of_repository(host: &Host, found: &mut Found) -> Option<PathBuf> {
    for directory in host.directories() {
        let git = directory.join(".git");
        if host.is_directory(&git) {
            return Some(git.join("config"));
        }
        let Some(text) = found.text(host, &git) else { continue };
        let real = directory.join(text.strip_prefix("gitdir:")?.trim());
        let common = found.text(host, &real.join("commondir"));
        let common = common.map_or_else(|| real.clone(), |common| real.join(common.trim()));
        return Some(common.join("config"));
    }
    None
}

struct Entry {
    /// In lower case.
    section: String,
    name: String,
    /// In lower case.
    key: String,
    value: String,
}

/// Reads the values of a file in git's format.
fn entries(text: &str) -> Vec<Entry> {
    let (mut section, mut name) = (String::new(), String::new());
    let mut entries = Vec::new();
    // A backslash at the end of a line continues it.
    for line in text.replace("\\\n", "").lines().map(str::trim) {
        let mut rest = line;
        if let Some(header) = line.strip_prefix('[') {
            let Some((kind, subsection, after)) = header_of(header) else { continue };
            (section, name, rest) = (kind, subsection, after);
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            continue;
        }
        if let Some((key, value)) = rest.split_once('=') {
            let (section, name, key) = (section.clone(), name.clone(), key.trim().to_lowercase());
            entries.push(Entry { section, name, key, value: unquoted(value.trim()) });
        }
    }
    entries
}

/// Reads `section "name"] rest`.
fn header_of(text: &str) -> Option<(String, String, &str)> {
    let end = text.find([']', '"'])?;
    let (section, rest) = text.split_at_checked(end)?;
    let section = section.trim().to_lowercase();
    let Some(quoted) = rest.strip_prefix('"') else {
        return Some((section, String::new(), rest.strip_prefix(']')?.trim()));
    };
    let (mut name, mut characters) = (String::new(), quoted.chars());
    loop {
        match characters.next()? {
            '"' => break,
            '\\' => name.push(characters.next()?),
            other => name.push(other),
        }
    }
    Some((section, name, characters.as_str().trim_start().strip_prefix(']')?.trim()))
}

/// Returns a value without its quotes, escapes and comment.
fn unquoted(text: &str) -> String {
    let (mut value, mut is_quoted, mut characters) = (String::new(), false, text.chars());
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\\' => value.extend(characters.next()),
            '#' | ';' if !is_quoted => break,
            other => value.push(other),
        }
    }
    value.trim_end().to_owned()
}
