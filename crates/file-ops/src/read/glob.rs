//! `glob`: regular files by name.

use jail::Jail;
use operations::{ASK_FOR_MORE, Bounds, Glob, GlobResult, LeftOut, OpResult, Outcome, noted};

use super::pattern::Pattern;
use super::search::{Begin, begin};
use super::walk::{Rules, Walk};
use crate::Cancel;

/// Finds files by name, sorted by path. The module `pattern` describes how patterns match.
pub fn glob(jail: &Jail, glob: &Glob, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let pattern = Pattern::compile(&glob.pattern, &glob.path)?;
    let (start, dir) = match begin(jail, &glob.path, Some(&pattern))? {
        Begin::Walk(start, dir) => (start, dir),
        Begin::File(path) => {
            let paths = vec![path.to_string()];
            return Ok(OpResult::Glob(GlobResult { paths, ..GlobResult::default() }));
        }
        Begin::Nowhere(hint) => return Ok(OpResult::Glob(GlobResult { hint, ..GlobResult::default() })),
    };
    let rules = Rules {
        hidden: glob.include_ignored || pattern.names_hidden(),
        ignored: glob.include_ignored,
        node_modules: true,
    };
    let mut space = usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX);
    let (mut paths, mut more) = (Vec::new(), false);
    let mut walk = Walk::new(jail, &start, dir, rules, Some(&pattern), cancel);
    while let Some(visit) = walk.next() {
        let path = pattern.start().shown(visit.shown);
        match space.checked_sub(path.len() + 1) {
            Some(left) if paths.len() < glob.max_results as usize => {
                space = left;
                paths.push(path);
            }
            _ => {
                more = true;
                break;
            }
        }
    }
    let walked = walk.finish();
    if let Some(stopped) = walked.stopped {
        return Err(stopped
            .failure(format!(
                "{}: {} entries looked at, {} files found; look further down",
                glob.path.excerpt(),
                walked.entries,
                paths.len()
            ))
            .with("entries_seen", walked.entries.to_string()));
    }
    let mut hints = Vec::new();
    if more {
        hints.push(format!(
            "only the first {} files: narrow the pattern, look further down, or {ASK_FOR_MORE}",
            paths.len()
        ));
    }
    hints.extend(walked.hints());
    if paths.is_empty() {
        hints.extend(walked.directory_hint(pattern.start()));
        hints.extend(pattern.doubts().iter().map(|&doubt| doubt.to_owned()));
    }
    let left_out = Some(walked.left_out).filter(|left_out| *left_out != LeftOut::default());
    let truncated = more || walked.bounded;
    Ok(noted(OpResult::Glob(GlobResult { paths, truncated, hint: hints.join("; "), left_out })))
}
