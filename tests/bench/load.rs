//! Many clients at once: `read` of 4 KiB over 32 connections, one call after the other on each, with the audit log as it
//! always is. Client and server share the machine.

use std::time::{Duration, Instant};

use harness::calls;
use harness::v1::CallRequest;
use harness::v1::tool_service_client::ToolServiceClient;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::args::Args;
use crate::report::{Goal, Report};
use crate::sample::Sample;
use crate::stage::{Stage, succeeded};
use crate::usage;

const CONNECTIONS: usize = 32;
const WARM_UP: Duration = Duration::from_secs(2);
const GOAL: f64 = 10_000.0;

/// What came of it.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) reads: usize,
    pub(crate) took: Duration,
    pub(crate) sample: Sample,
    /// Processor time of each process.
    pub(crate) spent: Vec<(&'static str, Duration)>,
}

impl Load {
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    pub(crate) fn rate(&self) -> f64 {
        self.reads as f64 / self.took.as_secs_f64()
    }
}

pub(crate) async fn run(stage: &Stage, args: &Args, report: &mut Report) {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        clients.push(stage.tools().await);
    }
    let request = stage.call(calls::read("file"));
    drive(&clients, &request, WARM_UP).await;

    let watched = usage::all(stage);
    let before: Vec<_> = watched.iter().map(usage::Watched::spent).collect();
    let began = Instant::now();
    let sample = drive(&clients, &request, args.load).await;
    let took = began.elapsed();
    let spent = watched
        .iter()
        .zip(before)
        .map(|(process, before)| (process.name, process.spent().saturating_sub(before)));
    let load = Load { connections: CONNECTIONS, reads: sample.len(), took, sample, spent: spent.collect() };
    report.goal(Goal::rate_at_least("reads a second over 32 connections", load.rate(), GOAL));
    report.load(load);
}

async fn drive(clients: &[ToolServiceClient<Channel>], request: &CallRequest, time: Duration) -> Sample {
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(client_of_many(client.clone(), request.clone(), end));
    }
    let mut sample = Sample::default();
    while let Some(times) = tasks.join_next().await {
        sample.extend(times.unwrap());
    }
    sample
}

async fn client_of_many(
    mut client: ToolServiceClient<Channel>,
    request: CallRequest,
    end: Instant,
) -> Sample {
    let mut sample = Sample::default();
    loop {
        let began = Instant::now();
        if began >= end {
            return sample;
        }
        succeeded(client.call(request.clone()).await.unwrap().into_inner());
        sample.add(began.elapsed());
    }
}
