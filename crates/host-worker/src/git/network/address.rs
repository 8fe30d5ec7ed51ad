//! Finds the URL of a remote.

use git_remote::RemoteUrl;
use git2::Repository;
use operations::GitRemote;

use super::super::error::{GitError, shown};

/// Repository at a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) url: RemoteUrl,
    /// Name of the remote; `None` if the call has the URL itself.
    pub(super) name: Option<String>,
}

impl Address {
    /// Reads `remote.NAME.url` of the repository's own configuration, unless the call has the URL.
    pub(super) fn of(repository: &Repository, remote: &GitRemote) -> Result<Self, GitError> {
        let name = match remote {
            GitRemote::Url(url) => {
                let url = RemoteUrl::parse(url).map_err(|error| GitError::Remote(error.into()))?;
                return Ok(Self { url, name: None });
            }
            GitRemote::Name(name) => name,
        };
        let key = format!("remote.{name}.url");
        let mut urls = Vec::new();
        repository.config()?.snapshot()?.entries(None)?.for_each(|entry| {
            // A file that the configuration includes is not read by the other commands of git here, either.
            if entry.include_depth() == 0 && entry.name_bytes() == key.as_bytes() && entry.has_value() {
                urls.push(String::from_utf8_lossy(entry.value_bytes()).into_owned());
            }
        })?;
        let url = match urls.as_slice() {
            [] => return Err(GitError::NoRemote(shown(name))),
            [url] => url,
            _ => {
                return Err(GitError::BadRemote {
                    name: shown(name),
                    why: "there are several URLs".to_owned(),
                });
            }
        };
        match RemoteUrl::parse(url) {
            Ok(url) => Ok(Self { url, name: Some(name.clone()) }),
            Err(why) => Err(GitError::BadRemote { name: shown(name), why: why.to_string() }),
        }
    }

    /// Returns host and repository, for people and the record.
    pub(super) fn place(&self) -> String {
        self.url.to_string().replacen("https://", "", 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_has_one_https_url_of_the_own_configuration() {
        let place = tempfile::tempdir().unwrap();
        let repository = Repository::init(place.path()).unwrap();
        let included = place.path().join("included");
        std::fs::write(&included, "[remote \"far\"]\n\turl = https://git.example.org/far\n").unwrap();
        let config = format!(
            "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://git.example.org/org/app\n\
             [remote \"two\"]\n\turl = https://a.example.org/a\n\turl = https://b.example.org/b\n\
             [remote \"ssh\"]\n\turl = git@git.example.org:org/app\n\
             [remote \"plain\"]\n\turl = http://git.example.org/org/app\n\
             [remote \"secret\"]\n\turl = https://user:word@git.example.org/org/app\n\
             [url \"https://evil.example.org/\"]\n\tinsteadOf = https://git.example.org/\n\
             [include]\n\tpath = {}\n",
            included.display()
        );
        std::fs::write(repository.path().join("config"), config).unwrap();
        let repository = Repository::open(place.path()).unwrap();
        let of = |name: &str| Address::of(&repository, &GitRemote::Name(name.to_owned()));
        let origin = of("origin").unwrap();
        assert_eq!(origin.url.to_string(), "https://git.example.org/org/app");
        assert_eq!(origin.place(), "git.example.org/org/app");
        assert!(matches!(of("none"), Err(GitError::NoRemote(_))));
        assert!(matches!(of("far"), Err(GitError::NoRemote(_))));
        for bad in ["two", "ssh", "plain", "secret"] {
            let refused = of(bad);
            let Err(GitError::BadRemote { why, .. }) = &refused else { panic!("{bad}: {refused:?}") };
            assert!(!why.contains("word@git"), "{why}");
        }
    }
}
