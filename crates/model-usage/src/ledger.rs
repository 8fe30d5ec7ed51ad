//! The ledger: accounts in memory, and a thread that writes their changes.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use egress_rules::Budget;
use parking_lot::{Condvar, Mutex, MutexGuard};
use timestamp::Timestamp;

use crate::account::Account;
use crate::accounts::{Accounts, KEPT_DAYS};
use crate::bounds::{BoundUse, Exceeded, Warning};
use crate::changes::Changes;
use crate::charge::{Answer, Estimate, charge, within};
use crate::database::{Database, Unreadable};
use crate::day::Day;
use crate::prices::Prices;
use crate::report::{By, Report};
use crate::reservation::Reservation;
use crate::tokens::{Tokens, Usage};
use crate::who::Who;

/// Name of the file with all counts.
const FILE: &str = "usage.db";
/// Time between two writes: the most that a power cut takes.
const PAUSE: Duration = Duration::from_secs(1);

/// The end of a request: what it was charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Name of the model that the response or else the request said; empty if neither did.
    pub model: String,
    pub tokens: Tokens,
    /// Bounds that have passed 80 % since the run's last response. Each is warned of once until it begins anew.
    pub warnings: Vec<Warning>,
}

/// Counts the use of models, and keeps budgets. The counts outlive the daemon.
#[derive(Debug)]
pub struct Ledger {
    prices: Prices,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    accounts: Arc<Mutex<Accounts>>,
    /// Locked before the accounts by those that need both.
    database: Mutex<Option<Database>>,
    /// Wakes the writer after the first change.
    changed: Condvar,
    /// Wakes the writer at the end.
    stopped: Condvar,
}

impl Ledger {
    /// Opens or makes the ledger in a directory, which is made if it is missing.
    ///
    /// A damaged file is an error in the log, not one of this function: requests under a budget are refused from then on.
    pub fn open(directory: &Path, prices: Prices) -> io::Result<Self> {
        Self::open_at(directory, prices, Timestamp::now())
    }

    pub(crate) fn open_at(directory: &Path, prices: Prices, now: Timestamp) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let path = directory.join(FILE);
        let today = Day::of(now);
        let mut accounts = Accounts::new(today);
        let read = Database::open(&path).and_then(|database| {
            database.read_runs(|row, usage| accounts.take(row, usage, &prices))?;
            // All days, for the prices that were missing.
            let kept = (today.before(KEPT_DAYS - 1), today);
            database.read_days(kept, |row, usage| accounts.take(row, usage, &prices))?;
            if let Some(last) = database.last_day()? {
                accounts.has_rows_of(last);
            }
            Ok(database)
        });
        let database = match read {
            Ok(database) => Some(database),
            Err(error) => {
                tracing::error!(
                    error = %chain(&error),
                    file = %path.display(),
                    "the use of models cannot be read, so requests under a budget are refused: move the file away, or put a \
                     copy of it in its place, and restart the daemon",
                );
                accounts = Accounts::new(today);
                accounts.set_unreadable();
                None
            }
        };
        let has_database = database.is_some();
        let shared = Arc::new(Shared {
            accounts: Arc::new(Mutex::new(accounts)),
            database: Mutex::new(database),
            changed: Condvar::new(),
            stopped: Condvar::new(),
        });
        if has_database {
            let shared = Arc::clone(&shared);
            let writer = std::thread::Builder::new().name("model-usage".to_owned());
            writer.spawn(move || shared.write_until_stopped())?;
        }
        Ok(Self { prices, shared })
    }

    /// Counts a request that goes out and reserves its estimate, or returns the bound that leaves no room.
    ///
    /// A bound leaves room while use and reservations together are below it. So the requests under way exceed a bound by at most the
    /// last one of them, and by what they use beyond their estimates.
    pub fn admit(
        &self,
        who: &Who,
        budget: &Budget,
        estimate: Estimate,
        now: Timestamp,
    ) -> Result<Reservation, Exceeded> {
        let estimate = estimate.within(&budget.run);
        let tokens = estimate.tokens();
        let priced = self.prices.cost(&estimate.model, &tokens);
        let cost = priced.or_else(|| self.prices.dearest(&tokens)).unwrap_or_default();
        let cost = within(cost, &budget.run);
        let mut accounts = self.on_day_of(now);
        accounts.check(who, budget)?;
        accounts.begin(who, budget);
        let reservation = Reservation::begin((&self.shared.accounts, &mut accounts), who, estimate, cost.0);
        drop(accounts);
        self.shared.changed.notify_one();
        Ok(reservation)
    }

    /// Ends a reservation, and charges the request by its response.
    pub fn settle(
        &self,
        reservation: Reservation,
        budget: &Budget,
        answer: Answer,
        now: Timestamp,
    ) -> Settled {
        let mut accounts = self.on_day_of(now);
        let (who, estimate) = reservation.end(&mut accounts);
        let tokens = charge(&estimate, &answer);
        let model = if answer.model.is_empty() { estimate.model } else { answer.model };
        let warnings = accounts.add(&who, budget, (&model, &tokens, answer.is_reported), &self.prices);
        drop(accounts);
        self.shared.changed.notify_one();
        Settled { model, tokens, warnings }
    }

    /// Returns the use of a run.
    pub fn of_run(&self, run: &str) -> Usage {
        self.shared.accounts.lock().run(run).map(Account::total).unwrap_or_default()
    }

    /// Returns the use of a run by model.
    pub fn report_of_run(&self, run: &str) -> Report {
        self.shared.accounts.lock().run(run).map(Report::of).unwrap_or_default()
    }

    /// Returns the use from the first to the last day, of one principal or of all. Blocks on the disk.
    pub fn report_of_days(
        &self,
        days: (Day, Day),
        principal: Option<&str>,
        by: By,
    ) -> Result<Report, Unreadable> {
        self.shared.write();
        let database = self.shared.database.lock();
        let mut report = Report::default();
        database.as_ref().ok_or(Unreadable::AtStart)?.read_days(days, |row, usage| {
            if row.owner.is_of(principal) {
                report.add(row, usage, by);
            }
        })?;
        Ok(report)
    }

    /// Returns the bounds of a budget, and the part of each that is used.
    pub fn bounds(&self, who: &Who, budget: &Budget, now: Timestamp) -> Vec<BoundUse> {
        self.on_day_of(now).bounds(who, budget)
    }

    /// Locks the accounts, with those of the day of `now`. Blocks on the disk if the clock was wrong by days.
    fn on_day_of(&self, now: Timestamp) -> MutexGuard<'_, Accounts> {
        let today = Day::of(now);
        let mut accounts = self.shared.accounts.lock();
        if accounts.lack_rows_of(today) {
            drop(accounts);
            self.shared.resume(today, &self.prices);
            accounts = self.shared.accounts.lock();
        }
        accounts.turn(today);
        accounts
    }

    /// Deletes the account of a run.
    pub fn forget(&self, run: &str) {
        self.shared.accounts.lock().forget(run);
        self.shared.changed.notify_one();
    }

    /// Deletes the accounts of runs that do not exist.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.shared.accounts.lock().retain(exists);
        self.shared.changed.notify_one();
    }

    /// Writes what has changed, as the daemon does at its end. Blocks on the disk.
    pub fn write(&self) {
        self.shared.write();
    }
}

#[cfg(test)]
impl Ledger {
    /// Counts a request that reserves nothing.
    pub(crate) fn admit_one(&self, who: &Who, budget: &Budget, now: Timestamp) -> Result<(), Exceeded> {
        self.admit(who, budget, Estimate::nothing(), now).map(drop)
    }

    /// Adds the tokens of a response, and no request.
    pub(crate) fn report(
        &self,
        who: &Who,
        budget: &Budget,
        model: &str,
        tokens: &Tokens,
        is_reported: bool,
        now: Timestamp,
    ) -> Vec<Warning> {
        self.on_day_of(now).add(who, budget, (model, tokens, is_reported), &self.prices)
    }
}

/// Ends the writer, which writes the last changes before. It is not waited for, because a disk may hang: see [`Ledger::write`].
impl Drop for Ledger {
    fn drop(&mut self) {
        self.shared.accounts.lock().stops = true;
        self.shared.changed.notify_one();
        self.shared.stopped.notify_one();
    }
}

impl Shared {
    fn write_until_stopped(&self) {
        loop {
            let mut accounts = self.accounts.lock();
            while accounts.changes.is_empty() && !accounts.stops {
                self.changed.wait(&mut accounts);
            }
            drop(accounts);
            self.write();
            let mut accounts = self.accounts.lock();
            if accounts.stops {
                drop(accounts);
                self.write();
                return;
            }
            self.stopped.wait_for(&mut accounts, PAUSE);
        }
    }

    fn write(&self) {
        let mut database = self.database.lock();
        let mut accounts = self.accounts.lock();
        let changes = std::mem::take(&mut accounts.changes);
        drop(accounts);
        // Without a database the changes are dropped: the accounts in memory are all that there is.
        let Some(database) = database.as_mut().filter(|_| !changes.is_empty()) else { return };
        match database.write(&changes) {
            Ok(()) => self.accounts.lock().set_written(),
            Err(error) => self.report_failure(changes, &error),
        }
    }

    /// Goes on with a day as it is written. If it cannot be read, the accounts stay as they are.
    fn resume(&self, today: Day, prices: &Prices) {
        self.write();
        let database = self.database.lock();
        let Some(database) = database.as_ref() else { return };
        let mut rows = Vec::new();
        match database.read_days((today, today), |row, usage| rows.push((row.clone(), usage))) {
            Ok(()) => self.accounts.lock().resume(today, &rows, prices),
            Err(error) => {
                tracing::error!(error = %chain(&error), "the use of models of this day cannot be read");
            }
        }
    }

    fn report_failure(&self, changes: Changes, error: &Unreadable) {
        if self.accounts.lock().set_failing(changes) {
            tracing::error!(
                error = %chain(error),
                "the use of models cannot be written: it is tried again each second, and requests under a budget are refused \
                 after a minute"
            );
        }
    }
}

/// Returns an error and its sources on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
