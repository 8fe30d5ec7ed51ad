//! A part of a file is exactly the bytes or lines that were asked for, or says that it is cut, or that it is no text.
//!
//! Input: two bytes, first and length; one byte of flags; the file.

#![no_main]

use std::sync::LazyLock;

use file_ops::{Cancel, read};
use fuzz::scene::{Scene, path};
use libfuzzer_sys::fuzz_target;
use operations::{Bounds, Encoding, OpResult, Read, ReadPart, decode_base64};

static SCENE: LazyLock<Scene> = LazyLock::new(|| Scene::new(&["file".to_owned()]));

fuzz_target!(|data: &[u8]| {
    let [first, length, flags, content @ ..] = data else { return };
    let (start, length) = (u64::from(*first), u64::from(*length));
    let part = match flags & 3 {
        0 => ReadPart::Whole,
        1 => ReadPart::Bytes { offset: start, limit: (flags & 8 != 0).then_some(length) },
        2 => ReadPart::Lines { first: start + 1, last: (flags & 8 != 0).then_some(start + length + 1) },
        // As far as the fields go.
        _ => ReadPart::Bytes { offset: u64::MAX - start, limit: Some(u64::MAX - length) },
    };
    let encoding = if flags & 4 != 0 { Encoding::Base64 } else { Encoding::Utf8 };
    let bounds = Bounds { max_read_bytes: if flags & 16 != 0 { 7 } else { 1 << 20 }, ..Bounds::default() };
    SCENE.write("file", content);
    let request = Read { path: path("file"), part, encoding, transfer: None };
    let Ok(OpResult::Read(result)) = read(&SCENE.jail, &request, &bounds, &Cancel::default()) else {
        panic!("the file could not be read")
    };
    let asked = asked(part, content);
    assert_eq!(result.size_bytes, content.len() as u64);
    assert!(result.content.len() as u64 <= bounds.max_read_bytes);
    let bytes = match encoding {
        Encoding::Base64 => decode_base64(&result.content).expect("base64"),
        Encoding::Utf8 => result.content.clone().into_bytes(),
    };
    if encoding == Encoding::Base64 && !result.truncated {
        assert_eq!(bytes, asked);
    } else if encoding == Encoding::Base64 {
        assert!(asked.starts_with(&bytes) && bytes.len() < asked.len());
    } else if result.binary {
        assert!(result.content.is_empty() && !result.truncated);
        assert!(std::str::from_utf8(content).is_err() || asked.contains(&0), "{asked:?}");
    } else {
        // A character that the part cuts is left out, at most three bytes of it at each end.
        let at = (0..=asked.len().min(3)).find(|at| asked[*at..].starts_with(&bytes));
        assert!(at.is_some(), "{bytes:?} is not in {asked:?}");
        assert!(result.truncated || asked.len() - bytes.len() <= 6, "{bytes:?} of {asked:?}");
    }
});

fn asked(part: ReadPart, content: &[u8]) -> &[u8] {
    let size = content.len() as u64;
    let between = |start: u64, end: u64| {
        let at = |place: u64| usize::try_from(place.min(size)).expect("within the file");
        &content[at(start)..at(end.max(start))]
    };
    match part {
        ReadPart::Whole => content,
        ReadPart::Bytes { offset, limit } => {
            between(offset, limit.map_or(size, |limit| offset.saturating_add(limit)))
        }
        ReadPart::Lines { first, last } => {
            let lines: Vec<&[u8]> = content.split_inclusive(|byte| *byte == b'\n').collect();
            let length = |lines: &[&[u8]]| lines.iter().map(|line| line.len() as u64).sum::<u64>();
            let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX).min(lines.len());
            between(
                length(&lines[..count(first - 1)]),
                last.map_or(size, |last| length(&lines[..count(last)])),
            )
        }
    }
}
