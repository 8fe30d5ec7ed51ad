//! All accounts that a request can change, in memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use egress_rules::Budget;

use crate::account::{Account, OTHER, model_name};
use crate::bounds::{BoundUse, Exceeded, Scope, Warning, has_usd, passed, used_up, uses};
use crate::changes::{Changes, Owner, Row};
use crate::charge::within;
use crate::day::Day;
use crate::holds::Holds;
use crate::prices::Prices;
use crate::tokens::{Tokens, Usage};
use crate::who::Who;

/// Most runs with an account.
const MOST_RUNS: usize = 65_536;
/// Most principals of a day with an account. All further ones share one.
const MOST_PRINCIPALS: usize = 4_096;
/// Most models of a run, and of a principal's day.
const MOST_MODELS: usize = 64;
/// Most models of a day.
const MOST_MODELS_OF_DAY: usize = 4_096;
/// Days that are kept for certain, today's included. So are as many of the newest ones with use, however old they are.
pub const KEPT_DAYS: u32 = 400;
/// Time for which budgets are kept while nothing can be written.
const UNWRITTEN: Duration = Duration::from_secs(60);
/// Warnings of a run that wait for its next response.
const MOST_WAITING: usize = 16;

/// State of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Written,
    /// Writing has failed since this moment.
    Failing(Instant),
    /// It could not be read at the start.
    Unreadable,
}

/// The account of a run.
#[derive(Debug, Default)]
struct OfRun {
    account: Account,
    /// Bounds of requests that have passed 80 %. The next response brings the warnings.
    waiting: Vec<Warning>,
}

/// The accounts of runs, and of today.
#[derive(Debug)]
pub(crate) struct Accounts {
    runs: BTreeMap<String, OfRun>,
    today: Day,
    /// Last day that may have rows. It is after today if the clock was fast, or is slow.
    furthest: Day,
    principals: BTreeMap<String, Account>,
    of_day: Account,
    /// Reservations of the requests under way.
    pub(crate) holds: Holds,
    pub(crate) changes: Changes,
    health: Health,
    /// True at the end of the ledger.
    pub(crate) stops: bool,
}

impl Accounts {
    pub(crate) fn new(today: Day) -> Self {
        Self {
            runs: BTreeMap::new(),
            today,
            furthest: today,
            principals: BTreeMap::new(),
            of_day: Account::default(),
            holds: Holds::default(),
            changes: Changes { oldest: Some(today.before(KEPT_DAYS - 1)), ..Changes::default() },
            health: Health::Written,
            stops: false,
        }
    }

    /// Takes a row that an earlier daemon has written, and gives its tokens the prices that were missing then.
    pub(crate) fn take(&mut self, Row { owner, model }: &Row, mut usage: Usage, prices: &Prices) {
        if usage.unpriced != Tokens::default()
            && let Some(cost) = prices.cost(model, &usage.unpriced)
        {
            usage.micro_usd = usage.micro_usd.saturating_add(cost.0);
            usage.unpriced = Tokens::default();
            usage.blocks = false;
            self.changes.set(owner, model, usage);
        }
        // Rows were bounded when they were made.
        let counts_requests = model.is_empty();
        let add = |account: &mut Account, most| {
            if counts_requests {
                account.count_earlier_requests(usage.requests);
            } else {
                account.add(model, &usage, most);
            }
        };
        match owner {
            Owner::Run(run) => add(&mut self.runs.entry(run.clone()).or_default().account, usize::MAX),
            Owner::Day(day, principal) if *day == self.today => {
                add(self.principals.entry(principal.clone()).or_default(), usize::MAX);
                add(&mut self.of_day, MOST_MODELS_OF_DAY);
            }
            Owner::Day(..) => {}
        }
    }

    /// Begins a new day if one has begun. A clock that was set back begins none.
    pub(crate) fn turn(&mut self, today: Day) {
        if today > self.today {
            self.begin_day(today);
        }
    }

    fn begin_day(&mut self, today: Day) {
        if today > self.today {
            self.changes.oldest = Some(today.before(KEPT_DAYS - 1));
        }
        self.today = today;
        self.furthest = self.furthest.max(today);
        self.principals.clear();
        self.of_day = Account::default();
    }

    /// Notes that an earlier daemon has written rows of a day.
    pub(crate) fn has_rows_of(&mut self, day: Day) {
        self.furthest = self.furthest.max(day);
    }

    /// Returns true if today may have rows in the database alone, because the clock was fast or has been slow.
    ///
    /// A clock that was ahead by a day keeps that day. After more, its bounds would be in force for too long.
    pub(crate) fn lack_rows_of(&self, today: Day) -> bool {
        self.today > today.next() || today > self.today && today <= self.furthest
    }

    /// Goes on with a day of which these are the rows. Does nothing if some of them are not written.
    pub(crate) fn resume(&mut self, today: Day, rows: &[(Row, Usage)], prices: &Prices) {
        let is_of_today = |row: &Row| matches!(&row.owner, Owner::Day(day, _) if *day == today);
        if !self.lack_rows_of(today) || self.changes.rows.keys().any(is_of_today) {
            return;
        }
        self.begin_day(today);
        for (row, usage) in rows {
            self.take(row, *usage, prices);
        }
    }

    /// Checks every bound of a budget before a request.
    pub(crate) fn check(&self, who: &Who, budget: &Budget) -> Result<(), Exceeded> {
        if budget.is_unbounded() {
            return Ok(());
        }
        match self.health {
            Health::Unreadable => return Err(Exceeded::Unreadable),
            Health::Failing(since) if since.elapsed() > UNWRITTEN => return Err(Exceeded::Unwritten),
            Health::Written | Health::Failing(_) => {}
        }
        if !self.has_room(&who.run) {
            return Err(Exceeded::TooManyRuns);
        }
        let totals = self.totals(who);
        let first = |totals: [Usage; 3]| {
            let mut scopes = Scope::ALL.into_iter().zip(totals);
            scopes.find_map(|(scope, total)| used_up(scope, budget, total, self.today))
        };
        if let Some(bound) = first(totals) {
            return Err(Exceeded::UsedUp(bound));
        }
        self.check_prices(who, budget)?;
        let mut with_holds = totals;
        for (scope, total) in Scope::ALL.into_iter().zip(&mut with_holds) {
            *total = self.holds.of(scope, who).with(*total);
        }
        first(with_holds).map_or(Ok(()), |bound| Err(Exceeded::Reserved(bound)))
    }

    /// Checks that the tokens under each bound in US dollars have a price.
    ///
    /// Tokens without one stop their run, and the other runs of its principal under a bound of a day. They stop no other principal, because
    /// one request could then stop all runs of a day.
    fn check_prices(&self, who: &Who, budget: &Budget) -> Result<(), Exceeded> {
        for (stopped, kept) in [(Scope::Run, &Scope::ALL[..]), (Scope::PrincipalDay, &Scope::DAYS[..])] {
            let scope = kept.iter().find(|scope| scope.of(budget).usd.is_some());
            let model = self.account(stopped, who).and_then(Account::blocking);
            if let (Some(scope), Some(model)) = (scope, model) {
                return Err(Exceeded::Unpriced { scope: *scope, model: model.to_owned() });
            }
        }
        Ok(())
    }

    /// Counts a request that goes out.
    pub(crate) fn begin(&mut self, who: &Who, budget: &Budget) {
        let before = self.totals(who);
        if self.has_room(&who.run) {
            let counted = self.runs.entry(who.run.clone()).or_default().account.count_request();
            self.changes.set(&Owner::Run(who.run.clone()), "", counted);
        }
        let principal = self.counted_principal(&who.principal).to_owned();
        let counted = self.principals.entry(principal.clone()).or_default().count_request();
        self.changes.set(&Owner::Day(self.today, principal), "", counted);
        self.of_day.count_request();
        let warnings = self.warnings(who, budget, &before);
        if let Some(run) = self.runs.get_mut(&who.run) {
            let room = MOST_WAITING.saturating_sub(run.waiting.len());
            run.waiting.extend(warnings.into_iter().take(room));
        }
    }

    /// Adds what a response reported, and returns the bounds that have passed 80 % since the last response.
    pub(crate) fn add(
        &mut self,
        who: &Who,
        budget: &Budget,
        (model, tokens, is_reported): (&str, &Tokens, bool),
        prices: &Prices,
    ) -> Vec<Warning> {
        // A refusal names the model as it is counted, so a price for that name counts as well.
        let cost = prices.cost(model, tokens).or_else(|| prices.cost(model_name(model), tokens));
        // An operator need not have a price for a model that no response named.
        let estimated = || cost.or_else(|| prices.dearest(tokens)).map(|cost| within(cost, &budget.run));
        let cost = if is_reported { cost } else { estimated() };
        let is_unpriced = cost.is_none() && tokens.total() > 0;
        let usage = Usage {
            requests: 1,
            unreported: u64::from(!is_reported),
            tokens: *tokens,
            micro_usd: cost.map_or(0, |cost| cost.0),
            unpriced: if is_unpriced { *tokens } else { Tokens::default() },
            blocks: is_unpriced && has_usd(&Scope::ALL, budget),
        };
        let of_day = Usage { blocks: is_unpriced && has_usd(&Scope::DAYS, budget), ..usage };
        let (before, model) = (self.totals(who), model_name(model));
        if self.has_room(&who.run) {
            let run = self.runs.entry(who.run.clone()).or_default();
            let (name, counted) = run.account.add(model, &usage, MOST_MODELS);
            self.changes.set(&Owner::Run(who.run.clone()), name, counted);
        }
        let principal = self.counted_principal(&who.principal).to_owned();
        let account = self.principals.entry(principal.clone()).or_default();
        let (name, counted) = account.add(model, &of_day, MOST_MODELS);
        self.changes.set(&Owner::Day(self.today, principal), name, counted);
        self.of_day.add(model, &of_day, MOST_MODELS_OF_DAY);
        let mut warnings =
            self.runs.get_mut(&who.run).map(|run| std::mem::take(&mut run.waiting)).unwrap_or_default();
        warnings.extend(self.warnings(who, budget, &before));
        warnings
    }

    /// Returns every bound of a budget with its use.
    pub(crate) fn bounds(&self, who: &Who, budget: &Budget) -> Vec<BoundUse> {
        let totals = Scope::ALL.into_iter().zip(self.totals(who));
        totals.flat_map(|(scope, total)| uses(scope, budget, total, self.today)).collect()
    }

    /// Returns the account of a run. `None` if it has used nothing.
    pub(crate) fn run(&self, run: &str) -> Option<&Account> {
        self.runs.get(run).map(|run| &run.account)
    }

    pub(crate) fn forget(&mut self, run: &str) {
        if self.runs.remove(run).is_some() {
            self.changes.forget(run);
        }
    }

    /// Forgets the runs that do not exist.
    pub(crate) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.runs.keys().filter(|run| !exists(run)).cloned().collect();
        for run in gone {
            self.forget(&run);
        }
    }

    pub(crate) fn set_unreadable(&mut self) {
        self.health = Health::Unreadable;
    }

    pub(crate) fn set_written(&mut self) {
        self.health = Health::Written;
    }

    /// Takes back changes that could not be written. Returns true if it is the first failure in a row.
    pub(crate) fn set_failing(&mut self, unwritten: Changes) -> bool {
        self.changes.put_back(unwritten);
        let is_first = self.health == Health::Written;
        if is_first {
            self.health = Health::Failing(Instant::now());
        }
        is_first
    }

    /// Returns true if the run has an account or can get one.
    fn has_room(&self, run: &str) -> bool {
        self.runs.len() < MOST_RUNS || self.runs.contains_key(run)
    }

    /// Returns the name under which a principal is counted today.
    fn counted_principal<'p>(&self, principal: &'p str) -> &'p str {
        let has_room = self.principals.len() < MOST_PRINCIPALS || self.principals.contains_key(principal);
        if has_room { principal } else { OTHER }
    }

    fn account(&self, scope: Scope, who: &Who) -> Option<&Account> {
        match scope {
            Scope::Run => self.run(&who.run),
            Scope::PrincipalDay => self.principals.get(self.counted_principal(&who.principal)),
            Scope::Day => Some(&self.of_day),
        }
    }

    /// Returns the use within each scope, in the order of [`Scope::ALL`].
    fn totals(&self, who: &Who) -> [Usage; 3] {
        Scope::ALL.map(|scope| self.account(scope, who).map(Account::total).unwrap_or_default())
    }

    fn warnings(&self, who: &Who, budget: &Budget, before: &[Usage; 3]) -> Vec<Warning> {
        let change = before.iter().copied().zip(self.totals(who));
        let scopes = Scope::ALL.into_iter().zip(change);
        scopes.flat_map(|(scope, change)| passed(scope, budget, change, self.today)).collect()
    }
}

#[cfg(test)]
mod tests {
    use egress_rules::Bound;

    use super::*;

    fn who(run: usize) -> Who {
        Who { run: run.to_string(), principal: format!("uid:{run}") }
    }

    fn day() -> Day {
        Day::of("2026-11-29T12:00:00.000000000Z".parse().unwrap())
    }

    #[test]
    fn principals_beyond_the_bound_share_one_account_and_its_budget() {
        let mut accounts = Accounts::new(day());
        let bound = Bound { requests: Some(3), ..Bound::default() };
        let budget = Budget { principal_day: bound, ..Budget::default() };
        for number in 0..MOST_PRINCIPALS {
            accounts.begin(&who(number), &budget);
        }
        for number in 0..3 {
            assert_eq!(accounts.check(&who(MOST_PRINCIPALS + number), &budget), Ok(()));
            accounts.begin(&who(MOST_PRINCIPALS + number), &budget);
        }
        let refused = accounts.check(&who(MOST_PRINCIPALS + 3), &budget);
        assert!(matches!(refused, Err(Exceeded::UsedUp(BoundUse { used: 3, .. }))), "{refused:?}");
        assert_eq!(accounts.check(&who(0), &budget), Ok(()), "an earlier principal keeps its own");
    }

    #[test]
    fn runs_beyond_the_bound_are_refused_under_a_budget_and_counted_in_the_day() {
        let mut accounts = Accounts::new(day());
        let budget = Budget { run: Bound { requests: Some(9), ..Bound::default() }, ..Budget::default() };
        for number in 0..MOST_RUNS {
            accounts.runs.insert(number.to_string(), OfRun::default());
        }
        let next = who(MOST_RUNS);
        assert_eq!(accounts.check(&next, &budget), Err(Exceeded::TooManyRuns));
        assert_eq!(accounts.check(&who(0), &budget), Ok(()));
        assert_eq!(accounts.check(&next, &Budget::default()), Ok(()));
        accounts.begin(&next, &Budget::default());
        assert_eq!((accounts.runs.len(), accounts.of_day.total().requests), (MOST_RUNS, 1));
        accounts.forget("0");
        assert_eq!(accounts.check(&next, &budget), Ok(()));
    }

    #[test]
    fn a_budget_is_kept_for_a_minute_while_nothing_can_be_written() {
        let mut accounts = Accounts::new(day());
        let budget = Budget { run: Bound { requests: Some(9), ..Bound::default() }, ..Budget::default() };
        assert!(accounts.set_failing(Changes::default()) && !accounts.set_failing(Changes::default()));
        assert_eq!(accounts.check(&who(0), &budget), Ok(()));
        accounts.health = Health::Failing(Instant::now().checked_sub(UNWRITTEN * 2).unwrap());
        assert_eq!(accounts.check(&who(0), &budget), Err(Exceeded::Unwritten));
        assert_eq!(accounts.check(&who(0), &Budget::default()), Ok(()));
        accounts.set_written();
        assert_eq!(accounts.check(&who(0), &budget), Ok(()));
    }
}
