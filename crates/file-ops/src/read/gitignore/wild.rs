//! Matching a path against a pattern of gitignore(5), byte by byte.
//!
//! The matcher backtracks only to the last `*` and the last `**`. The parts before them have matched as early as possible, and a later
//! match would not help. So the time for each component is bounded by the product of the lengths.

/// Position at which matching resumes after a mismatch.
#[derive(Clone, Copy)]
struct Retry {
    pattern: usize,
    path: usize,
}

/// Returns true if the whole of `path` matches the whole of `pattern`.
pub(super) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    // The last `*`, which takes bytes of one component, and the last `**/`, which takes components.
    let (mut star, mut stars): (Option<Retry>, Option<Retry>) = (None, None);
    loop {
        let rest = &pattern[p..];
        if at_component(pattern, p) && rest.starts_with(b"**/") {
            p += 3;
            (star, stars) = (None, Some(Retry { pattern: p, path: s }));
            continue;
        }
        if at_component(pattern, p) && rest == b"**" {
            // Matches everything below, but not the directory itself.
            if s < path.len() {
                return true;
            }
        } else if rest.first() == Some(&b'*') {
            p += 1;
            star = Some(Retry { pattern: p, path: s });
            continue;
        } else if rest.is_empty() && s == path.len() {
            return true;
        } else if let Some(next) = path.get(s).and_then(|&byte| one(rest, byte)) {
            p += next;
            s += 1;
            continue;
        }
        // Mismatch: the last `*` takes one more byte, or else the last `**` takes one more component.
        match (&mut star, &mut stars) {
            (Some(retry), _) if path.get(retry.path).is_some_and(|&byte| byte != b'/') => {
                retry.path += 1;
                (p, s) = (retry.pattern, retry.path);
            }
            (_, Some(retry)) => {
                let Some(slash) = path[retry.path..].iter().position(|&byte| byte == b'/') else {
                    return false;
                };
                retry.path += slash + 1;
                (p, s, star) = (retry.pattern, retry.path, None);
            }
            _ => return false,
        }
    }
}

/// Returns true if `at` begins a component. Two stars only have a special meaning as a whole component.
fn at_component(pattern: &[u8], at: usize) -> bool {
    at == 0 || pattern[at - 1] == b'/'
}

/// Returns the number of pattern bytes that match this one byte; `None` if they do not match.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern.first()? {
        b'?' => (byte != b'/').then_some(1),
        b'[' => class(pattern, byte),
        // A backslash at the end escapes nothing, and the pattern matches nothing.
        b'\\' => (*pattern.get(1)? == byte).then_some(2),
        literal => (*literal == byte).then_some(1),
    }
}

/// Matches a class: `[abc]`, `[a-c]`, `[!a]`, `[^a]`, `[[:alpha:]]`. Without its end the pattern matches nothing.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1)?, b'!' | b'^');
    let first = if negated { 2 } else { 1 };
    let (mut at, mut found) = (first, false);
    loop {
        let from = match *pattern.get(at)? {
            // A `]` in the first position is a member.
            b']' if at > first => break,
            b'[' if pattern.get(at + 1) == Some(&b':') => {
                let name = &pattern[at + 2..];
                let length = name.windows(2).position(|two| two == b":]")?;
                found |= named(&name[..length], byte)?;
                at += length + 4;
                continue;
            }
            b'\\' => {
                at += 1;
                *pattern.get(at)?
            }
            member => member,
        };
        at += 1;
        let mut to = from;
        if pattern.get(at) == Some(&b'-') && pattern.get(at + 1).is_some_and(|&byte| byte != b']') {
            at += 1;
            if pattern[at] == b'\\' {
                at += 1;
            }
            to = *pattern.get(at)?;
            at += 1;
        }
        found |= (from..=to).contains(&byte);
    }
    (found != negated && byte != b'/').then_some(at + 1)
}

/// Returns true if the byte is in the class with this name; `None` if there is no such class.
fn named(name: &[u8], byte: u8) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}
