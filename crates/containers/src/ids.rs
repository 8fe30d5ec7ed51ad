//! Names that are used in the engine's URLs, as types that cannot hold anything else.
//!
//! The engine's client pastes names into paths: a container named `../version?a=` would reach another endpoint. So an id is 64 hexadecimal
//! digits, and a name consists of letters, digits and `_.-`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A name or id that must not be sent to the engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not 64 lower-case hexadecimal digits.
    #[error("not an engine id of 64 hexadecimal digits")]
    NotHex,
    /// Not a container's name.
    #[error("not a container name: 1 to 63 letters, digits, `_`, `.`, `-`, beginning with a letter or digit")]
    NotAName,
    /// Not an image reference.
    #[error("not an image reference: `name:tag`, `registry/name:tag` or `sha256:` and 64 hexadecimal digits")]
    NotAReference,
    /// Not a Unix socket's address.
    #[error("not an engine endpoint: only `unix:///absolute/path` is supported")]
    NotAnEndpoint,
    /// Root, or the invalid id −1.
    #[error("a run's user and group are never root")]
    Root,
}

fn is_hex64(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

macro_rules! hex_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses an id. It accepts exactly the form that the engine returns.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                match text.strip_prefix($prefix) {
                    Some(digits) if is_hex64(digits) => Ok(Self(text.to_owned())),
                    _ => Err(IdError::NotHex),
                }
            }

            /// Returns the id as the engine writes it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

hex_id!(
    /// Id of a container: 64 hexadecimal digits, given by the engine.
    ContainerId,
    ""
);
hex_id!(
    /// Id of one exec in a container.
    ExecId,
    ""
);
hex_id!(
    /// Id of an image by content: `sha256:` and 64 hexadecimal digits. Unlike a tag, it cannot be moved.
    ImageId,
    "sha256:"
);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerName(String);

impl ContainerName {
    /// Parses a name of 1 to 63 bytes of `[A-Za-z0-9_.-]` that begins with a letter or digit.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let first_ok = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest_ok = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
        if first_ok && rest_ok && text.len() <= 63 {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::NotAName)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Name of an image: `debian:12`, `registry.example:5000/team/tool:1.2`, or an [`ImageId`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageReference(String);

impl ImageReference {
    /// Parses a reference. It accepts only characters that have no meaning in a URL.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let allowed =
            |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'/' | b':' | b'@');
        let edges = |part: &str| part.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let well_formed = text.len() <= 255
            && text.bytes().all(allowed)
            && text.split(['/', ':', '@']).all(edges)
            && !text.contains("..");
        if well_formed { Ok(Self(text.to_owned())) } else { Err(IdError::NotAReference) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the reference with its tag, as the engine lists it.
    pub fn tagged(&self) -> String {
        let (repository, tag) = self.repository_and_tag();
        format!("{repository}:{tag}")
    }

    /// Returns the reference in a form that an engine takes for a name or a whole id, and never for the beginning of an id.
    ///
    /// `None`: it can only be the beginning of an id.
    pub fn unabbreviated(&self) -> Option<Self> {
        match self.0.strip_prefix("sha256:") {
            Some(digits) => is_hex64(digits).then(|| self.clone()),
            None if is_hex64(&self.0) || self.0.contains('@') => Some(self.clone()),
            None => Some(Self(self.tagged())),
        }
    }

    /// Returns repository and tag. The tag is `latest` if there is none.
    pub(crate) fn repository_and_tag(&self) -> (&str, &str) {
        match self.0.rsplit_once(':') {
            Some((repository, tag)) if !tag.contains('/') => (repository, tag),
            _ => (&self.0, "latest"),
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&ImageId> for ImageReference {
    fn from(id: &ImageId) -> Self {
        Self(id.as_str().to_owned())
    }
}

/// Address of the engine: a Unix socket. A remote engine cannot share mounts and cgroups with the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

impl Default for Endpoint {
    /// The socket that Docker uses by default.
    fn default() -> Self {
        Self("/var/run/docker.sock".into())
    }
}

impl Endpoint {
    /// Parses an address. It accepts only `unix:///absolute/path`.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        match text.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') && path.len() > 1 && !path.contains('\0') => {
                Ok(Self(PathBuf::from(path)))
            }
            _ => Err(IdError::NotAnEndpoint),
        }
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

/// User and group of a run inside its container. Neither is root, except in [`Self::ROOT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RunUser {
    uid: u32,
    gid: u32,
}

impl RunUser {
    /// User of containers wherever mounts can be idmapped.
    pub const DEFAULT: Self = Self { uid: NON_ROOT, gid: NON_ROOT };

    /// Root, for containers whose root is an unprivileged user of the host.
    pub const ROOT: Self = Self { uid: 0, gid: 0 };

    /// Checks both ids. It refuses root and the invalid id −1.
    pub fn new(uid: u32, gid: u32) -> Result<Self, IdError> {
        let id = |raw: u32| if matches!(raw, 0 | u32::MAX) { Err(IdError::Root) } else { Ok(raw) };
        Ok(Self { uid: id(uid)?, gid: id(gid)? })
    }

    /// Returns a user that shares neither id with this one.
    #[must_use]
    pub fn other(self) -> Self {
        let next = |id: u32| if id == NON_ROOT { OTHER } else { NON_ROOT };
        Self { uid: next(self.uid), gid: next(self.gid) }
    }

    /// The user's id inside the container.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// The group's id inside the container.
    pub fn gid(self) -> u32 {
        self.gid
    }
}

const OTHER: u32 = 1002;
const NON_ROOT: u32 = 1001;

impl fmt::Display for RunUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_64_lower_case_hex_digits_and_nothing_else() {
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(ContainerId::parse(&good).unwrap().as_str(), good);
        for bad in ["", "../version?a=", "abc", &good[1..], &good.to_uppercase(), &format!("{good}0")] {
            assert_eq!(ContainerId::parse(bad), Err(IdError::NotHex), "{bad}");
        }
        assert!(ImageId::parse(&format!("sha256:{good}")).is_ok());
        assert_eq!(ImageId::parse(&good), Err(IdError::NotHex));
    }

    #[test]
    fn names_cannot_escape_their_position_in_a_url() {
        assert!(ContainerName::parse("cofferdam-0192-a.b_c").is_ok());
        for bad in ["", "-a", ".", "..", "a/b", "a?b", "a b", "ä", &"a".repeat(64)] {
            assert_eq!(ContainerName::parse(bad), Err(IdError::NotAName), "{bad}");
        }
    }

    #[test]
    fn references_split_into_repository_and_tag() {
        let split = |text: &str| {
            let reference = ImageReference::parse(text).unwrap();
            let (repository, tag) = reference.repository_and_tag();
            (repository.to_owned(), tag.to_owned())
        };
        assert_eq!(split("debian"), ("debian".into(), "latest".into()));
        assert_eq!(split("debian:12"), ("debian".into(), "12".into()));
        assert_eq!(split("host:5000/a/b"), ("host:5000/a/b".into(), "latest".into()));
        assert_eq!(split("host:5000/a/b:c"), ("host:5000/a/b".into(), "c".into()));
        for bad in ["", "/a", "a/", "../a", "a..b", "a?b", "a#b", "a b", "a%2e", ":a", "a:"] {
            assert_eq!(ImageReference::parse(bad), Err(IdError::NotAReference), "{bad}");
        }
    }

    #[test]
    fn no_reference_of_a_run_is_taken_for_the_beginning_of_an_id() {
        let whole = |text: &str| {
            let whole = ImageReference::parse(text).unwrap().unabbreviated();
            whole.map(|whole| whole.as_str().to_owned())
        };
        let id = format!("sha256:{}", "0a".repeat(32));
        for same in [&*id, &id[7..], "cafe:1", "host:5000/cafe:1", &format!("cafe@{id}")] {
            assert_eq!(whole(same).as_deref(), Some(same));
        }
        // An engine would search ids for the names without a tag.
        assert_eq!(whole("cafe").as_deref(), Some("cafe:latest"));
        assert_eq!(whole("host:5000/cafe").as_deref(), Some("host:5000/cafe:latest"));
        for beginning in ["sha256:0a", &id[..70]] {
            assert_eq!(whole(beginning), None, "{beginning}");
        }
    }

    #[test]
    fn only_unix_sockets_are_endpoints() {
        assert_eq!(
            Endpoint::parse("unix:///run/docker.sock").unwrap().to_string(),
            "unix:///run/docker.sock"
        );
        for bad in ["", "unix://", "unix:///", "unix://relative", "tcp://127.0.0.1:2375", "/run/docker.sock"]
        {
            assert_eq!(Endpoint::parse(bad), Err(IdError::NotAnEndpoint), "{bad}");
        }
    }

    #[test]
    fn no_owner_of_files_makes_a_run_root() {
        assert_eq!(RunUser::new(1000, 1000).unwrap().to_string(), "1000:1000");
        assert_eq!(RunUser::ROOT.to_string(), "0:0");
        assert_eq!(RunUser::DEFAULT.to_string(), "1001:1001");
        for (uid, gid) in [(0, 1), (1, 0), (u32::MAX, 1), (1, u32::MAX)] {
            assert_eq!(RunUser::new(uid, gid), Err(IdError::Root));
        }
    }
}
