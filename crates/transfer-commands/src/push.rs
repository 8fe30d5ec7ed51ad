//! Pushes to one daemon after the other.

use cofferdam_client::Client;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use presentation::output::Output;
use presentation::ui::Ui;
use serde::Serialize;

use crate::nodes::{Daemon, Target};

/// Something that is copied between daemons.
pub(crate) trait Parcel {
    /// Answer of a daemon that is asked for such things.
    type Has;

    /// Returns its name for people.
    fn name(&self) -> String;

    /// Returns the id under which a daemon has it. Fails if it cannot be pushed there.
    fn present(&self, has: &Self::Has) -> Result<Option<String>, Failure>;

    /// Copies it, reports the progress in bytes to `at`, and returns its id at the target.
    async fn copy(&self, from: &Client, to: &Client, at: impl Fn(u64)) -> Result<Arrived, Failure>;

    /// Returns its size, bytes.
    fn size(&self) -> u64;
}

/// The end of a copy.
pub(crate) struct Arrived {
    pub(crate) id: String,
    /// It was there already.
    pub(crate) present: bool,
}

/// Result for one target.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pushed {
    node: String,
    /// `pushed`, `present` or `failed`.
    result: &'static str,
    /// Its id at the target; empty after a failure.
    id: String,
    /// Reason of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// Pushes to all targets. Fails at the end if it failed for one of them.
pub(crate) async fn push<P: Parcel>(
    ui: Ui,
    parcel: &P,
    source: &Daemon<P::Has>,
    targets: Vec<Target<P::Has>>,
) -> Ended {
    let mut exit = Exit::Ok;
    if targets.is_empty() {
        ui.note("there is no other node to push to");
    }
    for (node, target) in targets {
        let done = async {
            let target = target?;
            if let Some(id) = parcel.present(&target.has)? {
                return Ok::<_, Failure>(Arrived { id, present: true });
            }
            ui.note(&format!("pushing {} from {} to {}", parcel.name(), source.name, target.name));
            let (bar, size) = (ui.bytes_bar(), parcel.size());
            parcel.copy(&source.client, &target.client, |done| bar.at(done, size.max(done))).await
        };
        let pushed = match done.await {
            Ok(Arrived { id, present }) => {
                Pushed { node, result: if present { "present" } else { "pushed" }, id, why: String::new() }
            }
            Err(failure) => {
                exit = Exit::Failed;
                ui.note(&format!("warning: {node}: {}", failure.on_one_line()));
                Pushed { node, result: "failed", id: String::new(), why: failure.to_string() }
            }
        };
        ui.answer_line(&pushed, render)?;
    }
    Ok(exit)
}

/// Returns the identity of the copy, if it is that of the source.
pub(crate) fn same(what: &str, copy: String, source: &str) -> Result<String, Failure> {
    if copy == source {
        return Ok(copy);
    }
    Err(Failure::failed(format!("the copy has the {what} {copy}, and the source has {source}")))
}

fn render(pushed: &Pushed, page: &mut Output) {
    page.word(&pushed.node).own(" ").own(pushed.result);
    if !pushed.id.is_empty() {
        page.own(" ").word(&pushed.id);
    }
    page.end_line();
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;

    use super::*;

    #[test]
    fn a_copy_has_the_identity_of_its_source() {
        assert_eq!(same("id", "sha256:ab".into(), "sha256:ab").unwrap(), "sha256:ab");
        for other in ["", "sha256:cd"] {
            let failure = same("id", other.into(), "sha256:ab").unwrap_err();
            assert!(failure.to_string().contains("sha256:ab"), "{failure}");
        }
    }

    #[test]
    fn a_target_is_a_line() {
        let mut page = Output::new(Look::PIPE);
        let pushed =
            |result, id: &str, why: &str| Pushed { node: "7".into(), result, id: id.into(), why: why.into() };
        let lines = [pushed("pushed", "sha256:ab", ""), pushed("failed", "", "no\u{1b}[31m space")];
        for line in &lines {
            render(line, &mut page);
        }
        assert_eq!(page.as_str(), "7 pushed sha256:ab\n7 failed\n");
        let json = serde_json::to_value(&lines).unwrap();
        assert_eq!(json[0], serde_json::json!({ "node": "7", "result": "pushed", "id": "sha256:ab" }));
        assert!(json[1]["why"].as_str().unwrap().contains("space"));
    }
}
