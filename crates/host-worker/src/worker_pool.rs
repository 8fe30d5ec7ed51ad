//! Keeps the host worker's processes: operations at work, and recoveries of operations that were killed.
//!
//! ```text
//! begin ──► at work ─(go)─► over by itself ─────────────► answer
//!              └──────► killed or crashed ─► recovery ──► answer
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use wire::worker::v1::{Start, Usage};

use crate::child::Terms;
use crate::job::{Job, Stop, leaves_traces};
use crate::ready::Ready;
use crate::recovery::{self, Answer, Progress, Recovery};
use crate::turns::{Turn, Turns};

/// Most operations at work at the same time.
const AT_WORK: usize = 16;

/// Most processes that wait for operations.
const READY: usize = 4;

/// Quiet time before more than one waiting process is made. An agent's next call comes sooner than this, and forking would delay
/// it.
const QUIET: Duration = Duration::from_millis(2);

/// Time that processes wait for an operation.
const IDLE: Duration = Duration::from_secs(60);

/// A call at work.
struct Current {
    id: u64,
    turn: Turn,
    leaves_traces: bool,
    job: Job,
}

/// All processes of the host worker.
pub(crate) struct WorkerPool {
    current: Vec<Current>,
    /// Each with the turn of the operation that it recovers.
    recoveries: Vec<(Recovery, Turn)>,
    /// Processes that wait for the next operations, until they are no longer worth their memory.
    ready: VecDeque<Ready>,
    /// The time at which an operation began or ended last. `None`: none has since the waiting processes were dismissed.
    last: Option<Instant>,
    /// The number of the last job.
    number: u64,
    terms: Terms,
}

impl WorkerPool {
    /// Returns a pool without processes. `terms` apply to each process.
    pub(crate) fn new(terms: Terms) -> Self {
        let (current, recoveries, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { current, recoveries, ready, last: Some(Instant::now()), number: 0, terms }
    }

    /// Begins a recovery of everything, if the private directory needs one. Until it is over, nothing else begins.
    pub(crate) fn recover_everything(&mut self) -> io::Result<()> {
        if recovery::is_needed() {
            let number = self.next_number();
            self.recoveries.push((Recovery::of_everyone(number, &self.terms)?, Turn::default()));
        }
        Ok(())
    }

    /// Returns how many more operations may begin now.
    pub(crate) fn free(&self) -> usize {
        let closed = self.recoveries.iter().any(|(recovery, _)| recovery.is_of_everyone());
        if closed { 0 } else { AT_WORK.saturating_sub(self.current.len()) }
    }

    /// Returns the turns of the operations at work and of the recoveries.
    pub(crate) fn turns(&self) -> Turns<'_> {
        let mut turns = Turns::default();
        self.current.iter().for_each(|call| turns.take(&call.turn));
        self.recoveries.iter().for_each(|(_, turn)| turns.take(turn));
        turns
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_empty() && self.recoveries.is_empty()
    }

    /// Begins an operation whose turn it is, with its way to servers if it has one.
    pub(crate) fn begin(
        &mut self,
        id: u64,
        (start, way_out): (Start, Option<OwnedFd>),
        turn: Turn,
        deadline: Instant,
    ) -> io::Result<()> {
        let leaves_traces = leaves_traces(&start);
        let number = self.next_number();
        // A process that waits cannot get a handle.
        let ready = if way_out.is_some() { None } else { self.ready.pop_front() };
        self.last = Some(Instant::now());
        let job = Job::begin_call(number, (start, way_out), deadline, &self.terms, ready)?;
        self.current.push(Current { id, turn, leaves_traces, job });
        Ok(())
    }

    /// Makes a process that waits for an operation, if it is time for one.
    ///
    /// Without a waiting process the next operation would have to wait for a fork. The first one is made while only the disk works.
    /// Before a call takes effect, its process and the record of its intent need the processors. After its answer, its receipt
    /// does. The others are made when it has been quiet for a moment.
    pub(crate) fn prepare(&mut self, now: Instant) {
        let due = if self.ready.is_empty() {
            self.last.is_some() && !self.current.iter().any(|call| call.job.awaits_go())
        } else {
            self.fills_at().is_some_and(|at| at <= now)
        };
        if due && self.recoveries.is_empty() {
            // If the fork fails, the next operation tries one itself and reports the failure.
            match Ready::fork(&self.terms) {
                Ok(ready) => self.ready.push_back(ready),
                Err(_) => self.give_up(),
            }
        }
    }

    /// Returns when to make another process although one waits. `None` while an operation is at work.
    fn fills_at(&self) -> Option<Instant> {
        let lacks = self.ready.len() < READY && self.is_idle();
        self.last.filter(|_| lacks).map(|last| last + QUIET)
    }

    /// Returns when [`Self::prepare`] or [`Self::expire`] has to be called next for the processes that wait.
    pub(crate) fn ready_until(&self) -> Option<Instant> {
        let expiry = self.last.filter(|_| !self.ready.is_empty()).map(|last| last + IDLE);
        self.fills_at().or(expiry)
    }

    /// Ends the operation of a call, if it is at work. Its leftovers are recovered all the same.
    pub(crate) fn cancel(&mut self, id: u64) {
        if let Some(call) = self.current.iter_mut().find(|call| call.id == id) {
            call.job.stop(Stop::Cancelled);
        }
    }

    /// Lets the operation of a call take effect, if it is at work and awaits that.
    pub(crate) fn go(&mut self, id: u64) {
        if let Some(call) = self.current.iter_mut().find(|call| call.id == id) {
            call.job.go();
        }
    }

    /// Ends all operations, and the processes that wait for one.
    pub(crate) fn cancel_all(&mut self) {
        self.current.iter_mut().for_each(|call| call.job.stop(Stop::Cancelled));
        self.give_up();
    }

    fn give_up(&mut self) {
        self.ready.drain(..).for_each(Ready::dismiss);
        self.last = None;
    }

    /// Ends all operations and recoveries that are over their time.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.last.is_some_and(|last| last + IDLE <= now) {
            self.give_up();
        }
        for call in &mut self.current {
            if call.job.deadline().is_some_and(|deadline| deadline <= now) {
                call.job.stop(Stop::TimedOut);
            }
        }
        self.recoveries.iter_mut().for_each(|(recovery, _)| recovery.expire(now));
    }

    /// Reads the output of the processes. Returns the answers that are due now.
    pub(crate) fn collect(&mut self) -> Vec<Answer> {
        let (mut answers, mut dead) = (Vec::new(), Vec::new());
        self.current.retain_mut(|call| {
            let Some(status) = call.job.advance() else { return true };
            let outcome = call.job.outcome(&status);
            let ended = outcome.is_some();
            let mut outcome = Box::new(outcome.unwrap_or_else(|| call.job.failure(&status)));
            // Measured by the kernel, whatever the process reports.
            let (cpu_time_us, peak_memory_bytes) = (Some(status.cpu_us), Some(status.peak_memory));
            outcome.usage = Some(Usage { cpu_time_us, peak_memory_bytes });
            let answer = Answer { id: call.id, outcome };
            if ended || !call.leaves_traces {
                answers.push(answer);
            } else {
                dead.push((call.job.number(), std::mem::take(&mut call.turn), answer));
            }
            false
        });
        if !answers.is_empty() {
            self.last = Some(Instant::now());
        }
        for (job, turn, answer) in dead {
            match Recovery::of_job(self.next_number(), job, answer, &self.terms) {
                Ok(recovery) => self.recoveries.push((recovery, turn)),
                Err(answer) => answers.push(answer),
            }
        }
        self.recoveries.retain_mut(|(recovery, _)| match recovery.advance() {
            Progress::AtWork => true,
            Progress::Over(answer) => {
                answers.extend(answer);
                false
            }
        });
        answers
    }

    /// Returns the jobs of all processes, to wait for them.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.current
            .iter()
            .map(|call| &call.job)
            .chain(self.recoveries.iter().map(|(recovery, _)| recovery.job()))
    }

    fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_processes_end_and_restart_with_the_next_operation() {
        let mut pool = WorkerPool::new(Terms::new().unwrap());
        let began = pool.last.unwrap();
        pool.prepare(began);
        pool.prepare(began);
        assert_eq!(pool.ready.len(), 1, "quiet has to come before there are more");
        while let Some(at) = pool.fills_at() {
            pool.prepare(at);
        }
        assert_eq!(pool.ready.len(), READY);
        let until = pool.ready_until().unwrap();
        pool.expire(until.checked_sub(Duration::from_secs(1)).unwrap());
        assert_eq!(pool.ready_until(), Some(until));
        pool.expire(until);
        pool.prepare(until);
        assert!(pool.ready.is_empty() && pool.ready_until().is_none());
        pool.begin(1, Start::default(), Turn::default(), until).unwrap();
        while pool.collect().is_empty() {
            std::thread::yield_now();
        }
        pool.prepare(Instant::now());
        assert_eq!(pool.ready.len(), 1);
        pool.cancel_all();
    }
}
