//! Any pattern over any text: refused as invalid, or answered with lines that are there. A literal finds exactly the
//! lines that hold it. Time and memory are bounded, whatever the pattern is.
//!
//! Input: one byte of flags, the pattern up to a byte 0xFF, the text.

#![no_main]

use std::sync::LazyLock;

use file_ops::{Cancel, grep};
use fuzz::scene::{Scene, path, wide};
use fuzz::text;
use libfuzzer_sys::fuzz_target;
use operations::{Grep, GrepResult, OpResult, Operation, Reason};
use wire::v1;
use wire::v1::operation::Kind;

/// Characters of a line that are shown; the rest is cut.
const SHOWN: usize = 400;

static SCENE: LazyLock<Scene> = LazyLock::new(|| Scene::new(&["file".to_owned()]));

fuzz_target!(|data: &[u8]| {
    let Some((flags, rest)) = data.split_first() else { return };
    let cut = rest.iter().position(|byte| *byte == 0xff).unwrap_or(rest.len());
    let (pattern, content) = (text(&rest[..cut]).into_owned(), rest.get(cut + 1..).unwrap_or_default());
    let request = v1::GrepRequest {
        pattern,
        path: "file".into(),
        regex: flags & 1 != 0,
        case_insensitive: flags & 2 != 0,
        before: Some(u32::from(flags >> 2 & 3)),
        after: Some(u32::from(flags >> 4 & 3)),
        max_matches: Some(if flags & 0x40 != 0 { 2 } else { 1_000 }),
        ..v1::GrepRequest::default()
    };
    let Ok(Operation::Grep(request)) = fuzz::parsed(Kind::Grep(request)) else { return };
    SCENE.write("file", content);
    match grep(&SCENE.jail, &request, &wide(), &Cancel::default()) {
        Ok(OpResult::Grep(found)) => check(&request, content, &found),
        Ok(other) => panic!("a grep answered {other:?}"),
        Err(failure) => assert_eq!(failure.reason, Reason::InvalidArgument, "{failure:?}"),
    }
});

fn check(request: &Grep, content: &[u8], found: &GrepResult) {
    assert_eq!(request.path, path("file"));
    assert!(found.matches.len() <= request.max_matches as usize);
    assert!(found.files_searched + found.files_skipped <= 1 && found.files_matched <= 1);
    // A last line without an end is a line, nothing after a last newline is none.
    let mut lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    let shown = |number: u64| {
        let line = lines[usize::try_from(number - 1).expect("a line number")];
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned();
        match line.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line,
        }
    };
    for hit in &found.matches {
        assert_eq!(hit.text, shown(hit.line));
        assert!(hit.before.len() <= request.before as usize && hit.after.len() <= request.after as usize);
        let above = hit.before.iter().rev().zip((1..hit.line).rev());
        let below = hit.after.iter().zip(hit.line + 1..);
        above.chain(below).for_each(|(text, number)| assert_eq!(*text, shown(number)));
    }
    assert!(found.matches.is_sorted_by(|one, next| one.line < next.line));
    if !request.regex && !request.case_insensitive && !found.truncated && !content.contains(&0) {
        let holds = |line: &[u8]| {
            line.windows(request.pattern.len()).any(|window| window == request.pattern.as_bytes())
        };
        let expected: Vec<u64> =
            (1..).zip(&lines).filter(|(_, line)| holds(line)).map(|(number, _)| number).collect();
        let numbers: Vec<u64> = found.matches.iter().map(|hit| hit.line).collect();
        assert_eq!(numbers, expected, "{:?}", request.pattern);
    }
}
