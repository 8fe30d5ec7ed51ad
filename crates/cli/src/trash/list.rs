//! `coffer trash list`.

use clap::Args;
use wire::v1::{ListTrashRequest, ListTrashResponse, TrashEntry, entry};

use crate::client::{Context, MORE, pages, quick};
use crate::failure::Ended;
use crate::output::Output;
use crate::quantity::bytes;
use crate::run_ref::RunRef;
use crate::time;

const PAGE: u32 = 500;

/// List what was deleted in a run, oldest first. It is kept until the run is deleted.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer trash list 3f2a9c01")]
pub(crate) struct List {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Maximum number of entries.
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let (entries, next_page_token) = pages(self.limit, PAGE, async |page_size, page_token| {
            let request = ListTrashRequest { run_id: run_id.clone(), page_size, page_token };
            let page = client.trash().list_trash(quick(request)).await?.into_inner();
            Ok((page.entries, page.next_page_token))
        })
        .await?;
        context.ui.answer_and_talk(ListTrashResponse { entries, next_page_token }, |all, page, talk| {
            render(&all.entries, &time::now(), page);
            talk.own(if all.entries.is_empty() {
                "nothing was deleted in this run\n"
            } else if all.next_page_token.is_empty() {
                "`coffer trash show RUN ENTRY` prints the content of an entry\n"
            } else {
                MORE
            });
        })
    }
}

fn render(entries: &[TrashEntry], now: &wire::Timestamp, page: &mut Output) {
    if !entries.is_empty() {
        let rows = entries.iter().map(|entry| row(entry, now));
        page.table(&["ENTRY", "PATH", "SIZE", "AGE"], rows);
    }
}

fn row(entry: &TrashEntry, now: &wire::Timestamp) -> Vec<String> {
    let size = match entry.r#type() {
        entry::Type::Directory => "directory".to_owned(),
        _ => bytes(entry.size_bytes),
    };
    vec![entry.name.clone(), entry.path.clone(), size, time::span(entry.deleted_at.as_ref(), Some(now))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_an_entry() {
        let entry = |name: &str, path: &str, entry_type: entry::Type| TrashEntry {
            name: name.into(),
            path: path.into(),
            r#type: entry_type.into(),
            size_bytes: 3,
            deleted_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            ..Default::default()
        };
        let entries = [
            entry("1-7-0", "@project/a\x1b", entry::Type::File),
            entry("2-7-0", "@project/d", entry::Type::Directory),
        ];
        let mut page = Output::new(Look::PIPE);
        render(&entries, &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        assert_eq!(
            page.as_str(),
            "ENTRY  PATH         SIZE       AGE\n\
             1-7-0  @project/a␛  3 B        1m 30s\n\
             2-7-0  @project/d   directory  1m 30s\n"
        );
    }
}
