//! `coffer run diff`, `accept` and `discard`: show, apply and delete the changes of an overlay.

use clap::Args;
use wire::v1::{
    AcceptRunRequest, AcceptRunResponse, DiffRunRequest, DiffRunResponse, DiscardRunRequest, FileChange,
    file_change::Kind,
};

use super::RunRef;
use crate::client::Context;
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::quantity;

/// Size of the diff that is requested, in bytes. It is the daemon's maximum.
const MOST: u32 = 1024 * 1024;

/// Show what a run on an overlay has changed.
///
/// Prints a diff for `git apply` and `patch -p1` to standard output, and the changes that `accept` would
/// refuse to standard error.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run diff 3f2a9c01 | less -R")]
pub(crate) struct Diff {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
    /// Print only the paths and their state: A added, M modified, D deleted.
    #[arg(long)]
    name_status: bool,
}

/// Apply the changes of a run on an overlay to the overlay's directory.
///
/// The run must have ended. Nothing is applied if the directory itself has changed at the same paths, if git
/// on this host would run or obey a change (hooks, configuration), or if a change cannot be applied, such as
/// a socket.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run diff 3f2a9c01 && coffer run accept 3f2a9c01")]
pub(crate) struct Accept {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Apply the changes anyway, and leave out those that cannot be applied.
    #[arg(long)]
    force: bool,
}

/// Delete the changes of a run on an overlay.
///
/// The run must have ended. The overlay's directory does not change.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run discard 3f2a9c01")]
pub(crate) struct Discard {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
}

impl Diff {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = DiffRunRequest { run_id, max_diff_bytes: MOST };
        let response = context.ui.wait("reading the changes…", client.runs().diff_run(request)).await?;
        context.ui.answer_and_talk(response, |response, page, talk| {
            if self.name_status {
                names(&response.changes, page);
            } else {
                page.raw_diff(&response.unified_diff);
            }
            remarks(&response, talk);
        })
    }
}

impl Accept {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = AcceptRunRequest { run_id, force: self.force };
        let response = context.ui.wait("applying the changes…", client.runs().accept_run(request)).await?;
        context.ui.answer(response, |response, page| accepted(&response, page))
    }
}

impl Discard {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = DiscardRunRequest { run_id };
        let response = context.ui.wait("deleting the changes…", client.runs().discard_run(request)).await?;
        context.ui.answer(response, |response, page| {
            page.own("discarded ").word(&response.run.unwrap_or_default().run_id).end_line();
        })
    }
}

fn names(changes: &[FileChange], page: &mut Output) {
    for change in changes {
        let letter = match change.kind() {
            Kind::Added => "A",
            Kind::Modified => "M",
            Kind::Deleted => "D",
            Kind::Unspecified => "?",
        };
        let slash = if change.file_type == "directory" { "/" } else { "" };
        page.own(letter).own("\t").word(&change.path).own(slash).end_line();
    }
}

/// Prints the facts that are not in the diff itself.
fn remarks(response: &DiffRunResponse, talk: &mut Output) {
    talk.word(&quantity::count(response.total, "path is different", "paths are different")).end_line();
    for change in &response.changes {
        let (style, why) = match (change.obstacle.as_str(), change.objection.as_str()) {
            ("", "") => continue,
            ("", objection) => (Style::Yellow, objection),
            (obstacle, _) => (Style::Red, obstacle),
        };
        talk.styled(style, &change.path).own(": ").word(why).end_line();
    }
    if response.truncated {
        talk.own("the diff is cut short: --name-status lists more paths, --output json lists all").end_line();
    }
}

fn accepted(response: &AcceptRunResponse, page: &mut Output) {
    page.own("accepted ").word(&quantity::count(response.applied, "change", "changes")).end_line();
    for path in &response.left_out {
        page.own("left out ").word(path).end_line();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    fn change(path: &str, kind: Kind, file_type: &str) -> FileChange {
        FileChange { path: path.into(), kind: kind.into(), file_type: file_type.into(), ..Default::default() }
    }

    #[test]
    fn each_path_stays_on_one_line() {
        let changes = [
            change("a.txt", Kind::Modified, "file"),
            change("new", Kind::Added, "directory"),
            change("b\x1b[2J\nD\tc", Kind::Deleted, "file"),
        ];
        let mut page = Output::new(Look::PIPE);
        names(&changes, &mut page);
        assert_eq!(page.as_str(), "M\ta.txt\nA\tnew/\nD\tb␛[2J␊D␉c\n");
    }

    #[test]
    fn objections_to_changes_are_shown() {
        let mut hook = change(".git/hooks/post-checkout", Kind::Added, "file");
        hook.objection = "git would run it".into();
        let mut pipe = change("pipe", Kind::Added, "fifo");
        pipe.obstacle = "it is a FIFO".into();
        let response =
            DiffRunResponse { changes: vec![hook, pipe], total: 3, truncated: true, ..Default::default() };
        let mut page = Output::new(Look::PIPE);
        remarks(&response, &mut page);
        assert_eq!(
            page.as_str(),
            "3 paths are different\n.git/hooks/post-checkout: git would run it\npipe: it is a FIFO\n\
             the diff is cut short: --name-status lists more paths, --output json lists all\n"
        );
    }

    #[test]
    fn skipped_changes_are_named() {
        let mut page = Output::new(Look::PIPE);
        accepted(&AcceptRunResponse { run: None, applied: 1, left_out: vec!["pipe".into()] }, &mut page);
        assert_eq!(page.as_str(), "accepted 1 change\nleft out pipe\n");
    }
}
