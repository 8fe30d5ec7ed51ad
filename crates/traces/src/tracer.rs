//! The handle of all that makes spans: begins traces, and hands spans to the exporter without a wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use uuid::Uuid;

use crate::context::{CallTrace, Context, last_bytes, span_id};
use crate::span::Span;

/// Bits of a trace's id that are compared with the share: its last seven bytes are random.
const WHOLE: u64 = 1 << 56;

/// The share of traces without a parent that are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share(u64);

impl Share {
    /// Parses a decimal number from 0 to 1.
    pub fn parse(text: &str) -> Option<Self> {
        let share: f64 = text.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "from 0 to 2^56, which a f64 has exactly"
        )]
        Some(Self((share * WHOLE as f64) as u64))
    }

    fn takes(self, trace: [u8; 16]) -> bool {
        (u64::from_be_bytes(last_bytes(trace)) & (WHOLE - 1)) < self.0
    }
}

/// Numbers of spans that were sent and that were lost, since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) lost: AtomicU64,
}

impl Counts {
    /// Returns the number of spans that were sent, and of those that were lost.
    fn now(&self) -> [u64; 2] {
        [&self.sent, &self.lost].map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn lose(&self, spans: usize) {
        self.lost.fetch_add(spans as u64, Ordering::Relaxed);
    }
}

/// Begins traces and takes their spans. Clones share all. The default has no exporter.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Tracer>);

#[derive(Debug, Clone)]
struct Tracer {
    queue: mpsc::Sender<Vec<Span>>,
    counts: Arc<Counts>,
    share: Share,
}

impl Traces {
    pub(crate) fn new(queue: mpsc::Sender<Vec<Span>>, counts: Arc<Counts>, share: Share) -> Self {
        Self(Some(Tracer { queue, counts, share }))
    }

    /// Returns true if spans are exported.
    pub fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins the trace of a call as a child of `parent`, or as a root.
    ///
    /// Returns `None` without an exporter and a parent: such a call has no trace.
    pub fn begin(&self, parent: Option<Context>) -> Option<CallTrace> {
        let Some(tracer) = &self.0 else {
            return parent.map(|own| CallTrace { own, parent: None, has_span: false });
        };
        let own = if let Some(parent) = parent {
            Context { span: span_id(), ..parent }
        } else {
            let trace = Uuid::new_v4().into_bytes();
            // Random already, and the first span of its trace: other random bits would be one more system call.
            Context { trace, span: last_bytes(trace), sampled: tracer.share.takes(trace) }
        };
        Some(CallTrace { own, parent, has_span: true })
    }

    /// Returns true if the trace of a run, which has the run's id, is recorded.
    pub(crate) fn takes(&self, trace: [u8; 16]) -> bool {
        self.0.as_ref().is_some_and(|tracer| tracer.share.takes(trace))
    }

    /// Hands spans to the exporter. They are counted as lost if its queue is full.
    pub fn send(&self, spans: Vec<Span>) {
        if let Some(tracer) = self.0.as_ref().filter(|_| !spans.is_empty())
            && let Err(full) = tracer.queue.try_send(spans)
        {
            tracer.counts.lose(full.into_inner().len());
        }
    }

    /// Returns the numbers of spans that were sent and lost.
    pub fn counts(&self) -> [u64; 2] {
        self.0.as_ref().map(|tracer| tracer.counts.now()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(share: &str) -> (Traces, mpsc::Receiver<Vec<Span>>) {
        let (queue, spans) = mpsc::channel(1);
        (Traces::new(queue, Arc::default(), Share::parse(share).unwrap()), spans)
    }

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        assert_eq!(Share::parse("1"), Some(Share(WHOLE)));
        assert_eq!(Share::parse("0.5"), Some(Share(WHOLE / 2)));
        assert_eq!(Share::parse("0"), Some(Share(0)));
        for text in ["", "2", "-0.1", "NaN", "inf", "1%", "x"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
    }

    #[test]
    fn roots_are_sampled_by_the_share_and_children_by_their_parent() {
        let sampled = |share| {
            let (traces, _spans) = traces(share);
            (0..4_000).filter(|_| traces.begin(None).unwrap().is_recorded()).count()
        };
        assert_eq!(sampled("0"), 0);
        assert_eq!(sampled("1"), 4_000);
        assert!((600..1_400).contains(&sampled("0.25")), "{}", sampled("0.25"));
        for flags in ["00", "01"] {
            let parent =
                Context::parse(&format!("00-{}-{}-{flags}", "ab".repeat(16), "cd".repeat(8))).unwrap();
            let (traces, _spans) = traces("0");
            let call = traces.begin(Some(parent)).unwrap();
            assert_eq!(call.context().trace_id(), parent.trace_id());
            assert_ne!(call.context().span_id(), parent.span_id());
            assert_eq!(call.is_recorded(), flags == "01");
        }
    }

    #[test]
    fn without_an_exporter_a_context_is_passed_on_as_it_came() {
        let parent = Context::parse(&format!("00-{}-{}-01", "ab".repeat(16), "cd".repeat(8))).unwrap();
        let off = Traces::default();
        assert_eq!(off.begin(None), None);
        let call = off.begin(Some(parent)).unwrap();
        assert_eq!((*call.context(), call.is_recorded()), (parent, false));
    }

    #[test]
    fn spans_beyond_the_queue_are_counted_as_lost() {
        let (traces, mut spans) = traces("1");
        let span = || vec![Span::default(), Span::default()];
        traces.send(span());
        traces.send(span());
        traces.send(Vec::new());
        assert_eq!(traces.counts(), [0, 2]);
        assert_eq!(spans.try_recv().unwrap().len(), 2);
        assert!(spans.try_recv().is_err());
    }
}
