//! `glob`: regular files by name.

use jail::Jail;

use super::pattern::Pattern;
use super::walk::{Rules, Walk};
use crate::{Bounds, Cancel, Glob, GlobResult, OpResult, Outcome};

/// Finds files by name, sorted by path. How patterns match is said in `pattern`.
pub fn glob(jail: &Jail, glob: &Glob, bounds: &Bounds, cancel: &Cancel) -> Outcome {
    let pattern = Pattern::compile(&glob.pattern)?;
    let (start, dir) = jail.readable(&glob.path)?.open_dir_resolved()?;
    let rules = Rules {
        hidden: glob.include_ignored || pattern.names_hidden(),
        ignored: glob.include_ignored,
        node_modules: true,
    };
    let mut room = usize::try_from(bounds.max_output_bytes).unwrap_or(usize::MAX);
    let (mut paths, mut more) = (Vec::new(), false);
    let mut walk = Walk::new(jail, &start, dir, rules, cancel);
    while let Some(visit) = walk.next() {
        if !pattern.matches(visit.shown) {
            continue;
        }
        let path = glob.path.shown(visit.shown);
        match room.checked_sub(path.len() + 1) {
            Some(left) if paths.len() < glob.max_results as usize => {
                room = left;
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
    let mut hints = walked.hints();
    if more {
        hints.push(format!(
            "only the first {} files: narrow the pattern, look further down, or ask for more",
            paths.len()
        ));
    }
    Ok(OpResult::Glob(GlobResult { paths, truncated: more || walked.bounded, hint: hints.join("; ") }))
}
