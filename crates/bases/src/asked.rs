//! The id of a request for a base, by which a repetition finds the base that the first request made.

use identity::check_client_name;
use operations::{Reason, sha256};
use refusal::Refusal;
use serde::{Deserialize, Serialize};

/// A request that has an id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    id: String,
    /// SHA-256 of the request without its id, hexadecimal.
    digest: String,
}

impl Asked {
    /// Returns the request of this content, or `None` if it has no id.
    pub(crate) fn of(id: String, content: &impl Serialize) -> Result<Option<Self>, Refusal> {
        check_client_name("request_id", &id)?;
        if id.is_empty() {
            return Ok(None);
        }
        let content = serde_json::to_vec(content)
            .map_err(|error| Refusal::internal("reading the request for a base", &error))?;
        Ok(Some(Self { id, digest: sha256(&content) }))
    }

    /// Returns true if `before` is the same request. Refuses another one of the same id.
    pub(crate) fn repeats(&self, before: &Self) -> Result<bool, Refusal> {
        if self.id != before.id {
            return Ok(false);
        }
        if self.digest == before.digest {
            return Ok(true);
        }
        Err(Refusal::new(
            Reason::AlreadyExists,
            "request_id: this id was used for a different base; a repetition must have the same content",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_has_the_same_id_and_content() {
        let asked = |id: &str, path: &str, reuse: bool| Asked::of(id.to_owned(), &(path, reuse));
        assert_eq!(asked("", "/a", false).unwrap(), None);
        assert_eq!(asked("a\n", "/a", false).unwrap_err().reason, Reason::InvalidArgument);
        assert_eq!(asked(&"a".repeat(129), "/a", false).unwrap_err().reason, Reason::InvalidArgument);
        let asked = |id: &str, path: &str, reuse| asked(id, path, reuse).unwrap().unwrap();
        let first = asked("1", "/a", false);
        assert_eq!(asked("1", "/a", false).repeats(&first), Ok(true));
        assert_eq!(asked("2", "/a", false).repeats(&first), Ok(false));
        for other in [asked("1", "/b", false), asked("1", "/a", true)] {
            assert_eq!(other.repeats(&first).unwrap_err().reason, Reason::AlreadyExists);
        }
    }
}
