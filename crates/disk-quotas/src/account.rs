//! Accounts for one run's space on the state disk, and decides on the consequences.
//!
//! ```text
//!            quota used up                  a command took more
//!  WITHIN ───────────────────► OVER ───────────────────────────► LOCKED
//!     ▲                         │                                   │
//!     └── clearly less again ───┴───────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

use containers::Amount;
use jail::Mount;
use operations::{Effect, Operation, Reason};
use parking_lot::Mutex;
use refusal::Refusal;
use wire::v1;

/// Largest increase that does not count as growth. Space beyond the quota is never counted exactly.
const UNCHANGED: Amount = Amount { bytes: 1 << 20, files: 128 };
/// Time after which ended commands count as gone, however long their end takes.
const GONE: Duration = Duration::from_secs(5);
/// Space below which a run has none, if the kernel enforces its quota.
const NO_ROOM: Amount = Amount { bytes: 64 << 10, files: 1 };
/// Most bytes of its quota that a run over its quota has to free before it may write again.
const MOST_ROOM: u64 = 64 << 20;

/// Space that was found for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found {
    pub amount: Amount,
    /// The measure stopped before everything was counted.
    pub is_more: bool,
    /// Uploads that are on the disk, in addition to `amount`. The kernel includes them in `amount`.
    pub uploads: Amount,
    /// Bytes of the trash, the output and the recordings of a run that has ended. They count against no quota of it.
    pub beside: u64,
    /// Directories are nested too deep to be counted.
    pub is_too_deep: bool,
    /// The kernel counted this, and it also enforces the run's quota.
    pub by_kernel: bool,
}

/// State of a run with regard to its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Within,
    Over,
    /// A command took more although no space was left.
    Locked,
}

impl Standing {
    /// Returns the name for the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Over => "over",
            Self::Locked => "locked",
        }
    }

    fn to_wire(self) -> v1::disk_use::State {
        match self {
            Self::Within => v1::disk_use::State::Within,
            Self::Over => v1::disk_use::State::Over,
            Self::Locked => v1::disk_use::State::Locked,
        }
    }
}

/// Consequences of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub standing: Standing,
    /// The standing has changed.
    pub is_new: bool,
    /// The run's commands have to be ended.
    pub ends_commands: bool,
}

/// Account of a live run.
pub struct Account {
    most: Amount,
    /// The daemon made the workspace, so it counts.
    has_workspace: bool,
    seen: Mutex<Seen>,
}

struct Seen {
    found: Option<Found>,
    standing: Standing,
    /// Least complete count since the run is over its quota. Anything beyond it was added later.
    mark: Option<Amount>,
    /// When the run's commands were last ended.
    ended: Option<Instant>,
    /// When the ended commands were seen to be gone.
    gone: Option<Instant>,
    /// Ended commands may still exist. New space is theirs, and no command begins.
    ends: bool,
    /// They were ended because the disk was full, and the kernel held the run to its quota.
    ends_for_disk: bool,
    /// Space that is reserved for uploads that are under way or kept.
    reserved: Amount,
    /// Space that the files written from these uploads will take, as far as it counts.
    to_write: Amount,
    /// Space that was found, without uploads.
    others: Amount,
}

impl Account {
    /// Makes the account of a run with this quota. With `has_workspace` its workspace, which the daemon made, counts too.
    pub fn new(most: Amount, has_workspace: bool) -> Self {
        let seen = Seen {
            found: None,
            standing: Standing::Within,
            mark: None,
            ended: None,
            gone: None,
            ends: false,
            ends_for_disk: false,
            reserved: Amount::default(),
            to_write: Amount::default(),
            others: Amount::default(),
        };
        Self { most, has_workspace, seen: Mutex::new(seen) }
    }

    /// Returns the quota.
    pub fn most(&self) -> Amount {
        self.most
    }

    /// Returns true if the workspace counts.
    pub fn has_workspace(&self) -> bool {
        self.has_workspace
    }

    /// Returns how much of the run's space a look has to count.
    pub fn worth_counting(&self) -> Amount {
        match self.seen.lock().standing {
            Standing::Within => self.most,
            // Count everything, to find out whether it grows or has space again.
            Standing::Over | Standing::Locked => Amount { bytes: u64::MAX, files: u64::MAX },
        }
    }

    /// Returns the free quota of the run. `None` if it is over its quota or was never measured.
    pub fn room(&self) -> Option<Amount> {
        let seen = self.seen.lock();
        let found = seen.found.filter(|_| seen.standing == Standing::Within)?;
        Some(Amount {
            bytes: self.most.bytes.saturating_sub(found.amount.bytes),
            files: self.most.files.saturating_sub(found.amount.files),
        })
    }

    /// Returns the space that may have been added since the last look before the run can be over its quota.
    pub fn may_take(&self) -> Amount {
        match self.room() {
            Some(room) => room,
            None if self.is_over() => Amount::default(),
            None => self.most,
        }
    }

    /// Returns true if the quota is used up.
    pub fn is_over(&self) -> bool {
        self.seen.lock().standing != Standing::Within
    }

    /// Returns the last result for clients.
    pub fn to_wire(&self) -> Option<v1::DiskUse> {
        let seen = self.seen.lock();
        let found = seen.found?;
        Some(v1::DiskUse { state: seen.standing.to_wire().into(), ..found.to_wire() })
    }

    /// Records the result of a look that began at this moment.
    pub fn take(&self, found: Found, began: Instant) -> Verdict {
        let mut seen = self.seen.lock();
        let before = seen.standing;
        let (found, others) = found.with_uploads(seen.reserved);
        seen.others = others;
        let amount = found.amount;
        // A look that began before ended commands were gone may have counted while they still wrote.
        let settles = seen.ends() || seen.gone.is_some_and(|gone| gone >= began);
        let grew = !found.by_kernel
            && !settles
            && seen.mark.is_some_and(|mark| {
                amount.bytes > mark.bytes.saturating_add(UNCHANGED.bytes)
                    || amount.files > mark.files.saturating_add(UNCHANGED.files)
            });
        seen.standing = match before {
            Standing::Within if self.is_too_much(found) => Standing::Over,
            Standing::Over | Standing::Locked if self.has_room(found) => Standing::Within,
            Standing::Over if grew => Standing::Locked,
            standing => standing,
        };
        let went_over = before == Standing::Within && seen.standing == Standing::Over;
        let ends_commands = !found.by_kernel
            && (went_over || (seen.standing == Standing::Locked && (before != seen.standing || grew)));
        if ends_commands {
            seen.end();
        }
        seen.mark = match (seen.standing, seen.mark) {
            (Standing::Within, _) => None,
            (_, _) if settles => None,
            // The look that found the run over its quota has not counted everything.
            (_, mark) if found.is_more || went_over => mark,
            (_, Some(mark)) if !grew => {
                Some(Amount { bytes: mark.bytes.min(amount.bytes), files: mark.files.min(amount.files) })
            }
            _ => Some(amount),
        };
        seen.found = Some(found);
        Verdict { standing: seen.standing, is_new: before != seen.standing, ends_commands }
    }

    /// Records that the run's commands are being ended because of the disk, whatever this run has.
    pub fn commands_end(&self) {
        self.seen.lock().end();
    }

    /// Records that the run's commands are being ended because the disk is full.
    pub fn commands_end_for_disk(&self) {
        let mut seen = self.seen.lock();
        seen.end();
        seen.ends_for_disk =
            seen.standing == Standing::Within && seen.found.is_some_and(|found| found.by_kernel);
    }

    /// Returns true if the commands that were ended last were ended for a full disk, although their run was within its quota.
    ///
    /// A run that is measured may have more than was found, so that its commands are never ended like this.
    pub fn ended_for_disk(&self) -> bool {
        self.seen.lock().ends_for_disk
    }

    /// Records that the ended commands are gone.
    pub fn commands_are_gone(&self) {
        let mut seen = self.seen.lock();
        (seen.ends, seen.gone) = (false, Some(Instant::now()));
    }

    /// Returns true if the run's commands were ended at any moment since. A command may begin after the others were told to end, and be
    /// ended with them.
    pub fn ended_since(&self, began: Instant) -> bool {
        let seen = self.seen.lock();
        seen.ends || [seen.ended, seen.gone].into_iter().flatten().any(|moment| moment >= began)
    }

    /// Refuses an operation that would add to a run over its quota.
    pub fn check(&self, operation: &Operation) -> Result<(), Refusal> {
        let seen = self.seen.lock();
        let (Some(found), true) = (seen.found, seen.standing != Standing::Within) else { return Ok(()) };
        let runs_something = operation.effect() == Effect::Runs;
        let is_locked = seen.standing == Standing::Locked;
        let refused = (runs_something && (is_locked || seen.ends())) || self.adds(operation);
        if !refused {
            return Ok(());
        }
        let least = if found.is_more { "more than " } else { "" };
        let has = format!("{least}{} in {} files", mib(found.amount.bytes), found.amount.files);
        let may = format!("{} in {} files", mib(self.most.bytes), self.most.files);
        let below = self.below();
        let what = match (runs_something, found.is_too_deep) {
            (true, _) if is_locked => {
                "and a command wrote more after the quota was used up, so no command is run"
            }
            (true, _) => "and its commands are being ended, so no command is run now",
            (false, true) => "in directories that are nested too deep to be counted, so writes are refused",
            (false, false) => "so writes are refused",
        };
        let how = match seen.standing {
            Standing::Locked => "delete files one by one, or ask the operator",
            _ => "delete files in @state, or in a managed workspace; a command may delete them",
        };
        let message = format!(
            "this run uses {has} of at most {may} on the daemon's disk, {what}. To free space, {how}; the \
             run can continue at {} in {} files or less",
            mib(below.bytes),
            below.files
        );
        Err(Refusal::new(Reason::WriteLimit, message)
            .with("limit", "disk-quota")
            .with("used_bytes", found.amount.bytes.to_string())
            .with("used_files", found.amount.files.to_string())
            .with("max_bytes", self.most.bytes.to_string())
            .with("max_files", self.most.files.to_string()))
    }

    /// Reserves space for an upload, which the caller has to release. `copies` is the number of files with this content that will count at
    /// the same time.
    pub fn reserve(&self, more: Amount, copies: u64) -> Result<(), Refusal> {
        let mut seen = self.seen.lock();
        let uploads = most_of(seen.found.unwrap_or_default().uploads, seen.reserved);
        let has = plus(plus(seen.others, uploads), seen.to_write);
        let needs = plus(has, times(more, copies));
        if seen.standing != Standing::Within || needs.bytes > self.most.bytes || needs.files > self.most.files
        {
            let message = format!(
                "this run uses {} in {} files (with uploads and the files written from them) of at most {} in {} files on the daemon's \
                 disk: the upload and the file written from it do not fit. Delete files in @state or in a \
                 workspace of the run's own, or let \
                 other uploads finish",
                mib(has.bytes),
                has.files,
                mib(self.most.bytes),
                self.most.files
            );
            return Err(Refusal::new(Reason::WriteLimit, message)
                .with("limit", "disk-quota")
                .with("used_bytes", has.bytes.to_string())
                .with("max_bytes", self.most.bytes.to_string()));
        }
        seen.reserved = plus(seen.reserved, more);
        seen.to_write = plus(seen.to_write, times(more, copies.saturating_sub(1)));
        Ok(())
    }

    /// Releases space that was reserved with this number of copies.
    pub fn release(&self, less: Amount, copies: u64) {
        let mut seen = self.seen.lock();
        seen.reserved = minus(seen.reserved, less);
        seen.to_write = minus(seen.to_write, times(less, copies.saturating_sub(1)));
    }

    /// Returns true if the operation makes files in a directory that counts.
    pub fn adds(&self, operation: &Operation) -> bool {
        let counts = |mount| match mount {
            // A writable root counts. It is not known here whether the container has one.
            Mount::State | Mount::Container => true,
            Mount::Project => self.has_workspace,
            Mount::Pkg => false,
        };
        operation.adds_to(counts)
    }

    fn is_too_much(&self, found: Found) -> bool {
        let Found { amount, is_more, is_too_deep, by_kernel, .. } = found;
        let room = if by_kernel { NO_ROOM } else { Amount::default() };
        is_more
            || is_too_deep
            || amount.bytes.saturating_add(room.bytes) > self.most.bytes
            || amount.files.saturating_add(room.files) > self.most.files
    }

    fn has_room(&self, found: Found) -> bool {
        let below = self.below();
        !found.is_more
            && !found.is_too_deep
            && found.amount.bytes <= below.bytes
            && found.amount.files <= below.files
    }

    /// Returns the space at which a run over its quota may write again. The margin keeps it from alternating between the states.
    fn below(&self) -> Amount {
        let Amount { bytes, files } = self.most;
        Amount { bytes: bytes - (bytes / 32).min(MOST_ROOM), files: files - files / 32 }
    }
}

impl Seen {
    fn end(&mut self) {
        (self.ended, self.ends, self.ends_for_disk) = (Some(Instant::now()), true, false);
    }

    fn ends(&self) -> bool {
        self.ends && self.ended.is_some_and(|ended| ended.elapsed() < GONE)
    }
}

impl Found {
    /// Adds uploads, as many as are on the disk or reserved, and also returns the space without them. The kernel's count includes them.
    fn with_uploads(self, reserved: Amount) -> (Self, Amount) {
        if self.by_kernel {
            return (self, minus(self.amount, reserved));
        }
        let amount = plus(self.amount, most_of(self.uploads, reserved));
        (Self { amount, ..self }, self.amount)
    }

    /// Returns the message without a standing.
    pub fn to_wire(self) -> v1::DiskUse {
        v1::DiskUse {
            used_bytes: self.amount.bytes,
            used_files: self.amount.files,
            at_least: self.is_more || self.is_too_deep,
            state: v1::disk_use::State::Unspecified.into(),
            kernel: self.by_kernel,
        }
    }
}

fn plus(one: Amount, other: Amount) -> Amount {
    Amount { bytes: one.bytes.saturating_add(other.bytes), files: one.files.saturating_add(other.files) }
}

fn minus(one: Amount, other: Amount) -> Amount {
    Amount { bytes: one.bytes.saturating_sub(other.bytes), files: one.files.saturating_sub(other.files) }
}

fn times(one: Amount, copies: u64) -> Amount {
    Amount { bytes: one.bytes.saturating_mul(copies), files: one.files.saturating_mul(copies) }
}

fn most_of(one: Amount, other: Amount) -> Amount {
    Amount { bytes: one.bytes.max(other.bytes), files: one.files.max(other.files) }
}

fn mib(bytes: u64) -> String {
    // Round up to a tenth.
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use jail::SandboxPath;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn account() -> Account {
        Account::new(Amount { bytes: 64 * MIB, files: 1_000 }, false)
    }

    fn found(mib: u64, files: u64) -> Found {
        Found { amount: Amount { bytes: mib * MIB, files }, ..Found::default() }
    }

    fn takes(account: &Account, found: Found) -> (Standing, bool, bool) {
        let Verdict { standing, is_new, ends_commands } = account.take(found, Instant::now());
        account.commands_are_gone();
        (standing, is_new, ends_commands)
    }

    fn write(path: &str) -> Operation {
        Operation::Write(operations::Write::new(SandboxPath::parse(path).unwrap(), "x"))
    }

    fn exec() -> Operation {
        Operation::Exec(operations::Exec::new("true", [""; 0]))
    }

    #[test]
    fn a_run_exceeds_its_quota_frees_space_and_continues() {
        let account = account();
        assert_eq!(takes(&account, found(64, 1_000)), (Standing::Within, false, false));
        assert_eq!(account.check(&write("@state/a")), Ok(()));
        let began = Instant::now();
        assert_eq!(takes(&account, Found { is_more: true, ..found(65, 3) }), (Standing::Over, true, true));
        assert!(account.ended_since(began) && !account.ended_since(Instant::now()));
        // Counted to the end for the first time: that is no growth.
        assert_eq!(takes(&account, found(90, 3)), (Standing::Over, false, false));
        let refused = account.check(&write("@state/a")).unwrap_err();
        assert_eq!(refused.reason, Reason::WriteLimit);
        assert!(refused.message.contains("90.0 MiB in 3 files"), "{}", refused.message);
        assert!(refused.message.contains("at most 64.0 MiB in 1000 files"), "{}", refused.message);
        assert!(refused.message.contains("continue at 62.0 MiB in 969 files or less"), "{}", refused.message);
        assert_eq!(account.check(&exec()), Ok(()), "it may delete");
        // What is not the daemon's does not count.
        assert_eq!(account.check(&write("a")), Ok(()));
        assert_eq!(takes(&account, found(63, 3)), (Standing::Over, false, false));
        assert_eq!(takes(&account, found(62, 3)), (Standing::Within, true, false));
        assert_eq!(account.check(&write("@state/a")), Ok(()));
    }

    #[test]
    fn a_command_that_exceeds_the_quota_again_locks_the_run() {
        let account = account();
        takes(&account, found(1, 1));
        assert_eq!(takes(&account, Found { is_more: true, ..found(2, 1_001) }).0, Standing::Over);
        assert_eq!(takes(&account, found(2, 1_500)), (Standing::Over, false, false));
        assert_eq!(takes(&account, found(3, 1_628)), (Standing::Over, false, false), "as good as nothing");
        assert_eq!(takes(&account, found(3, 1_560)), (Standing::Over, false, false));
        assert_eq!(takes(&account, found(3, 1_800)), (Standing::Locked, true, true));
        assert_eq!(account.check(&exec()).unwrap_err().reason, Reason::WriteLimit);
        assert_eq!(takes(&account, found(3, 1_800)), (Standing::Locked, false, false));
        assert_eq!(takes(&account, found(3, 2_000)), (Standing::Locked, false, true));
        assert_eq!(takes(&account, found(3, 900)), (Standing::Within, true, false));
        assert_eq!(account.check(&exec()), Ok(()));
    }

    #[test]
    fn measurements_before_the_end_count_for_the_ended_commands() {
        let account = account();
        let takes = |mib, began| account.take(found(mib, 3), began).standing;
        account.take(Found { is_more: true, ..found(65, 3) }, Instant::now());
        assert!(account.check(&exec()).is_err(), "none begins meanwhile");
        let before = Instant::now();
        assert_eq!([70, 90].map(|mib| takes(mib, before)), [Standing::Over; 2]);
        account.commands_are_gone();
        assert_eq!(account.check(&exec()), Ok(()));
        assert_eq!(takes(80, before), Standing::Over, "it was counted while they wrote");
        let after = || Instant::now() + Duration::from_nanos(1);
        assert_eq!([95, 96].map(|mib| takes(mib, after())), [Standing::Over; 2]);
        assert_eq!(takes(97, after()), Standing::Locked);
    }

    #[test]
    fn a_command_that_begins_while_others_are_ended_may_be_ended_with_them() {
        let account = account();
        let before = Instant::now();
        account.take(Found { is_more: true, ..found(65, 3) }, before);
        // It was admitted before, waited for its turn, and begins now.
        let began = Instant::now();
        assert!(account.ended_since(began), "the others are not gone yet");
        account.commands_are_gone();
        assert!(account.ended_since(before) && account.ended_since(began));
        std::thread::sleep(Duration::from_millis(1));
        assert!(!account.ended_since(Instant::now()), "that is over");
    }

    #[test]
    fn kernel_quota_is_only_reported() {
        let account = account();
        let kernel = |found| Found { by_kernel: true, ..found };
        assert_eq!(takes(&account, kernel(found(63, 3))).0, Standing::Within);
        assert_eq!(takes(&account, kernel(found(64, 3))), (Standing::Over, true, false));
        assert_eq!(takes(&account, kernel(found(64, 1_000))), (Standing::Over, false, false));
        assert!(account.check(&write("@state/a")).is_err() && account.check(&exec()).is_ok());
        assert_eq!(takes(&account, kernel(found(3, 3))).0, Standing::Within);
    }

    #[test]
    fn uncountable_use_exceeds_the_quota() {
        let account = Account::new(Amount { bytes: 64 * MIB, files: 1_000 }, true);
        takes(&account, Found { is_too_deep: true, ..found(1, 300) });
        let refused = account.check(&write("a")).unwrap_err();
        assert!(refused.message.contains("nested too deep"), "{}", refused.message);
    }
}
