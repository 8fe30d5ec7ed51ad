//! Recovers the leftovers of killed operations, seen from the host worker. Like everything that opens files in the workspace, a
//! recovery runs in a separate process.
//!
//! - When the host worker starts and its predecessor left something: before any call begins.
//! - When an operation was killed or crashed: its leftovers, before its call is answered, so that the next call finds files
//!   that are old or new.
//! - When the channel ends: everything, after the last process.

use std::io;
use std::time::{Duration, Instant};

use jail::Whose;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::{Errno, retry_on_intr};
use rustix::stdio::dup2_stdout;
use wire::worker::v1::{Outcome, outcome};

use crate::child::{Terms, Work, private};
use crate::job::{Job, Stop};
use crate::location;
use crate::sys::Exit;
use host_launch::args::JailMount;

/// Longest time of one recovery. The next one finds what it leaves.
const LONGEST: Duration = Duration::from_secs(30);
/// Most bytes of its remarks that are passed on.
const REMARKS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) outcome: Box<Outcome>,
}

#[derive(Debug)]
pub(crate) struct Recovery {
    job: Job,
    /// The answer to the call, which waits for the recovery.
    answer: Option<Answer>,
}

/// The state of a recovery.
#[derive(Debug)]
pub(crate) enum Progress {
    AtWork,
    /// Over, with the answer that is due now.
    Over(Option<Answer>),
}

/// Waits until no other host worker uses the run's private directory, and locks it until the last process of this one is gone.
///
/// The locked handle becomes standard output, which every forked process inherits. A process that was killed may still be inside
/// its last system call long after its parent is gone.
pub(crate) fn claim_private() -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some(path) = location::path(JailMount::Private) else { return Ok(()) };
    let directory = match open(path, flags, Mode::empty()) {
        // A clone and a trial have none.
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    retry_on_intr(|| flock(&directory, FlockOperation::LockExclusive))?;
    Ok(dup2_stdout(&directory)?)
}

/// Returns true if a run has left something in its private directory.
pub(crate) fn is_needed() -> bool {
    private(0).is_ok_and(|private| private.is_some_and(|private| !private.is_clean().unwrap_or(false)))
}

impl Recovery {
    /// Begins a recovery of all leftovers. No other process may be at work until it is over.
    pub(crate) fn of_everyone(number: u64, terms: &Terms) -> io::Result<Self> {
        let work = Work::Recover(Whose::Everyone);
        Ok(Self { job: Job::begin(number, work, Instant::now() + LONGEST, terms)?, answer: None })
    }

    /// Begins a recovery of one dead operation; `answer` is for its call, afterwards.
    ///
    /// Returns `answer` if no process can be started. The call then gets it at once, and the notes stay for a later recovery.
    pub(crate) fn of_job(number: u64, dead: u64, answer: Answer, terms: &Terms) -> Result<Self, Answer> {
        match Job::begin(number, Work::Recover(Whose::Job(dead)), Instant::now() + LONGEST, terms) {
            Ok(job) => Ok(Self { job, answer: Some(answer) }),
            Err(_) => Err(answer),
        }
    }

    /// Returns true if all calls have to wait for it.
    pub(crate) fn is_of_everyone(&self) -> bool {
        self.answer.is_none()
    }

    pub(crate) fn job(&self) -> &Job {
        &self.job
    }

    /// Kills it at its deadline.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.job.deadline().is_some_and(|deadline| deadline <= now) {
            self.job.stop(Stop::TimedOut);
        }
    }

    pub(crate) fn advance(&mut self) -> Progress {
        let Some(status) = self.job.advance() else { return Progress::AtWork };
        let remarks = self.remarks(&status);
        let mut answer = self.answer.take();
        if let Some(Answer { outcome, .. }) = &mut answer
            && let Some(outcome::Kind::Failure(failure)) = &mut outcome.kind
            && !remarks.is_empty()
        {
            failure.message = format!("{}; {remarks}", failure.message);
        }
        Progress::Over(answer)
    }

    fn remarks(&self, status: &Exit) -> String {
        let Some(said) = self.job.said(status) else {
            return "its unfinished work could not be repaired now; the run's next host worker tries again"
                .to_owned();
        };
        let said = match said.get(..REMARKS) {
            Some(beginning) => &beginning[..text::without_cut_end(beginning)],
            None => said,
        };
        text::one_line(&String::from_utf8_lossy(said)).into_owned()
    }
}
