//! What the run has changed, as far as anybody can say: the layer of an overlay, or what git says of a run that lives.
//! For whoever may use the run alone, since it holds contents; and secrets are hidden in it, as in the record.

use identity::Principal;
use operations::{Bounds, Git, GitDiffFlag, OpResult, Operation};
use redact::Redactor;
use refusal::Refusal;
use serde_json::json;
use store::run::Record;

use super::Bundles;

/// Most bytes of a diff.
const LARGEST: u32 = 1024 * 1024;

/// The members that tell of it.
#[derive(Default)]
pub(super) struct Diff {
    pub(super) members: Vec<(String, Vec<u8>)>,
    /// Secrets that were hidden.
    pub(super) redacted: usize,
    /// Why there are none.
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

/// The diff of a run, if there is one and this principal may have it.
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
        return Ok(Diff::none("an auditor may see records, and not contents"));
    }
    let redactor = &*bundles.audit.redactor().of(&record.id.to_string());
    if record.has_pending_changes() {
        return of_layer(bundles, record, redactor).await;
    }
    let Some(lanes) = bundles.runs.living_run(record.id).ok().and_then(|run| run.lanes_for_review().ok())
    else {
        return Ok(Diff::none("the run has ended, and its workspace is no overlay whose changes are kept"));
    };
    let bounds = Bounds { max_output_bytes: LARGEST.into(), ..Bounds::default() };
    let mut diff = Diff::default();
    for (name, flags) in [("diff.patch", Vec::new()), ("staged.patch", vec![GitDiffFlag::Cached])] {
        let operation = Operation::Git(Git::Diff { flags, paths: Vec::new() });
        match lanes.preview(&operation, &bounds).await.map(|preview| preview.map(|preview| preview.result)) {
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

/// Hides secrets file by file: a piece that is longer than what is looked at is cut, and says so.
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

/// The parts of a diff, each beginning with a file's header.
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
    fn secrets_are_hidden_wherever_they_stand_and_what_is_too_long_is_cut() {
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
