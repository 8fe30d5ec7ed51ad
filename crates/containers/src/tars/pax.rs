//! Extended headers: records of `LENGTH KEY=VALUE\n`.

use super::BadTar;

const XATTR: &[u8] = b"SCHILY.xattr.";
/// Extended attributes that an image may bring: capabilities of programs, and attributes without a meaning for the kernel.
const KEPT: [&[u8]; 2] = [b"SCHILY.xattr.security.capability", b"SCHILY.xattr.user."];
const MAX_ATTRIBUTES: usize = 256;
/// Longest time in characters, with its fraction.
const MAX_TIME: usize = 32;

/// Records that were parsed. All others are left out of the output.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) name: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    /// Digits, with or without a fraction of a second.
    pub(super) modified: Option<Vec<u8>>,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    is_sparse: bool,
}

impl Records {
    pub(super) fn parse(content: &[u8]) -> Result<Self, BadTar> {
        let mut records = Self::default();
        let mut rest = content;
        while !rest.is_empty() {
            let (key, value, after) = record(rest).ok_or(BadTar::NoTar("a pax header is damaged"))?;
            rest = after;
            if !records.take(key, value)? {
                return Err(BadTar::NoTar("a pax header has a key twice"));
            }
        }
        Ok(records)
    }

    /// Stores a record. Returns false if there was one with this key.
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BadTar> {
        Ok(match key {
            b"path" => set(&mut self.name, text(value)?),
            b"linkpath" => set(&mut self.link, text(value)?),
            b"size" => set(&mut self.size, number(value)?),
            b"uid" => set(&mut self.uid, number(value)?),
            b"gid" => set(&mut self.gid, number(value)?),
            b"mtime" => set(&mut self.modified, time(value)?),
            key if key.starts_with(b"GNU.sparse.") => {
                self.is_sparse = true;
                true
            }
            key if key.starts_with(XATTR) => {
                let is_new = self.attributes.iter().all(|(has, _)| has != key);
                if KEPT.iter().any(|kept| key.starts_with(kept)) {
                    if self.attributes.len() >= MAX_ATTRIBUTES {
                        return Err(BadTar::NoTar("a member has more than 256 extended attributes"));
                    }
                    self.attributes.push((key.to_vec(), value.to_vec()));
                }
                is_new
            }
            _ => true,
        })
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.is_sparse
    }

    /// Returns true if no record in it matters to a reader.
    pub(super) fn is_empty(&self) -> bool {
        let Self { name, link, size, uid, gid, modified, attributes, is_sparse } = self;
        name.is_none()
            && link.is_none()
            && size.is_none()
            && uid.is_none()
            && gid.is_none()
            && modified.is_none()
            && attributes.is_empty()
            && !is_sparse
    }
}

/// Renders a record.
pub(super) fn render(key: &[u8], value: &[u8]) -> Vec<u8> {
    // A space, an equals sign and a line feed.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// Splits off the first record. Only the canonical form of its length is accepted.
fn record(content: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = content.iter().take(20).position(|byte| *byte == b' ')?;
    let digits = std::str::from_utf8(content.get(..space)?).ok()?;
    let length: usize = digits.parse().ok()?;
    if length.to_string() != digits || length > content.len() {
        return None;
    }
    let (record, after) = content.split_at(length);
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let (key, value) = record.split_at(equals);
    let is_plain = !key.is_empty() && !key.contains(&0);
    Some((key, value.get(1..)?, after)).filter(|_| is_plain)
}

fn set<T>(place: &mut Option<T>, value: T) -> bool {
    place.replace(value).is_none()
}

fn text(value: &[u8]) -> Result<Vec<u8>, BadTar> {
    if value.is_empty() || value.contains(&0) {
        return Err(BadTar::NoTar("a pax header has an invalid name"));
    }
    Ok(value.to_vec())
}

fn number(value: &[u8]) -> Result<u64, BadTar> {
    let digits = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    digits.and_then(|digits| digits.parse().ok()).ok_or(BadTar::NoTar("a pax header has an invalid number"))
}

fn time(value: &[u8]) -> Result<Vec<u8>, BadTar> {
    let (seconds, fraction) = value.iter().position(|byte| *byte == b'.').map_or((value, None), |dot| {
        let (seconds, fraction) = value.split_at(dot);
        (seconds, fraction.get(1..))
    });
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_time = value.len() <= MAX_TIME && digits(seconds) && fraction.is_none_or(digits);
    if is_time { Ok(value.to_vec()) } else { Err(BadTar::NoTar("a pax header has an invalid time")) }
}
