//! The unexpected end of a container: by its own limit of memory, or from outside.
//!
//! The first process of a container with the host's kernel has no handler of a signal, so that only a SIGKILL from outside of its pid
//! namespace ends it: of the engine, of an operator, or of the kernel when memory runs out. The engine and the counters of the cgroup
//! tell the last one apart, as far as the container's own limit is the cause.
//!
//! In gVisor the first process is the kernel of the container, which a program may be able to crash. Its end is no evidence against the
//! host.
//!
//! A container that lives is paused or restarted only from outside: by an operator or by another program with access to the engine. The
//! daemon freezes cgroups, and never has the engine pause the container of a run.

use std::fmt;
use std::time::Duration;

use containers::{Boundary, ContainerId, ContainerState, Engine, EngineError};
use operations::{Evidence, Fault, Reason, ToolFailure};
use refusal::chain;
use tokio::time::{sleep, timeout};

/// Exit code of a container whose first process a SIGKILL ended.
const KILLED: i64 = 137;
/// Time that the engine has to report the end of a container.
const LONGEST: Duration = Duration::from_secs(5);
/// Time between two questions. An event about memory may come to the engine after the end of the container.
const AGAIN: Duration = Duration::from_millis(200);

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerEnd {
    /// The engine reports the exit code, and whether memory ran out.
    Exited { code: i64, oom: bool, boundary: Boundary },
    /// It has another first process. `oom`: the kernel was seen to kill processes of the earlier one for memory.
    Restarted { oom: bool, boundary: Boundary },
    /// The engine no longer has it.
    Removed,
    /// The engine does not answer.
    Unreachable,
    /// The engine reports no end.
    Unknown,
}

impl ContainerEnd {
    /// Asks the engine how the container ended. `first` is the pid of its first process on the host, if it is known, and `oom_kills` the
    /// number of its processes that the kernel was seen to kill for memory.
    pub async fn find(
        engine: &Engine,
        container: &ContainerId,
        boundary: Boundary,
        first: Option<u32>,
        oom_kills: u64,
    ) -> Self {
        match timeout(LONGEST, ask(engine, container, first)).await {
            Ok(Ok(Some(Over::Exited { code, oom }))) => {
                Self::Exited { code, oom: oom || oom_kills > 0, boundary }
            }
            Ok(Ok(Some(Over::Restarted))) => Self::Restarted { oom: oom_kills > 0, boundary },
            Ok(Err(EngineError::NotFound { .. })) => Self::Removed,
            Ok(Err(error)) => {
                tracing::error!(%container, error = %chain(&error), "the engine does not report the end of a container");
                if matches!(error, EngineError::Unreachable { .. }) {
                    Self::Unreachable
                } else {
                    Self::Unknown
                }
            }
            Ok(Ok(None)) | Err(_) => Self::Unknown,
        }
    }

    /// Returns the failure of its run, with this message.
    pub fn failure(&self, why: impl Into<String>) -> ToolFailure {
        let lost = ToolFailure::new(Reason::RunLost, why);
        match self {
            Self::Exited { code, oom, boundary } => {
                let reason = if *oom { Reason::MemoryLimit } else { Reason::RunLost };
                let is_from_outside = !oom && *code == KILLED && *boundary == Boundary::HostKernel;
                let fault = if is_from_outside { Fault::Infrastructure } else { Fault::Program };
                ToolFailure { reason, ..lost }
                    .by(fault)
                    .shown_by(Evidence::new("engine.event", "die"))
                    .shown_by(Evidence::new("engine.exit_code", code))
                    .shown_by(Evidence::new("engine.oom_killed", oom))
            }
            Self::Restarted { oom, boundary } => {
                // In gVisor, and after a lack of memory, a restart may have followed an end that a program brought about.
                let is_from_outside = !oom && *boundary == Boundary::HostKernel;
                let fault = if is_from_outside { Fault::Infrastructure } else { Fault::Program };
                lost.by(fault).shown_by(Evidence::new("engine.event", "restart"))
            }
            Self::Removed => lost.shown_by(Evidence::new("engine.event", "destroy")),
            Self::Unreachable => lost.shown_by(Evidence::new("engine.state", "unreachable")),
            Self::Unknown => lost.by(Fault::Program).shown_by(Evidence::new("engine.state", "unknown")),
        }
    }
}

impl fmt::Display for ContainerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { oom: true, .. } => f.write_str("because the run was out of memory"),
            Self::Exited { code: KILLED, boundary: Boundary::HostKernel, .. } => {
                f.write_str("which was killed from outside of the run (exit code 137)")
            }
            Self::Exited { code, .. } => write!(f, "which ended with exit code {code}"),
            Self::Restarted { .. } => f.write_str("which was restarted from outside of the run"),
            Self::Removed => f.write_str("which was removed from outside of the run"),
            Self::Unreachable => f.write_str("and the engine does not answer"),
            Self::Unknown => f.write_str("and the engine does not report how"),
        }
    }
}

/// The end of a container, as the engine reports it.
enum Over {
    Exited { code: i64, oom: bool },
    Restarted,
}

/// Returns true if the engine reports that the container is paused, which no program in it can bring about.
pub(crate) async fn is_paused(engine: &Engine, container: &ContainerId) -> bool {
    let found = timeout(LONGEST, engine.inspect(container)).await;
    matches!(found, Ok(Ok(found)) if found.state == ContainerState::Paused)
}

/// Puts a failure down to the pause of the container from outside.
pub(crate) fn by_pause(failure: ToolFailure) -> ToolFailure {
    failure.by(Fault::Infrastructure).shown_by(Evidence::new("engine.state", "paused"))
}

/// Waits until the engine reports the end. `None` if the container has not been started.
async fn ask(
    engine: &Engine,
    container: &ContainerId,
    first: Option<u32>,
) -> Result<Option<Over>, EngineError> {
    let mut was_over = false;
    loop {
        let inspection = engine.inspect(container).await?;
        match inspection.state {
            ContainerState::Exited(code) if was_over || inspection.oom_killed => {
                return Ok(Some(Over::Exited { code, oom: inspection.oom_killed }));
            }
            ContainerState::Exited(_) => was_over = true,
            ContainerState::Created => return Ok(None),
            ContainerState::Running | ContainerState::Paused
                if first.zip(inspection.host_pid).is_some_and(|(was, is)| was != is) =>
            {
                return Ok(Some(Over::Restarted));
            }
            // The engine is slower than the kernel.
            ContainerState::Running | ContainerState::Paused | ContainerState::Other => {}
        }
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i64, oom: bool, boundary: Boundary) -> ContainerEnd {
        ContainerEnd::Exited { code, oom, boundary }
    }

    fn restarted(oom: bool, boundary: Boundary) -> ContainerEnd {
        ContainerEnd::Restarted { oom, boundary }
    }

    #[test]
    fn only_an_end_that_no_program_can_bring_about_is_of_the_infrastructure() {
        use Boundary::{HostKernel, OwnKernel};
        for (end, reason, fault) in [
            (exited(137, false, HostKernel), Reason::RunLost, Fault::Infrastructure),
            (exited(137, true, HostKernel), Reason::MemoryLimit, Fault::Program),
            (exited(0, false, HostKernel), Reason::RunLost, Fault::Program),
            (exited(137, false, OwnKernel), Reason::RunLost, Fault::Program),
            (exited(2, false, OwnKernel), Reason::RunLost, Fault::Program),
            (exited(137, true, OwnKernel), Reason::MemoryLimit, Fault::Program),
            (restarted(false, HostKernel), Reason::RunLost, Fault::Infrastructure),
            (restarted(true, HostKernel), Reason::RunLost, Fault::Program),
            (restarted(false, OwnKernel), Reason::RunLost, Fault::Program),
            (ContainerEnd::Removed, Reason::RunLost, Fault::Infrastructure),
            (ContainerEnd::Unreachable, Reason::RunLost, Fault::Infrastructure),
            (ContainerEnd::Unknown, Reason::RunLost, Fault::Program),
        ] {
            let failure = end.failure("why");
            assert_eq!((failure.reason, failure.fault()), (reason, fault), "{end:?}");
            assert!(!failure.origin.evidence.is_empty() && !failure.is_retry_safe(), "{failure:?}");
        }
    }
}
