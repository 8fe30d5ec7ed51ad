//! `coffer base create`.

use std::path::PathBuf;

use clap::Args;
use wire::v1::base_source::Source;
use wire::v1::{BaseSource, CheckpointWorkspace, CloneWorkspace, CreateBaseRequest, DirectorySource};

use crate::client::Context;
use crate::failure::{Ended, Failure};
use crate::host_path::{absolute, repository_or_url};
use crate::{checkpoint, quantity};

/// Make a base: a tree of files that never changes, on which many runs can begin. Prints its id.
///
/// A run on a base (`coffer run create --base`) sees its files and its own changes. No file is copied for it.
#[derive(Args, Debug)]
#[command(before_help = "Example: BASE=$(coffer base create --clone . --revision main)")]
pub(crate) struct Create {
    /// Copy this directory.
    #[arg(long, value_name = "PATH", group = "source", required_unless_present_any = ["clone", "checkpoint"])]
    directory: Option<PathBuf>,
    /// Clone this local git repository.
    #[arg(long, value_name = "REPO", group = "source")]
    clone: Option<PathBuf>,
    /// Copy the workspace that this checkpoint has, with the files beneath its changes.
    #[arg(long, value_name = "CHECKPOINT", group = "source")]
    checkpoint: Option<String>,
    /// Branch, tag or commit to check out of the clone.
    #[arg(long, value_name = "REVISION", conflicts_with_all = ["directory", "checkpoint"])]
    revision: Option<String>,
    /// Take a base that you have of the same repository at the same commit, if there is one.
    #[arg(long, conflicts_with_all = ["directory", "checkpoint"])]
    reuse: bool,
    /// Makes the command repeatable: the same id with the same content gives the same base.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

impl Create {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let mut request = self.request()?;
        let client = context.connect().await?;
        if let Some(Source::Checkpoint(of)) =
            request.source.as_mut().and_then(|source| source.source.as_mut())
        {
            of.checkpoint_id = checkpoint::resolve(&client, &of.checkpoint_id).await?;
        }
        let made = context.ui.wait("making the base…", client.bases().create_base(request)).await?;
        context.ui.answer_and_talk(made, |made, page, talk| {
            let base = made.base.unwrap_or_default();
            page.word(&base.base_id).end_line();
            let files = quantity::count(base.files, "file", "files");
            talk.block(&format!("{files}, {}", quantity::bytes(base.size_bytes))).end_line();
            if base.left_out > 0 {
                talk.own("FIFOs, sockets and devices were left out\n");
            }
        })
    }

    fn request(self) -> Result<CreateBaseRequest, Failure> {
        let source = match (self.directory, self.clone) {
            (Some(path), _) => Some(Source::Directory(DirectorySource { path: absolute(&path)? })),
            (None, Some(named)) => {
                let (repository, url) = repository_or_url(&named)?;
                let revision = self.revision.unwrap_or_default();
                Some(Source::Clone(CloneWorkspace { repository, revision, url, depth: 0 }))
            }
            (None, None) => {
                self.checkpoint.map(|checkpoint_id| Source::Checkpoint(CheckpointWorkspace { checkpoint_id }))
            }
        };
        let request_id = self.request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        Ok(CreateBaseRequest { source: Some(BaseSource { source }), reuse: self.reuse, request_id })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        create: Create,
    }

    fn request(line: &str) -> CreateBaseRequest {
        Line::try_parse_from(line.split(' ')).unwrap().create.request().unwrap()
    }

    #[test]
    fn one_source_reaches_the_request() {
        let made = request("create --clone /nonexistent/r --revision v1 --reuse");
        let (repository, revision) = ("/nonexistent/r".into(), "v1".into());
        let clone = CloneWorkspace { repository, revision, ..CloneWorkspace::default() };
        assert_eq!((made.source.unwrap().source, made.reuse), (Some(Source::Clone(clone)), true));
        assert_eq!(made.request_id.len(), 36, "an id of its own");
        let made = request("create --directory /nonexistent/d --request-id r1");
        assert_eq!(made.request_id, "r1");
        let directory = DirectorySource { path: "/nonexistent/d".into() };
        assert_eq!((made.source.unwrap().source, made.reuse), (Some(Source::Directory(directory)), false));
        let of = CheckpointWorkspace { checkpoint_id: "00aa".into() };
        let made = request("create --checkpoint 00aa").source.unwrap();
        assert_eq!(made.source, Some(Source::Checkpoint(of)));
        for (line, kind) in [
            ("create --checkpoint a --directory /b", ArgumentConflict),
            ("create --checkpoint a --reuse", ArgumentConflict),
            ("create", MissingRequiredArgument),
            ("create --reuse", MissingRequiredArgument),
            ("create --clone /a --directory /b", ArgumentConflict),
            ("create --directory /a --revision v1", ArgumentConflict),
            ("create --directory /a --reuse", ArgumentConflict),
        ] {
            let refused = Line::try_parse_from(line.split(' ')).map(|_| ()).unwrap_err();
            assert_eq!(refused.kind(), kind, "{line}");
        }
    }
}
