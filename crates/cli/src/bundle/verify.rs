//! `coffer bundle verify`: verification offline, from the file alone.

use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroU16;
use std::path::PathBuf;

use ::audit::VerifierKey;
use ::audit::bundle::{self, BundleError, Verified};
use clap::Args;
use serde::Serialize;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};
use crate::quantity::count;

/// Prove that a bundle matches the log; exits with 1 and names the change if it does not.
///
/// Needs no daemon. Give the log's key with --key. Without it, the bundle is checked against the key that it
/// carries, which proves that it is complete but not who made it.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer bundle verify run.bundle --key \"$(cat audit.vkey)\"")]
pub(crate) struct Verify {
    /// The bundle to verify.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The key that must have signed it, as NAME+ID+BASE64.
    #[arg(long, value_name = "VKEY")]
    key: Option<String>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    intact: bool,
    run_id: String,
    /// Node of a fleet that made the bundle, if its daemon was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NonZeroU16>,
    /// Identity of the daemon's state directory.
    instance: String,
    records: usize,
    /// True if no record before the first one is missing.
    from_beginning: bool,
    members: Vec<String>,
    /// Policies of recorded decisions that are not in the bundle.
    missing_policies: Vec<String>,
    log_size: u64,
    key: String,
    /// True if the user gave the key. Otherwise it comes from the bundle.
    key_was_given: bool,
    damage: String,
}

impl Verify {
    #[allow(clippy::unused_async)] // like every other verb
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let key: Option<VerifierKey> = match &self.key {
            Some(key) => Some(key.trim().parse().map_err(|error| Failure::usage(format!("--key: {error}")))?),
            None => None,
        };
        let path = self.file.display();
        let file = File::open(&self.file)
            .map_err(|error| Failure::failed(format!("cannot open {path}: {error}")))?;
        let verdict = verdict(bundle::verify(BufReader::new(file), key.as_ref()), key.is_some());
        let exit = if verdict.intact { Exit::Ok } else { Exit::Failed };
        let vouched = !verdict.intact || verdict.key_was_given;
        context.ui.answer(verdict, |verdict, page| render(&verdict, page))?;
        if !vouched {
            context
                .ui
                .note("checked against the key that the bundle carries: use --key to prove who made it");
        }
        Ok(exit)
    }
}

fn verdict(verified: Result<Verified, BundleError>, key_was_given: bool) -> Verdict {
    match verified {
        Ok(Verified {
            run_id,
            node,
            instance,
            records,
            from_beginning,
            members,
            missing_policies,
            checkpoint,
            key,
        }) => Verdict {
            intact: true,
            run_id,
            node,
            instance,
            records,
            from_beginning,
            members,
            missing_policies,
            log_size: checkpoint.size,
            key,
            key_was_given,
            damage: String::new(),
        },
        Err(error) => Verdict { key_was_given, damage: error.to_string(), ..Verdict::default() },
    }
}

fn render(verdict: &Verdict, page: &mut Output) {
    if !verdict.intact {
        page.styled(Style::Red, "BROKEN").own(": ").word(&verdict.damage).own("\n");
        return;
    }
    page.styled(Style::Green, "intact").own(": run ").word(&verdict.run_id).own(", ");
    page.word(&count(verdict.records as u64, "record", "records")).own(" of a log of ");
    page.word(&verdict.log_size.to_string()).own("\n");
    if let Some(node) = verdict.node {
        page.own("from: node ").word(&node.to_string()).own(", instance ").word(&verdict.instance).own("\n");
    } else if !verdict.instance.is_empty() {
        page.own("from: instance ").word(&verdict.instance).own("\n");
    }
    page.own("members: ").word(&verdict.members.join(" ")).own("\n");
    if !verdict.from_beginning {
        page.own("the run's first records are missing\n");
    }
    if !verdict.missing_policies.is_empty() {
        page.own("not in it: the policies ").word(&verdict.missing_policies.join(" ")).own("\n");
    }
    page.own("key: ").word(&verdict.key).own("\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Look;

    #[test]
    fn broken_member_is_named() {
        let mut page = Output::new(Look::PIPE);
        render(&verdict(bundle::verify(&b""[..], None), false), &mut page);
        assert_eq!(page.as_str(), "BROKEN: manifest.json is missing\n");
        let mut page = Output::new(Look::PIPE);
        render(&verdict(Err(BundleError::Changed("run.json".into())), true), &mut page);
        assert_eq!(page.as_str(), "BROKEN: run.json was changed: it does not match the manifest\n");
    }

    #[test]
    fn a_verdict_names_the_node_and_the_daemon() {
        let mut page = Output::new(Look::PIPE);
        let node = NonZeroU16::new(7);
        let of_node = Verdict {
            intact: true,
            from_beginning: true,
            node,
            instance: "0a1b".into(),
            ..Verdict::default()
        };
        render(&of_node, &mut page);
        assert!(page.as_str().contains("\nfrom: node 7, instance 0a1b\n"), "{}", page.as_str());
    }
}
