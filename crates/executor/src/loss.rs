//! The loss of a container's worker, described for the model, for the record, and for the state of the run.
//!
//! The worker shares its uid with the commands of the run. It ignores every signal that a process can ignore. A command can still end it
//! with SIGKILL or by using up the run's memory, or stop it with SIGSTOP.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use containers::LimitEvents;
use operations::{Evidence, Fault, Reason, ToolFailure};
use tokio_util::task::TaskTracker;
use worker_protocol::client::CloseReason;

use crate::container_end::{ContainerEnd, by_pause};

/// Number of losses within [`WINDOW`] after which one more ends the run.
const MOST: usize = 3;
const WINDOW: Duration = Duration::from_secs(60);
/// Number of SIGKILL.
const KILL: i64 = 9;

/// Times of the recent losses of a run's workers.
#[derive(Debug, Default)]
pub(crate) struct Losses(VecDeque<Instant>);

impl Losses {
    pub(crate) fn count(&mut self, cause: Cause, now: Instant) -> Loss {
        self.0.push_back(now);
        self.again(cause, now)
    }

    /// Judges the loss of a worker. It is not counted during a call that has already cost the previous worker, which is in `repeats`.
    pub(crate) fn judge(&mut self, cause: Cause, repeats: &TaskTracker, now: Instant) -> Loss {
        if repeats.is_empty() { self.count(cause, now) } else { self.again(cause, now) }
    }

    fn again(&mut self, cause: Cause, now: Instant) -> Loss {
        self.0.retain(|at| now.saturating_duration_since(*at) < WINDOW);
        let is_last = self.0.len() > MOST || matches!(cause, Cause::Container(_));
        Loss { is_last, times: self.0.len(), cause }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    cause: Cause,
    times: usize,
    is_last: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A signal ended it. The flag is true if the run was out of memory meanwhile.
    Signal { number: i64, out_of_memory: bool },
    /// The kernel killed processes of the container for the memory of the host, while it was below its own limit.
    HostMemory,
    /// It ended by itself.
    Exited(i64),
    /// It answers no pings.
    Silent,
    /// It answers no pings or was not started, and the container was paused from outside.
    Paused,
    /// The whole container is gone.
    Container(ContainerEnd),
    /// Only the end of its stream is known.
    Stream(CloseReason),
    /// It was ended during its start, or could not be started.
    NotStarted(String),
    /// It could not be started, because the engine does not answer. No command can bring that about.
    NoEngine(String),
}

impl Cause {
    /// Derives the cause from the exit code that the engine reports.
    pub(crate) fn exited(code: i64, events: LimitEvents) -> Self {
        let out_of_memory = events.oom_kills > 0;
        match code - 128 {
            KILL if events.is_memory_of_host() => Self::HostMemory,
            number @ 1..=64 => Self::Signal { number, out_of_memory },
            _ => Self::Exited(code),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal { number, out_of_memory: false } => {
                write!(f, "ended by signal {number}, probably by a command of this run")
            }
            Self::Signal { number, out_of_memory: true } => write!(
                f,
                "ended by signal {number}: the run was out of memory, or a command of this run sent the signal"
            ),
            Self::HostMemory => f.write_str("ended by the kernel, because the host had no memory left"),
            Self::Exited(code) => write!(f, "ended with exit code {code}"),
            Self::Silent => {
                f.write_str("ended because it did not answer; a command of this run may have stopped it")
            }
            Self::Paused => f.write_str("ended because its container was paused from outside of the run"),
            Self::Container(end) => write!(f, "ended with its container, {end}"),
            Self::Stream(reason) => write!(f, "lost: {reason}"),
            Self::NotStarted(why) | Self::NoEngine(why) => write!(f, "not started again: {why}"),
        }
    }
}

impl Loss {
    /// Returns the failure with which the run ends, if it ends with this loss.
    ///
    /// A worker can be ended by the commands beside it, and then the loss is theirs. The end of a container has other evidence.
    pub fn fatal(&self) -> Option<ToolFailure> {
        if !self.is_last {
            return None;
        }
        let why = match self.times {
            0 | 1 => format!("its worker was {}", self.cause),
            times => {
                format!(
                    "its worker was lost {times} times within a minute; the last time it was {}",
                    self.cause
                )
            }
        };
        Some(match &self.cause {
            Cause::Container(end) => end.failure(why),
            Cause::NoEngine(_) => ContainerEnd::Unreachable.failure(why),
            _ => self.shown(ToolFailure::new(Reason::RunLost, why)),
        })
    }

    /// Puts the loss of the worker alone down to a party, with the facts that show it.
    fn shown(&self, failure: ToolFailure) -> ToolFailure {
        let failure = failure.shown_by(Evidence::new("worker.losses", self.times));
        match self.cause {
            Cause::HostMemory => {
                failure.by(Fault::Infrastructure).shown_by(Evidence::new("cgroup.limit_hits", 0))
            }
            Cause::Paused => by_pause(failure),
            _ => failure.by(Fault::Program),
        }
    }

    pub fn why(&self) -> String {
        self.cause.to_string()
    }

    /// Returns the failure of a call that was in flight.
    pub(crate) fn failure(&self) -> ToolFailure {
        let cause = &self.cause;
        if let Some(failure) = self.fatal() {
            let message = format!("The run ends: {}. The call may have taken effect.", failure.message);
            return ToolFailure { message, ..failure };
        }
        let message = format!(
            "The worker was {cause}; it is restarting. The call may have taken effect; check before retrying."
        );
        self.shown(ToolFailure::new(Reason::Cancelled, message).with("retryable", "true"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_the_cause_and_the_safe_next_step() {
        let mut losses = Losses::default();
        let now = Instant::now();
        let killed = losses.count(Cause::exited(137, LimitEvents::default()), now).failure();
        assert_eq!(
            killed.message,
            "The worker was ended by signal 9, probably by a command of this run; it is restarting. The call may have taken \
             effect; check before retrying."
        );
        assert_eq!(killed.details["retryable"], "true");
        let reached = LimitEvents { oom_kills: 1, forks_refused: 0, limit_hits: Some(1) };
        assert!(Cause::exited(137, reached).to_string().contains("out of memory"));
        let host = LimitEvents { limit_hits: Some(0), ..reached };
        let host = losses.count(Cause::exited(137, host), now).failure();
        assert_eq!((host.reason, host.fault()), (Reason::Cancelled, Fault::Infrastructure));
        assert_eq!((killed.fault(), killed.is_retry_safe()), (Fault::Program, false));
        for code in [0, 1, 128, 193, 255] {
            assert_eq!(Cause::exited(code, LimitEvents::default()), Cause::Exited(code));
        }
    }

    #[test]
    fn a_worker_that_is_lost_too_often_or_with_its_container_is_the_last() {
        let mut losses = Losses::default();
        let start = Instant::now();
        for second in [0, 1, 2] {
            let loss = losses.count(Cause::Silent, start + Duration::from_secs(second));
            assert_eq!(loss.fatal(), None);
        }
        let fourth =
            losses.after(Cause::exited(137, LimitEvents::default()), start + Duration::from_secs(59));
        let failure = fourth.fatal().unwrap();
        assert_eq!((failure.reason, failure.fault()), (Reason::RunLost, Fault::Program));
        let why = failure.message;
        assert_eq!(
            why,
            "its worker was lost 4 times within a minute; the last time it was ended by signal 9, probably by a command of this run"
        );
        let told = fourth.failure();
        assert!(told.message.contains(&why) && !told.details.contains_key("retryable"), "{told:?}");
        let without_engine =
            losses.after(Cause::NoEngine("no answer".to_owned()), start + Duration::from_secs(59));
        let failure = without_engine.fatal().unwrap();
        assert_eq!((failure.reason, failure.fault()), (Reason::RunLost, Fault::Infrastructure));
        let later = losses.after(Cause::Silent, start + Duration::from_secs(61));
        assert_eq!(later.fatal(), None);
        let killed =
            ContainerEnd::Exited { code: 137, oom: false, boundary: containers::Boundary::HostKernel };
        let container = Losses::default().count(Cause::Container(killed), start).failure();
        assert!(container.message.contains("its worker was ended with its container"), "{container:?}");
        assert_eq!((container.reason, container.fault()), (Reason::RunLost, Fault::Infrastructure));
        assert!(!container.is_retry_safe());
    }

    #[test]
    fn a_pause_from_outside_is_of_the_infrastructure_for_calls_and_for_the_run() {
        let (mut losses, now) = (Losses::default(), Instant::now());
        let shown = |failure: &ToolFailure| {
            let evidence = failure.origin.evidence.iter();
            let evidence = evidence.map(|fact| format!("{}={}", fact.what, fact.value)).collect::<Vec<_>>();
            (failure.reason, failure.fault(), failure.is_retry_safe(), evidence)
        };
        let told = losses.count(Cause::Paused, now).failure();
        let facts = |losses: &str| vec![format!("worker.losses={losses}"), "engine.state=paused".to_owned()];
        assert_eq!(shown(&told), (Reason::Cancelled, Fault::Infrastructure, false, facts("1")));
        assert!(told.message.contains("paused from outside"), "{}", told.message);
        let mut last = losses.count(Cause::Paused, now);
        for _ in 1..MOST {
            last = losses.count(Cause::Paused, now);
        }
        let fatal = last.fatal().unwrap();
        assert_eq!(shown(&fatal), (Reason::RunLost, Fault::Infrastructure, false, facts("4")));
    }

    #[test]
    fn a_loss_under_a_repeated_call_is_the_one_that_was_counted() {
        let (mut losses, repeats, now) = (Losses::default(), TaskTracker::new(), Instant::now());
        for _ in 0..3 {
            assert_eq!(losses.judge(Cause::Silent, &repeats, now).fatal(), None);
            let _repeated = repeats.token();
            assert_eq!(losses.judge(Cause::Silent, &repeats, now).fatal(), None);
        }
        // The repeated calls are over, so this loss is another one.
        assert!(losses.judge(Cause::Silent, &repeats, now).fatal().is_some());
        let _repeated = repeats.token();
        let ended = Cause::Container(ContainerEnd::Unknown);
        let why = Losses::default().judge(ended, &repeats, now).fatal().unwrap().message;
        assert!(why.starts_with("its worker was ended with its container"), "{why}");
    }

    impl Losses {
        fn after(&self, cause: Cause, now: Instant) -> Loss {
            Self(self.0.clone()).count(cause, now)
        }
    }
}
