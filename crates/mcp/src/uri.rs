//! `workspace:///src/main.rs`: files of the workspace as resources, RFC 3986.

use std::fmt::Write as _;

const SCHEME: &str = "workspace:///";
/// How the API names the workspace.
const MOUNT: &str = "@project/";
/// No URI is longer, bytes: the longest path, with each byte in three.
const LONGEST: usize = SCHEME.len() + 3 * 4096;

/// The URI of a file that the API names by its alias; nothing for what is not in the workspace.
pub(crate) fn of_path(alias: &str) -> Option<String> {
    let path = alias.strip_prefix(MOUNT)?;
    let mut uri = SCHEME.to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into());
            }
            _ => {
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    Some(uri)
}

/// The alias path that a URI means. Whether it may be read, and stays in the workspace, the API decides.
pub(crate) fn path_of(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix(SCHEME).filter(|rest| !rest.is_empty() && uri.len() <= LONGEST)?;
    // These have a meaning of their own, which no file has.
    if rest.contains(['?', '#']) {
        return None;
    }
    let mut path = MOUNT.as_bytes().to_vec();
    let mut bytes = rest.bytes();
    while let Some(byte) = bytes.next() {
        path.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(path).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{of_path, path_of};

    #[test]
    fn a_uri_means_one_path_and_nonsense_means_none() {
        assert_eq!(of_path("@project/src/a b%.rs").as_deref(), Some("workspace:///src/a%20b%25.rs"));
        assert_eq!(path_of("workspace:///src%2Fmain.rs").as_deref(), Some("@project/src/main.rs"));
        // For the API to refuse.
        assert_eq!(path_of("workspace:///../etc").as_deref(), Some("@project/../etc"));
        assert_eq!(of_path("@state/logs"), None);
        let long = format!("workspace:///{}", "a".repeat(20_000));
        for bad in [
            "",
            "workspace:///",
            "workspace://host/a",
            "workspace:/a",
            "file:///etc/passwd",
            "workspace:///a?b",
            "workspace:///a#b",
            "workspace:///%",
            "workspace:///%4",
            "workspace:///%zz",
            "workspace:///%+1",
            "workspace:///%ff",
            &long,
        ] {
            assert_eq!(path_of(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_path_has_a_uri_that_leads_back(path in "\\PC{1,60}") {
            let alias = format!("@project/{path}");
            let uri = of_path(&alias).unwrap();
            prop_assert!(uri.is_ascii());
            prop_assert_eq!(path_of(&uri), Some(alias));
        }

        #[test]
        fn nothing_panics(uri in any::<String>()) {
            let _ = path_of(&format!("workspace:///{uri}"));
        }
    }
}
