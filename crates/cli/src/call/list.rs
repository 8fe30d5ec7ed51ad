//! `coffer call list`.

use clap::Args;
use wire::v1::entry::Type;
use wire::v1::operation::Kind as Operation;
use wire::v1::{ListRequest, ListResult};

use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::{quantity, time};

/// List a directory.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer call list 3f2a9c01 src --depth 2")]
pub(crate) struct List {
    #[command(flatten)]
    target: Target,
    /// The directory. Default: @project.
    path: Option<String>,
    /// How many levels to descend, 1 to 16. Default: 1.
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// Include hidden files and symbolic links.
    #[arg(long)]
    all: bool,
    /// Maximum number of entries, up to 10000. Default: 200.
    #[arg(long, value_name = "N")]
    max: Option<u32>,
    #[command(flatten)]
    options: CallOptions,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let operation = ListRequest {
            path: self.path.unwrap_or_default(),
            depth: self.depth,
            include_hidden: self.all,
            include_symlinks: self.all,
            max_entries: self.max,
        };
        make(context, &self.target, self.options, Operation::List(operation)).await
    }
}

pub(super) fn render(result: &ListResult, data: &mut Output, talk: &mut Output) {
    if result.entries.is_empty() {
        let what = if result.left_out.is_some() { " has no entries to show\n" } else { " is empty\n" };
        talk.word(&result.path).own(what);
        talk.remark(result.truncated, &result.hint);
        return;
    }
    let rows = result.entries.iter().map(|entry| {
        let (kind, size) = match entry.r#type() {
            Type::File => ("file", quantity::bytes(entry.size_bytes)),
            Type::Directory => ("dir", "-".into()),
            Type::Symlink => ("link", "-".into()),
            Type::Other | Type::Unspecified => ("other", "-".into()),
        };
        let modified = wire::Timestamp { seconds: entry.modified_unix_seconds, nanos: 0 };
        let modified = time::moment(Some(&modified)).replace(".000Z", "Z");
        vec![kind.into(), size, modified, entry.path.clone()]
    });
    data.table(&["TYPE", "SIZE", "MODIFIED", "PATH"], rows);
    talk.cut_short(result.truncated, &result.hint);
}

#[cfg(test)]
mod tests {
    use wire::v1::Entry;

    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_an_entry() {
        let entry = |path: &str, kind: Type, size_bytes| Entry {
            path: path.into(),
            name: String::new(),
            r#type: kind.into(),
            size_bytes,
            modified_unix_seconds: 0,
        };
        let result = ListResult {
            path: "@project".into(),
            entries: vec![
                entry("@project/src", Type::Directory, 0),
                entry("@project/x\ny", Type::File, 1536),
            ],
            truncated: true,
            hint: "raise max_entries".into(),
            total_entries: 9,
            left_out: None,
        };
        let (mut data, mut talk) = (Output::new(Look::PIPE), Output::new(Look::PIPE));
        render(&result, &mut data, &mut talk);
        assert_eq!(
            data.as_str(),
            "TYPE  SIZE     MODIFIED              PATH\n\
             dir   -        1970-01-01T00:00:00Z  @project/src\n\
             file  1.5 KiB  1970-01-01T00:00:00Z  @project/x␊y\n"
        );
        assert_eq!(talk.as_str(), "cut short: raise max_entries\n");
    }
}
