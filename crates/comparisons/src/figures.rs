//! Figures of a run, from the index of the audit log.

use std::sync::Arc;
use std::time::Instant;

use audit::{Event, Kind, Status};
use audit_service::{Filter, Index, Query};
use identity::RunId;
use refusal::Refusal;
use wire::v1::EventFilter;

/// Kinds of records that are counted.
const KINDS: [Kind; 3] = [Kind::CallReceipt, Kind::ProcessEnded, Kind::ApprovalRequested];
/// Most records of a kind that are read, the newest first.
const MOST: usize = 20_000;
/// Records that are read together.
const PAGE: usize = 2_000;

/// Counts of what a run did so far.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    pub(crate) approvals: u64,
    pub(crate) cpu_us: u64,
}

impl Figures {
    /// Reads the records of a run, and stops early at `until`.
    pub(crate) async fn read(index: &Arc<Index>, run: RunId, until: Instant) -> Result<Self, Refusal> {
        let mut figures = Self::default();
        for kind in KINDS {
            let filter = EventFilter {
                run_id: run.to_string(),
                kinds: vec![kind.as_str().to_owned()],
                ..EventFilter::default()
            };
            let filter = Filter::from_wire(filter)?;
            let mut query = Query { filter, newest_first: true, size: PAGE, start: None };
            let mut read = 0;
            loop {
                let page = index.query(query.clone()).await?;
                read += page.lines.len();
                page.lines.iter().for_each(|line| figures.take(&line.record.event));
                match page.next {
                    Some(next) if read < MOST && Instant::now() < until => query.start = Some(next),
                    _ => break,
                }
            }
        }
        Ok(figures)
    }

    fn take(&mut self, event: &Event) {
        match event.kind {
            Kind::ApprovalRequested => self.approvals += 1,
            Kind::CallReceipt => {
                let status = event.outcome.as_ref().map(|outcome| outcome.status);
                // Another receipt follows.
                if status == Some(Status::PendingApproval) {
                    return;
                }
                self.calls += 1;
                self.refused += u64::from(status == Some(Status::Denied));
            }
            _ => {}
        }
        let spent = event.usage.and_then(|usage| usage.cpu_us).unwrap_or_default();
        self.cpu_us = self.cpu_us.saturating_add(spent);
    }
}

#[cfg(test)]
mod tests {
    use audit::{Outcome, Usage};

    use super::*;

    fn ended(kind: Kind, status: Status, cpu_us: Option<u64>) -> Event {
        Event::new(kind).outcome(Outcome::new(status)).usage(Usage { cpu_us, ..Usage::default() })
    }

    #[test]
    fn calls_count_once_and_their_time_with_that_of_processes() {
        let mut figures = Figures::default();
        for event in [
            ended(Kind::CallReceipt, Status::Succeeded, Some(5)),
            ended(Kind::CallReceipt, Status::PendingApproval, None),
            ended(Kind::CallReceipt, Status::Failed, None),
            ended(Kind::CallReceipt, Status::Denied, None),
            ended(Kind::ProcessEnded, Status::Succeeded, Some(7)),
            Event::new(Kind::ApprovalRequested),
            Event::new(Kind::CallIntent),
        ] {
            figures.take(&event);
        }
        assert_eq!(figures, Figures { calls: 3, refused: 1, approvals: 1, cpu_us: 12 });
        figures.take(&ended(Kind::CallReceipt, Status::Succeeded, Some(u64::MAX)));
        assert_eq!(figures.cpu_us, u64::MAX);
    }
}
