//! Streams a call's events: accepted, pending, output as it comes, result.
//!
//! Output is read from the spool at the client's pace. The call does not wait for a slow client, and at most one piece of each
//! stream is in memory. A client that joins a known call gets its output from the first byte.
//!
//! Output that the spool does not keep comes from the call itself while it runs. In that case the call waits for a client, as
//! long as the client goes on reading.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use identity::{CallId, Principal, RunId};
use refusal::{Refusal, chain};
use store::spool::{self, Live, Spool, Unkept};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;
use tonic::Status;
use wire::v1::call_output::Stream as OutputName;
use wire::v1::call_stream_response::Event;
use wire::v1::{self, CallRequest, CallResponse, CallStreamResponse, call_response};

use super::begin::{self, CallOptions, Lookup};
use super::{Client, Metadata};
use crate::Calls;
use crate::table::{Answer, Call, Found};

/// Most bytes of one piece of output.
const PIECE: usize = 64 * 1024;

const STREAMS: [(spool::Stream, OutputName); 2] =
    [(spool::Stream::Stdout, OutputName::Stdout), (spool::Stream::Stderr, OutputName::Stderr)];

/// The events of a call.
pub type Events = Pin<Box<dyn Stream<Item = Result<CallStreamResponse, Status>> + Send>>;

/// Makes a call, or finds it made already, and streams its events. A refusal ends the stream as its status.
pub async fn stream(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    metadata: Metadata,
) -> Result<Events, Refusal> {
    let options = CallOptions::of(&request);
    let taken = begin::begin(calls, principal, request, Client { metadata, ..Client::default() }).await?;
    let teller = Teller::new(calls.records.spool.clone(), taken, options);
    Ok(Box::pin(stream::unfold(teller, |mut teller| async move {
        let event = teller.next().await?;
        Some((event.map_err(Status::from), teller))
    })))
}

/// The source of a call's state.
enum News {
    /// The call itself, as long as it changes.
    Call { call: Arc<Call>, answers: watch::Receiver<Answer>, kept: watch::Receiver<[u64; 2]>, live: Live },
    /// The stored outcome of a call that has finished.
    Stored(Option<Box<Found>>),
}

struct Teller {
    spool: Arc<Spool>,
    run: RunId,
    call: CallId,
    options: CallOptions,
    news: News,
    /// Cancels the call when the client drops the stream.
    leaves: Option<DropGuard>,
    /// Bytes of each stream that the client has.
    told: [u64; 2],
    /// True if the spool has no further bytes of the stream.
    lost: [bool; 2],
    /// Output to send once the client has all of the spool before it.
    unkept: Option<Unkept>,
    told_pending: bool,
    ready: VecDeque<Result<CallStreamResponse, Refusal>>,
    over: bool,
}

impl Teller {
    fn new(spool: Arc<Spool>, taken: Lookup, options: CallOptions) -> Self {
        let (run, call, news, leaves) = match taken {
            Lookup::Stored(found) => (found.run, found.id, News::Stored(Some(found)), None),
            // Output is sent as it arrives, at the client's pace and not the call's. Dropping the handle detaches the task.
            Lookup::New(call, _) | Lookup::Call(call) => {
                let leaves = options.cancel_on_disconnect.then(|| call.cancel.clone().drop_guard());
                let (answers, (kept, live)) = (call.follow(), call.output.follow());
                (call.run, call.id, News::Call { call, answers, kept, live }, leaves)
            }
        };
        let accepted = Event::Accepted(v1::CallAccepted { call_id: call.to_string() });
        let ready = [Ok(event(accepted))].into();
        Self {
            spool,
            run,
            call,
            options,
            news,
            leaves,
            told: [0; 2],
            lost: [false; 2],
            unkept: None,
            told_pending: false,
            ready,
            over: false,
        }
    }

    async fn next(&mut self) -> Option<Result<CallStreamResponse, Refusal>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if let News::Call { live, .. } = &self.news {
                    live.has_taken();
                }
                return Some(event);
            }
            if self.over {
                return None;
            }
            self.proceed().await;
        }
    }

    /// Makes one step: returns once there is an event to send, or the stream is over.
    async fn proceed(&mut self) {
        // In this order: a call that has finished has all of its output.
        let (finished, pending) = self.state();
        let kept = self.kept();
        if let Some(approval_id) = pending.filter(|_| !self.told_pending) {
            self.told_pending = true;
            self.ready.push_back(Ok(event(Event::Pending(v1::CallPending { approval_id }))));
            if !self.options.wait_for_approval {
                self.end();
            }
            return;
        }
        if !self.read(kept).await && !self.show_unkept() {
            if finished { self.end() } else { self.wait().await }
        }
    }

    /// Returns true if the call has finished, and the approval that it waits for.
    fn state(&mut self) -> (bool, Option<String>) {
        let News::Call { answers, .. } = &mut self.news else { return (true, None) };
        let answer = answers.borrow_and_update();
        let pending = answer.response.status() == call_response::Status::PendingApproval;
        (answer.finished || answer.suspended, pending.then(|| answer.response.approval_id.clone()))
    }

    /// Returns the offset up to which the spool has output.
    fn kept(&mut self) -> [u64; 2] {
        match &mut self.news {
            News::Call { kept, .. } => *kept.borrow_and_update(),
            // The output files of a finished call are complete.
            News::Stored(_) => [u64::MAX; 2],
        }
    }

    /// Reads the next piece of each stream. Returns true if there was one.
    async fn read(&mut self, kept: [u64; 2]) -> bool {
        for (stream, name) in STREAMS {
            let (told, lost) = (&mut self.told[stream.index()], &mut self.lost[stream.index()]);
            if *told >= kept[stream.index()] || *lost {
                continue;
            }
            match self.spool.read(self.run, self.call, stream, *told, PIECE).await {
                // Removed to make space.
                Ok(piece) if piece.data.is_empty() => *lost = true,
                Ok(piece) => {
                    let output = v1::CallOutput { stream: name.into(), offset: *told, data: piece.data };
                    *told += output.data.len() as u64;
                    self.ready.push_back(Ok(event(Event::Output(output))));
                }
                // The call may still deliver output that is not kept.
                Err(error) if matches!(self.news, News::Call { .. }) => {
                    tracing::error!(call = %self.call, error = %chain(&error), "the stored output of a command cannot be read");
                    *lost = true;
                }
                Err(error) => {
                    self.ready.push_back(Err(Refusal::internal("reading the output", &chain(&error))));
                    self.over = true;
                    return true;
                }
            }
        }
        !self.ready.is_empty()
    }

    /// Sends the next piece that the spool does not keep. Returns true if there is one, even if kept output has to go first.
    fn show_unkept(&mut self) -> bool {
        let News::Call { kept, live, .. } = &mut self.news else { return false };
        let Some(Unkept { at, offset, data }) = self.unkept.take().or_else(|| live.try_next()) else {
            return false;
        };
        // The spool may have caught up to here only now.
        if self.told[at] < offset.min(kept.borrow()[at]) && !self.lost[at] {
            self.unkept = Some(Unkept { at, offset, data });
            return true;
        }
        let told = &mut self.told[at];
        let behind = usize::try_from(told.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        for part in data[behind..].chunks(PIECE) {
            *told = offset.max(*told);
            let output = v1::CallOutput { stream: STREAMS[at].1.into(), offset: *told, data: part.to_vec() };
            *told += part.len() as u64;
            self.ready.push_back(Ok(event(Event::Output(output))));
        }
        true
    }

    /// Waits until there is something new.
    async fn wait(&mut self) {
        if let News::Call { answers, kept, live, .. } = &mut self.news {
            // The senders live as long as the call, which is held here.
            tokio::select! {
                _ = answers.changed() => {}
                _ = kept.changed() => {}
                Some(piece) = live.next() => self.unkept = Some(piece),
            }
        }
    }

    /// Sends the answer as it is now. From here on, the client's disconnect no longer cancels the call.
    fn end(&mut self) {
        self.over = true;
        self.leaves.take().map(DropGuard::disarm);
        let result = match &mut self.news {
            News::Call { call, .. } => {
                let Answer { response, refusal, .. } = call.answer();
                refusal.map_or(Ok(response), Err)
            }
            News::Stored(found) => {
                self.options.stored(found.take().map(|found| found.response).unwrap_or_default())
            }
        };
        self.ready.push_back(result.map(|response: CallResponse| event(Event::Result(response))));
    }
}

fn event(event: Event) -> CallStreamResponse {
    CallStreamResponse { event: Some(event) }
}
