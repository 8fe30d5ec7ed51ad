//! Unified diffs, as `git diff`, `git format-patch` and `diff -u` write them.
//!
//! Text around the files is skipped, as git does. Changes that this tool does not support (modes, links, submodules, binary content,
//! copies) are refused by name and not ignored. The numbers of a hunk's header decide where it ends, so they have to be right: an extra
//! line would otherwise be lost silently.

use super::name::{self, Name};
use super::reader::Reader;
use super::script::{Action, FilePatch, Hunk, HunkPosition, Kind, Line};
use crate::Malformed;

pub(super) const FIELD: &str = "patch.unified_diff";
/// Largest line number: no file that can be patched has more lines.
const MAX_NUMBER: u64 = 1 << 32;

/// Parses a diff, which has at least one file.
pub(super) fn parse(text: &str) -> Result<Vec<FilePatch>, Malformed> {
    let mut reader = Reader::new(FIELD, text)?;
    let mut files = Vec::new();
    while let Some(line) = reader.peek() {
        if let Some(rest) = line.strip_prefix("diff --git ") {
            let header = Header { at: reader.number(), ..Header::of_git(rest) };
            reader.next();
            files.push(git_file(&mut reader, header)?);
        } else if begins_names(&reader) {
            let header = Header { at: reader.number(), ..Header::default() };
            files.push(named_file(&mut reader, header)?);
        } else {
            pass_over(&reader, line)?;
            reader.next();
        }
    }
    if files.is_empty() {
        return Err(reader.fault_of_all(
            "names no file: a unified diff has `--- a/FILE` and `+++ b/FILE` lines before its `@@` hunks",
        ));
    }
    Ok(files)
}

/// Skips a line between files, but refuses one that looks like a part of the diff.
fn pass_over(reader: &Reader<'_>, line: &str) -> Result<(), Malformed> {
    if line.starts_with("@@ -") {
        return Err(reader.fault("a hunk before any file: `--- a/FILE` and `+++ b/FILE` lines are missing"));
    }
    if line.starts_with("*** Begin Patch") {
        return Err(reader.fault("this is an envelope, not a unified diff: send it as an envelope"));
    }
    if line.starts_with("diff --cc ") || line.starts_with("diff --combined ") {
        return Err(reader.fault("diffs of merges are not applied: make one against a single parent"));
    }
    if line.starts_with("Binary files ") && line.trim_end().ends_with(" differ") {
        return Err(reader.fault(BINARY));
    }
    Ok(())
}

const BINARY: &str = "binary content is not patched: write the file as a whole";

fn begins_names(reader: &Reader<'_>) -> bool {
    reader.peek().is_some_and(|line| line.starts_with("--- "))
        && reader.peek_second().is_some_and(|line| line.starts_with("+++ "))
}

/// Lines before a file's hunks.
#[derive(Debug, Default)]
struct Header {
    /// Number of the first line.
    at: usize,
    /// Names of the `diff --git` line.
    git: Option<(String, String)>,
    created: bool,
    deleted: bool,
    renamed_from: Option<String>,
    renamed_to: Option<String>,
    /// Names of the `---` and `+++` lines.
    names: Option<(Name, Name)>,
    /// True if a transport added `\r` to every line of the diff: the headers have one, too.
    crlf: bool,
}

impl Header {
    fn of_git(rest: &str) -> Self {
        let git = name::of_git_line(rest.strip_suffix('\r').unwrap_or(rest));
        Self { git, crlf: rest.ends_with('\r'), ..Self::default() }
    }

    /// Returns the prefixes of the old and the new name, as far as they can be determined.
    fn prefixes(&self) -> (&str, &str) {
        match &self.git {
            Some((old, new)) if name::behind_prefixes(old, new).is_some() => (first_of(old), first_of(new)),
            // Equal names have no prefixes.
            Some((old, new)) if old == new => ("", ""),
            _ => ("a", "b"),
        }
    }

    /// Returns the old and the new name without prefixes; `None` is no file.
    fn resolve(&self, reader: &Reader<'_>) -> Result<(Option<String>, Option<String>), Malformed> {
        if let (Some(from), Some(to)) = (&self.renamed_from, &self.renamed_to) {
            return Ok((Some(from.clone()), Some(to.clone())));
        }
        let (old, new) = match (&self.names, &self.git) {
            (Some((old, new)), _) => (old.clone(), new.clone()),
            (None, Some((old, new))) => (Name::of(old.clone()), Name::of(new.clone())),
            (None, None) => return Err(reader.fault_at(self.at, "cannot tell which file this is about")),
        };
        if !old.exists && !new.exists {
            return Err(reader.fault_at(self.at, "there is no file on either side"));
        }
        let exist = [old.exists, new.exists];
        let [old, new] = self.without_prefixes(old.text, new.text);
        let (old, new) = (old.filter(|_| exist[0]), new.filter(|_| exist[1]));
        // Git writes the name twice if an empty file is created or deleted.
        Ok((old.filter(|_| !self.created), new.filter(|_| !self.deleted)))
    }

    fn without_prefixes(&self, old: Option<String>, new: Option<String>) -> [Option<String>; 2] {
        let (old_prefix, new_prefix) = self.prefixes();
        if let (Some(old), Some(new)) = (&old, &new) {
            if let Some(rest) = name::behind_prefixes(old, new) {
                return [Some(rest.to_owned()), Some(rest.to_owned())];
            }
            let both = name::without(old, old_prefix) != old && name::without(new, new_prefix) != new;
            if !both {
                return [Some(old.clone()), Some(new.clone())];
            }
        }
        [(old, old_prefix), (new, new_prefix)]
            .map(|(name, prefix)| name.map(|name| name::without(&name, prefix).to_owned()))
    }
}

fn first_of(name: &str) -> &str {
    name.split_once('/').map_or("", |(first, _)| first)
}

/// Parses a file after its `diff --git` line.
fn git_file(reader: &mut Reader<'_>, mut header: Header) -> Result<FilePatch, Malformed> {
    while let Some(line) = reader.peek() {
        if begins_names(reader) {
            return named_file(reader, header);
        }
        let line = line.strip_suffix('\r').unwrap_or(line);
        if !extended(reader, &mut header, line)? {
            break;
        }
        reader.next();
    }
    finish(reader, &header, Vec::new())
}

/// Reads a line between `diff --git` and the hunks. Returns false if the line is none of these.
fn extended(reader: &Reader<'_>, header: &mut Header, line: &str) -> Result<bool, Malformed> {
    let word = |prefix: &str| line.strip_prefix(prefix);
    let named = |rest: &str| name::plain(rest).ok_or_else(|| reader.fault("a malformed file name"));
    if word("old mode ").or_else(|| word("new mode ")).is_some() {
        return Err(
            reader.fault("modes are not changed by a patch: leave the `old mode` and `new mode` lines out")
        );
    }
    if let Some(mode) = word("new file mode ") {
        regular(reader, mode)?;
        if mode != "100644" {
            return Err(reader.fault("new files get mode 100644: say that here, or leave the line out"));
        }
        header.created = true;
    } else if let Some(mode) = word("deleted file mode ") {
        regular(reader, mode)?;
        header.deleted = true;
    } else if let Some(rest) = word("index ") {
        if let Some((_, mode)) = rest.split_once(' ') {
            regular(reader, mode)?;
        }
    } else if let Some(rest) = word("rename from ").or_else(|| word("rename old ")) {
        header.renamed_from = Some(named(rest)?);
    } else if let Some(rest) = word("rename to ").or_else(|| word("rename new ")) {
        header.renamed_to = Some(named(rest)?);
    } else if word("copy from ").or_else(|| word("copy to ")).is_some() {
        return Err(reader.fault("copies are not made by a patch: create the file with its whole content"));
    } else if word("GIT binary patch").is_some()
        || (word("Binary files ").is_some() && line.ends_with(" differ"))
    {
        return Err(reader.fault(BINARY));
    } else {
        return Ok(word("similarity index ").or_else(|| word("dissimilarity index ")).is_some());
    }
    Ok(true)
}

fn regular(reader: &Reader<'_>, mode: &str) -> Result<(), Malformed> {
    match mode {
        "120000" => Err(reader.fault("symbolic links are not made, changed or removed by a patch")),
        "160000" => Err(reader.fault("submodules are not changed by a patch")),
        _ => Ok(()),
    }
}

/// Parses a file at its `---` line.
fn named_file(reader: &mut Reader<'_>, mut header: Header) -> Result<FilePatch, Malformed> {
    let mut name = |prefix: &str| {
        let malformed = reader.fault("a malformed file name");
        let line = reader.next().unwrap_or_default();
        header.crlf |= line.ends_with('\r');
        line.strip_prefix(prefix).and_then(name::of_header).ok_or(malformed)
    };
    header.names = Some((name("--- ")?, name("+++ ")?));
    let mut hunks = Vec::new();
    while reader.peek().is_some_and(|line| line.starts_with("@@ ")) {
        hunks.push(hunk(reader, header.crlf)?);
    }
    finish(reader, &header, hunks)
}

/// Builds the file's change from its header and hunks.
fn finish(reader: &Reader<'_>, header: &Header, hunks: Vec<Hunk>) -> Result<FilePatch, Malformed> {
    let fault = |message: &str| reader.fault_at(header.at, message);
    let path = |name: &str| reader.path(header.at, name);
    let (old, new) = header.resolve(reader)?;
    match (old, new) {
        (Some(old), Some(new)) if old == new => {
            if hunks.is_empty() {
                return Err(fault("changes nothing: no hunk follows"));
            }
            Ok(FilePatch { path: path(&old)?, action: Action::Update { moved_to: None, hunks } })
        }
        (Some(old), Some(new)) => {
            if header.renamed_to.is_none() {
                return Err(fault(
                    "the two names differ: give both the same, or add `rename from` and `rename to` after \
                     `diff --git`",
                ));
            }
            let moved_to = Some(path(&new)?);
            Ok(FilePatch { path: path(&old)?, action: Action::Update { moved_to, hunks } })
        }
        (None, Some(new)) => {
            let content = one_sided(&hunks, Kind::Added)
                .ok_or_else(|| fault("a new file has one hunk, of lines that begin with `+`"))?;
            Ok(FilePatch { path: path(&new)?, action: Action::Create { content } })
        }
        (Some(old), None) => {
            let content = one_sided(&hunks, Kind::Removed)
                .ok_or_else(|| fault("a deleted file has one hunk, of lines that begin with `-`"))?;
            Ok(FilePatch { path: path(&old)?, action: Action::Delete { content: Some(content) } })
        }
        (None, None) => Err(fault("a file cannot be created and deleted at once")),
    }
}

/// Returns the content that is only added or only removed; empty without a hunk.
fn one_sided(hunks: &[Hunk], kind: Kind) -> Option<String> {
    match hunks {
        [] => Some(String::new()),
        [hunk] if hunk.lines.iter().all(|line| line.kind == kind) => Some(Hunk::text(hunk.lines.iter())),
        _ => None,
    }
}

/// Parses a hunk at its `@@` line.
fn hunk(reader: &mut Reader<'_>, crlf: bool) -> Result<Hunk, Malformed> {
    let at = reader.number();
    let [old, old_count, new, new_count] = reader
        .next()
        .and_then(numbers)
        .ok_or_else(|| reader.fault_at(at, "a hunk begins with `@@ -LINE,COUNT +LINE,COUNT @@`"))?;
    let mut lines: Vec<Line> = Vec::new();
    let (mut old_left, mut new_left) = (old_count, new_count);
    while old_left > 0 || new_left > 0 || reader.peek().is_some_and(is_remark) {
        let Some(line) = reader.peek() else { return Err(miscounted(reader, at, "the text ends before it")) };
        let line = if crlf { line.strip_suffix('\r').unwrap_or(line) } else { line };
        if is_remark(line) {
            match lines.last_mut() {
                Some(last) if last.newline => last.newline = false,
                _ => return Err(reader.fault("`\\ No newline` belongs after the line that has none")),
            }
            reader.next();
            continue;
        }
        let (kind, text) = match line.as_bytes().first() {
            Some(b' ') => (Kind::Context, &line[1..]),
            Some(b'-') => (Kind::Removed, &line[1..]),
            Some(b'+') => (Kind::Added, &line[1..]),
            // Some tools remove the space of an empty line.
            None => (Kind::Context, ""),
            Some(_) => return Err(miscounted(reader, at, "another line comes before its end")),
        };
        let line = Line { kind, text: text.to_owned(), newline: true };
        let left = |left: &mut u64, counts: bool| match (counts, left.checked_sub(1)) {
            (false, _) => true,
            (true, Some(less)) => {
                *left = less;
                true
            }
            (true, None) => false,
        };
        if !left(&mut old_left, line.is_old()) || !left(&mut new_left, line.is_new()) {
            return Err(miscounted(reader, at, "it has more of one side"));
        }
        lines.push(line);
        reader.next();
    }
    if reader.peek().is_some_and(|line| belongs_to_a_hunk(line) && !begins_names(reader)) {
        return Err(miscounted(reader, at, "more lines follow"));
    }
    let hunk = Hunk { at, place: HunkPosition::Stated { old, new }, lines };
    if hunk.changes_nothing() {
        return Err(reader.fault_at(at, "the hunk changes nothing: it has no `+` and no `-` line"));
    }
    if !newlines_are_sound(&hunk) {
        return Err(reader.fault_at(at, "only the last line of a file can be without newline"));
    }
    Ok(hunk)
}

fn is_remark(line: &str) -> bool {
    line.starts_with("\\ ")
}

/// Returns true if the line looks like a part of a hunk. The signature of a mail also begins with two dashes.
fn belongs_to_a_hunk(line: &str) -> bool {
    let end = line.trim_end();
    line.starts_with([' ', '+', '-']) && !matches!(end, "" | "--" | "---")
}

fn miscounted(reader: &Reader<'_>, at: usize, what: &str) -> Malformed {
    reader.fault(format!(
        "the counts of the hunk in line {at} are wrong ({what}): correct its `@@` line, or send the `*** Begin Patch` envelope, which has no counts"
    ))
}

fn newlines_are_sound(hunk: &Hunk) -> bool {
    let sound = |side: fn(&Line) -> bool| {
        let mut lines = hunk.lines.iter().filter(|line| side(line)).rev();
        lines.next();
        lines.all(|line| line.newline)
    };
    sound(Line::is_old) && sound(Line::is_new)
}

/// Parses line and count of both sides.
fn numbers(line: &str) -> Option<[u64; 4]> {
    let (ranges, _heading) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| {
        let (line, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((number(line)?, number(count)?))
    };
    let ((old, old_count), (new, new_count)) = (range(old)?, range(new)?);
    Some([old, old_count, new, new_count])
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| digits && number < MAX_NUMBER)
}
