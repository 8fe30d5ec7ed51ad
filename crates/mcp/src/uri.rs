//! URIs of files in the workspace, such as `workspace:///src/main.rs`, by RFC 3986.

use std::fmt::Write as _;

const SCHEME: &str = "workspace:///";
/// The API's name of the workspace.
const MOUNT: &str = "@project/";
/// Most bytes of a URI: the longest path, with three characters for each byte.
const LONGEST: usize = SCHEME.len() + 3 * 4096;

/// Returns the URI of a file that the API names by its alias; `None` for a file outside of the workspace.
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

/// Returns the alias path that a URI names. The API decides if it may be read and is in the workspace.
pub(crate) fn path_of(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix(SCHEME).filter(|rest| !rest.is_empty() && uri.len() <= LONGEST)?;
    // These begin a query and a fragment, which no file has.
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
    fn a_uri_names_one_path_and_an_invalid_one_none() {
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
        fn uri_parser_does_not_panic(uri in any::<String>()) {
            let _ = path_of(&format!("workspace:///{uri}"));
        }
    }
}
