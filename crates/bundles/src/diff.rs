//! Adds the diff of the run's workspace to a bundle.
//!
//! The diff is the overlay layer of the run, or git's diff while the run is alive. It holds contents of files, so only
//! principals that may use the run receive it. Secrets in it are redacted, as in the audit log.

use identity::Principal;
use operations::{Bounds, Git, GitDiffFlag, OpResult, Operation};
use redact::Redactor;
use refusal::Refusal;
use runs::record::Record;
use serde_json::json;

use super::Bundles;

/// Maximum size of a diff, bytes.
const LARGEST: u32 = 1024 * 1024;

/// Members of a bundle that hold the diff.
#[derive(Default)]
pub(super) struct Diff {
    pub(super) members: Vec<(String, Vec<u8>)>,
    /// Number of secrets that were redacted.
    pub(super) redacted: usize,
    /// Reason why there is no diff.
    pub(super) why_not: Option<String>,
}

impl Diff {
    fn none(why: impl Into<String>) -> Self {
        Self { why_not: Some(format!("no diff of the workspace: {}", why.into())), ..Self::default() }
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|(name, _)| name.as_str()).collect()
    }

    fn add(&mut self, name: &str, diff: &str, redactor: &Redactor) {
        let (text, hidden) = redacted(redactor, diff);
        self.redacted += hidden;
        self.members.push((name.to_owned(), text.into_bytes()));
    }
}

/// Returns the diff of the run, or the reason why the bundle has none.
pub(super) async fn of(
    bundles: &Bundles,
    principal: &Principal,
    record: Option<&Record>,
    is_wanted: bool,
) -> Result<Diff, Refusal> {
    let Some(record) = record else { return Ok(Diff::none("the run was deleted")) };
    if !is_wanted {
        return Ok(Diff::none("it was not asked for"));
    }
    if !principal.may_use(&record.spec.principal) {
        return Ok(Diff::none("an auditor may see records but not contents"));
    }
    let redactor = &*bundles.audit.redactor().of(&record.id.to_string());
    if record.has_pending_changes() {
        return of_layer(bundles, record, redactor).await;
    }
    let Some(lanes) = bundles.runs.living_run(record.id).ok().and_then(|run| run.lanes_for_review().ok())
    else {
        return Ok(Diff::none(
            "the run has ended, and its workspace is not an overlay with retained changes",
        ));
    };
    let bounds = Bounds { max_output_bytes: LARGEST.into(), ..Bounds::default() };
    let mut diff = Diff::default();
    for (name, flags) in [("diff.patch", Vec::new()), ("staged.patch", vec![GitDiffFlag::Cached])] {
        let operation = Operation::Git(Git::Diff { flags, paths: Vec::new() });
        match lanes
            .preview("", &operation, &bounds)
            .await
            .map(|preview| preview.map(|preview| preview.result))
        {
            Ok(Some(OpResult::Git(found))) => {
                let cut = if found.truncated {
                    format!("\n[{} bytes left out]\n", found.omitted_bytes)
                } else {
                    String::new()
                };
                diff.add(name, &format!("{}{cut}", found.output), redactor);
            }
            Err(failure) => return Ok(Diff::none(failure.message)),
            _ => return Ok(Diff::none("the host lane gave none")),
        }
    }
    Ok(diff)
}

async fn of_layer(bundles: &Bundles, record: &Record, redactor: &Redactor) -> Result<Diff, Refusal> {
    let mut found = bundles.runs.diff(record.id, LARGEST).await?;
    let mut diff = Diff::default();
    diff.add("diff.patch", &std::mem::take(&mut found.unified_diff), redactor);
    let mut changes = json!(found);
    diff.redacted += redactor.value(&mut changes);
    diff.members.push(("changes.json".to_owned(), changes.to_string().into_bytes()));
    Ok(diff)
}

/// Redacts secrets in each piece of a diff, and returns the text and the number of secrets.
///
/// A piece that is longer than the redactor examines is cut, and its text says so.
fn redacted(redactor: &Redactor, diff: &str) -> (String, usize) {
    let (mut clean, mut hidden) = (String::with_capacity(diff.len()), 0);
    for piece in pieces(diff) {
        let (text, count) = redactor.text(piece);
        clean.push_str(&text);
        if text.len() < piece.len() && !text.ends_with('\n') {
            clean.push('\n');
        }
        hidden += count;
    }
    (clean, hidden)
}

/// Splits a diff before the header lines of its files.
fn pieces(diff: &str) -> impl Iterator<Item = &str> {
    let mut starts = vec![0];
    let mut at = 0;
    for line in diff.split_inclusive('\n') {
        if at > 0 && (line.starts_with("diff --git ") || line.starts_with("--- ")) {
            starts.push(at);
        }
        at += line.len();
    }
    starts.push(diff.len());
    let ends: Vec<_> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    ends.into_iter().map(|(from, to)| &diff[from..to])
}

#[cfg(test)]
mod tests {
    use redact::Redactor;

    use super::{pieces, redacted};

    #[test]
    fn each_file_is_a_piece_and_nothing_is_lost_between_them() {
        let diff = "diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n\
                    diff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -1 +1 @@\n-c\n+d\n";
        assert_eq!(pieces(diff).count(), 4);
        assert_eq!(pieces(diff).collect::<String>(), diff);
        assert_eq!(pieces("").collect::<String>(), "");
        let redactor = Redactor::default();
        assert_eq!(redacted(&redactor, diff), (diff.to_owned(), 0));
    }

    #[test]
    fn secrets_are_hidden_at_any_position_and_long_diffs_are_cut() {
        let secret = format!("ghp{}", "_16C7e42F292c6912E7710c838347Ae178B4a");
        let filler = "+a harmless line of text\n".repeat(2_000);
        let file = |n| format!("--- a/{n}\n+++ b/{n}\n+token = \"{secret}\"\n{filler}+{secret}\n");
        let diff = [0, 1, 2, 3, 4].map(file).concat();
        let (clean, hidden) = redacted(&Redactor::default(), &diff);
        assert!(!clean.contains(&secret) && hidden == 10, "{hidden}");
        let long = format!("--- a/x\n{}+{secret}\n--- a/y\n+{secret}\n", filler.repeat(3));
        let (clean, hidden) = redacted(&Redactor::default(), &long);
        assert!(!clean.contains(&secret) && hidden == 1 && clean.contains("bytes]\n--- a/y"), "{hidden}");
    }
}
