//! Sends bases to other daemons, and makes bases of what other daemons send.
//!
//! ```text
//!  tree ─► host worker, as the owner of the tree ─► socket ─► pieces ─► client
//!  client ─► pieces ─► socket ─► host worker, as the new owner ─► staging directory ─► digest compared ─► base
//! ```
//!
//! The daemon parses no byte of a stream. The host worker that receives one treats it as hostile, and computes the
//! digest of what it writes.

use audit::{Event, Kind};
use executor::layer;
use identity::{BaseId, Principal};
use operations::Reason;
use refusal::Refusal;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wire::v1;
use wire::v1::export_base_response::Part;

use crate::record::{Base, Source};
use crate::socket::{Pieces, Sender, pair, pass, send};
use crate::table::was_changed;
use crate::{Bases, make, needs_root, shown, too_many};

impl Bases {
    /// Sends the files of a base, framed by two records. The last message says that they are those of its digest.
    pub async fn export(
        &self,
        id: BaseId,
        principal: &Principal,
        sender: &Sender,
        stop: &CancellationToken,
    ) -> Result<(), Refusal> {
        self.audit.check()?;
        self.table.of(id, principal)?;
        let _turn = self.turns.wait(&principal.name).await.ok_or_else(too_many)?;
        // It may have been deleted meanwhile.
        let base = self.table.of(id, principal)?;
        if base.changed {
            return Err(was_changed(id));
        }
        let record = |phase: &str, why: Option<&Refusal>| {
            let mut details = json!({
                "base": id, "phase": phase, "digest": base.digest, "bytes": base.bytes, "owner": base.principal,
            });
            if let Some(why) = why {
                details["reason"] = why.reason.as_str().into();
                details["why"] = why.message.as_str().into();
            }
            self.audit.record(Event::new(Kind::BaseExported).principal(&principal.name).details(details))
        };
        record("begun", None).await?;
        let sent = self.send_tree(&base, sender, stop).await;
        record(if sent.is_ok() { "done" } else { "failed" }, sent.as_ref().err()).await?;
        sent?;
        send(sender, Part::VerifiedDigest(base.digest.clone())).await
    }

    async fn send_tree(&self, base: &Base, sender: &Sender, stop: &CancellationToken) -> Result<(), Refusal> {
        let tree = make::opened(&self.runs.launcher, base.id)?;
        send(sender, Part::Base(shown(base, &self.runs.users_of_bases()))).await?;
        let (ours, theirs) = pair()?;
        let sending = layer::export(&tree, theirs, make::ALL);
        // The process ends when the other end of its socket is closed. The turn lasts until then.
        let (found, passed) = tokio::join!(sending, pass(ours, sender, stop));
        passed?;
        if found?.digest == base.digest {
            return Ok(());
        }
        let message = "the files of the base are not those of its digest: verify it (`coffer base verify`)";
        Err(Refusal::new(Reason::PreconditionFailed, message))
    }

    /// Makes a base of the files that another daemon has exported, or finds one that has them.
    pub async fn import(
        &self,
        header: v1::ImportBaseHeader,
        pieces: Pieces,
        principal: &Principal,
    ) -> Result<v1::ImportBaseResponse, Refusal> {
        self.audit.check()?;
        let wanted = digest(header.digest)?;
        let origin = BaseId::parse(&header.origin)
            .map_err(|_| Refusal::invalid("origin", "is not the id of a base at its exporter"))?;
        needs_root()?;
        if let Some(base) = self.table.of_digest(principal, &wanted) {
            return Ok(self.present(&base));
        }
        let _turn = self.turns.wait(&principal.name).await.ok_or_else(too_many)?;
        // The same base may have come twice at the same time, and the other one had its turn first.
        if let Some(base) = self.table.of_digest(principal, &wanted) {
            return Ok(self.present(&base));
        }
        let (most, id) = (self.most()?, BaseId::new());
        let _busy = self.busy(id);
        let sent = (pieces, wanted.as_str(), self.quotas.disk());
        let tree = make::received(&self.runs, id, sent, principal, most).await?;
        let kept = self.keep_tree(id, (Source::Copy { origin }, None, None), tree, principal).await;
        if kept.is_err() {
            runs::remove_tree(self.runs.launcher.directories.base(id)).await;
        }
        Ok(v1::ImportBaseResponse { base: Some(kept?.to_wire(&[])), reused: false })
    }

    fn present(&self, base: &Base) -> v1::ImportBaseResponse {
        let base = Some(shown(base, &self.runs.users_of_bases()));
        v1::ImportBaseResponse { base, reused: true }
    }
}

fn digest(text: String) -> Result<String, Refusal> {
    if text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return Ok(text);
    }
    Err(Refusal::invalid("digest", "is not SHA-256 in lower-case hexadecimal digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_form() {
        let good = "0a".repeat(32);
        assert_eq!(digest(good.clone()).unwrap(), good);
        for bad in ["", "sha256:", &good.to_uppercase(), &good[1..], &format!("{good}0"), &"g".repeat(64)] {
            assert!(digest(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
