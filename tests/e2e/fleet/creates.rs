//! Creates at a rate, 3,000 a minute, on three nodes that have less room, while one of them is killed: each is one run.
//!
//! The test asks at this rate whatever the nodes do. A node that has no room refuses the create, and the client asks another node, or comes
//! back when it was told to. So the rate is that of the requests. The rate of the runs follows from the processors, because the engine
//! starts a container for each, also for a warm start. The test prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::v1::run::State;
use harness::v1::run_service_client::RunServiceClient;
use harness::{reason, requests, until, v1};
use tokio::task::JoinSet;
use tonic::Status;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use super::{Fleet, PATIENCE, VICTIM, listed};

/// Time from one create to the next.
const PERIOD: Duration = Duration::from_millis(20);
/// Most time by which the last create may be asked for too late.
const LATE: Duration = Duration::from_secs(5);
const NODES: usize = 3;
/// Runs that a node has room for.
const ROOM: &str = ", capacity: { runs: 8 }";

/// The nodes, as all creates see them.
#[derive(Clone)]
struct Asked {
    nodes: Arc<[RunServiceClient<Channel>]>,
    /// Set while nobody asks the victim for something new.
    is_down: Arc<AtomicBool>,
    /// Runs that were made.
    made: Arc<AtomicUsize>,
}

/// The fate of one create.
#[derive(Debug, Default)]
struct Fate {
    /// Times that a node had no room.
    refusals: usize,
    /// The answer was lost, so the same node was asked again.
    is_cut_off: bool,
    /// The answer of the stop was lost.
    is_stop_cut_off: bool,
    /// Time from the beginning of all until it was asked for, and until the run was made.
    asked_at: Duration,
    made_at: Duration,
}

#[tokio::test(flavor = "multi_thread")]
async fn each_create_is_one_run_although_a_node_is_killed_meanwhile() {
    // A minute, or two seconds of it.
    let count: u32 = if std::env::var_os("COFFERDAM_LONG").is_some() { 3_000 } else { 100 };
    let mut fleet = Fleet::start_with(ROOM).await;
    let clients = fleet.clients();
    let asked = Asked {
        nodes: clients.iter().map(|clients| clients.runs.clone()).collect(),
        is_down: Arc::default(),
        made: Arc::default(),
    };
    let began = Instant::now();
    let mut creating = JoinSet::new();
    for number in 0..count {
        let asked = asked.clone();
        creating.spawn(async move {
            tokio::time::sleep_until((began + PERIOD * number).into()).await;
            (number, asked.create_and_stop(number, began).await)
        });
    }
    // In the middle of the requests, when each node has made some.
    tokio::time::sleep_until((began + PERIOD * count / 3).into()).await;
    until("no run is made", async || asked.made.load(Ordering::Relaxed) >= 10).await;
    fleet.nodes[VICTIM].kill().await;
    asked.is_down.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    fleet.nodes[VICTIM].launch().await;
    asked.is_down.store(false, Ordering::Relaxed);
    let fates: BTreeMap<u32, Fate> = creating.join_all().await.into_iter().collect();

    let (minute, all) = (PERIOD * count, began.elapsed());
    let last = fates.values().map(|fate| fate.asked_at).max().unwrap();
    let cut_off = fates.values().filter(|fate| fate.is_cut_off).count();
    let in_time = fates.values().filter(|fate| fate.made_at <= minute).count();
    let rate = f64::from(count) * 60.0 / all.as_secs_f64();
    let refusals: usize = fates.values().map(|fate| fate.refusals).sum();
    eprintln!(
        "{count} creates were asked for in {last:.1?}, and {in_time} of them made in {minute:?}. Nodes refused {refusals} times for \
         want of room, and {cut_off} creates were cut off and repeated. All were made and ended after {all:.1?}: \
         {rate:.0} a minute."
    );
    assert!(last < minute + LATE, "the last create was asked for after {last:?}");
    assert!(cut_off > 0, "no create was cut off");

    let stops: BTreeSet<_> =
        fates.iter().filter(|(_, fate)| fate.is_stop_cut_off).map(|(number, _)| agent(*number)).collect();
    let mut made = BTreeMap::<String, usize>::new();
    for (clients, daemon) in clients.iter().zip(&fleet.nodes) {
        let runs = listed(&mut clients.clone()).await;
        assert!(!runs.is_empty(), "a node made no run");
        for run in runs {
            // A run whose end the death cut off has failed.
            let has_ended = run.state() == State::Stopped
                || run.state() == State::Failed && stops.contains(&run.agent_id);
            assert!(has_ended, "{run:?}");
            *made.entry(run.agent_id).or_default() += 1;
        }
        let (containers, mounts) = daemon.left_by_runs();
        assert_eq!((containers, mounts), (Vec::new(), Vec::new()));
    }
    let expected: BTreeMap<_, _> = (0..count).map(|number| (agent(number), 1)).collect();
    let missing: Vec<_> = expected.keys().filter(|agent| !made.contains_key(*agent)).collect();
    let doubled: Vec<_> = made.iter().filter(|(_, runs)| **runs != 1).collect();
    assert!(made == expected, "lost: {missing:?}, doubled: {doubled:?}");
}

fn agent(number: u32) -> String {
    format!("agent-{number}")
}

impl Asked {
    /// Makes a run, stops it, and tells its fate.
    async fn create_and_stop(&self, number: u32, began: Instant) -> Fate {
        let mut fate = Fate { asked_at: began.elapsed(), ..Fate::default() };
        let (node, run_id) = self.create(number, &mut fate).await;
        fate.made_at = began.elapsed();
        self.made.fetch_add(1, Ordering::Relaxed);
        let stop = v1::StopRunRequest { run_id };
        let mut failing = Failing::default();
        while let Err(failed) = self.nodes[node].clone().stop_run(stop.clone()).await {
            failing.may_go_on(node, number, &failed);
            fate.is_stop_cut_off = true;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        fate
    }

    /// Makes a run. Returns the node that has it, and its id.
    ///
    /// A node that refuses has made nothing, so the next one is asked. After an answer was lost only the same node may be asked, because it
    /// may have made the run.
    async fn create(&self, number: u32, fate: &mut Fate) -> (usize, String) {
        let request = v1::CreateRunRequest {
            request_id: format!("create-{number}"),
            agent_id: agent(number),
            ..requests::managed("p")
        };
        let mut node = usize::try_from(number).unwrap() % NODES;
        let mut failing = Failing::default();
        loop {
            if node == VICTIM && !fate.is_cut_off && self.is_down.load(Ordering::Relaxed) {
                node = (node + 1) % NODES;
            }
            match self.nodes[node].clone().create_run(request.clone()).await {
                Ok(made) => return (node, made.into_inner().run.unwrap().run_id),
                Err(full) if reason(&full) == "OVERLOADED" => {
                    let again = full.get_details_retry_info().and_then(|info| info.retry_delay);
                    let again = again.expect("a node that is full says when to come back");
                    failing = Failing::default();
                    fate.refusals += 1;
                    if !fate.is_cut_off {
                        node = (node + 1) % NODES;
                    }
                    // Each node is asked once before the first wait. Those that wait come back one by one.
                    if fate.is_cut_off || fate.refusals >= NODES {
                        tokio::time::sleep(again + PERIOD * (number % 50)).await;
                    }
                }
                Err(failed) => {
                    failing.may_go_on(node, number, &failed);
                    fate.is_cut_off = true;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

/// Time since which a node has not answered.
#[derive(Default)]
struct Failing(Option<Instant>);

impl Failing {
    /// Fails the test unless the failure is that of the victim, and has not lasted long.
    fn may_go_on(&mut self, node: usize, number: u32, failed: &Status) {
        let since = self.0.get_or_insert_with(Instant::now);
        assert!(
            node == VICTIM && since.elapsed() < PATIENCE,
            "create {number} on node {}: {failed}",
            node + 1
        );
    }
}
