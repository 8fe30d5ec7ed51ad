//! Two hundred calls that an agent made once, made again. `record.rs` records them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::v1::Operation;
use harness::v1::call_response::Status;
use serde_json::{Value, json};

use super::ours::Ours;
use super::record::{Call, project};
use crate::engine::Engine;
use crate::sample::Sample;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/trace.json");

/// After so many calls there is an exec of the engine.
const EXECS: usize = 5;

/// What making them again came to.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) calls: usize,
    pub(crate) took: Duration,
    /// `true` by an exec of the engine in the same container, between the calls.
    pub(crate) exec: Sample,
    /// By the name of the operation.
    pub(crate) by_operation: BTreeMap<String, Sample>,
}

/// Makes the calls one after the other, in a run on the project as it was. Each must end as it did.
pub(crate) async fn replay(ours: &Ours) -> Replayed {
    let calls = read(&std::fs::read_to_string(FILE).unwrap());
    let workspace = project(&ours.daemon, "replayed");
    let run = ours.client.create(&workspace).await.unwrap();
    let (mut by_operation, mut exec, mut took) =
        (BTreeMap::<_, Sample>::new(), Sample::default(), Duration::ZERO);
    let engine = Engine::find();
    for (number, call) in calls.iter().enumerate() {
        let operation = call.operation.kind.clone().unwrap();
        let began = Instant::now();
        let response = ours.client.call(&run, operation).await;
        let time = began.elapsed();
        assert_eq!(response.status(), call.status, "call {number}: {response:?}");
        by_operation.entry(call.name()).or_default().add(time);
        took += time;
        if number % EXECS == 0 {
            let began = Instant::now();
            engine.exec(&run.container_id, &["true"]).await;
            exec.add(began.elapsed());
        }
    }
    ours.client.stop(&run).await;
    ours.client.delete(&run).await;
    Replayed { calls: calls.len(), took, exec, by_operation }
}

pub(crate) fn read(text: &str) -> Vec<Call> {
    let calls: Vec<Value> = serde_json::from_str(text).unwrap();
    let call = |call: Value| {
        let operation: Operation = serde_json::from_value(call["operation"].clone()).unwrap();
        let status = Status::from_str_name(call["status"].as_str().unwrap()).unwrap();
        Call { operation, status }
    };
    calls.into_iter().map(call).collect()
}

/// Writes a recorded trace into the repository.
pub(crate) fn write(calls: &[Call]) {
    let lines = calls.iter().map(|Call { operation, status }| {
        let call = json!({ "operation": operation, "status": status.as_str_name() });
        format!("  {call}")
    });
    let text = format!("[\n{}\n]\n", lines.collect::<Vec<_>>().join(",\n"));
    crate::verdict::write(Path::new(FILE), &text);
}
