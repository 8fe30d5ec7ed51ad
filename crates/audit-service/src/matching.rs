//! Streams of the records that match a filter.
//!
//! A client that shows the end of the log only has to know that it has grown. It gets the newest record, and costs calls next to nothing:
//! it wakes up four times a second, whatever is written, and no other record is converted for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use refusal::Refusal;

use crate::filter::Filter;
use crate::follow::Follow;
use crate::tail::Line;

/// Time in which a client that wants only the newest record gets one.
const GATHER: Duration = Duration::from_millis(250);

/// Records that match. The stream ends with the log, or after an error.
pub type Matching = BoxStream<'static, Result<Arc<Line>, Refusal>>;

impl Follow {
    /// Returns all records that match, in their order.
    pub fn all_of(self, filter: Filter) -> Matching {
        let batches = stream::try_unfold(self, |mut follow| async move {
            let lines = follow.next().await?;
            Ok::<_, Refusal>(lines.map(|lines| (lines, follow)))
        });
        let matching = batches.map_ok(move |lines| {
            let is_wanted = |line: &Arc<Line>| filter.matches(&line.record, &line.text);
            let lines: Vec<_> = lines.into_iter().filter(is_wanted).map(Ok).collect();
            stream::iter(lines)
        });
        matching.try_flatten().boxed()
    }

    /// Returns the newest record that matches, each time that the end of the log is reached.
    pub fn newest_of(self, filter: Filter) -> Matching {
        let reading = (self.lingering(GATHER), filter);
        let newest = stream::try_unfold(reading, |(mut follow, filter)| async move {
            let mut newest = None;
            while let Some(lines) = follow.next().await? {
                let found = lines.into_iter().rfind(|line| filter.matches(&line.record, &line.text));
                newest = found.or(newest);
                if newest.is_some() && follow.is_at_head() {
                    break;
                }
            }
            Ok(newest.map(|newest| (newest, (follow, filter))))
        });
        newest.boxed()
    }
}
