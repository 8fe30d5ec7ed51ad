//! `coffer base list`.

use clap::Args;
use wire::v1::{Base, ListBasesRequest, ListBasesResponse};

use crate::client::{Client, Context, MORE, pages};
use crate::failure::{Ended, Failure};
use crate::output::Output;
use crate::{ids, quantity, time};

const PAGE: u32 = 500;

/// List bases, newest first.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer base list")]
pub(crate) struct List {
    /// Maximum number of bases.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

impl List {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        context.ui.answer_and_talk(all(&client, self.limit).await?, |all, page, talk| {
            render(&all.bases, &time::now(), page);
            if all.bases.is_empty() {
                talk.own("no bases\n");
            } else if !all.next_page_token.is_empty() {
                talk.own(MORE);
            }
        })
    }
}

/// Returns up to `limit` bases.
pub(super) async fn all(client: &Client, limit: usize) -> Result<ListBasesResponse, Failure> {
    let (bases, next_page_token) = pages(limit, PAGE, async |page_size, page_token| {
        let request = ListBasesRequest { page_size, page_token };
        let page = client.bases().list_bases(request).await?.into_inner();
        Ok((page.bases, page.next_page_token))
    })
    .await?;
    Ok(ListBasesResponse { bases, next_page_token })
}

fn render(bases: &[Base], now: &wire::Timestamp, page: &mut Output) {
    if bases.is_empty() {
        return;
    }
    let end = ids::ends(bases.iter().map(|base| base.base_id.as_str()));
    let rows = bases.iter().map(|base| {
        vec![
            end(&base.base_id),
            base.principal.clone(),
            quantity::bytes(base.size_bytes),
            base.files.to_string(),
            base.used_by.len().to_string(),
            time::span(base.used_at.as_ref(), Some(now)),
            super::state(base).to_owned(),
            super::source(base),
        ]
    });
    page.table(&["BASE", "MADE BY", "SIZE", "FILES", "RUNS", "LAST USED", "STATE", "SOURCE"], rows);
}

#[cfg(test)]
mod tests {
    use wire::v1::{BaseSource, CloneWorkspace, base_source::Source};

    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_base() {
        let (repository, revision) = ("/srv/r".into(), "main".into());
        let clone = CloneWorkspace { repository, revision, ..CloneWorkspace::default() };
        let base = Base {
            base_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
            principal: "uid:0".into(),
            used_at: Some(wire::Timestamp { seconds: 1000, nanos: 0 }),
            source: Some(BaseSource { source: Some(Source::Clone(clone)) }),
            size_bytes: 2048,
            files: 7,
            changed: true,
            used_by: vec!["0198a1b2-0000-7000-8000-00000000bbbb".into()],
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&[base], &wire::Timestamp { seconds: 1090, nanos: 0 }, &mut page);
        let line = page.as_str().lines().nth(1).unwrap();
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!((cells[0], cells[1], cells[3], cells[4]), ("0000aaaa", "uid:0", "7", "1"));
        assert_eq!(cells[6], "CHANGED");
        assert_eq!(cells.last(), Some(&"clone of /srv/r at main"));
        let mut empty = Output::new(Look::PIPE);
        render(&[], &wire::Timestamp::default(), &mut empty);
        assert_eq!(empty.as_str(), "");
    }
}
