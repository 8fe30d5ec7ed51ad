//! The host worker's processes: operations at work, and recoveries of those that were killed.
//!
//! ```text
//! begin ──► at work ─(go)─► over by itself ─────────────► answer
//!              └──────► killed or crashed ─► recovery ──► answer
//! ```

use std::io;
use std::time::{Duration, Instant};

use wire::worker::v1::{Start, Usage};

use crate::child::Terms;
use crate::job::{Job, Stop, leaves_traces, writes_repository};
use crate::ready::Ready;
use crate::recovery::{self, Answer, Progress, Recovery};

/// Operations at work at the same time.
const AT_WORK: usize = 16;

/// How long a process waits for an operation.
const IDLE: Duration = Duration::from_secs(60);

/// A call at work.
struct Current {
    id: u64,
    writes_repository: bool,
    leaves_traces: bool,
    job: Job,
}

/// All processes of the host worker.
pub(crate) struct WorkerPool {
    current: Vec<Current>,
    recoveries: Vec<Recovery>,
    /// Waits for the next operation, until it is not worth its memory any longer.
    ready: Option<(Ready, Instant)>,
    /// An operation has come since one was given up.
    is_busy: bool,
    /// Of the last job.
    number: u64,
    terms: Terms,
}

impl WorkerPool {
    /// Nobody. `terms` hold for each process.
    pub(crate) fn new(terms: Terms) -> Self {
        Self { current: Vec::new(), recoveries: Vec::new(), ready: None, is_busy: true, number: 0, terms }
    }

    /// Begins a recovery of everything, where the private directory asks for one. Until it is over, nothing else begins.
    pub(crate) fn recover_everything(&mut self) -> io::Result<()> {
        if recovery::is_needed() {
            let number = self.next_number();
            self.recoveries.push(Recovery::of_everyone(number, &self.terms)?);
        }
        Ok(())
    }

    /// Whether another operation may begin now.
    pub(crate) fn has_room(&self) -> bool {
        self.current.len() < AT_WORK && !self.recoveries.iter().any(Recovery::is_of_everyone)
    }

    /// Whether an operation that writes the repository is at work.
    pub(crate) fn writes_repository(&self) -> bool {
        self.current.iter().any(|call| call.writes_repository)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.current.is_empty() && self.recoveries.is_empty()
    }

    pub(crate) fn begin(&mut self, id: u64, start: Start, deadline: Instant) -> io::Result<()> {
        let (writes_repository, leaves_traces) = (writes_repository(&start), leaves_traces(&start));
        let number = self.next_number();
        let ready = self.ready.take().map(|(ready, _)| ready);
        self.is_busy = true;
        let job = Job::begin_call(number, start, deadline, &self.terms, ready)?;
        self.current.push(Current { id, writes_repository, leaves_traces, job });
        Ok(())
    }

    /// Makes the process that waits for the next operation, when nobody waits for anything but the disk. Before a call may take
    /// effect its own process and the record of its intent need the processors, and after its answer so does its receipt.
    pub(crate) fn prepare(&mut self) {
        let disk_alone = self.recoveries.is_empty() && !self.current.iter().any(|call| call.job.awaits_go());
        if self.ready.is_none() && self.is_busy && disk_alone {
            // Where it cannot be made, the next operation tries for itself and says so.
            self.ready = Ready::fork(&self.terms).ok().map(|ready| (ready, Instant::now() + IDLE));
        }
    }

    /// Until when the process that waits may wait.
    pub(crate) fn ready_until(&self) -> Option<Instant> {
        self.ready.as_ref().map(|(_, until)| *until)
    }

    /// Ends the operation of a call, if it is at work. What it left is put right all the same.
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

    /// Ends all operations, and the process that waits for one.
    pub(crate) fn cancel_all(&mut self) {
        self.current.iter_mut().for_each(|call| call.job.stop(Stop::Cancelled));
        self.dismiss();
    }

    fn dismiss(&mut self) {
        if let Some((ready, _)) = self.ready.take() {
            ready.dismiss();
        }
    }

    /// Ends what is over its time.
    pub(crate) fn expire(&mut self, now: Instant) {
        if self.ready_until().is_some_and(|until| until <= now) {
            self.dismiss();
            self.is_busy = false;
        }
        for call in &mut self.current {
            if call.job.deadline().is_some_and(|deadline| deadline <= now) {
                call.job.stop(Stop::TimedOut);
            }
        }
        self.recoveries.iter_mut().for_each(|recovery| recovery.expire(now));
    }

    /// Reads what the processes wrote; what is to be answered now.
    pub(crate) fn collect(&mut self) -> Vec<Answer> {
        let (mut answers, mut dead) = (Vec::new(), Vec::new());
        self.current.retain_mut(|call| {
            let Some(status) = call.job.advance() else { return true };
            let outcome = call.job.outcome(&status);
            let ended = outcome.is_some();
            let mut outcome = Box::new(outcome.unwrap_or_else(|| call.job.failure(&status)));
            // The kernel's word, whatever the process says of itself.
            let (cpu_time_us, peak_memory_bytes) = (Some(status.cpu_us), Some(status.peak_memory));
            outcome.usage = Some(Usage { cpu_time_us, peak_memory_bytes });
            let answer = Answer { id: call.id, outcome };
            if ended || !call.leaves_traces {
                answers.push(answer);
            } else {
                dead.push((call.job.number(), answer));
            }
            false
        });
        for (job, answer) in dead {
            match Recovery::of_job(self.next_number(), job, answer, &self.terms) {
                Ok(recovery) => self.recoveries.push(recovery),
                Err(answer) => answers.push(answer),
            }
        }
        self.recoveries.retain_mut(|recovery| match recovery.advance() {
            Progress::AtWork => true,
            Progress::Over(answer) => {
                answers.extend(answer);
                false
            }
        });
        answers
    }

    /// All of them, to be waited for.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.current.iter().map(|call| &call.job).chain(self.recoveries.iter().map(Recovery::job))
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
    fn a_process_that_nobody_needs_goes_and_comes_again_with_the_next_operation() {
        let mut pool = WorkerPool::new(Terms::new().unwrap());
        pool.prepare();
        let until = pool.ready_until().unwrap();
        pool.expire(until.checked_sub(Duration::from_secs(1)).unwrap());
        assert_eq!(pool.ready_until(), Some(until));
        pool.expire(until);
        pool.prepare();
        assert_eq!(pool.ready_until(), None);
        pool.begin(1, Start::default(), until).unwrap();
        while pool.collect().is_empty() {
            std::thread::yield_now();
        }
        pool.prepare();
        assert!(pool.ready_until().is_some());
        pool.cancel_all();
    }
}
