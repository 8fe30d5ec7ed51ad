//! A call as a stream of events: accepted, pending, output as it comes, result.
//!
//! Output is read from the spool at the pace of its reader, who may be as slow as it likes: the call waits for nobody,
//! and no more than one piece of each stream is in memory. A call that is known already is told from its first byte. What the spool
//! does not keep comes from the call itself while it runs, and there the call waits for a reader that goes on taking something.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{Stream, stream};
use identity::{CallId, Principal, RunId};
use refusal::{Refusal, chain};
use store::spool::{Live, Spool, Unkept, index};
use tokio::sync::watch;
use tokio_util::sync::DropGuard;
use tonic::Status;
use wire::v1::call_output::Stream as OutputName;
use wire::v1::call_stream_response::Event;
use wire::v1::{self, CallRequest, CallResponse, CallStreamResponse, call_response};
use worker_protocol::client::OutputStream;

use super::Client;
use super::begin::{self, CallOptions, Lookup};
use crate::Calls;
use crate::table::{Answer, Call, Found};

/// Most bytes of one piece of output.
const PIECE: usize = 64 * 1024;

const STREAMS: [(OutputStream, OutputName); 2] =
    [(OutputStream::Stdout, OutputName::Stdout), (OutputStream::Stderr, OutputName::Stderr)];

/// What happens to a call.
pub type Events = Pin<Box<dyn Stream<Item = Result<CallStreamResponse, Status>> + Send>>;

/// Makes a call, or finds it made already, and tells what happens to it. A refusal ends the stream as its status.
///
/// `deadline` is the client's.
pub async fn stream(
    calls: &Arc<Calls>,
    principal: &Arc<Principal>,
    request: CallRequest,
    deadline: Option<Instant>,
) -> Result<Events, Refusal> {
    let options = CallOptions::of(&request);
    let taken = begin::begin(calls, principal, request, Client { deadline, ..Client::default() }).await?;
    let teller = Teller::new(calls.spool.clone(), taken, options);
    Ok(Box::pin(stream::unfold(teller, |mut teller| async move {
        let event = teller.next().await?;
        Some((event.map_err(Status::from), teller))
    })))
}

/// Where the news comes from.
enum News {
    /// From the call itself, as long as it changes.
    Call { call: Arc<Call>, answers: watch::Receiver<Answer>, kept: watch::Receiver<[u64; 2]>, live: Live },
    /// There is none: it has finished.
    Stored(Option<Box<Found>>),
}

struct Teller {
    spool: Arc<Spool>,
    run: RunId,
    call: CallId,
    options: CallOptions,
    news: News,
    /// Cancels the call when the client takes the stream with it.
    leaves: Option<DropGuard>,
    /// What the client has of each stream, bytes.
    told: [u64; 2],
    /// The spool gives no more of the stream.
    lost: [bool; 2],
    /// Comes when the spool has been told.
    unkept: Option<Unkept>,
    told_pending: bool,
    ready: VecDeque<Result<CallStreamResponse, Refusal>>,
    over: bool,
}

impl Teller {
    fn new(spool: Arc<Spool>, taken: Lookup, options: CallOptions) -> Self {
        let (run, call, news, leaves) = match taken {
            Lookup::Stored(found) => (found.run, found.id, News::Stored(Some(found)), None),
            // Output is told while it comes, at a pace that is not the call's: dropping its task gives it a task.
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

    /// One step: until there is something to tell, or nothing any more.
    async fn proceed(&mut self) {
        // In this order: when a call has finished, its output has.
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
        if !self.read(kept).await && !self.host_worker_on() {
            if finished { self.end() } else { self.wait().await }
        }
    }

    /// Whether the call has finished, and the approval that it waits for.
    fn state(&mut self) -> (bool, Option<String>) {
        let News::Call { answers, .. } = &mut self.news else { return (true, None) };
        let answer = answers.borrow_and_update();
        let pending = answer.response.status() == call_response::Status::PendingApproval;
        (answer.finished || answer.suspended, pending.then(|| answer.response.approval_id.clone()))
    }

    /// How far it is worth reading.
    fn kept(&mut self) -> [u64; 2] {
        match &mut self.news {
            News::Call { kept, .. } => *kept.borrow_and_update(),
            // The files know.
            News::Stored(_) => [u64::MAX; 2],
        }
    }

    /// Reads the next piece of each stream. Whether there was any.
    async fn read(&mut self, kept: [u64; 2]) -> bool {
        for (stream, name) in STREAMS {
            let (told, lost) = (&mut self.told[index(stream)], &mut self.lost[index(stream)]);
            if *told >= kept[index(stream)] || *lost {
                continue;
            }
            match self.spool.read(self.run, self.call, stream, *told, PIECE).await {
                // Removed to make room.
                Ok(piece) if piece.data.is_empty() => *lost = true,
                Ok(piece) => {
                    let output = v1::CallOutput { stream: name.into(), offset: *told, data: piece.data };
                    *told += output.data.len() as u64;
                    self.ready.push_back(Ok(event(Event::Output(output))));
                }
                // There may be more to tell than what is kept.
                Err(error) if matches!(self.news, News::Call { .. }) => {
                    tracing::error!(call = %self.call, error = %chain(&error), "what is kept of a command's output cannot be read");
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

    /// Tells the next piece that is not kept. Whether there is one, if only behind what is kept.
    fn host_worker_on(&mut self) -> bool {
        let News::Call { kept, live, .. } = &mut self.news else { return false };
        let Some(Unkept { at, offset, data }) = self.unkept.take().or_else(|| live.try_next()) else {
            return false;
        };
        // It may have been kept up to here only now.
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

    /// Until there is something new.
    async fn wait(&mut self) {
        if let News::Call { answers, kept, live, .. } = &mut self.news {
            // The senders live in the call, which is held here.
            tokio::select! {
                _ = answers.changed() => {}
                _ = kept.changed() => {}
                Some(piece) = live.next() => self.unkept = Some(piece),
            }
        }
    }

    /// Tells the answer as it is now. Whatever the client does from here on changes nothing.
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
