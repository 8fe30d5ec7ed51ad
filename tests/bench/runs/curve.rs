//! Measures the calls in a second, by the number of clients and of runs.

use std::time::{Duration, Instant};

use harness::calls;
use harness::v1::operation::Kind as Operation;
use harness::v1::tool_service_client::ToolServiceClient;
use harness::v1::{CallRequest, Run};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::ours::{Client, FILE, Ours, call};
use crate::sample::Sample;
use crate::stage::succeeded;

/// Runs and clients; with `COFFERDAM_LONG` more of both.
const USUAL: (&[usize], &[usize]) = (&[1, 10, 50], &[1, 8, 32]);
const LONG: (&[usize], &[usize]) = (&[1, 10, 50, 100, 200], &[1, 8, 32, 128]);
type Make = fn() -> Operation;
/// What the clients call.
const WORK: [(&str, Make); 2] =
    [("read of 4 KiB", || calls::read(FILE)), ("exec of true", || calls::exec(&["true"]))];

/// One measurement.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) work: &'static str,
    pub(crate) runs: usize,
    pub(crate) clients: usize,
    pub(crate) took: Duration,
    pub(crate) sample: Sample,
}

impl Point {
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub(crate) fn rate(&self) -> f64 {
        self.sample.len() as f64 / self.took.as_secs_f64()
    }
}

/// Each point takes `time` for each kind of work, and a quarter of that before.
pub(crate) async fn run(image: &str, time: Duration) -> Vec<Point> {
    let (steps, crowds) = if std::env::var_os("COFFERDAM_LONG").is_some() { LONG } else { USUAL };
    let ours = Ours::cold(image).await;
    let (mut runs, mut points) = (Vec::<Run>::new(), Vec::new());
    for &step in steps {
        for number in runs.len()..step {
            let workspace = ours.workspace(&format!("curve-{number}"));
            runs.push(ours.client.create(&workspace).await.unwrap());
        }
        for &crowd in crowds {
            let mut clients = Vec::new();
            for _ in 0..crowd {
                clients.push(Client::connect(&ours.daemon, image).await.tools);
            }
            for (work, operation) in WORK {
                let requests: Vec<_> = runs.iter().map(|run| call(run, operation())).collect();
                drive(&clients, &requests, time / 4).await;
                let began = Instant::now();
                let sample = drive(&clients, &requests, time).await;
                points.push(Point { work, runs: step, clients: crowd, took: began.elapsed(), sample });
            }
            eprintln!("curve: {step} runs, {crowd} clients: done");
        }
    }
    points
}

/// Every client goes through all runs, each from another one on.
async fn drive(clients: &[ToolServiceClient<Channel>], requests: &[CallRequest], time: Duration) -> Sample {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for (number, client) in clients.iter().enumerate() {
        let mut requests = requests.to_vec();
        let first = number % requests.len();
        requests.rotate_left(first);
        tasks.spawn(client_of_many(client.clone(), requests, end));
    }
    let mut sample = Sample::default();
    for times in tasks.join_all().await {
        sample.extend(times);
    }
    sample
}

async fn client_of_many(
    mut client: ToolServiceClient<Channel>,
    requests: Vec<CallRequest>,
    end: Instant,
) -> Sample {
    let mut sample = Sample::default();
    for request in requests.into_iter().cycle() {
        let began = Instant::now();
        if began >= end {
            break;
        }
        succeeded(client.call(request).await.unwrap().into_inner());
        sample.add(began.elapsed());
    }
    sample
}
