//! `read`: one regular file, or a part of it, with the facts that a caller needs to ask for the rest.

use std::io::{IoSliceMut, Read as _};

use jail::{AccessError, Jail, OpenError, OpenErrorKind, SandboxPath};
use operations::{
    Bounds, Encoding, Hint, OpResult, Outcome, Read, ReadPart, ReadResult, Reason, ToolFailure, encode_base64,
};
use rustix::io::{ReadWriteFlags, preadv2};

use super::stream::{Scan, ScanError, scan};
use super::text::{Text, text};
use crate::Cancel;

/// Largest file that is read on the caller's thread: hashing more takes longer than handing it to another thread.
const AT_ONCE: u64 = 16 * 1024;

/// Reads a small file without blocking, if its path and its content are in the kernel's memory.
///
/// It is for threads that serve other calls, too. `None` only means that [`read`] has to be used.
pub fn read_at_once(jail: &Jail, read: &Read, bounds: &Bounds) -> Option<Outcome> {
    let opened = jail.readable(&read.path).ok()?.open_known_file()?;
    let size = usize::try_from(opened.meta.size).ok().filter(|_| opened.meta.size <= AT_ONCE)?;
    let mut content = vec![0; size];
    let mut into = [IoSliceMut::new(&mut content)];
    let got = preadv2(&opened.file, &mut into, 0, ReadWriteFlags::NOWAIT);
    if size > 0 && got != Ok(size) {
        return None;
    }
    let cap = cap(read.encoding, bounds);
    let scan = scan(content.as_slice(), opened.meta.size, read.part, cap, &Cancel::default()).ok()?;
    Some(Ok(OpResult::Read(render(read, scan))))
}

/// Reads a file as it was when it was opened. Bytes that are appended meanwhile are left out.
pub fn read(jail: &Jail, read: &Read, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let opened = jail.readable(&read.path)?.open_file().map_err(|error| refused(&read.path, error))?;
    let size = opened.meta.size;
    if size > Bounds::LARGEST_READ {
        return Err(too_large(&read.path, size));
    }
    let scan = scan(opened.file.take(size), size, read.part, cap(read.encoding, bounds), cancel).map_err(
        |error| match error {
            ScanError::Stopped { stopped, read: done } => stopped
                .failure(format!(
                    "{}: {done} of {size} bytes read; a file is always read completely for its hash",
                    read.path.excerpt()
                ))
                .hint(Hint::Search)
                .hint(Hint::Parts)
                .with("bytes_read", done.to_string())
                .with("size_bytes", size.to_string()),
            ScanError::Io(error) => ToolFailure::new(
                Reason::Internal,
                format!("{}: cannot be read: {error}", read.path.excerpt()),
            ),
        },
    )?;
    Ok(OpResult::Read(render(read, scan)))
}

fn too_large(path: &SandboxPath, size: u64) -> ToolFailure {
    let (path, most) = (path.excerpt(), Bounds::LARGEST_READ);
    let message = format!(
        "{path}: has {size} bytes; files of more than {most} bytes are not read, because a file is always \
         read completely for its hash"
    );
    ToolFailure::new(Reason::ReadLimit, message)
        .hint(Hint::Search)
        .hint(Hint::Parts)
        .with("size_bytes", size.to_string())
}

pub(super) fn refused(path: &SandboxPath, error: AccessError) -> ToolFailure {
    match error {
        AccessError::Open(OpenError { kind: OpenErrorKind::IsADirectory, .. }) => {
            ToolFailure::new(Reason::InvalidArgument, format!("{} is a directory", path.excerpt()))
                .hint(Hint::List)
        }
        error => error.into(),
    }
}

/// Returns the number of the file's bytes that fit into the answer.
fn cap(encoding: Encoding, bounds: &Bounds) -> usize {
    let most = usize::try_from(bounds.max_read_bytes).unwrap_or(usize::MAX);
    match encoding {
        Encoding::Utf8 => most,
        Encoding::Base64 => most / 4 * 3,
    }
}

fn render(read: &Read, scan: Scan) -> ReadResult {
    let asked = scan.part.end - scan.part.start;
    let capped = (scan.kept.len() as u64) < asked;
    let mut result = ReadResult {
        path: read.path.to_string(),
        encoding: read.encoding.into(),
        size_bytes: scan.size,
        total_lines: scan.lines,
        ..ReadResult::default()
    };
    // Position of the first byte after the content.
    let mut end = scan.part.start + scan.kept.len() as u64;
    let mut newlines = count_lines(&scan.kept);
    match read.encoding {
        Encoding::Base64 => result.content = encode_base64(&scan.kept),
        Encoding::Utf8 => {
            let at_start = matches!(read.part, ReadPart::Bytes { offset, .. } if offset > 0);
            match text(scan.kept, at_start, end < scan.size) {
                Text::Valid { content, dropped_after } => {
                    end -= dropped_after as u64;
                    newlines = count_lines(content.as_bytes());
                    result.content = content;
                }
                Text::Binary => {
                    result.binary = true;
                    newlines = 0;
                }
            }
        }
    }
    result.sha256 = scan.sha256;
    result.truncated = capped && !result.binary;
    let first = match read.part {
        ReadPart::Whole => Some(1),
        ReadPart::Lines { first, .. } => Some(first.max(1)),
        ReadPart::Bytes { .. } => None,
    };
    if let Some(first) = first.filter(|_| newlines > 0) {
        result.start_line = first;
        result.end_line = first + newlines - 1;
    }
    result.hint = hint(read, &result, end);
    result
}

/// Counts the lines in `bytes`; a last line without newline counts.
fn count_lines(bytes: &[u8]) -> u64 {
    let newlines = memchr::memchr_iter(b'\n', bytes).count() as u64;
    newlines + u64::from(bytes.last().is_some_and(|&last| last != b'\n'))
}

fn hint(read: &Read, result: &ReadResult, end: u64) -> String {
    let ReadResult { size_bytes, total_lines, start_line, end_line, .. } = *result;
    if result.binary {
        return format!("not UTF-8 text ({size_bytes} bytes), so its content is left out");
    }
    if result.truncated {
        let shown = format!("{size_bytes} bytes in {total_lines} lines");
        return match read.part {
            // The last line may be cut. It is read again with the next part, unless it is the only one.
            ReadPart::Whole | ReadPart::Lines { .. }
                if end_line > start_line && read.encoding == Encoding::Utf8 =>
            {
                format!(
                    "content ends in line {end_line}, the file has {shown}: continue with line {end_line}, or search the file"
                )
            }
            _ => format!(
                "content ends before byte {end}, the file has {shown}: continue at byte {end}, or search the file"
            ),
        };
    }
    match read.part {
        ReadPart::Lines { first, .. } if first > total_lines => {
            format!("the file has {total_lines} lines: line {first} is beyond its end")
        }
        ReadPart::Bytes { offset, .. } if offset > size_bytes => {
            format!("the file has {size_bytes} bytes: byte {offset} is beyond its end")
        }
        _ => String::new(),
    }
}
