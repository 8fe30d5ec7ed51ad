//! Admission to the node: the drain, the bounds on all runs, and the throttle of creates, in this order.

use std::path::Path;
use std::time::{Duration, Instant};

use capacity::{BadCosts, Costs};
use node_id::NodeId;
use operations::{Fault, Reason};
use refusal::Refusal;
use tenants::Amounts;
use timestamp::Timestamp;
use tokio::sync::watch;

use crate::bounds::{Bounds, Full, Host};
use crate::drain::{Drain, DrainFile};
use crate::settings::Settings;
use crate::throttle::{Throttle, Wait};

/// Time after which a client may try again whose run did not fit. No run says when it ends.
const AGAIN: Duration = Duration::from_secs(5);
/// Key of the throttle.
const LIMIT_OF_CREATES: &str = "node.creates_per_minute";

/// The drain in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// `None` while the node makes runs.
    pub drain: Option<Drain>,
    /// Moment at which this daemon put the node into service again.
    pub(crate) since: Option<Timestamp>,
}

/// Admission of runs to a node.
#[derive(Debug)]
pub struct Gate {
    pub(crate) settings: Settings,
    pub(crate) bounds: Bounds,
    throttle: Option<Throttle>,
    pub(crate) file: DrainFile,
    service: watch::Sender<Service>,
}

impl Gate {
    /// Opens the admission of a daemon, with the drain that an earlier one has stored. `runs` is `limits.runs`.
    pub fn open(state_dir: &Path, settings: Settings, runs: usize) -> Result<Self, BadCosts> {
        let (file, costs) = (DrainFile::of(state_dir), Costs::built_in()?);
        let bounds = Bounds::new(settings.capacity.as_ref(), runs, Host::read(state_dir), &costs);
        let drain = file.read();
        if let Some(Drain { reason, since, .. }) = &drain {
            tracing::warn!(reason, %since, "this node is drained: it makes no runs until `coffer node undrain`");
        }
        let service = watch::Sender::new(Service { drain, since: None });
        let throttle = settings.creates_per_minute.map(Throttle::new);
        Ok(Self { settings, bounds, throttle, file, service })
    }

    /// Returns the drain in force, and its changes.
    pub fn service(&self) -> watch::Receiver<Service> {
        self.service.subscribe()
    }

    pub(crate) fn drain(&self) -> Option<Drain> {
        self.service.borrow().drain.clone()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.service.borrow().drain.is_some()
    }

    /// Puts a drain into force, or ends it.
    pub(crate) fn put(&self, drain: Option<Drain>) {
        let since = drain.is_none().then(Timestamp::now);
        self.service.send_replace(Service { drain, since });
    }

    pub(crate) fn creates_per_minute(&self) -> u32 {
        self.throttle.as_ref().map_or(0, Throttle::per_minute)
    }

    fn refusal(&self, reason: Reason, message: String) -> Refusal {
        // No program of a run can bring it about, and another node may have room.
        let refusal = Refusal::new(reason, message).by(Fault::Infrastructure).retry_safe(true);
        match self.settings.id {
            Some(id) => refusal.with("node", id.to_string()),
            None => refusal,
        }
    }

    fn name(&self) -> String {
        self.settings.id.map_or_else(|| "this node".to_owned(), |id: NodeId| format!("node {id}"))
    }

    fn full(&self, full: &Full) -> Refusal {
        let refusal = full.describe(self.refusal(Reason::Overloaded, full.told()));
        if full.never_fits() { refusal } else { refusal.retry_after(AGAIN) }
    }

    fn throttled(&self, most: u32, wait: &Wait) -> Refusal {
        let others =
            if wait.left_to_others > 0 { ", and the next ones are for others, which had fewer" } else { "" };
        let message = format!(
            "{} makes at most {most} runs a minute for all principals (node.creates_per_minute){others}: try again in {} s, or create \
             the run on another node",
            self.name(),
            wait.time.as_millis().div_ceil(1_000)
        );
        let refusal = self.refusal(Reason::Overloaded, message);
        refusal.with("limit", LIMIT_OF_CREATES).with("max", most.to_string()).retry_after(wait.time)
    }
}

impl runs::Gate for Gate {
    fn check_open(&self) -> Result<(), Refusal> {
        let Some(drain) = self.drain() else { return Ok(()) };
        let message = format!(
            "{} is drained and makes no runs (\"{}\"): create the run on another node; nothing was begun here",
            self.name(),
            drain.reason
        );
        Err(self.refusal(Reason::NodeDrained, message).with("since", drain.since.to_string()))
    }

    fn counts(&self) -> bool {
        self.bounds.are_enforced
    }

    fn admit(&self, tenant: &str, wanted: Amounts, used: Amounts) -> Result<(), Refusal> {
        self.check_open()?;
        if self.bounds.are_enforced {
            self.bounds.check(wanted, used).map_err(|full| self.full(&full))?;
        }
        let Some(throttle) = &self.throttle else { return Ok(()) };
        throttle.take(tenant, Instant::now()).map_err(|wait| self.throttled(throttle.per_minute(), &wait))
    }
}

#[cfg(test)]
mod tests {
    use runs::Gate as _;

    use super::*;
    use crate::settings::CapacitySettings;

    const RUN: Amounts = Amounts { runs: 1, memory_mib: 128, cpu_millis: 500, disk_mib: 64 };

    fn gate(settings: Settings) -> (tempfile::TempDir, Gate) {
        let directory = tempfile::tempdir().unwrap();
        let gate = Gate::open(directory.path(), settings, 256).unwrap();
        (directory, gate)
    }

    fn fact(refusal: &Refusal, name: &str) -> Option<String> {
        refusal.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn drain() -> Drain {
        Drain {
            since: Timestamp::now(),
            reason: "a new kernel".into(),
            principal: "uid:0".into(),
            deadline: None,
        }
    }

    #[test]
    fn a_drained_node_refuses_and_names_its_reason_and_the_way_on() {
        let id = NodeId::try_from(7).ok();
        let (_directory, gate) = gate(Settings { id, ..Settings::default() });
        assert_eq!(gate.admit("a", RUN, Amounts::default()), Ok(()));
        gate.put(Some(drain()));
        for refused in [gate.check_open(), gate.admit("a", RUN, Amounts::default())] {
            let refused = refused.unwrap_err();
            assert_eq!((refused.reason, fact(&refused, "node")), (Reason::NodeDrained, Some("7".into())));
            let said = &refused.message;
            assert!(said.contains("node 7 is drained") && said.contains("a new kernel"), "{said}");
            assert!(said.contains("another node"), "{said}");
        }
        gate.put(None);
        assert_eq!(gate.check_open(), Ok(()));
        assert!(gate.service().borrow().since.is_some());
    }

    #[test]
    fn without_a_capacity_only_the_number_of_runs_is_bounded_elsewhere() {
        let (_directory, gate) = gate(Settings::default());
        let all = Amounts { runs: 1 << 40, memory_mib: 1 << 40, cpu_millis: 1 << 40, disk_mib: 1 << 40 };
        assert!(!gate.counts() && gate.admit("a", RUN, all).is_ok() && gate.creates_per_minute() == 0);
    }

    #[test]
    fn a_full_node_says_when_to_come_back_unless_the_run_never_fits() {
        let capacity = Some(CapacitySettings { disk_mib: Some(100), ..Default::default() });
        let (_directory, gate) = gate(Settings { capacity, ..Settings::default() });
        let refused = gate.admit("a", RUN, RUN).unwrap_err();
        assert_eq!(refused.reason, Reason::Overloaded);
        let facts =
            ["limit", "used", "wanted", "max", "over", "retry_after_ms"].map(|name| fact(&refused, name));
        let expected = ["node.capacity.disk_mib", "64", "64", "100", "28", "5000"];
        assert_eq!(facts, expected.map(|value| Some(value.to_owned())));
        let large = Amounts { disk_mib: 101, ..RUN };
        let refused = gate.admit("a", large, Amounts::default()).unwrap_err();
        assert_eq!((refused.reason, fact(&refused, "retry_after_ms")), (Reason::Overloaded, None));
    }

    #[test]
    fn the_throttle_holds_for_all_and_a_run_that_does_not_fit_takes_nothing_of_it() {
        let capacity = Some(CapacitySettings { disk_mib: Some(100), ..Default::default() });
        let (_directory, gate) =
            gate(Settings { capacity, creates_per_minute: Some(2), ..Settings::default() });
        for _ in 0..5 {
            assert!(gate.admit("a", RUN, RUN).is_err());
        }
        assert!(
            gate.admit("a", RUN, Amounts::default()).is_ok()
                && gate.admit("a", RUN, Amounts::default()).is_ok()
        );
        let refused = gate.admit("a", RUN, Amounts::default()).unwrap_err();
        assert_eq!(fact(&refused, "limit"), Some("node.creates_per_minute".into()));
        let wait = |refused: &Refusal| fact(refused, "retry_after_ms").unwrap().parse::<u64>().unwrap();
        assert!((20_000..=30_000).contains(&wait(&refused)), "{refused:?}");
        // The next one is for a tenant that had none, and the first waits for the one after that.
        assert!(gate.admit("b", RUN, Amounts::default()).is_err());
        let refused = gate.admit("a", RUN, Amounts::default()).unwrap_err();
        assert!((50_000..=60_000).contains(&wait(&refused)), "{refused:?}");
        assert!(refused.message.contains("the next ones are for others"), "{}", refused.message);
    }
}
