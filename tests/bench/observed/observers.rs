//! Observers of a daemon: a receiver of traces, a scraper of metrics, and the pages of browsers.
//!
//! They are on other hosts in real life. Here they have a thread with the least priority, so that they take as little as they can from
//! the daemon and from the client whose calls are measured.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use harness::{Daemon, until};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use super::browsers::{self, Browser};
use crate::table::Row;

/// Time between two scrapes. Prometheus scrapes every 15 s, or every minute.
const SCRAPES: Duration = Duration::from_secs(1);
/// People with an open page.
const WATCHERS: usize = 20;
/// Pages that they have open, in turns.
const PAGES: [&str; 2] = ["/approvals", "/audit"];

/// The thread of all observers.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let nice = || {
        rustix::process::nice(19).unwrap();
    };
    Builder::new_multi_thread().worker_threads(1).on_thread_start(nice).enable_all().build().unwrap()
});

/// Counts of what was observed.
#[derive(Debug, Default)]
pub(super) struct Noted {
    spans: AtomicUsize,
    scrapes: AtomicUsize,
    /// Streams of events that have begun.
    pub(super) streams: AtomicUsize,
    /// Pages that were asked for again, because their stream said so.
    pub(super) refreshes: AtomicUsize,
}

/// The observers of one daemon after another.
#[derive(Default)]
pub(super) struct Observers {
    noted: Arc<Noted>,
    tasks: JoinSet<()>,
}

impl Observers {
    /// Starts the receiver of traces. Returns the configuration of a daemon that is observed.
    pub(super) async fn config(&mut self) -> String {
        let receiver = Receiver(self.noted.clone());
        let bound = RUNTIME.spawn(TcpListener::bind("127.0.0.1:0"));
        let listener = bound.await.unwrap().unwrap();
        let address = listener.local_addr().unwrap();
        let served = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(receiver))
            .serve_with_incoming(TcpIncoming::from(listener));
        self.tasks.spawn_on(async { served.await.unwrap() }, RUNTIME.handle());
        format!(
            "metrics: {{ listen: \"127.0.0.1:0\" }}\nconsole: {{ listen: \"127.0.0.1:0\" }}\n\
             traces: {{ endpoint: \"http://{address}\", sample: 0.1 }}\n"
        )
    }

    /// Begins to scrape the daemon and opens the pages. Returns when all of them have their stream of events.
    pub(super) async fn watch(&mut self, daemon: &Daemon) {
        let metrics = daemon.told("metrics are at /metrics address=");
        let before = self.noted.streams.load(Ordering::Relaxed);
        self.tasks.spawn_on(scrape(metrics, self.noted.clone()), RUNTIME.handle());
        for number in 0..WATCHERS {
            let browser = Browser::signed_in(daemon, &format!("watcher-{number}")).await;
            let watcher = browser.watch(PAGES[number % PAGES.len()], self.noted.clone());
            self.tasks.spawn_on(watcher, RUNTIME.handle());
        }
        let have_begun = async || self.noted.streams.load(Ordering::Relaxed) == before + WATCHERS;
        until("the pages have no streams of events", have_begun).await;
    }

    /// Ends the observers of one daemon. What they have counted is kept.
    pub(super) async fn leave(&mut self) {
        if let Some(ended) = self.tasks.try_join_next() {
            panic!("an observer has ended: {ended:?}");
        }
        self.tasks.shutdown().await;
    }

    /// Returns rows with the counts of what was observed, none of which may be 0.
    pub(super) fn counts(&self) -> Vec<Row> {
        let Noted { spans, scrapes, streams, refreshes } = &*self.noted;
        let counts = [
            ("spans received", spans),
            ("scrapes of metrics", scrapes),
            ("open pages", streams),
            ("pages asked for again", refreshes),
        ];
        let row = |(what, count): (&str, &AtomicUsize)| {
            let count = count.load(Ordering::Relaxed);
            assert!(count > 0, "{what}: none, so nothing was measured");
            Row { what: what.to_owned(), ours: count.to_string(), ..Row::default() }
        };
        counts.into_iter().map(row).collect()
    }
}

/// Counts spans, and drops them.
struct Receiver(Arc<Noted>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|of| of.scope_spans);
        self.0.spans.fetch_add(scopes.map(|scope| scope.spans.len()).sum(), Ordering::Relaxed);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn scrape(address: String, noted: Arc<Noted>) {
    let mut every = tokio::time::interval(SCRAPES);
    loop {
        every.tick().await;
        let text = browsers::ask(&address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n", "").await;
        assert!(text.ends_with("# EOF\n"), "{text}");
        noted.scrapes.fetch_add(1, Ordering::Relaxed);
    }
}
