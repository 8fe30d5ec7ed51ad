//! `coffer audit verify`: by the daemon, or offline from the files alone.

use std::path::{Path, PathBuf};

use clap::Args;
use wire::v1::{VerifyLogRequest, VerifyLogResponse};

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::{Ink, Page};
use crate::quantity::count;
use crate::ui::Ui;

/// Prove that no record was changed, moved or taken out; ends with 1 when one was.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit verify /var/lib/cofferdam/audit")]
pub(crate) struct Verify {
    /// Directory of the log, to verify it without the daemon. Default: the daemon verifies its own.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Verify {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let verdict = match &self.dir {
            Some(dir) => offline(context.ui, dir)?,
            None => by_daemon(context).await?,
        };
        if context.ui.is_json() {
            context.ui.json(&verdict)?;
        } else {
            let mut page = context.ui.page();
            render(&verdict, &mut page);
            context.ui.show(&page)?;
        }
        Ok(if verdict.intact { Exit::Ok } else { Exit::Failed })
    }
}

async fn by_daemon(context: &Context) -> Result<VerifyLogResponse, Failure> {
    let client = context.connect().await?;
    let _spinner = context.ui.spinner("verifying…");
    Ok(client.audit().verify_log(VerifyLogRequest {}).await?.into_inner())
}

fn offline(ui: Ui, dir: &Path) -> Result<VerifyLogResponse, Failure> {
    let bar = ui.bytes_bar();
    let report = ::audit::verify(dir, &mut |progress| bar.at(progress.done, progress.total))
        .map_err(|error| Failure::failed(format!("the log in {} cannot be read: {error}", dir.display())))?;
    if report.segments == 0 {
        return Err(Failure::failed(format!("{} holds no audit log", dir.display()))
            .with_hint("the log is in `audit` beneath the daemon's state_dir"));
    }
    Ok(VerifyLogResponse {
        intact: report.is_intact(),
        valid_records: report.records,
        last_sequence: report.head.map_or(0, |head| head.sequence),
        head_hash: report.head.map(|head| head.hash.to_string()).unwrap_or_default(),
        damage: match report.integrity {
            ::audit::Integrity::Intact => String::new(),
            ::audit::Integrity::Broken(broken) if broken.damage == ::audit::Damage::TornTail => {
                format!("{broken}; when a daemon writes to it now, let the daemon verify it, without DIR")
            }
            ::audit::Integrity::Broken(broken) => broken.to_string(),
        },
    })
}

fn render(verdict: &VerifyLogResponse, page: &mut Page) {
    let records = count(verdict.valid_records, "record", "records");
    if verdict.intact {
        page.ink(Ink::Green, "intact").own(": ").word(&records);
    } else {
        page.ink(Ink::Red, "BROKEN").own(": ").word(&verdict.damage).own("\n");
        page.own("before it: ").word(&records);
    }
    if !verdict.head_hash.is_empty() {
        page.own(", head ").word(&verdict.head_hash);
    }
    page.own("\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Look;
    use crate::ui::Format;

    fn text(verdict: &VerifyLogResponse) -> String {
        let mut page = Page::new(Look::PIPE);
        render(verdict, &mut page);
        page.as_str().into()
    }

    #[test]
    fn one_line_when_intact_and_the_place_when_not() {
        let mut verdict = VerifyLogResponse {
            intact: true,
            valid_records: 42,
            last_sequence: 42,
            head_hash: "c0ffee".into(),
            damage: String::new(),
        };
        assert_eq!(text(&verdict), "intact: 42 records, head c0ffee\n");
        verdict.intact = false;
        verdict.damage = "record 43 was edited".into();
        assert_eq!(text(&verdict), "BROKEN: record 43 was edited\nbefore it: 42 records, head c0ffee\n");
    }

    #[test]
    fn a_real_log_holds_until_it_is_edited() {
        let dir = tempfile::tempdir().unwrap();
        let head = {
            let (mut writer, _) = ::audit::Writer::open(dir.path()).unwrap();
            for _ in 0..3 {
                writer.append(&::audit::Event::new(::audit::Kind::CallIntent).operation("read")).unwrap();
            }
            writer.head().unwrap()
        };
        let verdict = offline(Ui::new(Format::Table), dir.path()).unwrap();
        assert_eq!(text(&verdict), format!("intact: 3 records, head {}\n", head.hash));

        let segment = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
            .unwrap();
        let edited = std::fs::read_to_string(&segment).unwrap().replacen("\"read\"", "\"exec\"", 1);
        std::fs::write(&segment, edited).unwrap();
        let verdict = offline(Ui::new(Format::Table), dir.path()).unwrap();
        assert!(!verdict.intact);
        assert!(text(&verdict).starts_with("BROKEN: record 1 was edited"), "{}", text(&verdict));
    }

    #[test]
    fn a_directory_without_a_log_is_no_intact_log() {
        let dir = tempfile::tempdir().unwrap();
        let failure = offline(Ui::new(Format::Table), dir.path()).unwrap_err();
        assert!(failure.to_string().contains("holds no audit log"), "{failure}");
        assert!(offline(Ui::new(Format::Table), Path::new("/nonexistent")).is_err());
    }
}
