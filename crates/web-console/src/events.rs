//! Tells an open page when something that it shows has changed (server-sent events). An event carries no content: the page asks
//! for its parts again, and gets them as any other page.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State as Extracted;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use timestamp::UnixMillis;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::CONTENT_TYPE;
use wire::v1::WatchApprovalsRequest;

use crate::State;
use crate::error::Problem;
use crate::session::StreamSlot;
use crate::viewer::Viewer;

/// Time in which several changes are one event.
const GATHER: Duration = Duration::from_millis(300);
/// Most additional time on a page that each call changes.
const SPREAD: Duration = Duration::from_secs(1);
/// Least time between two events of such a page.
const CALM: Duration = Duration::from_secs(3);
/// Time between two signs of life. A browser that has left is noticed by them.
const ALIVE: Duration = Duration::from_secs(15);
/// Longest life of a stream. The browser then connects again.
const LIFE: Duration = Duration::from_secs(60 * 60);
/// First line: the browser waits two seconds before it connects again.
const HELLO: &str = "retry: 2000\nevent: hello\ndata:\n\n";

/// Changes of one kind. Its end ends the stream of events.
pub(crate) type Changes = Pin<Box<dyn Stream<Item = ()> + Send>>;

pub(crate) fn routes() -> Router<State> {
    Router::new().route("/events/approvals", get(approvals))
}

async fn approvals(Extracted(state): Extracted<State>, viewer: Viewer) -> Result<Response, Problem> {
    let request = WatchApprovalsRequest::default();
    let watched = viewer.services.approvals().watch_approvals(request).await?.into_inner();
    let changes = watched.take_while(|change| std::future::ready(change.is_ok())).map(drop);
    answer(&state, &viewer, Box::pin(changes))
}

/// Time that events of a page wait for.
#[derive(Clone, Copy)]
struct Pace {
    /// Time in which several changes are one event.
    gather: Duration,
    /// Least time between two events.
    every: Duration,
}

/// Returns a stream of one event for the changes of each moment, until the session or the daemon ends.
pub(crate) fn answer(state: &State, viewer: &Viewer, changes: Changes) -> Result<Response, Problem> {
    paced(state, viewer, changes, Pace { gather: GATHER, every: Duration::ZERO })
}

/// The same for a page that each call changes. Pages that are open at the same time are asked for again at different moments, and less
/// often, because they take processor time from calls.
pub(crate) fn calm(state: &State, viewer: &Viewer, changes: Changes) -> Result<Response, Problem> {
    let [random, ..] = seal::secret();
    let gather = GATHER + SPREAD.mul_f32(f32::from(random) / f32::from(u8::MAX));
    paced(state, viewer, changes, Pace { gather, every: CALM })
}

fn paced(state: &State, viewer: &Viewer, changes: Changes, pace: Pace) -> Result<Response, Problem> {
    let slot = viewer.session.stream().ok_or(Problem::Bad(
        StatusCode::TOO_MANY_REQUESTS,
        "This session has too many open pages: close one.",
    ))?;
    let events = Events {
        changes,
        pace,
        gathering: None,
        quiet_until: Instant::now(),
        alive: Instant::now() + ALIVE,
        ends: Box::pin(sleep(LIFE)),
        session_ended: Box::pin(viewer.session.ended.clone().cancelled_owned()),
        stopped: Box::pin(state.0.stop.clone().cancelled_owned()),
        is_alive: {
            let (state, session) = (state.clone(), viewer.session.clone());
            Box::new(move || state.0.doors.sessions.holds(&session, UnixMillis::now()))
        },
        _slot: slot,
    };
    let hello = stream::iter([Ok(Bytes::from_static(HELLO.as_bytes()))]);
    let body = Body::from_stream(hello.chain(stream::unfold(events, Events::next)));
    Ok(([(CONTENT_TYPE, "text/event-stream")], body).into_response())
}

type End = Pin<Box<WaitForCancellationFutureOwned>>;

struct Events {
    changes: Changes,
    pace: Pace,
    /// Moment at which the changes so far become an event.
    gathering: Option<Instant>,
    /// Moment before which no event comes.
    quiet_until: Instant,
    /// Moment of the next sign of life.
    alive: Instant,
    ends: Pin<Box<Sleep>>,
    session_ended: End,
    stopped: End,
    /// Returns true while the session has not ended.
    is_alive: Box<dyn Fn() -> bool + Send + Sync>,
    _slot: StreamSlot,
}

impl Events {
    /// Waits for the next event. Returns none at the end.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            let gathering = self.gathering;
            let gathered = async move {
                match gathering {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = &mut self.ends => return None,
                () = &mut self.session_ended => return None,
                () = &mut self.stopped => return None,
                () = gathered => {
                    self.gathering = None;
                    self.quiet_until = Instant::now() + self.pace.every;
                    return Some((Ok(Bytes::from_static(b"event: change\ndata:\n\n")), self));
                }
                () = sleep_until(self.alive) => {
                    if !(self.is_alive)() {
                        return None;
                    }
                    self.alive = Instant::now() + ALIVE;
                    return Some((Ok(Bytes::from_static(b": alive\n\n")), self));
                }
                change = self.changes.next() => {
                    change?;
                    let (gathered, quiet_until) = (Instant::now() + self.pace.gather, self.quiet_until);
                    self.gathering.get_or_insert(gathered.max(quiet_until));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Identity;
    use crate::session::Sessions;

    /// Moments of the first events of a page that changes ten times a second.
    async fn moments(pace: Pace) -> Vec<Duration> {
        let user = Identity::User { uid: 1, gid: 1 };
        let (_, session) = Sessions::default().open(user, "uid:1".to_owned(), UnixMillis::now());
        let changes = stream::unfold((), |()| async {
            sleep(Duration::from_millis(100)).await;
            Some(((), ()))
        });
        let end = || Box::pin(session.ended.clone().cancelled_owned());
        let began = Instant::now();
        let mut events = Events {
            changes: Box::pin(changes),
            pace,
            gathering: None,
            quiet_until: began,
            alive: began + ALIVE,
            ends: Box::pin(sleep(LIFE)),
            session_ended: end(),
            stopped: end(),
            is_alive: Box::new(|| true),
            _slot: session.stream().unwrap(),
        };
        let mut moments = Vec::new();
        for _ in 0..3 {
            let (event, rest) = events.next().await.unwrap();
            assert_eq!(event.unwrap(), "event: change\ndata:\n\n");
            moments.push(began.elapsed());
            events = rest;
        }
        moments
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_a_busy_page_keep_their_distance_after_a_first_one_that_is_prompt() {
        for every in [Duration::ZERO, CALM] {
            let moments = moments(Pace { gather: GATHER, every }).await;
            assert!(moments[0] < Duration::from_millis(500), "{moments:?}");
            for pair in moments.windows(2) {
                let distance = pair[1].saturating_sub(pair[0]);
                let most = every + Duration::from_millis(500);
                assert!(distance >= every.max(GATHER) && distance < most, "{moments:?}");
            }
        }
    }
}
