//! Starts processes that outlive their calls, and finds them again in the next daemon.
//!
//! ```text
//!  engine's exec ─► keeper ─► its cgroup ─► stream through its door ─► process, stopped ─► its cgroup ─► go
//!  next daemon:     its cgroup ─► the one process in it ─► stream through its door ─► where the process is
//! ```
//!
//! A keeper is identified by its cgroup, which no process in the container can enter. Only the keeper and this daemon have the stream
//! between them. So a command cannot make another process pass for a keeper or its process.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as Pair;
use std::time::Duration;

use containers::{ContainerCgroup, GUEST_PATH, Group, HostProcess, Leaf};
use operations::{Bounds, KillEvidence, Reason, ToolFailure};
use refusal::chain;
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use wire::v1::ProcessRequest;
use wire::worker::v1::keeper_state::Phase;
use wire::worker::v1::{
    Attach, FromKeeper, Go, KeeperStart, KeeperState, Leave, ToKeeper, from_keeper, to_keeper,
};
use worker_protocol::client::{ConnectOptions, Greeted};
use worker_protocol::convert::{bounds_to_wire, failure_from_wire};
use worker_protocol::frame::{FrameBuffer, encode};
use worker_protocol::keeper::DOOR;

use crate::ending::{end, nothing_left};
use crate::lanes::Lanes;
use crate::metered::Metered;

/// Limits the keepers that start at the same time, in all runs. One run uses fewer, so that it cannot use all.
///
/// Each takes the engine several processes. On two slow processors, fifty at once exceed the time limit of each, and four at a time do not.
static STARTS: Semaphore = Semaphore::const_new(4);
/// Longest time of a turn. A start that takes longer goes on without one, because a run can delay its own starts.
const TURN: Duration = Duration::from_secs(10);
/// Keepers that are started in turn before a start fails.
const ATTEMPTS: u32 = 3;
/// Time that a keeper has to answer. It does nothing else meanwhile, except during a start, which looks at files.
const ANSWER: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_secs(60);
/// Time that the program has to replace the keeper's copy. A frozen one does so later.
const BEGIN: Duration = Duration::from_millis(500);
/// Time that a killed keeper has to be gone.
const GOODBYE: Duration = Duration::from_secs(2);

/// A process that outlives its call, with its keeper. Dropping the value leaves both running for the next daemon.
pub struct AttachedProcess {
    pub link: Link,
    pub state: KeeperState,
    held: Held,
}

/// The host's handles on a process and its keeper, by which they are ended.
pub struct Held {
    cgroup: ContainerCgroup,
    keeper: HostProcess,
    keeper_leaf: Option<Leaf>,
    leaf: Option<Leaf>,
}

/// The stream to a keeper.
pub struct Link {
    input: OwnedReadHalf,
    output: OwnedWriteHalf,
    frames: FrameBuffer,
    /// Messages that came while another one was awaited.
    pending: VecDeque<from_keeper::Body>,
}

/// Error: the keeper is gone, or sent a message that no keeper sends.
#[derive(Debug, thiserror::Error)]
pub enum KeeperLost {
    #[error("the stream to it broke")]
    Io(#[from] io::Error),
    #[error("it has ended")]
    Ended,
    #[error("it does not answer")]
    Silent,
    #[error("it sent an invalid message: {0}")]
    Malformed(&'static str),
}

impl Link {
    /// Returns the next message of the keeper. The future may be dropped at any time.
    pub async fn next(&mut self) -> Result<from_keeper::Body, KeeperLost> {
        match self.pending.pop_front() {
            Some(body) => Ok(body),
            None => self.read().await,
        }
    }

    async fn read(&mut self) -> Result<from_keeper::Body, KeeperLost> {
        loop {
            let popped = self.frames.pop().map_err(|_| KeeperLost::Malformed("an invalid frame"))?;
            if let Some(FromKeeper { body }) = popped {
                return body.ok_or(KeeperLost::Malformed("an empty frame"));
            }
            // It may send no message for hours.
            self.frames.rest();
            if self.input.read_buf(self.frames.read_buffer()).await? == 0 {
                return Err(KeeperLost::Ended);
            }
        }
    }

    /// Sends a message. The future must be awaited to its end.
    pub async fn say(&mut self, body: to_keeper::Body) -> Result<(), KeeperLost> {
        let frame = encode(&ToKeeper { body: Some(body) }).map_err(io::Error::other)?;
        timeout(ANSWER, self.output.write_all(&frame)).await.map_err(|_| KeeperLost::Silent)??;
        Ok(())
    }

    /// Waits for the keeper's next state, or for the reason why it could not start the process.
    ///
    /// Messages that come before are kept for [`Self::next`].
    async fn state(&mut self, within: Duration) -> Result<Result<KeeperState, ToolFailure>, KeeperLost> {
        let wait = async {
            loop {
                match self.read().await? {
                    from_keeper::Body::State(state) => return Ok(Ok(state)),
                    from_keeper::Body::Failed(failure) => {
                        let failure = failure_from_wire(failure)
                            .map_err(|_| KeeperLost::Malformed("an invalid failure"))?;
                        return Ok(Err(failure));
                    }
                    other => self.pending.push_back(other),
                }
            }
        };
        timeout(within, wait).await.map_err(|_| KeeperLost::Silent)?
    }
}

impl Held {
    /// Ends all processes of the kept process. With `forced` they are asked first. Blocks.
    pub fn end(&mut self, forced: bool) -> (KillEvidence, Metered) {
        let Some(leaf) = &self.leaf else { return (nothing_left(), Metered::default()) };
        let (evidence, peak_memory_bytes) = end(leaf, &self.cgroup, forced);
        (evidence, Metered { cpu_time: leaf.cpu_time(), peak_memory_bytes })
    }

    /// Returns how many processes of the container the kernel has killed for lack of memory. Reads one small file.
    pub fn oom_kills(&self) -> u64 {
        self.cgroup.limit_events().oom_kills
    }

    /// Waits for the keeper to exit, and kills it if it does not. Blocks.
    pub fn close(self) {
        if !self.keeper.ends(GOODBYE) {
            self.keeper.kill(GOODBYE);
        }
        drop((self.leaf, self.keeper_leaf));
    }
}

impl AttachedProcess {
    /// Splits the value into parts that are used at the same time.
    pub fn into_parts(self) -> (Link, KeeperState, Held) {
        (self.link, self.state, self.held)
    }
}

impl Lanes {
    /// Starts a process that outlives this call, under this name. When this returns, it runs or did not begin.
    ///
    /// Starts take turns. A keeper that is lost before its process was let run is started again.
    pub async fn keep(
        &self,
        name: &str,
        process: ProcessRequest,
        bounds: &Bounds,
    ) -> Result<AttachedProcess, ToolFailure> {
        let request = KeeperStart {
            process: Some(process),
            bounds: Some(bounds_to_wire(bounds)),
            environment: self.guest.environment().variables().clone(),
        };
        let mut attempt = 1;
        let (mut link, state, held) = loop {
            let turn = self.turn().await;
            let (cgroup, _) = self.guest.cgroup().ok_or_else(no_cgroup)?;
            match within(turn, Box::pin(self.start(name, &cgroup, &request))).await {
                Ok(started) => break started,
                Err(NotStarted::Refused(failure)) => return Err(failure),
                Err(NotStarted::Lost(why)) if attempt < ATTEMPTS && !self.guest.has_ended() => {
                    tracing::warn!(
                        name,
                        attempt,
                        why,
                        "the keeper of a process did not start, and is started again"
                    );
                    attempt += 1;
                }
                Err(NotStarted::Lost(why)) => {
                    tracing::error!(name, why, "the keeper of a process did not start");
                    return Err(not_up());
                }
            }
        };
        match has_begun(&mut link, state).await {
            Ok(state) => Ok(AttachedProcess { link, state, held }),
            Err(failure) => {
                end_start(held).await;
                Err(failure)
            }
        }
    }

    /// Takes a turn to start a keeper.
    ///
    /// If a lost worker is being replaced, a process started now would be ended with those of the lost one. No turn is held meanwhile.
    async fn turn(&self) -> Option<(SemaphorePermit<'_>, SemaphorePermit<'static>)> {
        loop {
            let serves = self.guest.restarted().await;
            // The semaphores are never closed. If they were, the start would go on without a turn.
            let of_run = self.guest.starts().acquire().await.ok()?;
            let turn = (of_run, STARTS.acquire().await.ok()?);
            if !serves || self.guest.is_connected() {
                return Some(turn);
            }
        }
    }

    /// Starts a keeper and its process. After an error neither is left, and the process never ran.
    async fn start(
        &self,
        name: &str,
        cgroup: &ContainerCgroup,
        request: &KeeperStart,
    ) -> Result<(Link, KeeperState, Held), NotStarted> {
        let mut held = self.new_keeper(name, cgroup).await.map_err(NotStarted::Lost)?;
        let started = async {
            let mut link = connect(&held.keeper, Attach::default()).await?;
            let started = start(&mut link, &mut held, name, request.clone()).await?;
            Ok::<_, KeeperLost>(started.map(|state| (link, state)))
        };
        let failed = match started.await {
            Ok(Ok((link, state))) => return Ok((link, state, held)),
            Ok(Err(failure)) => NotStarted::Refused(failure),
            Err(lost) => NotStarted::Lost(chain(&lost)),
        };
        end_start(held).await;
        Err(failed)
    }

    async fn new_keeper(&self, name: &str, cgroup: &ContainerCgroup) -> Result<Held, String> {
        let (engine, container, user) = self.guest.place();
        let argv = [GUEST_PATH.to_owned(), "keep".to_owned()];
        let stream = engine.attach_exec(container, &argv, user).await.map_err(|error| chain(&error))?;
        let greeted = Greeted::greet(stream.input, stream.output, ConnectOptions::default()).await;
        let greeted = greeted.map_err(|error| format!("{}: {}", chain(&error), stream.errors.text()))?;
        let pid = engine.exec_pid(&stream.exec).await.map_err(|error| chain(&error))?;
        // The cgroup is this container's, so the pid belongs to this host and to the keeper.
        ContainerCgroup::of_pid(pid, container).map_err(|error| chain(&error))?;
        let keeper = HostProcess::of_engine(pid).map_err(|error| chain(&error))?;
        let mut leaf = cgroup.keeper(name).map_err(|error| chain(&error))?;
        let placed = leaf.add(&keeper);
        drop(greeted);
        let held = Held { cgroup: cgroup.clone(), keeper, keeper_leaf: Some(leaf), leaf: None };
        match placed {
            Ok(()) => Ok(held),
            Err(error) => {
                end_start(held).await;
                Err(chain(&error))
            }
        }
    }

    /// Finds a process that an earlier daemon started. `attach` describes the output that exists already.
    ///
    /// If the process is gone, the rest of it is ended, and the error contains the evidence.
    pub async fn keep_on(
        &self,
        name: &str,
        attach: Attach,
    ) -> Result<AttachedProcess, (KeeperLost, KillEvidence)> {
        let Some((cgroup, _)) = self.guest.cgroup() else { return Err((KeeperLost::Ended, nothing_left())) };
        let (leaf, keeper_leaf) = cgroup.process_leaves(name).unwrap_or_default();
        let Some(keeper) = keeper_leaf.as_ref().and_then(Leaf::only) else {
            let lost = KeeperLost::Ended;
            return Err((lost, end_leaves(cgroup, [leaf, keeper_leaf]).await));
        };
        let mut link = match connect(&keeper, attach).await {
            Ok(link) => link,
            Err(lost) => return Err((lost, end_leaves(cgroup, [leaf, keeper_leaf]).await)),
        };
        match link.state(ANSWER).await {
            Ok(Ok(state)) if matches!(state.phase(), Phase::Running | Phase::Over) => {
                Ok(AttachedProcess { link, state, held: Held { cgroup, keeper, keeper_leaf, leaf } })
            }
            Ok(_) => {
                let lost = KeeperLost::Malformed("its process never ran");
                Err((lost, end_leaves(cgroup, [leaf, keeper_leaf]).await))
            }
            Err(lost) => Err((lost, end_leaves(cgroup, [leaf, keeper_leaf]).await)),
        }
    }
}

/// Awaits a start, and returns its turn when it ends or after [`TURN`].
async fn within<T>(turn: impl Sized, mut start: impl Future<Output = T> + Unpin) -> T {
    if let Ok(started) = timeout(TURN, &mut start).await {
        return started;
    }
    drop(turn);
    start.await
}

/// Reason why a process did not begin.
enum NotStarted {
    /// Its keeper was lost, or did not start. Another one may succeed.
    Lost(String),
    /// The process cannot be started by any keeper.
    Refused(ToolFailure),
}

/// Ends a keeper and the process that it made.
async fn end_start(mut held: Held) {
    let ended = tokio::task::spawn_blocking(move || {
        let _ = held.end(false);
        held.keeper.kill(GOODBYE);
        held.close();
    });
    let _ = ended.await;
}

fn not_up() -> ToolFailure {
    ToolFailure::new(
        Reason::EngineUnavailable,
        "the process was not started, because its keeper did not start; start the process again",
    )
}

/// Makes the process and lets it run, in its cgroup.
async fn start(
    link: &mut Link,
    held: &mut Held,
    name: &str,
    start: KeeperStart,
) -> Result<Result<KeeperState, ToolFailure>, KeeperLost> {
    link.state(ANSWER).await?.map_err(|_| KeeperLost::Malformed("a failure before a start"))?;
    link.say(to_keeper::Body::Start(start)).await?;
    let state = match link.state(START).await? {
        Ok(state) => state,
        Err(failure) => return Ok(Err(failure)),
    };
    if state.phase() != Phase::Waiting {
        return Err(KeeperLost::Malformed("a process that does not wait"));
    }
    // The keeper's statement about its child is not needed: it has one, and no other process can be in its leaf.
    let child = held.keeper_leaf.as_ref().and_then(|leaf| leaf.other(&held.keeper));
    let child = child.ok_or(KeeperLost::Malformed("no process in its cgroup"))?;
    let placed = held.cgroup.leaf(Group::Processes, name).and_then(|mut leaf| {
        if let Err(error) = child.goes_first() {
            tracing::debug!(error = %chain(&error), "a process is killed no sooner than its guest");
        }
        leaf.add(&child).map(|()| leaf)
    });
    match placed {
        Ok(leaf) => held.leaf = Some(leaf),
        Err(error) => {
            tracing::error!(error = %chain(&error), "a process could not be put into its cgroup");
            let message = "the process could not be confined and was not run; see the daemon's log";
            return Ok(Err(ToolFailure::new(Reason::Internal, message)));
        }
    }
    // The process may run from here on, so it is not started again.
    Ok(link
        .say(to_keeper::Body::Go(Go { evidence: None }))
        .await
        .map(|()| state)
        .map_err(|lost| not_kept(&lost)))
}

/// Waits for the message that the program runs, or cannot be run.
async fn has_begun(link: &mut Link, state: KeeperState) -> Result<KeeperState, ToolFailure> {
    match link.state(BEGIN).await {
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(state)) => Ok(state),
        Err(KeeperLost::Silent) => Ok(state),
        Err(lost) => Err(not_kept(&lost)),
    }
}

async fn end_leaves(cgroup: ContainerCgroup, leaves: [Option<Leaf>; 2]) -> KillEvidence {
    let ended = tokio::task::spawn_blocking(move || {
        let [process, keeper] = leaves;
        // Without its keeper, a process's output is lost.
        if let Some(leaf) = &keeper {
            let _ = end(leaf, &cgroup, false);
        }
        process.as_ref().map_or_else(nothing_left, |leaf| end(leaf, &cgroup, false).0)
    });
    ended.await.unwrap_or_default()
}

/// Passes a stream through a keeper's door.
async fn connect(keeper: &HostProcess, attach: Attach) -> Result<Link, KeeperLost> {
    let number = u32::try_from(DOOR).unwrap_or_default();
    let door = keeper.descriptor(number).map_err(|_| KeeperLost::Ended)?;
    let (ours, theirs) = Pair::pair()?;
    ours.set_nonblocking(true)?;
    pass(&door, &theirs)?;
    let (input, output) = UnixStream::from_std(ours)?.into_split();
    let mut link = Link { input, output, frames: FrameBuffer::new(), pending: VecDeque::new() };
    link.say(to_keeper::Body::Attach(attach)).await?;
    Ok(link)
}

fn pass(door: &OwnedFd, stream: &Pair) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [stream.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(door, &[IoSlice::new(&[0])], &mut control, flags)?;
    Ok(())
}

/// Returns the last message to a keeper.
pub fn leave() -> to_keeper::Body {
    to_keeper::Body::Leave(Leave {})
}

fn no_cgroup() -> ToolFailure {
    ToolFailure::new(
        Reason::PreconditionFailed,
        "the daemon does not see the cgroup of the run's processes (a rootless engine, or gVisor), so no \
         process can stay after its call: use exec",
    )
}

fn not_kept(lost: &KeeperLost) -> ToolFailure {
    tracing::error!(error = %chain(lost), "the keeper of a process was lost at its start");
    ToolFailure::new(
        Reason::Internal,
        "the keeper of the process was lost during the start, and the process has ended; start it again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_start_that_does_not_end_delays_others_by_one_turn() {
        let turns = Semaphore::new(1);
        let endless = async { within(turns.acquire().await, std::future::pending::<()>()).await };
        let next = async { within(turns.acquire().await, Box::pin(async { 7 })).await };
        tokio::select! {
            biased;
            () = endless => unreachable!(),
            started = timeout(2 * TURN, next) => assert_eq!(started.unwrap(), 7),
        }
        assert_eq!(turns.available_permits(), 1);
    }
}
