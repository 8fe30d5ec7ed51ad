//! Bounds the lines that each place of the source can write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Time for which the lines of a place are counted together.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// Lines of one place within [`WINDOW`].
const LINES: u32 = 50;

/// The places that have logged lately. Their number is that of the places in the source.
#[derive(Default)]
pub(crate) struct FloodLimit(Mutex<HashMap<Identifier, Place>>);

/// Counts of one place.
struct Place {
    began: Instant,
    lines: u32,
    left_out: u64,
    metadata: &'static Metadata<'static>,
}

impl FloodLimit {
    /// Returns the layer that stops events before they are formatted.
    pub(crate) fn layer(self: &Arc<Self>) -> FloodLayer {
        FloodLayer(Arc::clone(self))
    }

    /// Counts an event. Returns true if it may be written.
    fn admits(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        // The lines about what was left out: at most one for each place and window.
        if metadata.target() == module_path!() {
            return true;
        }
        let mut places = self.0.lock();
        let fresh = || Place { began: now, lines: 0, left_out: 0, metadata };
        let place = places.entry(metadata.callsite()).or_insert_with(fresh);
        // A place with lines that were left out begins anew after its report.
        if place.left_out == 0 && now.saturating_duration_since(place.began) >= WINDOW {
            *place = fresh();
        }
        if place.lines < LINES {
            place.lines += 1;
            return true;
        }
        place.left_out += 1;
        false
    }

    /// Logs the counts of the places whose window is over, and forgets them.
    pub(crate) fn report(&self, now: Instant) {
        let mut over = Vec::new();
        self.0.lock().retain(|_, place| {
            let is_over = now.saturating_duration_since(place.began) >= WINDOW;
            if is_over && place.left_out > 0 {
                over.push((place.left_out, place.metadata));
            }
            !is_over
        });
        // After the lock is free, because these events come back to this layer.
        for (left_out, metadata) in over {
            tracing::warn!(
                left_out,
                level = %metadata.level(),
                from = metadata.target(),
                line = metadata.line(),
                "lines like earlier ones of this place were left out"
            );
        }
    }
}

/// Layer over a [`FloodLimit`].
pub(crate) struct FloodLayer(Arc<FloodLimit>);

impl<S: Subscriber> Layer<S> for FloodLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        self.0.admits(event.metadata(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// What was written.
    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn lines(&self) -> Vec<String> {
            String::from_utf8(self.0.lock().clone()).unwrap().lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn a_hundred_thousand_events_of_one_place_are_a_bounded_number_of_lines_and_a_count() {
        let (flood, written) = (Arc::new(FloodLimit::default()), Written::default());
        let to = written.clone();
        let format = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || to.clone());
        let subscriber = tracing_subscriber::registry().with(flood.layer()).with(format);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..100_000 {
                tracing::warn!(number, "a bad request");
                if number % 1_000 == 0 {
                    tracing::info!(number, "another place");
                }
            }
            flood.report(Instant::now() + WINDOW);
            tracing::warn!("written again");
        });
        let lines = written.lines();
        let of = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!((of("a bad request"), of("another place")), (50, 50), "{}", lines.len());
        assert_eq!((of("left_out=99950"), of("left_out=50 "), of("written again")), (1, 1, 1));
        assert_eq!(lines.len(), 103);
    }

    #[test]
    fn a_place_writes_again_after_its_window() {
        let flood = FloodLimit::default();
        let metadata = {
            struct Found(Mutex<Option<&'static Metadata<'static>>>);
            impl<S: Subscriber> Layer<S> for &'static Found {
                fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                    *self.0.lock() = Some(event.metadata());
                }
            }
            static FOUND: Found = Found(Mutex::new(None));
            tracing::subscriber::with_default(tracing_subscriber::registry().with(&FOUND), || {
                tracing::error!("one");
            });
            FOUND.0.lock().unwrap()
        };
        let began = Instant::now();
        let admitted = |at: Instant| (0..200).filter(|_| flood.admits(metadata, at)).count();
        assert_eq!(admitted(began), 50);
        // Not before the count is reported.
        assert_eq!(admitted(began + WINDOW), 0);
        flood.report(began + WINDOW);
        assert!(flood.0.lock().is_empty());
        assert_eq!(admitted(began + WINDOW), 50);
    }
}
