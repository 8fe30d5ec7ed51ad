//! The same calls at a node directly, and through Envoy and HAProxy before it: the part of a call that a balancer takes.
//!
//! All ways are TLS to the same daemon with the same token, on one connection each. They take turns call by call.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use harness::balancer::{Balancer, Kind, MAKERS, Nodes};
use harness::v1::operation::Kind as Operation;
use harness::v1::run_service_client::RunServiceClient;
use harness::v1::tool_service_client::ToolServiceClient;
use harness::{Bearer, calls, requests, v1};
use node_id::NODE_METADATA;
use tonic::Request;
use tonic::transport::Channel;

use crate::args::Args;
use crate::host::Host;
use crate::sample::Sample;
use crate::stage::{FILE_BYTES, succeeded};
use crate::table::{Most, Row, Table};

/// Nodes of each balancer. One of them gets all calls.
const NODES: usize = 3;
const NODE: u16 = 1;
/// Rounds that are thrown away.
const WARM_UP: usize = 3;
/// Most time that a balancer adds to the median of a call.
const MORE: Duration = Duration::from_micros(500);
/// The ways: without a balancer, and with each.
const WAYS: usize = 3;
const BALANCERS: [&str; WAYS - 1] = ["Envoy", "HAProxy"];

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let began = Host::look();
    let rows = measure(args.rounds).await;
    let columns = ["direct", "balanced"];
    Table { lane: "balanced", columns, began, ended: Host::look(), rows }.finish(args)
}

/// A call that is made again and again.
#[derive(Clone)]
enum Call {
    GetRun,
    Tool(Operation),
}

/// A way to the node.
struct Way {
    runs: RunServiceClient<Channel>,
    tools: ToolServiceClient<Channel>,
    token: Bearer,
    run_id: String,
}

impl Way {
    fn new(channel: Channel, token: &Bearer, run_id: &str) -> Self {
        let (runs, tools) = (RunServiceClient::new(channel.clone()), ToolServiceClient::new(channel));
        Self { runs, tools, token: token.clone(), run_id: run_id.to_owned() }
    }

    /// Makes the call, which must succeed. Returns the time until its answer.
    async fn time(&mut self, call: &Call) -> Duration {
        let run_id = self.run_id.clone();
        match call {
            Call::GetRun => {
                let request = to_node(&self.token, v1::GetRunRequest { run_id });
                let began = Instant::now();
                let answer = self.runs.get_run(request).await.unwrap();
                let took = began.elapsed();
                assert_eq!(answer.into_inner().run.unwrap().run_id, self.run_id);
                took
            }
            Call::Tool(operation) => {
                let request = Some(operation.clone().into());
                let request = v1::CallRequest { run_id, request, ..Default::default() };
                let request = to_node(&self.token, request);
                let began = Instant::now();
                let answer = self.tools.call(request).await.unwrap();
                let took = began.elapsed();
                succeeded(answer.into_inner());
                took
            }
        }
    }
}

fn to_node<T>(token: &Bearer, message: T) -> Request<T> {
    let mut request = token.shows(message);
    request.metadata_mut().insert(NODE_METADATA, NODE.into());
    request
}

/// Makes a run on the node; its id.
async fn made(direct: Channel, token: &Bearer) -> String {
    let request = to_node(token, requests::managed("open"));
    let made = RunServiceClient::new(direct).create_run(request).await.unwrap().into_inner();
    made.run.unwrap().run_id
}

async fn measure(rounds: usize) -> Vec<Row> {
    let nodes = Nodes::start(NODES).await;
    let envoy = Balancer::start(Kind::Envoy, &nodes).await;
    let haproxy = Balancer::start(Kind::Haproxy, &nodes).await;
    let token = Bearer::new(&nodes.token(MAKERS));
    let direct = nodes.endpoint(NODE).connect().await.unwrap();
    let run_id = made(direct.clone(), &token).await;
    let mut ways = vec![Way::new(direct, &token, &run_id)];
    for balancer in [&envoy, &haproxy] {
        let channel = balancer.endpoint(Some("ci")).connect().await.unwrap();
        ways.push(Way::new(channel, &token, &run_id));
    }
    let line = format!("{:63}\n", "a line of a file that an agent reads");
    let content = line.repeat(FILE_BYTES / line.len());
    ways[0].time(&Call::Tool(calls::write("file", &content))).await;
    let calls = [
        ("GetRun", 40, Call::GetRun),
        ("read of 4 KiB", 40, Call::Tool(calls::read("file"))),
        ("exec of true", 10, Call::Tool(calls::exec(&["true"]))),
    ];
    let mut rows = Vec::new();
    for (name, turns, call) in calls {
        let [direct, through @ ..] = in_turns(&mut ways, &call, turns, rounds).await;
        for (balancer, sample) in BALANCERS.into_iter().zip(&through) {
            let what = format!("{name}, {balancer}");
            rows.extend(Row::of_times(&what, Some(&direct), sample, Most::More(MORE)));
        }
        eprintln!("{name}: done");
    }
    rows
}

/// Makes a call by each way in turns; which is first changes each time. Returns a sample of each.
async fn in_turns(ways: &mut [Way], call: &Call, turns: usize, rounds: usize) -> [Sample; WAYS] {
    let mut samples: [Sample; WAYS] = std::array::from_fn(|_| Sample::default());
    for turn in 0..turns * (WARM_UP + rounds) {
        for at in 0..ways.len() {
            let way = (turn + at) % ways.len();
            let time = ways[way].time(call).await;
            if turn >= turns * WARM_UP {
                samples[way].add(time);
            }
        }
    }
    samples
}
