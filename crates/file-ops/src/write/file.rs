//! `write`: the whole content of one file.

use std::io::Write as _;

use jail::{Fill, Jail, Then, WriteMode};
use operations::{
    Binder, Bound, Bounds, EditResult, OpResult, Outcome, Preview, Reason, ToolFailure, Write, WriteResult,
    before_effect, sha256,
};

use super::diff::{Diff, sizes, unified};
use super::location::{Location, most_written, within};
use super::when::{Go, Undone, when};
use super::{unpack, upload};

/// Longest old content that a preview compares with the new one.
const MAX_COMPARED_BYTES: u64 = 10 * 1024 * 1024;

/// Writes the file, exactly the given bytes: no newline is added.
///
/// Missing directories on the way are created. If `go` is given, the effect waits for it.
pub fn write(jail: &Jail, write: &Write, bounds: &Bounds, go: Option<Go<'_>>) -> Outcome {
    let archive = write.uploaded.as_ref().filter(|uploaded| uploaded.archive);
    if archive.is_none() && bounds.held_to.is_none() {
        return when(|go| put(jail, write, bounds, go), go);
    }
    if let Some(go) = go {
        go()?;
    }
    match archive {
        Some(archive) => unpack::unpack(jail, write, archive, bounds),
        None => commit(jail, write, bounds),
    }
}

/// Writes content that needs no consent.
fn put(jail: &Jail, write: &Write, bounds: &Bounds, go: Option<Go<'_>>) -> Result<OpResult, Undone> {
    let location = admit(jail, write, bounds, 0)?;
    let mode = match (write.create_only, &write.if_match_sha256) {
        (true, _) => WriteMode::CreateOnly,
        (false, Some(_)) => WriteMode::ReplaceUnchanged,
        (false, None) => WriteMode::Replace,
    };
    let mut fill = fill(jail, write)?;
    let result = result(&location, write);
    location.put(fill.filling(), write.mode, mode, go)?;
    Ok(written(jail, write, result))
}

/// Writes content with a consent, if the state is still the one that was consented to.
fn commit(jail: &Jail, write: &Write, bounds: &Bounds) -> Outcome {
    let held_to = bounds.held_to.as_ref();
    let location = admit(jail, write, bounds, 0).map_err(|failure| before_effect(held_to, failure))?;
    bound(&location)?.demand(held_to)?;
    let then = Then::Fill { fill: fill(jail, write)?, permissions: write.mode };
    let result = result(&location, write);
    jail.commit(vec![location.into_held_change(then)])?;
    Ok(written(jail, write, result))
}

fn fill(jail: &Jail, write: &Write) -> Result<Fill, ToolFailure> {
    if let Some(uploaded) = &write.uploaded {
        return Ok(upload::fill(upload::open(jail, uploaded)?.file, uploaded));
    }
    let content = write.content.clone();
    Ok(Fill::new(move |file| file.write_all(&content)))
}

fn result(location: &Location<'_>, write: &Write) -> WriteResult {
    WriteResult {
        path: write.path.to_string(),
        bytes_written: write.size(),
        sha256_before: location.sha256_before(),
        sha256_after: sha256_after(write),
        created: location.before.is_none(),
        entries: 0,
    }
}

fn written(jail: &Jail, write: &Write, result: WriteResult) -> OpResult {
    if let Some(uploaded) = &write.uploaded {
        upload::forget(jail, uploaded);
    }
    OpResult::Write(result)
}

fn sha256_after(write: &Write) -> String {
    write.uploaded.as_ref().map_or_else(|| sha256(&write.content), |uploaded| uploaded.sha256.clone())
}

/// Returns the result that [`write()`] would have, as the diff that the reviewer sees. Fails as [`write()`] would, and changes nothing.
pub fn preview_write(jail: &Jail, write: &Write, bounds: &Bounds) -> Result<Preview, ToolFailure> {
    if let Some(archive) = write.uploaded.as_ref().filter(|uploaded| uploaded.archive) {
        return unpack::preview(jail, write, archive, bounds);
    }
    let location = admit(jail, write, bounds, MAX_COMPARED_BYTES)?;
    if let Some(uploaded) = &write.uploaded {
        upload::open(jail, uploaded)?;
    }
    let diff = compare(&location, write, bounds);
    let (diff_truncated, diff) = (diff.is_cut(), diff.noted());
    let (sha256_before, sha256_after) = (location.sha256_before(), sha256_after(write));
    let result = OpResult::Edit(EditResult {
        path: write.path.to_string(),
        diff,
        diff_truncated,
        replacements: u32::from(sha256_before != sha256_after),
        sha256_before,
        sha256_after,
    });
    Ok(Preview { result, bound: bound(&location)? })
}

fn bound(location: &Location<'_>) -> Result<Bound, ToolFailure> {
    let mut binder = Binder::new("write");
    location.bind(&mut binder)?;
    Ok(binder.finish())
}

fn admit<'j>(
    jail: &'j Jail,
    write: &'j Write,
    bounds: &Bounds,
    keep: u64,
) -> Result<Location<'j>, ToolFailure> {
    let most = match write.uploaded {
        Some(_) => ("max_transfer_bytes", bounds.max_transfer_bytes),
        None => most_written(bounds),
    };
    within(&write.path, write.size(), most)?;
    let location = Location::look(jail, &write.path, bounds, keep)?;
    location.demand(write.if_match_sha256.as_deref())?;
    if write.create_only
        && let Some(before) = &location.before
    {
        return Err(exists(write, &before.sha256));
    }
    Ok(location)
}

fn exists(write: &Write, sha256: &str) -> ToolFailure {
    ToolFailure::new(
        Reason::PreconditionFailed,
        format!(
            "{} already exists, and the call may only create it; choose another name, or allow overwriting",
            write.path.excerpt()
        ),
    )
    .with("sha256", sha256)
}

fn compare(location: &Location<'_>, write: &Write, bounds: &Bounds) -> Diff {
    let old = location.before.as_ref().map(|before| before.content.as_deref().and_then(as_text));
    let new = if write.uploaded.is_none() { as_text(&write.content) } else { None };
    match (old, new) {
        (None, Some(new)) => unified(&write.path, None, new, bounds.max_output_bytes),
        (Some(Some(old)), Some(new)) => unified(&write.path, Some(old), new, bounds.max_output_bytes),
        _ => {
            let old = location.before.as_ref().map(|before| before.size);
            sizes(&write.path, old, Some(write.size()))
        }
    }
}

/// Returns the bytes as text if they are UTF-8 without NUL.
pub(super) fn as_text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}
