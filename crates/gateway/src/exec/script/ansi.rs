//! `$'…'`: quotes in which a backslash means what it means in C.

use std::iter::Peekable;
use std::str::Chars;

/// Reads behind `$'` to its end, and gives what is meant.
pub(super) fn read(chars: &mut Peekable<Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\'' => break,
            '\\' => text.extend(escape(chars)),
            c => text.push(c),
        }
    }
    text
}

/// What the escape behind a backslash means. An unknown one means its character.
fn escape(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    let c = chars.next()?;
    Some(match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'a' | 'b' | 'e' | 'E' | 'f' | 'v' => ' ',
        'c' => return chars.next().map(|_| ' '),
        'x' => number(chars, None, 16, 2)?,
        'u' => number(chars, None, 16, 4)?,
        'U' => number(chars, None, 16, 8)?,
        '0'..='7' => number(chars, c.to_digit(8), 8, 2)?,
        c => c,
    })
}

fn number(chars: &mut Peekable<Chars<'_>>, first: Option<u32>, radix: u32, most: usize) -> Option<char> {
    let mut value = first.unwrap_or(0);
    for _ in 0..most {
        let Some(digit) = chars.next_if(|c| c.is_digit(radix)).and_then(|c| c.to_digit(radix)) else { break };
        value = value.saturating_mul(radix).saturating_add(digit);
    }
    char::from_u32(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_mean_what_they_mean_in_c() {
        for (text, expected, rest) in [
            (r"rm' x", "rm", " x"),
            (r"\x72\155'", "rm", ""),
            (r"\u0072\U0000006d'", "rm", ""),
            (r"a\'b' c", "a'b", " c"),
            (r"\\'", "\\", ""),
            (r"\q\n'", "q\n", ""),
            (r"\xzz'", "\0zz", ""),
            (r"\UFFFFFFFF'", "", ""),
            (r"\", "", ""),
            ("", "", ""),
        ] {
            let mut chars = text.chars().peekable();
            assert_eq!(read(&mut chars), expected, "{text}");
            assert_eq!(chars.collect::<String>(), rest, "{text}");
        }
    }
}
