//! Requests of git over smart HTTP (gitprotocol-http(5)).

use std::fmt;

use crate::repository::{BadRepository, Repository};

/// Most bytes of the header `Git-Protocol`.
const MOST_PROTOCOL: usize = 256;
/// Most bytes of a service's name in a message.
const MOST_SHOWN: usize = 40;

/// Service of a git server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Sends objects: a fetch.
    UploadPack,
    /// Takes objects: a push.
    ReceivePack,
}

impl Service {
    /// Returns the name, as paths and queries have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::UploadPack, Self::ReceivePack].into_iter().find(|service| service.as_str() == name)
    }

    fn request_type(self) -> &'static str {
        match self {
            Self::UploadPack => "application/x-git-upload-pack-request",
            Self::ReceivePack => "application/x-git-receive-pack-request",
        }
    }

    /// Returns the type of a response to a request.
    pub fn result_type(self) -> &'static str {
        match self {
            Self::UploadPack => "application/x-git-upload-pack-result",
            Self::ReceivePack => "application/x-git-receive-pack-result",
        }
    }

    /// Returns the type of a list of refs.
    pub fn advertisement_type(self) -> &'static str {
        match self {
            Self::UploadPack => "application/x-git-upload-pack-advertisement",
            Self::ReceivePack => "application/x-git-receive-pack-advertisement",
        }
    }
}

/// Version of the protocol that a client offers. A server may answer in a lower one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Without a version.
    #[default]
    V0,
    /// Version 0 after a line with the version.
    V1,
    /// Commands. A push has none of them, and is of version 0.
    V2,
}

impl Version {
    /// Reads `Git-Protocol`, a list of keys between colons. The highest version counts.
    fn parse(header: Option<&str>) -> Result<Self, NotServed> {
        let Some(header) = header else { return Ok(Self::V0) };
        if header.len() > MOST_PROTOCOL || !header.bytes().all(|sign| sign.is_ascii_graphic()) {
            return Err(NotServed::Version);
        }
        let version = |key: &str| match key.strip_prefix("version=") {
            None | Some("0") => Ok(Self::V0),
            Some("1") => Ok(Self::V1),
            Some("2") => Ok(Self::V2),
            Some(_) => Err(NotServed::Version),
        };
        header.split(':').try_fold(Self::V0, |highest, key| Ok(highest.max(version(key)?)))
    }
}

/// Parts of the head of a request over HTTP that say what it is. Each header is there at most once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head<'a> {
    pub method: &'a str,
    /// Path and query.
    pub target: &'a str,
    /// Value of `Content-Type`.
    pub content_type: Option<&'a str>,
    /// Value of `Content-Encoding`.
    pub content_encoding: Option<&'a str>,
    /// Value of `Git-Protocol`.
    pub git_protocol: Option<&'a str>,
}

/// A request of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `GET …/info/refs?service=…`, with which each fetch and each push begins. It changes nothing.
    Discover { service: Service, repository: Repository, version: Version },
    /// `POST …/git-upload-pack`: asks for refs (version 2) or for objects. It changes nothing.
    Fetch { repository: Repository, version: Version },
    /// `POST …/git-receive-pack`: changes refs. Its body begins with a list of commands, and is not compressed.
    Push { repository: Repository },
}

impl Request {
    /// Reads the head of a request. Any request that is not one of these three is refused, and has its kind.
    pub fn parse(head: &Head<'_>) -> Result<Self, NotServed> {
        let version = Version::parse(head.git_protocol)?;
        let (path, query) =
            head.target.split_once('?').map_or((head.target, None), |(path, query)| (path, Some(query)));
        let path = path.strip_prefix('/').ok_or(NotServed::Path)?;
        if path.ends_with("/info/lfs") || path.contains("/info/lfs/") {
            return Err(NotServed::Lfs);
        }
        if let Some(repository) = path.strip_suffix("/info/refs") {
            if head.method != "GET" {
                return Err(NotServed::Method);
            }
            let service = query.ok_or(NotServed::Dumb)?.strip_prefix("service=").ok_or(NotServed::Query)?;
            let service = Service::parse(service).ok_or_else(|| NotServed::service(service))?;
            return Ok(Self::Discover { service, repository: Repository::parse(repository)?, version });
        }
        let Some((repository, last)) = path.rsplit_once('/') else { return Err(NotServed::Path) };
        let Some(service) = Service::parse(last) else {
            return Err(NotServed::other(path, last, head.method));
        };
        if head.method != "POST" {
            return Err(NotServed::Method);
        }
        if query.is_some() {
            return Err(NotServed::Query);
        }
        if head.content_type != Some(service.request_type()) {
            return Err(NotServed::ContentType);
        }
        let repository = Repository::parse(repository)?;
        match (service, head.content_encoding) {
            (Service::UploadPack, None | Some("gzip")) => Ok(Self::Fetch { repository, version }),
            (Service::ReceivePack, None) => Ok(Self::Push { repository }),
            _ => Err(NotServed::Encoding),
        }
    }

    pub fn repository(&self) -> &Repository {
        match self {
            Self::Discover { repository, .. }
            | Self::Fetch { repository, .. }
            | Self::Push { repository } => repository,
        }
    }
}

/// A request that is none of those that a rule can allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotServed {
    /// Files of a repository, one by one, or `WebDAV`.
    #[error(
        "this is the dumb protocol of git, which no rule allows; use a git with smart HTTP, which is its default"
    )]
    Dumb,
    /// Git LFS.
    #[error("this is Git LFS, which no rule allows; set `GIT_LFS_SKIP_SMUDGE=1` to clone without its files")]
    Lfs,
    /// A service that exists or not, such as `git-upload-archive`.
    #[error("this is the service {0}, which no rule allows; a rule can allow a fetch and a push")]
    Service(ServiceName),
    #[error("this is no request of git, and the rule for this host allows git alone")]
    Path,
    #[error("this request of git has another method than git uses")]
    Method,
    #[error("this request of git has another query than `service=NAME`")]
    Query,
    #[error("this request of git has another content type than git uses")]
    ContentType,
    #[error("the body of this request is compressed in a way that git does not use")]
    Encoding,
    #[error("the header `Git-Protocol` is not one of version 0, 1 or 2")]
    Version,
    #[error(transparent)]
    Repository(#[from] BadRepository),
}

impl NotServed {
    fn service(name: &str) -> Self {
        Self::Service(ServiceName(name.chars().take(MOST_SHOWN).collect()))
    }

    /// Returns the kind of a request whose path is none of those of smart HTTP.
    fn other(path: &str, last: &str, method: &str) -> Self {
        let is_dav = matches!(method, "PROPFIND" | "MKCOL" | "LOCK" | "UNLOCK" | "MOVE" | "PUT" | "DELETE");
        if last.starts_with("git-") {
            Self::service(last)
        } else if is_dav || path.ends_with("/HEAD") || path.contains("/objects/") || path.contains("/refs/") {
            Self::Dumb
        } else {
            Self::Path
        }
    }
}

/// Name of a service that a client made up, bounded. It is shown escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName(String);

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(target: &str) -> Result<Request, NotServed> {
        Request::parse(&Head { method: "GET", target, ..Head::default() })
    }

    fn post(target: &str, content_type: &str, content_encoding: Option<&str>) -> Result<Request, NotServed> {
        let content_type = Some(content_type);
        Request::parse(&Head { method: "POST", target, content_type, content_encoding, git_protocol: None })
    }

    fn app() -> Repository {
        Repository::parse("org/app").unwrap()
    }

    #[test]
    fn the_requests_of_git_are_known() {
        for (target, service) in [
            ("/org/app/info/refs?service=git-upload-pack", Service::UploadPack),
            ("/org/app.git/info/refs?service=git-receive-pack", Service::ReceivePack),
        ] {
            let expected = Request::Discover { service, repository: app(), version: Version::V0 };
            assert_eq!(get(target), Ok(expected));
        }
        let fetch = Request::Fetch { repository: app(), version: Version::V0 };
        let upload = "application/x-git-upload-pack-request";
        assert_eq!(post("/org/app.git/git-upload-pack", upload, None), Ok(fetch.clone()));
        assert_eq!(post("/org/app.git/git-upload-pack", upload, Some("gzip")), Ok(fetch));
        let push = post("/org/app.git/git-receive-pack", "application/x-git-receive-pack-request", None);
        assert_eq!(push, Ok(Request::Push { repository: app() }));
        assert_eq!(push.unwrap().repository(), &app());
    }

    #[test]
    fn the_highest_version_counts() {
        for (header, version) in [
            ("version=2", Ok(Version::V2)),
            ("version=1", Ok(Version::V1)),
            ("version=0", Ok(Version::V0)),
            ("version=1:object-format:version=2", Ok(Version::V2)),
            ("other", Ok(Version::V0)),
            ("", Ok(Version::V0)),
            ("version=3", Err(NotServed::Version)),
            ("version=", Err(NotServed::Version)),
            ("version=2 ", Err(NotServed::Version)),
            ("version=2\r\nx: y", Err(NotServed::Version)),
            (&"x".repeat(257), Err(NotServed::Version)),
        ] {
            assert_eq!(Version::parse(Some(header)), version, "{header:?}");
        }
    }

    #[test]
    fn other_requests_have_their_kind() {
        let archive = || NotServed::service("git-upload-archive");
        for (target, kind) in [
            ("/org/app/info/refs", NotServed::Dumb),
            ("/org/app/HEAD", NotServed::Dumb),
            ("/org/app/objects/info/packs", NotServed::Dumb),
            ("/org/app/objects/d0/49f6", NotServed::Dumb),
            ("/org/app.git/info/lfs/objects/batch", NotServed::Lfs),
            ("/org/app.git/info/lfs", NotServed::Lfs),
            ("/org/app/info/lfs/x/git-receive-pack", NotServed::Lfs),
            ("/org/app/info/refs?service=git-upload-archive", archive()),
            ("/org/app/git-upload-archive", archive()),
            ("/org/app/info/refs?", NotServed::Query),
            ("/org/app/info/refs?x=y", NotServed::Query),
            ("/org/app/info/refs?service=", NotServed::service("")),
            ("/org/app/info/refs?service=git-upload-pack&x=y", NotServed::service("git-upload-pack&x=y")),
            ("/org/app/info/refs?service=git%2dupload-pack", NotServed::service("git%2dupload-pack")),
            ("/org/app/info/refs?service=upload-pack", NotServed::service("upload-pack")),
            ("/org/app/git-receive-pack", NotServed::Method),
            ("/org/app", NotServed::Path),
            ("/", NotServed::Path),
            ("", NotServed::Path),
            ("/api/v1/repos", NotServed::Path),
            ("http://example.org/org/app/info/refs?service=git-upload-pack", NotServed::Path),
            ("/info/refs?service=git-upload-pack", NotServed::Path),
            ("//info/refs?service=git-upload-pack", BadRepository::EmptyPart.into()),
            ("/org/%2e%2e/app/info/refs?service=git-upload-pack", BadRepository::Character.into()),
            ("/org/../app/info/refs?service=git-upload-pack", BadRepository::Dot.into()),
            ("/org/app/git-receive-pack/info/refs?service=git-upload-pack", BadRepository::Ambiguous.into()),
        ] {
            assert_eq!(get(target), Err(kind), "{target}");
        }
    }

    #[test]
    fn a_request_that_git_does_not_make_is_refused() {
        let (push, types) = ("/org/app/git-receive-pack", "application/x-git-receive-pack-request");
        assert_eq!(post(push, types, Some("gzip")), Err(NotServed::Encoding));
        assert_eq!(post(push, types, Some("identity")), Err(NotServed::Encoding));
        assert_eq!(post("/org/app/git-receive-pack?x", types, None), Err(NotServed::Query));
        for other in [
            "application/x-git-upload-pack-request",
            "text/plain",
            "",
            &types.to_uppercase(),
            &format!("{types};x"),
        ] {
            assert_eq!(post(push, other, None), Err(NotServed::ContentType), "{other}");
        }
        for method in ["GET", "HEAD", "PUT", "post", ""] {
            let head = Head { method, target: push, content_type: Some(types), ..Head::default() };
            assert_eq!(Request::parse(&head), Err(NotServed::Method), "{method}");
        }
        for method in ["POST", "HEAD", "OPTIONS"] {
            let head =
                Head { method, target: "/org/app/info/refs?service=git-upload-pack", ..Head::default() };
            assert_eq!(Request::parse(&head), Err(NotServed::Method), "{method}");
        }
        for method in ["PROPFIND", "MKCOL", "PUT"] {
            let head = Head { method, target: "/org/app/", ..Head::default() };
            assert_eq!(Request::parse(&head), Err(NotServed::Dumb), "{method}");
        }
    }

    #[test]
    fn a_name_in_a_message_is_short_and_escaped() {
        let words =
            get(&format!("/o/a/info/refs?service=\u{1b}[2J{}", "x".repeat(9_000))).unwrap_err().to_string();
        assert!(words.contains("\\u{1b}[2Jxxx") && words.len() < 200, "{words}");
    }
}
