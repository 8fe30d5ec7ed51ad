//! Sends `notifications/message`: messages for a client's person, at the requested level.
//!
//! Before MCP 2026-07-28 a client sets the level for its session by `logging/setLevel`. Since then a request names a level, or gets
//! no messages (SEP-2577).

use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::RoleServer;
use rmcp::model::{LoggingMessageNotificationParam, ProtocolVersion};
use rmcp::service::{Peer, RequestContext};

pub(crate) use rmcp::model::{LoggingLevel as Level, SetLevelRequestParams};

/// Name of the logger in these messages.
const LOGGER: &str = "cofferdam";

/// The lowest level that a session wants.
#[derive(Debug)]
pub(crate) struct Wanted(AtomicU8);

impl Default for Wanted {
    fn default() -> Self {
        Self(AtomicU8::new(rank(Level::Info)))
    }
}

impl Wanted {
    pub(crate) fn set(&self, level: Level) {
        self.0.store(rank(level), Ordering::Relaxed);
    }

    /// Sends a message about a request.
    pub(crate) async fn say(&self, context: &RequestContext<RoleServer>, level: Level, message: &str) {
        let version = context.protocol_version();
        let is_modern =
            version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        let least =
            if is_modern { context.meta.log_level().map(rank) } else { Some(self.0.load(Ordering::Relaxed)) };
        if least.is_some_and(|least| rank(level) >= least) {
            send(&context.peer, level, message).await;
        }
    }

    /// Sends a message about a session.
    pub(crate) async fn announce(&self, peer: &Peer<RoleServer>, level: Level, message: &str) {
        if rank(level) >= self.0.load(Ordering::Relaxed) {
            send(peer, level, message).await;
        }
    }
}

async fn send(peer: &Peer<RoleServer>, level: Level, message: &str) {
    let message = LoggingMessageNotificationParam::new(level, message.into()).with_logger(LOGGER);
    // A client that is gone needs no message.
    let _ = peer.notify_logging_message(message).await;
}

/// Returns the rank of an RFC 5424 severity; the lowest is the least severe.
fn rank(level: Level) -> u8 {
    level as u8
}

#[cfg(test)]
mod tests {
    use super::{Level, rank};

    #[test]
    fn levels_rise_as_in_rfc_5424() {
        use Level::{Alert, Critical, Debug, Emergency, Error, Info, Notice, Warning};
        let levels = [Debug, Info, Notice, Warning, Error, Critical, Alert, Emergency];
        assert!(levels.windows(2).all(|pair| rank(pair[0]) < rank(pair[1])));
    }
}
