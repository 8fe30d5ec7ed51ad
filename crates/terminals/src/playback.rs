//! Plays recordings for operators: `TerminalService.ReadRecording`.
//!
//! ```text
//!  checked ─► slot ─► opened ─► on record (durable) ─► size, output and signals, as the reader takes them
//! ```
//!
//! A recording has everything that was typed. A reader gets only what the terminal showed (`store::recording`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use identity::{Principal, RunId, SessionId};
use operations::Reason;
use refusal::{Refusal, chain};
use serde_json::json;
use store::recording::{Moment, Playback, Shown, Size};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tonic::Status;
use wire::v1::read_recording_response::Event as Played;
use wire::v1::{ReadRecordingRequest, ReadRecordingResponse, TerminalSize};

use crate::{Terminals, leftovers, stopping};

/// Recordings that are read at the same time.
const READERS: usize = 8;
/// Bytes of a recording that are read at once, at least.
const PART: usize = 64 * 1024;
/// Number of events that may wait for the reader's client.
const AHEAD: usize = 16;
/// Time in which a client has to take an event.
const UNREAD: Duration = Duration::from_secs(120);
/// Time in which a client has to take the last message when the daemon stops.
const LAST: Duration = Duration::from_secs(1);

type Response = Result<ReadRecordingResponse, Status>;

/// Slots of the recordings that are read.
#[derive(Debug)]
pub struct Readings(Arc<Semaphore>);

impl Default for Readings {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS)))
    }
}

impl Readings {
    fn enter(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            let message = format!("{READERS} recordings are being read, which is the limit; try again later");
            Refusal::new(Reason::Overloaded, message)
        })
    }
}

impl Terminals {
    /// Plays the recording of a session. The receiver gets its events.
    pub async fn play(
        self: &Arc<Self>,
        principal: &Principal,
        request: &ReadRecordingRequest,
    ) -> Result<mpsc::Receiver<Response>, Refusal> {
        self.audit.check()?;
        if self.stop.is_cancelled() {
            return Err(stopping());
        }
        let run = RunId::parse(&request.run_id)?;
        let session = SessionId::parse(&request.session_id)?;
        self.runs.check_use(run, principal)?;
        let slot = self.readings.enter()?;
        let path = leftovers::path(&self.runs.launcher.directories, &run.to_string(), session);
        let opened = tokio::task::spawn_blocking(move || Playback::open(&path)).await;
        let opened = opened.map_err(|error| Refusal::internal("opening the recording", &error))?;
        let playback = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Refusal::new(Reason::NotFound, "session_id: the run has no recording of this session")
                    .with("resource", "recording")
            }
            _ => Refusal::internal("opening the recording", &chain(&error)),
        })?;
        let event = Event::new(Kind::RecordingRead).run(run.to_string()).principal(&principal.name);
        self.audit.record(event.details(json!({ "session_id": session.to_string() }))).await?;
        let (events, played) = mpsc::channel(AHEAD);
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let late = stop.run_until_cancelled(send(playback, &events)).await;
            drop(slot);
            match late {
                Some(Ok(())) => {}
                Some(Err(Late)) => {
                    let message =
                        format!("the client has read nothing for {UNREAD:?}: read the recording again");
                    let refused = Refusal::new(Reason::Overloaded, message).into();
                    // Waits for the client, without a slot.
                    let _ = stop.run_until_cancelled(events.send(Err(refused))).await;
                }
                // Without it the client would take this for the end of the recording.
                None => {
                    let _ = timeout(LAST, events.send(Err(stopping().into()))).await;
                }
            }
        });
        Ok(played)
    }
}

/// The client takes no event.
struct Late;

/// Sends the events of a recording, until its end or until the client leaves.
async fn send(mut playback: Playback, to: &mpsc::Sender<Response>) -> Result<(), Late> {
    let mut moments = Ok(vec![Moment { at_us: 0, shown: Shown::Size(playback.size()) }]);
    loop {
        let events: Vec<Response> = match moments {
            Ok(moments) if moments.is_empty() => return Ok(()),
            Ok(moments) => moments.into_iter().map(|moment| Ok(played(moment))).collect(),
            Err(error) => vec![Err(Refusal::internal("reading the recording", &chain(&error)).into())],
        };
        for event in events {
            let is_last = event.is_err();
            match timeout(UNREAD, to.send(event)).await {
                Ok(Ok(())) if !is_last => {}
                Ok(_) => return Ok(()),
                Err(_) => return Err(Late),
            }
        }
        let next = tokio::task::spawn_blocking(move || {
            let moments = playback.next(PART);
            (playback, moments)
        });
        (playback, moments) = match next.await {
            Ok(next) => next,
            Err(error) => {
                let refused = Refusal::internal("reading the recording", &error).into();
                let _ = timeout(UNREAD, to.send(Err(refused))).await;
                return Ok(());
            }
        };
    }
}

fn played(Moment { at_us, shown }: Moment) -> ReadRecordingResponse {
    let event = match shown {
        Shown::Size(Size { rows, columns }) => {
            Played::Size(TerminalSize { rows: rows.into(), columns: columns.into() })
        }
        Shown::Output(text) => Played::Output(text),
        Shown::Signal(number) => Played::Signal(number),
    };
    ReadRecordingResponse { at_us, event: Some(event) }
}
