//! Sends a command's output as `notifications/progress`, to clients that asked for it with a `progressToken`.
//!
//! Commands write faster than clients can follow. So output is collected and sent at most every [`PACE`]. If there is too much,
//! only its end is sent, since the result has the rest. The value is the number of bytes so far, and one more for every other
//! message, so that it always grows, as MCP demands.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use text::cut_beginning;
use tokio::time::Instant;

use crate::elicit::plain;

/// Time between two notifications of one call.
pub(crate) const PACE: Duration = Duration::from_millis(100);
/// Most bytes of output in one notification.
const MOST: usize = 4 * 1024;

/// Notifies a client of one call's progress.
pub(crate) struct Progress {
    told: Option<(Peer<RoleServer>, ProgressToken)>,
    collected: Collected,
    next: Instant,
}

impl Progress {
    /// Returns the progress of a request. Without a token it sends nothing.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self {
            told: token.map(|token| (context.peer.clone(), token)),
            collected: Collected::default(),
            next: Instant::now(),
        }
    }

    /// Takes a piece of one of a command's two streams.
    pub(crate) fn take(&mut self, stream: usize, bytes: &[u8]) {
        if self.told.is_some() {
            self.collected.take(stream, bytes);
        }
    }

    /// Returns when to call [`Self::tell`]; `None` if there is no output to send.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.collected.has_any().then_some(self.next)
    }

    pub(crate) async fn tell(&mut self) {
        for message in self.collected.messages() {
            self.send(message).await;
        }
        self.next = Instant::now() + PACE;
    }

    pub(crate) async fn note(&mut self, message: &str) {
        self.collected.value += 1.0;
        self.send(message.to_owned()).await;
    }

    async fn send(&self, message: String) {
        let Some((peer, token)) = &self.told else { return };
        let progress =
            ProgressNotificationParam::new(token.clone(), self.collected.value).with_message(message);
        // A client that is gone ends the call by itself.
        let _ = peer.notify_progress(progress).await;
    }
}

/// Output that is not sent yet.
#[derive(Debug, Default)]
struct Collected {
    value: f64,
    streams: [Vec<u8>; 2],
}

impl Collected {
    fn take(&mut self, stream: usize, bytes: &[u8]) {
        // Exact up to 2^53.
        #[allow(clippy::cast_precision_loss)]
        let count = bytes.len() as f64;
        self.value += count;
        let Some(kept) = self.streams.get_mut(stream) else { return };
        let skipped = bytes.len().saturating_sub(MOST);
        kept.extend_from_slice(&bytes[skipped..]);
        let mut over = kept.len().saturating_sub(MOST);
        if over + skipped > 0 {
            over += cut_beginning(&kept[over..]);
        }
        kept.drain(..over);
    }

    fn has_any(&self) -> bool {
        self.streams.iter().any(|kept| whole(kept) > 0)
    }

    /// Takes the output as text. A character whose end is still to come stays.
    fn messages(&mut self) -> Vec<String> {
        let taken = self.streams.iter_mut().map(|kept| {
            let rest = kept.split_off(whole(kept));
            std::mem::replace(kept, rest)
        });
        taken.filter(|bytes| !bytes.is_empty()).map(|bytes| plain(&String::from_utf8_lossy(&bytes))).collect()
    }
}

/// Returns the number of bytes without a truncated last character; all bytes if they are not UTF-8.
fn whole(bytes: &[u8]) -> usize {
    match std::str::from_utf8(&bytes[bytes.len().saturating_sub(3)..]) {
        Ok(_) => bytes.len(),
        Err(_) => match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Collected, MOST};

    #[test]
    fn a_flood_is_reported_by_its_end_and_its_size() {
        let mut collected = Collected::default();
        collected.take(0, &vec![b'a'; 3 * MOST]);
        collected.take(0, b"end");
        collected.take(1, b"\xff\x1b[2J");
        let messages = collected.messages();
        assert_eq!(messages.len(), 2);
        assert!(messages[0].len() == MOST && messages[0].ends_with("aend"));
        assert_eq!(messages[1], "\u{fffd}\u{fffd}[2J");
        assert!((collected.value - (3.0 * 4096.0 + 8.0)).abs() < f64::EPSILON);
        assert!(!collected.has_any() && collected.messages().is_empty());
    }

    #[test]
    fn a_flood_is_cut_between_characters() {
        for lead in 0..3 {
            let mut collected = Collected::default();
            let flood = "x".repeat(lead) + &"€".repeat(3 * MOST);
            flood.as_bytes().chunks(1_000).for_each(|piece| collected.take(0, piece));
            collected.take(1, flood.as_bytes());
            let messages = collected.messages();
            assert!(
                messages.iter().all(|text| text.len() > MOST - 3 && text.chars().all(|c| c == '€')),
                "{lead}"
            );
        }
    }

    proptest! {
        #[test]
        fn text_is_whole_however_it_is_split(text in "[a-zäöü€😀\n]{0,200}", cut in 1_usize..7) {
            let mut collected = Collected::default();
            let mut told = String::new();
            for bytes in text.as_bytes().chunks(cut) {
                collected.take(1, bytes);
                told.extend(collected.messages());
            }
            prop_assert_eq!(told, text);
        }

        #[test]
        fn bytes_that_are_not_text_are_not_kept(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut collected = Collected::default();
            collected.take(0, &bytes);
            collected.messages();
            // At most a character that may still be completed.
            prop_assert!(collected.streams[0].len() <= 3);
        }
    }
}
