//! The tenants of a daemon: checks, counts and the report.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use timestamp::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::bounds::{Amounts, Bounds, Resource};
use crate::exceeded::Exceeded;
use crate::groups::Groups;
use crate::share::Shares;
use crate::table::{Member, Tenants};
use crate::traffic::Traffic;

/// Time between two writes of the traffic: the most that a killed daemon loses.
const PAUSE: Duration = Duration::from_secs(1);
/// Files of the state directory.
const TRAFFIC: &str = "tenants.json";
const GROUPS: &str = "tenant-groups.json";
/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

type Source = Box<dyn Fn() -> Arc<Tenants> + Send + Sync>;

/// The tenants of a daemon.
pub struct Tenancy {
    /// Returns the tenants in force.
    source: Source,
    traffic: Traffic,
    groups: Groups,
    shares: Mutex<Shares>,
}

impl fmt::Debug for Tenancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenancy").field("tenants", &(self.source)()).finish_non_exhaustive()
    }
}

/// A principal's tenant and its bounds, as they are at one moment.
///
/// A request that looks at them several times looks at the same ones, although the policy or the principal's group may change meanwhile.
#[derive(Debug, Clone)]
pub struct Membership {
    tenants: Arc<Tenants>,
    principal: String,
    group: Option<String>,
}

impl Membership {
    fn own(&self) -> Member<'_> {
        self.tenants.of(&self.principal, self.group.as_deref())
    }

    /// Returns the name of the tenant.
    pub fn tenant(&self) -> &str {
        self.own().tenant
    }

    /// Returns true if the tenant has a bound on the resource.
    pub fn is_bounded(&self, resource: Resource) -> bool {
        self.own().bounds.of(resource).is_some()
    }
}

/// Use of a tenant, and its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantUse {
    /// Name of the tenant, or of a principal that is one by itself.
    pub tenant: String,
    /// Section of the policy with its bounds.
    pub section: String,
    /// Groups whose members belong to it.
    pub groups: Vec<String>,
    pub bounds: Bounds,
    /// Amount of each resource, in the unit of its bound. `None`: it is not known.
    pub used: [(Resource, Option<u64>); 6],
}

impl Tenancy {
    /// Opens the traffic and the groups of principals in files of `directory`. `source` returns the tenants in force.
    pub fn open(directory: &Path, source: impl Fn() -> Arc<Tenants> + Send + Sync + 'static) -> Self {
        let traffic = Traffic::open(&directory.join(TRAFFIC), Timestamp::now());
        let groups = Groups::open(&directory.join(GROUPS));
        Self { source: Box::new(source), traffic, groups, shares: Mutex::default() }
    }

    /// Takes the groups of a principal that has shown a valid token. They decide its tenant until its next token that names groups.
    ///
    /// `None` is a token without the claim. It changes nothing, so that its holder leaves no tenant by asking for less.
    pub fn show_groups(&self, principal: &str, groups: Option<&[String]>) {
        let Some(groups) = groups else { return };
        let tenants = (self.source)();
        if self.groups.note(principal, tenants.first(groups), Timestamp::now()) {
            self.traffic.forget_sums();
        }
    }

    /// Returns the name of a principal's tenant.
    pub fn tenant_of(&self, principal: &str) -> String {
        let (tenants, groups) = ((self.source)(), self.groups.look());
        tenants.of(principal, groups.of(principal)).tenant.to_owned()
    }

    /// Returns the tenant of a principal, with its bounds.
    pub fn membership(&self, principal: &str) -> Membership {
        let group = self.groups.look().of(principal).map(str::to_owned);
        Membership { tenants: (self.source)(), principal: principal.to_owned(), group }
    }

    /// Checks that the tenant has room for one more run. `used` returns the use of all runs by principal.
    ///
    /// The caller holds the lock of the runs from before this until the new run is among them.
    pub fn check(
        &self,
        membership: &Membership,
        wanted: Amounts,
        used: impl FnOnce() -> BTreeMap<String, Amounts>,
    ) -> Result<(), Exceeded> {
        let Membership { tenants, principal, .. } = membership;
        let (own, groups) = (membership.own(), self.groups.look());
        if wanted.each().iter().all(|(resource, _)| own.bounds.of(*resource).is_none()) {
            return Ok(());
        }
        let is_of_it =
            |other: &str| other == principal || tenants.of(other, groups.of(other)).tenant == own.tenant;
        let used = used().into_iter().filter(|(other, _)| is_of_it(other));
        let used = used.fold(Amounts::default(), |sum, (_, amounts)| sum + amounts);
        for ((resource, used), (_, wanted)) in used.each().into_iter().zip(wanted.each()) {
            let limit = own.bounds.of(resource).unwrap_or(u64::MAX);
            // A request for nothing exceeds nothing, whatever is in use.
            if wanted > 0 && used.saturating_add(wanted) > limit {
                let (tenant, section) = (own.tenant.to_owned(), own.section.to_owned());
                return Err(Exceeded { tenant, section, resource, used, wanted, limit });
            }
        }
        Ok(())
    }

    /// Takes a container of the pool for a principal, unless its tenant has had its share of this minute.
    ///
    /// `take` is called under a lock, and its success counts. `None`: it was not called.
    pub fn claim<T, E>(&self, principal: &str, take: impl FnOnce() -> Result<T, E>) -> Option<Result<T, E>> {
        let tenants = (self.source)();
        let own = tenants.of(principal, self.groups.look().of(principal));
        let Some(limit) = own.bounds.pool_per_minute else { return Some(take()) };
        let mut shares = self.shares.lock();
        let now = Instant::now();
        if shares.taken(own.tenant, now) >= limit {
            return None;
        }
        let taken = take();
        if taken.is_ok() {
            shares.add(own.tenant, now);
        }
        Some(taken)
    }

    /// Checks that a principal may open one more connection.
    pub fn connection(&self, principal: &str) -> Result<(), Exceeded> {
        let (tenants, groups) = ((self.source)(), self.groups.look());
        let own = tenants.of(principal, groups.of(principal));
        let Some(limit) = own.bounds.egress_mib_per_day else { return Ok(()) };
        let group_of = |principal: &str| groups.of(principal);
        let bytes = self.traffic.of(own.tenant, (&tenants, group_of), Timestamp::now());
        if bytes.is_some_and(|bytes| bytes < limit.saturating_mul(MIB)) {
            return Ok(());
        }
        Err(Exceeded {
            tenant: own.tenant.to_owned(),
            section: own.section.to_owned(),
            resource: Resource::Egress,
            used: bytes.map_or(Exceeded::UNKNOWN, |bytes| bytes / MIB),
            wanted: 1,
            limit,
        })
    }

    /// Counts bytes that connections have moved.
    pub fn moved(&self, principal: &str, bytes: u64) {
        // No group changes between the look and the count.
        let groups = self.groups.look();
        self.traffic.add((principal, groups.of(principal)), bytes, Timestamp::now());
    }

    /// Returns the use of each tenant of the policy, and of each principal by itself that uses something.
    ///
    /// `used` is the use of all runs by principal. `only` is the one principal whose tenant is shown; `None` is all.
    pub fn report(&self, used: &BTreeMap<String, Amounts>, only: Option<&str>) -> Vec<TenantUse> {
        let (tenants, groups) = ((self.source)(), self.groups.look());
        let member = |principal| tenants.of(principal, groups.of(principal));
        let is_shown = |tenant: &str| only.is_none_or(|only| member(only).tenant == tenant);
        let mut sums: BTreeMap<&str, (&str, Bounds, Amounts)> = BTreeMap::new();
        let named = tenants.named().map(|(name, tenant)| (name, name, tenant.bounds));
        let own = only.map(member).map(|own| (own.tenant, own.section, own.bounds));
        for (tenant, section, bounds) in named.chain(own).filter(|(tenant, ..)| is_shown(tenant)) {
            sums.insert(tenant, (section, bounds, Amounts::default()));
        }
        let traffic = self.traffic.all(Timestamp::now());
        let (by_principal, others) = traffic.as_ref().map_or((None, 0), |(all, others)| (Some(all), *others));
        let idle = by_principal.into_iter().flatten().map(|(principal, _)| (principal, Amounts::default()));
        for (principal, amounts) in used.iter().map(|(principal, amounts)| (principal, *amounts)).chain(idle)
        {
            let own = member(principal);
            if is_shown(own.tenant) {
                let sum = sums.entry(own.tenant).or_insert((own.section, own.bounds, Amounts::default()));
                sum.2 = sum.2 + amounts;
            }
        }
        let mut moved: BTreeMap<&str, u64> = BTreeMap::new();
        for (principal, bytes) in by_principal.into_iter().flatten() {
            let sum = moved.entry(member(principal).tenant).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        let mut shares = self.shares.lock();
        let row = |(tenant, (section, bounds, amounts)): (&str, (&str, Bounds, Amounts))| {
            let own = moved.get(tenant).copied().unwrap_or_default();
            let bytes = by_principal.map(|_| own.saturating_add(others));
            let [runs, memory, cpu, disk] = amounts.each().map(|(resource, used)| (resource, Some(used)));
            let egress = (Resource::Egress, bytes.map(|bytes| bytes.div_ceil(MIB)));
            let pool = (Resource::Pool, Some(shares.taken(tenant, Instant::now())));
            TenantUse {
                tenant: tenant.to_owned(),
                section: section.to_owned(),
                groups: tenants.groups_of(tenant).to_vec(),
                bounds,
                used: [runs, memory, cpu, disk, egress, pool],
            }
        };
        sums.into_iter().map(row).collect()
    }

    /// Writes the traffic and the groups once a second if they have changed, until `stop`.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut fails = false;
        loop {
            let goes_on = tokio::select! {
                () = tokio::time::sleep(PAUSE) => true,
                () = stop.cancelled() => false,
            };
            let own = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || own.write()).await;
            let failed = !matches!(written, Ok(true));
            if failed && !fails {
                tracing::error!(
                    "the traffic of tenants, or the groups of principals, cannot be written: it is tried again each second"
                );
            }
            fails = failed;
            if !goes_on {
                return;
            }
        }
    }

    /// Writes the traffic and the groups if they have changed. Returns false if that failed. Blocks on the disk.
    pub fn write(&self) -> bool {
        let written = [self.traffic.write(), self.groups.write()];
        written.iter().all(Result::is_ok)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::table::Tenant;

    fn bounds(change: impl FnOnce(&mut Bounds)) -> Bounds {
        let mut bounds = Bounds::default();
        change(&mut bounds);
        bounds
    }

    fn tenancy(directory: &tempfile::TempDir, own: Bounds, default: Bounds) -> Tenancy {
        let principals = vec!["uid:1*".to_owned()];
        let tenants = Tenants::new(BTreeMap::from([
            (
                "ml".to_owned(),
                Tenant { principals, groups: vec!["corp:ml".to_owned()], bounds: own, place: 0 },
            ),
            (Tenants::DEFAULT.to_owned(), Tenant { bounds: default, ..Tenant::default() }),
        ]));
        let tenants = Arc::new(tenants);
        Tenancy::open(directory.path(), move || Arc::clone(&tenants))
    }

    fn amounts(runs: u64, memory_mib: u64) -> Amounts {
        Amounts { runs, memory_mib, cpu_millis: 1_000 * runs, disk_mib: 10 * runs }
    }

    #[test]
    fn a_refusal_has_the_use_the_request_and_the_excess() {
        let directory = tempfile::tempdir().unwrap();
        let own = bounds(|bounds| (bounds.runs, bounds.memory_mib) = (Some(3), Some(1_000)));
        let tenancy = tenancy(&directory, own, bounds(|bounds| bounds.runs = Some(1)));
        let used = BTreeMap::from([
            ("uid:1".to_owned(), amounts(1, 400)),
            ("uid:12".to_owned(), amounts(1, 300)),
            ("uid:2".to_owned(), amounts(1, 100)),
        ]);
        let check =
            |principal: &str, wanted| tenancy.check(&tenancy.membership(principal), wanted, || used.clone());
        check("uid:13", amounts(1, 300)).unwrap();
        let refused = check("uid:13", amounts(1, 301)).unwrap_err();
        assert_eq!((refused.resource, refused.used, refused.over()), (Resource::Memory, 700, 1));
        assert_eq!(
            refused.to_string(),
            "the tenant ml uses 700 of at most 1000 MiB of memory (tenants.ml.memory_mib of the policy), and this request for 301 \
             exceeds that by 1: stop a run first, or ask for less memory"
        );
        let refused = check("uid:1", amounts(2, 0)).unwrap_err();
        assert_eq!(
            (refused.resource, refused.used, refused.wanted, refused.limit),
            (Resource::Runs, 2, 2, 3)
        );
        // Others are tenants by themselves.
        let refused = check("uid:2", amounts(1, 1)).unwrap_err();
        assert_eq!((refused.tenant.as_str(), refused.key().as_str()), ("uid:2", "tenants.default.runs"));
        check("uid:3", amounts(1, 1)).unwrap();
    }

    #[test]
    fn a_request_is_checked_by_the_policy_and_the_group_that_it_began_with() {
        let directory = tempfile::tempdir().unwrap();
        let policy = |own: Bounds| {
            let ml = Tenant { groups: vec!["corp:ml".to_owned()], bounds: own, ..Tenant::default() };
            Arc::new(Tenants::new(BTreeMap::from([("ml".to_owned(), ml)])))
        };
        let in_force = Arc::new(Mutex::new(policy(Bounds::default())));
        let source = Arc::clone(&in_force);
        let tenancy = Tenancy::open(directory.path(), move || source.lock().clone());
        let show = |group: &str| tenancy.show_groups("uid:1", Some(&[group.to_owned()]));
        let check = |membership: &Membership| tenancy.check(membership, amounts(1, 0), BTreeMap::new);
        show("corp:ml");
        let before = tenancy.membership("uid:1");
        *in_force.lock() = policy(bounds(|bounds| bounds.disk_mib = Some(9)));
        assert_eq!((before.tenant(), before.is_bounded(Resource::Disk)), ("ml", false));
        check(&before).unwrap();
        let bounded = tenancy.membership("uid:1");
        show("corp:web");
        assert!(bounded.is_bounded(Resource::Disk) && check(&bounded).is_err());
        check(&tenancy.membership("uid:1")).unwrap();
    }

    #[test]
    fn two_hundred_requests_at_once_never_exceed_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let own = bounds(|bounds| bounds.runs = Some(7));
        let tenancy = tenancy(&directory, own, Bounds::default());
        let (living, most) = (Mutex::new(0_u64), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..200 {
                scope.spawn(|| {
                    let mut living = living.lock();
                    let used = || BTreeMap::from([("uid:1".to_owned(), amounts(*living, 0))]);
                    if tenancy.check(&tenancy.membership("uid:11"), amounts(1, 0), used).is_ok() {
                        *living += 1;
                        most.fetch_max(*living, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((*living.lock(), most.into_inner()), (7, 7));
    }

    #[test]
    fn a_tenant_takes_its_share_of_the_pool_and_failures_count_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let own = bounds(|bounds| bounds.pool_per_minute = Some(2));
        let tenancy = tenancy(&directory, own, Bounds::default());
        let claim = |principal: &str, taken: Result<(), ()>| tenancy.claim(principal, || taken);
        assert_eq!(claim("uid:1", Err(())), Some(Err(())));
        assert_eq!([claim("uid:1", Ok(())), claim("uid:12", Ok(()))], [Some(Ok(())); 2]);
        assert_eq!(claim("uid:13", Ok(())), None);
        assert_eq!(claim("uid:2", Ok(())), Some(Ok(())), "another tenant");
    }

    #[test]
    fn connections_are_refused_once_the_bytes_of_the_day_are_used_up() {
        let directory = tempfile::tempdir().unwrap();
        let own = bounds(|bounds| bounds.egress_mib_per_day = Some(2));
        let tenancy = tenancy(&directory, own, Bounds::default());
        tenancy.moved("uid:1", MIB);
        tenancy.moved("uid:12", MIB - 1);
        tenancy.moved("uid:2", 9 * MIB);
        tenancy.connection("uid:1").unwrap();
        tenancy.moved("uid:12", 1);
        let refused = tenancy.connection("uid:13").unwrap_err();
        assert!(refused.to_string().contains("have moved 2 of at most 2 MiB of this day"), "{refused}");
        tenancy.connection("uid:2").unwrap();
        assert!(tenancy.write());
        std::fs::write(directory.path().join("tenants.json"), "torn").unwrap();
        let tenancy = self::tenancy(&directory, own, Bounds::default());
        let refused = tenancy.connection("uid:13").unwrap_err();
        assert!(refused.to_string().contains("is not known"), "{refused}");
        tenancy.connection("uid:2").unwrap();
    }

    #[test]
    fn a_group_of_the_last_token_decides_the_tenant_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let own = bounds(|bounds| bounds.runs = Some(1));
        let tenancy = tenancy(&directory, own, Bounds::default());
        let (alice, used) = ("oidc:corp:alice", BTreeMap::from([("uid:1".to_owned(), amounts(1, 0))]));
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        tenancy.check(&tenancy.membership(alice), amounts(1, 0), || used.clone()).unwrap();
        tenancy.show_groups(alice, Some(&groups(&["corp:web", "corp:ml"])));
        let refused = tenancy.check(&tenancy.membership(alice), amounts(1, 0), || used.clone()).unwrap_err();
        assert_eq!((refused.tenant.as_str(), refused.used), ("ml", 1));
        // Her runs count for the others of the tenant.
        let hers = BTreeMap::from([(alice.to_owned(), amounts(1, 0))]);
        assert!(tenancy.check(&tenancy.membership("uid:1"), amounts(1, 0), || hers.clone()).is_err());
        assert!(tenancy.write());
        let tenancy = self::tenancy(&directory, own, Bounds::default());
        assert_eq!(tenancy.tenant_of(alice), "ml");
        assert_eq!(tenancy.report(&hers, Some(alice))[0].groups, ["corp:ml"]);
        // A token without the claim.
        tenancy.show_groups(alice, None);
        assert_eq!(tenancy.tenant_of(alice), "ml");
        // The issuer has taken her out of the group.
        tenancy.show_groups(alice, Some(&groups(&["corp:web"])));
        tenancy.show_groups(alice, None);
        assert_eq!(tenancy.tenant_of(alice), alice);
    }

    #[test]
    fn bytes_follow_a_principal_to_the_tenant_of_its_group() {
        let directory = tempfile::tempdir().unwrap();
        let own = bounds(|bounds| bounds.egress_mib_per_day = Some(2));
        let tenancy = tenancy(&directory, own, Bounds::default());
        tenancy.moved("oidc:corp:alice", MIB);
        tenancy.connection("uid:1").unwrap();
        tenancy.show_groups("oidc:corp:alice", Some(&["corp:ml".to_owned()]));
        tenancy.moved("oidc:corp:alice", MIB);
        assert!(tenancy.connection("uid:1").is_err());
        tenancy.show_groups("oidc:corp:alice", Some(&[]));
        tenancy.connection("uid:1").unwrap();
    }

    #[test]
    fn the_report_has_each_tenant_and_one_of_a_principal_alone() {
        let directory = tempfile::tempdir().unwrap();
        let tenancy = tenancy(&directory, bounds(|bounds| bounds.runs = Some(3)), Bounds::default());
        let used = BTreeMap::from([
            ("uid:1".to_owned(), amounts(1, 400)),
            ("uid:12".to_owned(), amounts(2, 300)),
            ("uid:2".to_owned(), amounts(1, 100)),
        ]);
        tenancy.moved("uid:12", 1);
        let shown = |only: Option<&str>| {
            let rows = tenancy.report(&used, only).into_iter();
            rows.map(|row| (row.tenant, row.section, row.used.map(|(_, used)| used.unwrap())))
                .collect::<Vec<_>>()
        };
        let ml = ("ml".to_owned(), "ml".to_owned(), [3, 700, 3_000, 30, 1, 0]);
        let two = ("uid:2".to_owned(), "default".to_owned(), [1, 100, 1_000, 10, 0, 0]);
        assert_eq!(shown(None), [ml.clone(), two]);
        assert_eq!(shown(Some("uid:19")), [ml]);
        assert_eq!(shown(Some("uid:3")), [("uid:3".to_owned(), "default".to_owned(), [0; 6])]);
    }
}
