//! Finds random text without a name. It is long, has all kinds of characters, and changes between them more often than words and paths do.
//!
//! Hashes in hex, UUIDs, identifiers and paths must remain, because an audit record is of no use without them.

use text::floor;

use super::Finding;

/// Length of the shortest text that is examined, in bytes. Shorter ones are too often harmless.
const SHORTEST: usize = 20;
/// Least entropy in bits for each character. Random base64 of 20 characters has about 4.1.
const ENTROPY: f64 = 3.7;
/// Least share of neighbours of different kinds. Random base62 has 0.62, and `camelCaseNames` have less than 0.35.
const CHANGES: f64 = 0.42;

/// Prefixes of ids that other programs assign, which are random but public.
const PUBLIC: [&str; 12] = [
    "sha1-",
    "sha256-",
    "sha384-",
    "sha512-",
    "toolu_",
    "call_",
    "msg_",
    "req_",
    "resp_",
    "chatcmpl-",
    "run_",
    "AAAA",
];
/// Prefixes of fingerprints in base64.
const BEFORE_HASH: [&str; 4] = ["h1:", "SHA256:", "sha256:", "sha512:"];

pub(super) fn find(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut start = None;
    for (at, byte) in text.bytes().chain([b' ']).enumerate() {
        let part = byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_' | b'-');
        match (start, part) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                start = None;
                let before = &text[..from];
                let public = BEFORE_HASH.iter().any(|hash| before.ends_with(hash)) || is_picture(before);
                if !public && is_random(&text[from..at]) {
                    findings.push(Finding { at: from..at, name: "high-entropy" });
                }
            }
            _ => {}
        }
    }
    findings
}

/// Returns true if the next text is a picture, a font, audio or video in a data URI.
fn is_picture(before: &str) -> bool {
    let Some(head) = before.strip_suffix(";base64,") else { return false };
    let near = &head[floor(head, head.len().saturating_sub(48))..];
    near.rsplit_once("data:").is_some_and(|(_, kind)| {
        ["image/", "font/", "audio/", "video/"].iter().any(|known| kind.starts_with(known))
    })
}

fn is_random(run: &str) -> bool {
    if run.len() < SHORTEST || PUBLIC.iter().any(|known| run.starts_with(known)) {
        return false;
    }
    // In `KEY=value`, the name must not hide how random the value is.
    let value = run.trim_end_matches('=');
    let value = value.rsplit_once('=').map_or(value, |(_, value)| value);
    value.len() >= SHORTEST
        && has_all_kinds(value)
        && entropy(value) >= ENTROPY
        && (changes(value) >= CHANGES || !has_words(value))
}

/// Returns true if lower-case letters form groups as in words, or hardly occur.
fn has_words(run: &str) -> bool {
    let lower = |b: &u8| b.is_ascii_lowercase();
    let longest = run.as_bytes().split(|b| !lower(b)).map(<[u8]>::len).max().unwrap_or_default();
    longest > 3 || run.as_bytes().iter().filter(|b| lower(b)).count() * 5 < run.len()
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Other,
}

fn kind(byte: u8) -> Kind {
    match byte {
        b'a'..=b'z' => Kind::Lower,
        b'A'..=b'Z' => Kind::Upper,
        b'0'..=b'9' => Kind::Digit,
        _ => Kind::Other,
    }
}

fn has_all_kinds(run: &str) -> bool {
    [Kind::Lower, Kind::Upper, Kind::Digit].iter().all(|wanted| run.bytes().any(|b| kind(b) == *wanted))
}

#[expect(clippy::cast_precision_loss, reason = "texts are short")]
fn changes(run: &str) -> f64 {
    let changed = run.as_bytes().windows(2).filter(|pair| kind(pair[0]) != kind(pair[1])).count();
    changed as f64 / (run.len() - 1) as f64
}

#[expect(clippy::cast_precision_loss, reason = "texts are short")]
fn entropy(run: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in run.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let length = run.len() as f64;
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / length)
        .map(|p| -p * p.log2())
        .sum()
}
