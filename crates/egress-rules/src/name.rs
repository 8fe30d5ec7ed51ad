//! Host names in their one canonical form.

use std::fmt;
use std::net::IpAddr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Serialize};

/// Most bytes of a name, without the last dot.
const MOST: usize = 253;
/// Most bytes of a label.
const MOST_OF_LABEL: usize = 63;
/// Most bytes of a text that is parsed at all. Four bytes of each character, and a dot.
const MOST_OF_TEXT: usize = 4 * MOST + 4;

/// All of ASCII but letters, digits, hyphen, underscore and dot. It also applies to the result of the mapping, so that `％` is no
/// way to write `%`.
const REFUSED: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");

/// A host name: lower-case ASCII, at least one label, no last dot, never an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct HostName(String);

impl HostName {
    /// Parses a name as a person writes it, in any script, or as a program asks for it.
    ///
    /// The mapping is that of UTS #46 without its transitional part. One last dot is left out.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        if text.is_empty() {
            return Err(BadName::Empty);
        }
        if text.len() > MOST_OF_TEXT {
            return Err(BadName::Long);
        }
        let allowed = |c: &char| !c.is_ascii() || c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if text.parse::<IpAddr>().is_ok() {
            return Err(BadName::Address);
        }
        if let Some(other) = text.chars().find(|c| !allowed(c)) {
            return Err(BadName::Character(other));
        }
        let mapped = Uts46::new()
            .to_ascii(text.as_bytes(), REFUSED, Hyphens::Allow, DnsLength::Ignore)
            .map_err(|_| BadName::International)?;
        let name = mapped.strip_suffix('.').unwrap_or(&mapped);
        check(name)?;
        Ok(Self(name.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if this name is below `parent`: `a.example.org` is below `example.org`, and `example.org` is not.
    pub fn is_below(&self, parent: &Self) -> bool {
        self.0.strip_suffix(&parent.0).is_some_and(|rest| rest.ends_with('.'))
    }
}

/// Checks a name that has been mapped.
fn check(name: &str) -> Result<(), BadName> {
    if name.is_empty() {
        return Err(BadName::EmptyLabel);
    }
    if name.len() > MOST {
        return Err(BadName::Long);
    }
    for label in name.split('.') {
        if label.is_empty() {
            return Err(BadName::EmptyLabel);
        }
        if label.len() > MOST_OF_LABEL {
            return Err(BadName::LongLabel);
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(BadName::Hyphen);
        }
        if let Some(other) = label.bytes().find(|byte| !is_label_byte(*byte)) {
            return Err(BadName::Character(char::from(other)));
        }
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if is_number(last) {
        return Err(BadName::Address);
    }
    if last == "localhost" {
        return Err(BadName::Localhost);
    }
    Ok(())
}

fn is_label_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
}

/// Returns true for a last label that makes some program read the whole name as an IPv4 address.
///
/// `inet_aton` and the URL standard accept `127.1`, `2130706433`, `0177.0.0.1` and `0x7f.1`: the last part is a number in each.
fn is_number(label: &str) -> bool {
    let is_hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    label.bytes().all(|byte| byte.is_ascii_digit()) || label.strip_prefix("0x").is_some_and(is_hex)
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HostName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::parse(&text)
    }
}

/// A text that is no host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("a host name cannot be empty")]
    Empty,
    #[error("a host name has at most {MOST} bytes")]
    Long,
    #[error("a host name cannot have an empty label, such as two dots in a row")]
    EmptyLabel,
    #[error("a label of a host name has at most {MOST_OF_LABEL} bytes")]
    LongLabel,
    #[error("a label of a host name cannot begin or end with a hyphen")]
    Hyphen,
    #[error("a host name consists of letters, digits, hyphens, underscores and dots; it has {0:?}")]
    Character(char),
    #[error("the international name is not valid (UTS #46)")]
    International,
    #[error("this is an IP address in some notation, not a host name")]
    Address,
    #[error("`localhost` is the run itself, and is never a destination outside")]
    Localhost,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_name_has_one_form() {
        for (text, canonical) in [
            ("files.example.org", "files.example.org"),
            ("Files.EXAMPLE.org.", "files.example.org"),
            ("bücher.example.org", "xn--bcher-kva.example.org"),
            ("XN--BCHER-KVA.example.org", "xn--bcher-kva.example.org"),
            ("ｆｉｌｅｓ。example．org", "files.example.org"),
            ("straße.example.org", "xn--strae-oqa.example.org"),
            ("_service._tcp.example.org", "_service._tcp.example.org"),
            ("r3---sn-4g5e.example.org", "r3---sn-4g5e.example.org"),
            ("db", "db"),
            ("1.2.3.example", "1.2.3.example"),
            ("0xg", "0xg"),
        ] {
            assert_eq!(HostName::parse(text).as_ref().map(HostName::as_str), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn look_alikes_are_other_names() {
        let cyrillic = HostName::parse("ex\u{430}mple.org").unwrap();

        assert_eq!(cyrillic.as_str(), "xn--exmple-4nf.org");
        assert_ne!(cyrillic, HostName::parse("example.org").unwrap());
    }

    #[test]
    fn texts_that_programs_read_in_two_ways_are_refused() {
        let long = format!("{}.org", "a".repeat(64));
        let longest = ["a".repeat(63).as_str(); 4].join(".");
        for (text, error) in [
            ("", BadName::Empty),
            (".", BadName::EmptyLabel),
            ("example.org..", BadName::EmptyLabel),
            (".example.org", BadName::EmptyLabel),
            ("a..example.org", BadName::EmptyLabel),
            ("evil.example.net\0.example.org", BadName::Character('\0')),
            ("example.org%00", BadName::Character('%')),
            ("fe80::1%eth0", BadName::Character(':')),
            ("example.org％", BadName::International),
            ("example.org:443", BadName::Character(':')),
            ("user@example.org", BadName::Character('@')),
            ("example.org/", BadName::Character('/')),
            ("exa℀mple.org", BadName::International),
            ("[::1]", BadName::Character('[')),
            ("exam ple.org", BadName::Character(' ')),
            ("*.example.org", BadName::Character('*')),
            ("-a.example.org", BadName::Hyphen),
            ("a-.example.org", BadName::Hyphen),
            ("xn--a-\u{e9}.example.org", BadName::International),
            ("xn--zzzzzzzz99999.example.org", BadName::International),
            (&long, BadName::LongLabel),
            (&longest, BadName::Long),
            (&"a".repeat(100_000), BadName::Long),
        ] {
            assert_eq!(HostName::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn addresses_in_every_notation_are_no_names() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "017700000001",
            "0177.0.0.1",
            "0x7f000001",
            "0X7F.1",
            "0x7f.0x0.0x0.0x1",
            "0x",
            "1.2.3.4.5",
            "example.0x10",
            "example.08",
            "１２７.0.0.1",
            "127。0。0。1",
            "①②⑦.0.0.①",
            "::1",
            "::ffff:127.0.0.1",
            "2001:db8::1",
        ] {
            assert_eq!(HostName::parse(text), Err(BadName::Address), "{text}");
        }
    }

    #[test]
    fn localhost_is_no_name_of_another_host() {
        for text in ["localhost", "LOCALHOST.", "a.localhost", "ｌocalhost"] {
            assert_eq!(HostName::parse(text), Err(BadName::Localhost), "{text}");
        }
        assert!(HostName::parse("localhost.example.org").is_ok());
    }
}
