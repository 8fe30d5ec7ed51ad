//! The unexpected end of a container: by its own limit of memory, or from outside.
//!
//! The first process of a container with the host's kernel has no handler of a signal, so that only a SIGKILL from outside of its pid
//! namespace ends it: of the engine, of an operator, or of the kernel when memory runs out. The engine and the counters of the cgroup
//! tell the last one apart, as far as the container's own limit is the cause.
//!
//! In gVisor the first process is the kernel of the container, which a program may be able to crash. Its end is no evidence against the
//! host.

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
    /// The engine no longer has it.
    Removed,
    /// The engine does not answer.
    Unreachable,
    /// The engine reports no end.
    Unknown,
}

impl ContainerEnd {
    /// Asks the engine how the container ended. `oom_kills` is the number of its processes that the kernel was seen to kill for memory.
    pub async fn find(engine: &Engine, container: &ContainerId, boundary: Boundary, oom_kills: u64) -> Self {
        match timeout(LONGEST, ask(engine, container)).await {
            Ok(Ok(Some((code, oom)))) => Self::Exited { code, oom: oom || oom_kills > 0, boundary },
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
            Self::Removed => f.write_str("which was removed from outside of the run"),
            Self::Unreachable => f.write_str("and the engine does not answer"),
            Self::Unknown => f.write_str("and the engine does not report how"),
        }
    }
}

/// Waits until the engine reports the end. `None` if the container has not been started.
async fn ask(engine: &Engine, container: &ContainerId) -> Result<Option<(i64, bool)>, EngineError> {
    let mut was_over = false;
    loop {
        let inspection = engine.inspect(container).await?;
        match inspection.state {
            ContainerState::Exited(code) if was_over || inspection.oom_killed => {
                return Ok(Some((code, inspection.oom_killed)));
            }
            ContainerState::Exited(_) => was_over = true,
            ContainerState::Created => return Ok(None),
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
