//! `coffer call delete`.

use clap::Args;
use wire::v1::operation::Kind as Operation;
use wire::v1::{DeleteRequest, DeleteResult, entry};

use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::quantity::bytes;

/// Remove one file or an empty directory. It goes to the run's trash, which is kept until the run is deleted.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call delete 3f2a9c01 old.txt")]
pub(crate) struct Delete {
    #[command(flatten)]
    target: Target,
    /// The file or the empty directory.
    path: String,
    /// Only if the file has this SHA-256.
    #[arg(long, value_name = "SHA256")]
    if_match: Option<String>,
    #[command(flatten)]
    options: CallOptions,
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let operation = DeleteRequest { path: self.path, if_match_sha256: self.if_match.unwrap_or_default() };
        make(context, &self.target, self.options, Operation::Delete(operation)).await
    }
}

pub(super) fn render(result: &DeleteResult, data: &mut Output) {
    data.own("deleted ").word(&result.path);
    if result.r#type() == entry::Type::Directory {
        data.own(": a directory");
    } else {
        data.own(": ").word(&bytes(result.size_bytes)).own(", sha256 ").word(&result.sha256);
    }
    if result.gone_for_good {
        data.own("\nit cannot be restored: the run's trash had no space for it\n");
    } else {
        data.own("\nin the run's trash as ").word(&result.trash_entry).own("\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn the_location_is_printed() {
        let text = |result: &DeleteResult| {
            let mut page = Output::new(Look::PIPE);
            render(result, &mut page);
            page.as_str().to_owned()
        };
        let mut result = DeleteResult {
            path: "@project/a\x1b".into(),
            r#type: entry::Type::File.into(),
            size_bytes: 3,
            sha256: "b".into(),
            trash_entry: "e".into(),
            gone_for_good: false,
        };
        assert_eq!(text(&result), "deleted @project/a␛: 3 B, sha256 b\nin the run's trash as e\n");
        result.set_type(entry::Type::Directory);
        assert_eq!(text(&result), "deleted @project/a␛: a directory\nin the run's trash as e\n");
        result.gone_for_good = true;
        assert!(
            text(&result)
                .ends_with(": a directory\nit cannot be restored: the run's trash had no space for it\n")
        );
    }
}
