//! Messages on their way to the process. They may hold secrets, which are wiped once they are written or dropped.

use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use wire::worker::v1::request_answer::Decision;
use wire::worker::v1::to_egress::Body;
use wire::worker::v1::{RequestGrant, ToEgress};
use worker_protocol::frame::encode;
use zeroize::{Zeroize as _, Zeroizing};

use crate::broken::Broken;

/// A message that waits to be written.
pub(crate) struct Outgoing(pub(crate) ToEgress);

impl Drop for Outgoing {
    fn drop(&mut self) {
        let Some(Body::Answer(answer)) = &mut self.0.body else { return };
        let Some(Decision::Grant(grant)) = &mut answer.decision else { return };
        wipe(grant);
    }
}

/// Overwrites the values of a grant.
fn wipe(grant: &mut RequestGrant) {
    for header in &mut grant.headers {
        header.value.zeroize();
    }
    for text in &mut grant.hide {
        text.zeroize();
    }
}

/// A grant that is wiped if it is not sent.
#[derive(Default)]
pub(crate) struct Grant(pub(crate) RequestGrant);

impl Grant {
    /// Returns the grant for a message.
    pub(crate) fn take(mut self) -> RequestGrant {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Writes messages until the process is lost.
pub(crate) async fn write(mut output: OwnedWriteHalf, mut messages: mpsc::Receiver<Outgoing>) -> Broken {
    while let Some(message) = messages.recv().await {
        let Ok(frame) = encode(&message.0).map(Zeroizing::new) else { continue };
        drop(message);
        if let Err(error) = output.write_all(&frame).await {
            return Broken::new(error.to_string());
        }
    }
    Broken::new("the channel was closed")
}
