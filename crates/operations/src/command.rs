//! The end of a command: the facts that its worker reports, and the end that the daemon makes of them.
//!
//! ```text
//! worker: CommandReport ─┐
//!                        ├─► executor: CommandEnd ─► ExecResult
//! daemon: what it knows ─┘
//! ```
//!
//! The result is made once, from a complete [`CommandEnd`]. No later step changes it, but that a call of a run that its node ended says so
//! in it.

use std::collections::BTreeSet;

use wire::v1::exec_result::{EndedBy, Limit};
use wire::v1::{ExecResult, KillEvidence};

use crate::Evidence;
use crate::limits::advice;

/// Numbers of signals that show which limit ended a program.
const KILL: i32 = 9;
const XFSZ: i32 = 25;
/// Number that shells add to the number of a signal.
const BY_SIGNAL: i32 = 128;

/// Exit of a program, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exit {
    /// Exit code, 0 to 255.
    Code(i32),
    /// Number of the signal that ended it, 1 to 64.
    Signal(i32),
    /// It is not known.
    #[default]
    Unknown,
}

/// Cause for which a worker ended a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// None: it ended by itself.
    #[default]
    Itself,
    /// Its deadline.
    Deadline,
    /// A cancellation, or too much output.
    Stopped,
}

/// Output of a command on one of its streams.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Beginning and end of it, with replacement characters.
    pub text: String,
    /// Number of all bytes.
    pub bytes: u64,
    /// Number of bytes that the text lacks.
    pub omitted: u64,
}

/// Resources that a command used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandUsage {
    /// Processor time, user and system, in microseconds.
    pub cpu_time_us: u64,
    /// Peak resident memory of its largest process, in bytes.
    pub peak_memory_bytes: u64,
    /// Wall-clock time in microseconds.
    pub wall_time_us: u64,
}

/// Facts about a command that has ended, from its worker, with the output and the evidence that the daemon itself has of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandReport {
    /// Exit of its program.
    pub exit: Exit,
    /// Cause for which the worker ended it.
    pub stop: Stop,
    /// Standard output.
    pub stdout: Written,
    /// Standard error.
    pub stderr: Written,
    /// Resources.
    pub usage: CommandUsage,
    /// File systems that were full when it failed.
    pub full: Vec<Limit>,
    /// Evidence that its processes were ended.
    pub kill: KillEvidence,
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommandEnd {
    /// Exit of its program.
    pub exit: Exit,
    /// Cause of an early end.
    pub ended_by: EndedBy,
    /// Limits that were reached while it ran.
    pub limits: BTreeSet<Limit>,
    /// Evidence that its processes were ended.
    pub kill: KillEvidence,
    /// Resources.
    pub usage: CommandUsage,
    /// Standard output.
    pub stdout: Written,
    /// Standard error.
    pub stderr: Written,
    /// True if the profile allows processes that stay.
    pub offers_processes: bool,
    /// Connections that were refused to the run while it ran, each with the reason.
    pub refused: Vec<String>,
    /// Facts that show whose failure an early end is.
    pub evidence: Vec<Evidence>,
}

/// Advice to use a process that stays instead of a background process, where the profile allows processes.
const STAYS: &str = "processes that it left running were ended with it: to keep one running, start it with the operation `process`";

impl Exit {
    /// Returns the exit with this code or signal. `None` if both are set, or one is impossible.
    pub fn of(code: Option<i32>, signal: Option<i32>) -> Option<Self> {
        match (code, signal) {
            (Some(code @ 0..=255), None) => Some(Self::Code(code)),
            (None, Some(signal @ 1..=64)) => Some(Self::Signal(signal)),
            (None, None) => Some(Self::Unknown),
            _ => None,
        }
    }

    /// Returns the exit code as shells report it: 128 plus the number of a signal.
    pub fn code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(BY_SIGNAL + signal),
            Self::Unknown => None,
        }
    }

    /// Returns the number of the signal that ended the program itself.
    pub fn signal(self) -> Option<i32> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::Code(_) | Self::Unknown => None,
        }
    }

    /// Returns true if SIGKILL ended the program, or what a shell ran last.
    pub fn is_kill(self) -> bool {
        self.code() == Some(BY_SIGNAL + KILL)
    }

    /// Returns the limit that ended the program.
    ///
    /// It follows from the exit and two observations of the daemon. The daemon may have killed commands of the run for its disk quota, and
    /// the kernel may have killed a process for lack of memory. A shell that outlives the program reports the signal as 128 plus its number.
    pub fn limit(self, over_quota: bool, out_of_memory: bool) -> Option<EndedBy> {
        match self.code()? - BY_SIGNAL {
            KILL if over_quota => Some(EndedBy::DiskQuota),
            KILL if out_of_memory => Some(EndedBy::MemoryLimit),
            XFSZ => Some(EndedBy::FileSizeLimit),
            _ => None,
        }
    }
}

impl From<CommandEnd> for ExecResult {
    /// Makes the result of a command.
    ///
    /// A missing code would be read as 0, so that a signal is an exit code as well. Only a command that its timeout ended by a signal has none.
    fn from(end: CommandEnd) -> Self {
        let CommandEnd { exit, ended_by, limits, kill, usage, stdout, stderr, .. } = end;
        let CommandEnd { offers_processes, refused, evidence, .. } = end;
        let timed_out = ended_by == EndedBy::Timeout;
        let left_some = offers_processes && kill.ended > 0 && ended_by == EndedBy::Unspecified;
        let advice = limits.iter().map(|limit| advice(*limit)).chain(left_some.then_some(STAYS));
        // A command that succeeded did not need them.
        let failed = exit.code() != Some(0);
        let refused = refused.iter().filter(|_| failed).map(String::as_str);
        let advice: Vec<&str> = advice.chain(refused).collect();
        Self {
            stdout: stdout.text,
            stderr: stderr.text,
            exit_code: exit.code().filter(|_| !timed_out || exit.signal().is_none()),
            signal: exit.signal(),
            timed_out,
            stdout_bytes: stdout.bytes,
            stderr_bytes: stderr.bytes,
            stdout_omitted_bytes: stdout.omitted,
            stderr_omitted_bytes: stderr.omitted,
            cpu_time_us: usage.cpu_time_us,
            peak_memory_bytes: usage.peak_memory_bytes,
            wall_time_us: usage.wall_time_us,
            kill: Some(kill),
            ended_by: ended_by.into(),
            limits_hit: limits.iter().map(|limit| (*limit).into()).collect(),
            hint: advice.join("; "),
            evidence: evidence.iter().map(Evidence::to_wire).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpResult, Reason, cut_short};

    #[test]
    fn each_early_end_is_a_failure_whatever_the_exit_and_no_other_end_is() {
        let exits = [
            Exit::Code(0),
            Exit::Code(1),
            Exit::Code(137),
            Exit::Code(143),
            Exit::Signal(9),
            Exit::Signal(15),
            Exit::Signal(25),
            Exit::Unknown,
        ];
        let mut causes = 0;
        for (ended_by, reason) in [
            (EndedBy::Unspecified, None),
            (EndedBy::Timeout, Some(Reason::TimedOut)),
            (EndedBy::Cancelled, Some(Reason::Cancelled)),
            (EndedBy::OutputLimit, Some(Reason::WriteLimit)),
            (EndedBy::MemoryLimit, Some(Reason::MemoryLimit)),
            (EndedBy::FileSizeLimit, Some(Reason::WriteLimit)),
            (EndedBy::DiskQuota, Some(Reason::WriteLimit)),
            (EndedBy::RunEnded, Some(Reason::Cancelled)),
            (EndedBy::Killed, Some(Reason::Cancelled)),
            (EndedBy::Interrupted, Some(Reason::Cancelled)),
            (EndedBy::HostMemory, Some(Reason::MemoryLimit)),
            (EndedBy::HostDisk, Some(Reason::WriteLimit)),
        ] {
            causes += 1;
            for exit in exits {
                let result = ExecResult::from(CommandEnd { exit, ended_by, ..CommandEnd::default() });
                // An end about which nothing is known has not succeeded.
                let unknown = (exit == Exit::Unknown).then_some(Reason::Internal);
                let failure = cut_short(&OpResult::Exec(result.clone()));
                assert_eq!(
                    failure.map(|failure| failure.reason),
                    reason.or(unknown),
                    "{ended_by:?} {exit:?}"
                );
                assert_eq!(result.timed_out, ended_by == EndedBy::Timeout);
                assert_eq!(result.ended_by(), ended_by);
                let code = match exit {
                    Exit::Signal(_) if ended_by == EndedBy::Timeout => None,
                    exit => exit.code(),
                };
                assert_eq!((result.exit_code, result.signal), (code, exit.signal()), "{ended_by:?} {exit:?}");
            }
        }
        // A cause that is added later has to be added here.
        assert_eq!(EndedBy::try_from(causes), Err(wire::UnknownEnumValue(causes)));
    }

    #[test]
    fn a_command_that_left_processes_gets_a_hint_about_processes() {
        let hint = |ended, limits: &[Limit], ended_by, offers_processes| {
            let kill = KillEvidence { ended, ..Default::default() };
            let limits = limits.iter().copied().collect();
            ExecResult::from(CommandEnd { ended_by, limits, kill, offers_processes, ..CommandEnd::default() })
                .hint
        };
        assert!(hint(1, &[], EndedBy::Unspecified, true).starts_with("processes that it left running"));
        let both = hint(1, &[Limit::TmpSpace], EndedBy::Unspecified, true);
        assert!(both.contains("; processes that it left running"), "{both}");
        assert_eq!(hint(0, &[], EndedBy::Unspecified, true), "");
        assert_eq!(hint(1, &[], EndedBy::Timeout, true), "");
        assert_eq!(hint(1, &[], EndedBy::Unspecified, false), "");
    }

    #[test]
    fn each_limit_is_explained_once_in_its_order() {
        let limits = BTreeSet::from([Limit::TmpSpace, Limit::Memory]);
        let result = ExecResult::from(CommandEnd { limits, ..CommandEnd::default() });
        assert_eq!(result.limits_hit().collect::<Vec<_>>(), [Limit::Memory, Limit::TmpSpace]);
        assert!(result.hint.starts_with("the run ran out of memory"), "{}", result.hint);
        assert!(result.hint.contains("; /tmp is full: "), "{}", result.hint);
    }

    #[test]
    fn a_limit_is_known_by_the_end_and_the_observations() {
        for exit in [Exit::Signal(9), Exit::Code(137)] {
            assert_eq!(exit.limit(true, true), Some(EndedBy::DiskQuota));
            assert_eq!(exit.limit(false, true), Some(EndedBy::MemoryLimit));
            assert_eq!(exit.limit(false, false), None, "a program may have sent it");
            assert!(exit.is_kill());
        }
        assert_eq!(Exit::Signal(25).limit(false, false), Some(EndedBy::FileSizeLimit));
        assert_eq!(Exit::Code(153).limit(true, true), Some(EndedBy::FileSizeLimit));
        for exit in [0, 1, 9, 25, 143].map(Exit::Code).into_iter().chain([Exit::Signal(15), Exit::Unknown]) {
            assert_eq!(exit.limit(true, true), None, "{exit:?}");
            assert!(!exit.is_kill());
        }
    }

    #[test]
    fn an_impossible_exit_is_none() {
        assert_eq!(Exit::of(Some(255), None), Some(Exit::Code(255)));
        assert_eq!(Exit::of(None, Some(64)), Some(Exit::Signal(64)));
        assert_eq!(Exit::of(None, None), Some(Exit::Unknown));
        for (code, signal) in
            [(Some(256), None), (Some(-1), None), (None, Some(0)), (None, Some(i32::MAX)), (Some(0), Some(9))]
        {
            assert_eq!(Exit::of(code, signal), None);
        }
    }
}
