//! `coffer audit export`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use ::audit::{Record, ocsf};
use clap::{Args, ValueEnum};
use wire::v1::query_events_request::Order;

use super::filter::Filter;
use super::query::Pages;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::quantity::count;

/// Export records for other programs, oldest first: all that are in the log when the export begins.
///
/// `jsonl` prints each record as it is in the log, one per line, with its hash. `ocsf` prints each record as
/// an event of the Open Cybersecurity Schema Framework 1.3.0, class API Activity (6003), one per line.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit export --format ocsf --from 24h --file events.jsonl")]
pub(crate) struct Export {
    /// Format of the export.
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    format: ExportFormat,
    /// Write to this new file. Default: standard output.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExportFormat {
    Jsonl,
    Ocsf,
}

impl Export {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let mut pages = Pages::new(self.filter.resolve(&client).await?, Order::OldestFirst);
        let spinner = context.ui.spinner("exporting…");
        let mut out: Box<dyn Write> = match &self.file {
            Some(path) => Box::new(BufWriter::new(create(path)?)),
            None => Box::new(BufWriter::new(std::io::stdout().lock())),
        };
        let (mut head, mut records) = (None, 0);
        // Records that are added meanwhile, including the record of this export, belong to the next export.
        'pages: while let Some(page) = pages.next(&client, u64::MAX).await? {
            let head = *head.get_or_insert(page.head_sequence);
            for event in page.events {
                if event.sequence > head {
                    break 'pages;
                }
                writeln!(out, "{}", self.format.render(&event.record_json)?)?;
                records += 1;
            }
        }
        out.flush()?;
        drop((out, spinner));
        if let Some(path) = &self.file {
            context.ui.note(&format!("{} in {}", count(records, "record", "records"), path.display()));
        }
        Ok(Exit::Ok)
    }
}

impl ExportFormat {
    fn render(self, line: &str) -> Result<String, Failure> {
        match self {
            Self::Jsonl => Ok(line.to_owned()),
            Self::Ocsf => {
                let record = Record::from_line(line).map_err(|damage| {
                    Failure::failed(format!("the daemon's answer holds a record that {damage}"))
                })?;
                Ok(ocsf::event(&record).to_string())
            }
        }
    }
}

/// Creates a file, and fails if it exists.
fn create(path: &Path) -> Result<File, Failure> {
    File::create_new(path)
        .map_err(|error| Failure::failed(format!("cannot create {}: {error}", path.display())))
}
