//! `coffer trash list`.

use clap::Args;
use wire::v1::{ListTrashRequest, ListTrashResponse, TrashEntry, entry};

use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::Page;
use crate::quantity::bytes;
use crate::run::RunRef;
use crate::time;

const PAGE: u32 = 500;

/// List what was deleted in a run, oldest first. It is kept until the run is deleted.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer trash list 3f2a9c01")]
pub(crate) struct List {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.connect().await?;
        let run_id = self.run.resolve(&client).await?;
        let mut all = ListTrashResponse::default();
        while all.entries.len() < self.limit {
            let request = ListTrashRequest {
                run_id: run_id.clone(),
                page_size: u32::try_from(self.limit - all.entries.len()).unwrap_or(PAGE).min(PAGE),
                page_token: std::mem::take(&mut all.next_page_token),
            };
            let page = client.trash().list_trash(quick(request)).await?.into_inner();
            all.entries.extend(page.entries);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_empty() {
                break;
            }
        }

        let ui = context.ui;
        if ui.is_json() {
            ui.json(&all)?;
            return Ok(Exit::Ok);
        }
        let mut page = ui.page();
        render(&all.entries, &time::now(), &mut page);
        ui.show(&page)?;
        if all.entries.is_empty() {
            ui.note("nothing was deleted in this run");
        } else if all.next_page_token.is_empty() {
            ui.note("`coffer trash show RUN ENTRY` prints what is in one");
        } else {
            ui.note("there are more; ask with a higher --limit");
        }
        Ok(Exit::Ok)
    }
}

fn render(entries: &[TrashEntry], now: &wire::Timestamp, page: &mut Page) {
    if !entries.is_empty() {
        let rows: Vec<_> = entries.iter().map(|entry| row(entry, now)).collect();
        page.table(&["ENTRY", "PATH", "SIZE", "AGE"], &rows);
    }
}

fn row(entry: &TrashEntry, now: &wire::Timestamp) -> Vec<String> {
    let age = time::between(entry.deleted_at.as_ref(), Some(now)).map_or_else(|| "-".into(), time::brief);
    let size = match entry.r#type() {
        entry::Type::Directory => "directory".to_owned(),
        _ => bytes(entry.size_bytes),
    };
    vec![entry.name.clone(), entry.path.clone(), size, age]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Look;

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
        let mut page = Page::new(Look::PIPE);
        render(&entries, &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        assert_eq!(
            page.as_str(),
            "ENTRY  PATH         SIZE       AGE\n\
             1-7-0  @project/a␛  3 B        1m 30s\n\
             2-7-0  @project/d   directory  1m 30s\n"
        );
    }
}
