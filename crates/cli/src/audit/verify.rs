//! `coffer audit verify`: verification by the daemon, or offline from the files alone.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::audit::{Against, Checkpoint, VerifierKey};
use clap::Args;
use fleet_view::{Answers, Fleet, is_of_one_node};
use serde::Serialize;
use tokio::time::timeout;
use wire::v1::{VerifyLogRequest, VerifyLogResponse};

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};
use crate::quantity::count;
use crate::ui::Ui;

/// Time that each node of a fleet has for its log. One node that does not answer holds up the verdicts of all.
const VERIFIED: Duration = Duration::from_secs(15 * 60);

/// Prove that no record was changed, moved or removed; exits with 1 if one was.
///
/// The files alone do not show whether the whole log was rewritten, or truncated to an earlier state. That
/// takes a key (`coffer audit key`) or a checkpoint (`coffer audit checkpoint`) that was stored elsewhere.
/// With a key it exits with 6 if no checkpoint in the log is signed with that key.
///
/// With --fleet each node verifies its own log. If a node does not answer, its log is not proved, and the command exits
/// with 5.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit verify /var/lib/cofferdam/audit --checkpoint kept.txt")]
pub(crate) struct Verify {
    /// Directory of the log, to verify it without the daemon. Default: the daemon verifies its own.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A trusted public key, as `coffer audit key` prints it; keys that it vouches for are trusted, too.
    /// Default: the first key that the log names.
    #[arg(long = "key", value_name = "VKEY", requires = "dir")]
    keys: Vec<VerifierKey>,
    /// A file with checkpoints that were stored elsewhere; the log must agree with them.
    #[arg(long = "checkpoint", value_name = "FILE", requires = "dir")]
    checkpoints: Vec<PathBuf>,
}

impl Verify {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let verdict = match &self.dir {
            Some(dir) => offline(context.ui, dir, self.against()?)?,
            None => by_daemon(context).await?,
        };
        let exit = self.exit(&verdict);
        context.ui.answer(verdict, |verdict, page| render(&verdict, page))?;
        Ok(exit)
    }

    pub(crate) async fn over(self, fleet: &Fleet) -> Ended {
        if self.dir.is_some() {
            return Err(is_of_one_node("a directory is the log"));
        }
        let spinner = fleet.ui.spinner("verifying…");
        let answers = fleet.ask(async |node| {
            let verified = timeout(VERIFIED, node.client.audit().verify_log(VerifyLogRequest {})).await;
            let late = |_| {
                let minutes = VERIFIED.as_secs() / 60;
                Failure::unreachable(format!("has not verified its log within {minutes} minutes"))
            };
            Ok(verified.map_err(late)??.into_inner())
        });
        let answers = answers.await?;
        drop(spinner);
        let exit = exit_of(&answers);
        let verdicts = answers.all.into_iter().map(|(node, verdict)| Verdict { node, verdict });
        fleet.ui.answer(verdicts.collect::<Vec<_>>(), |verdicts, page| {
            for Verdict { node, verdict } in &verdicts {
                page.own("node ").word(node).own(": ");
                render(verdict, page);
            }
        })?;
        Ok(exit)
    }

    fn exit(&self, verdict: &VerifyLogResponse) -> Exit {
        if !verdict.intact {
            return Exit::Failed;
        }
        // A user who gives a key expects signatures of that key.
        if self.keys.is_empty() || verdict.unvouched.is_empty() { Exit::Ok } else { Exit::Unvouched }
    }

    fn against(&self) -> Result<Against, Failure> {
        let mut against = Against { keys: self.keys.clone(), ..Against::default() };
        for path in &self.checkpoints {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| Failure::failed(format!("{name} cannot be read: {error}")))?;
            let checkpoints = Checkpoint::parse_all(&text)
                .ok_or_else(|| Failure::failed(format!("{name} holds no checkpoints of an audit log")))?;
            against.checkpoints.extend(checkpoints.into_iter().map(|checkpoint| (name.clone(), checkpoint)));
        }
        Ok(against)
    }
}

/// Verdict of one node about its log.
#[derive(Serialize)]
struct Verdict {
    node: String,
    verdict: VerifyLogResponse,
}

/// Returns the exit code for the logs of all nodes. A log without a verdict is not proved.
fn exit_of(answers: &Answers<VerifyLogResponse>) -> Exit {
    if answers.all.iter().any(|(_, verdict)| !verdict.intact) {
        return Exit::Failed;
    }
    if answers.missing.is_empty() { Exit::Ok } else { Exit::Unreachable }
}

/// Hint for faults that a daemon may cause meanwhile: it appends records, and compresses and removes segments.
const IN_USE: &str = "if a daemon is writing to it, let the daemon verify it: leave out DIR";

async fn by_daemon(context: &Context) -> Result<VerifyLogResponse, Failure> {
    let client = context.connect().await?;
    context.ui.wait("verifying…", client.audit().verify_log(VerifyLogRequest {})).await
}

fn offline(ui: Ui, dir: &Path, against: Against) -> Result<VerifyLogResponse, Failure> {
    let bar = ui.bytes_bar();
    let report = ::audit::verify_with(dir, against, &mut |progress| bar.at(progress.done, progress.total))
        .map_err(|error| {
            let failure = Failure::failed(format!("the log in {} cannot be read: {error}", dir.display()));
            let vanished = error.kind() == ErrorKind::NotFound && dir.is_dir();
            if vanished { failure.with_hint(IN_USE) } else { failure }
        })?;
    if report.segments == 0 {
        return Err(Failure::failed(format!("{} holds no audit log", dir.display()))
            .with_hint("the log is in the directory `audit` of the daemon's state_dir"));
    }
    Ok(VerifyLogResponse {
        intact: report.is_intact(),
        unvouched: report.unvouched().unwrap_or_default().to_owned(),
        valid_records: report.records,
        last_sequence: report.head.map_or(0, |head| head.sequence),
        head_hash: report.head.map(|head| head.hash.to_string()).unwrap_or_default(),
        damage: match report.integrity {
            ::audit::Integrity::Intact => String::new(),
            ::audit::Integrity::Broken(broken)
                if matches!(broken.damage, ::audit::Damage::TornTail | ::audit::Damage::Missing) =>
            {
                format!("{broken}; {IN_USE}")
            }
            ::audit::Integrity::Broken(broken) => broken.to_string(),
        },
        checkpoints: report.checkpoints,
        covered_records: report.covered,
        removed_records: report.removed,
        verifier_keys: report.keys,
    })
}

fn render(verdict: &VerifyLogResponse, page: &mut Output) {
    let records = count(verdict.valid_records, "record", "records");
    if verdict.intact {
        page.styled(Style::Green, "intact").own(": ").word(&records);
    } else {
        page.styled(Style::Red, "BROKEN").own(": ").word(&verdict.damage).own("\n");
        page.own("before it: ").word(&records);
    }
    if !verdict.head_hash.is_empty() {
        page.own(", head ").word(&verdict.head_hash);
    }
    page.own("\n");
    if !verdict.unvouched.is_empty() {
        page.styled(Style::Yellow, "unvouched").own(": ").word(&verdict.unvouched).own("\n");
    }
    if verdict.removed_records > 0 {
        page.own("removed, on record: records 1 to ").word(&verdict.removed_records.to_string()).own("\n");
    }
    if verdict.checkpoints > 0 {
        let checkpoints = count(verdict.checkpoints, "checkpoint", "checkpoints");
        page.word(&checkpoints).own(" up to record ").word(&verdict.covered_records.to_string()).own("\n");
    }
    for key in &verdict.verifier_keys {
        page.own("signed by ").word(key).own("\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;
    use crate::ui::Format;

    fn text(verdict: &VerifyLogResponse) -> String {
        let mut page = Output::new(Look::PIPE);
        render(verdict, &mut page);
        page.as_str().into()
    }

    #[test]
    fn an_intact_log_prints_one_line_and_a_damaged_one_its_position() {
        let mut verdict = VerifyLogResponse {
            intact: true,
            valid_records: 42,
            last_sequence: 42,
            head_hash: "c0ffee".into(),
            ..Default::default()
        };
        assert_eq!(text(&verdict), "intact: 42 records, head c0ffee\n");
        verdict.intact = false;
        verdict.damage = "record 43 was edited".into();
        assert_eq!(text(&verdict), "BROKEN: record 43 was edited\nbefore it: 42 records, head c0ffee\n");
    }

    #[test]
    fn logs_are_proved_only_if_all_nodes_say_so() {
        let exit = |intact: &[bool], missing: usize| {
            let verdict =
                |intact: &bool| ("1".to_owned(), VerifyLogResponse { intact: *intact, ..Default::default() });
            let missing = (0..missing).map(|_| ("2".to_owned(), Failure::unreachable("down"))).collect();
            exit_of(&Answers { all: intact.iter().map(verdict).collect(), missing })
        };
        assert_eq!(exit(&[true, true], 0), Exit::Ok);
        assert_eq!(exit(&[true], 1), Exit::Unreachable);
        assert_eq!(exit(&[true, false], 1), Exit::Failed);
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
        let verdict = offline(Ui::new(Format::Table), dir.path(), Against::default()).unwrap();
        let unvouched = verdict.unvouched.clone();
        assert_eq!(
            text(&verdict),
            format!("intact: 3 records, head {}\nunvouched: {unvouched}\n", head.hash)
        );

        let segment = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
            .unwrap();
        let edited = std::fs::read_to_string(&segment).unwrap().replacen("\"read\"", "\"exec\"", 1);
        std::fs::write(&segment, edited).unwrap();
        let verdict = offline(Ui::new(Format::Table), dir.path(), Against::default()).unwrap();
        assert!(!verdict.intact);
        assert!(text(&verdict).starts_with("BROKEN: record 1 was edited"), "{}", text(&verdict));
    }

    #[test]
    fn a_fault_that_a_running_daemon_may_cause_is_reported_with_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let limits = ::audit::Limits { segment_bytes: 1, ..Default::default() };
        let (mut writer, _) = ::audit::Writer::open_with(dir.path(), limits).unwrap();
        for _ in 0..3 {
            writer.append(&::audit::Event::new(::audit::Kind::CallIntent)).unwrap();
        }
        let verify = || offline(Ui::new(Format::Table), dir.path(), Against::default());
        std::fs::remove_file(dir.path().join("00000000000000000001.jsonl")).unwrap();
        assert!(verify().unwrap().damage.ends_with(IN_USE));
        // A segment that is listed, and gone when it is opened.
        std::os::unix::fs::symlink("gone", dir.path().join("00000000000000000001.jsonl")).unwrap();
        let failure = verify().unwrap_err().to_string();
        assert!(failure.ends_with(IN_USE), "{failure}");
    }

    #[test]
    fn an_earlier_checkpoint_reveals_a_rollback_and_its_key_a_forgery() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, records: usize| {
            let (mut writer, _) = ::audit::Writer::open(&dir.path().join(name)).unwrap();
            let signer = writer.signer(&dir.path().join(name).join("key")).unwrap();
            for _ in 0..records {
                writer.append(&::audit::Event::new(::audit::Kind::CallIntent)).unwrap();
            }
            writer.checkpoint(&signer).unwrap().unwrap();
            (writer, signer)
        };
        let (mut writer, signer) = make("log", 3);
        let early = dir.path().join("early");
        std::fs::create_dir(&early).unwrap();
        let segment = "00000000000000000001.jsonl";
        std::fs::copy(dir.path().join("log").join(segment), early.join(segment)).unwrap();
        writer.append(&::audit::Event::new(::audit::Kind::Alert)).unwrap();
        let kept = dir.path().join("kept");
        std::fs::write(&kept, writer.checkpoint(&signer).unwrap().unwrap().note).unwrap();

        let verify = |log: &Path, keys: Vec<VerifierKey>| {
            let verify = Verify { dir: None, keys, checkpoints: vec![kept.clone()] };
            offline(Ui::new(Format::Table), log, verify.against().unwrap()).unwrap()
        };
        let mine = signer.verifier_key().clone();
        let verdict = verify(&dir.path().join("log"), vec![mine.clone()]);
        assert!(verdict.intact, "{}", verdict.damage);
        assert_eq!((verdict.checkpoints, verdict.covered_records), (2, 6));
        let verdict = verify(&early, vec![mine.clone()]);
        assert!(verdict.damage.contains("rolled back"), "{}", verdict.damage);
        let (_, forger) = make("forged", 6);
        assert!(!verify(&dir.path().join("forged"), vec![mine]).intact);
        assert!(!verify(&dir.path().join("log"), vec![forger.verifier_key().clone()]).intact);
    }

    #[test]
    fn emptied_log_is_reported_as_unconfirmed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let (mut writer, _) = ::audit::Writer::open(&log).unwrap();
        let signer = writer.signer(&dir.path().join("key")).unwrap();
        writer.append(&::audit::Event::new(::audit::Kind::CallIntent)).unwrap();
        writer.checkpoint(&signer).unwrap().unwrap();
        drop(writer);
        let keys = vec![signer.verifier_key().clone()];
        let verify = |keys: &[VerifierKey]| {
            let verify = Verify { dir: None, keys: keys.to_vec(), checkpoints: Vec::new() };
            let verdict = offline(Ui::new(Format::Table), &log, verify.against().unwrap()).unwrap();
            (verify.exit(&verdict), text(&verdict))
        };
        let (exit, said) = verify(&keys);
        assert!(exit == Exit::Ok && !said.contains("unvouched"), "{said}");

        std::fs::remove_dir_all(log.join("checkpoints")).unwrap();
        for entry in std::fs::read_dir(&log).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                std::fs::write(path, "").unwrap();
            }
        }
        let (exit, said) = verify(&keys);
        assert_eq!(exit, Exit::Unvouched);
        assert!(said.starts_with("intact: 0 records\nunvouched: no signed checkpoint"), "{said}");
        let (exit, said) = verify(&[]);
        assert!(exit == Exit::Ok && said.contains("unvouched"), "{said}");
    }

    #[test]
    fn directory_without_a_log_fails_verification() {
        let dir = tempfile::tempdir().unwrap();
        let failure = offline(Ui::new(Format::Table), dir.path(), Against::default()).unwrap_err();
        assert!(failure.to_string().contains("holds no audit log"), "{failure}");
        assert!(offline(Ui::new(Format::Table), Path::new("/nonexistent"), Against::default()).is_err());
    }
}
