//! What `tests/bench` stores: its baseline, its trace, and how it judges by the first.

use std::collections::BTreeMap;

use wire::v1::Operation;

use super::root;

#[path = "../bench/runs/baseline.rs"]
mod baseline;

use baseline::{Baseline, Ratios};

fn stored(file: &str) -> String {
    std::fs::read_to_string(root().join("tests/bench").join(file)).unwrap()
}

#[test]
fn the_stored_baseline_is_whole_and_names_the_same_ratios_for_both_builds() {
    let text = stored("baseline.json");
    let baseline = Baseline::parse(&text).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let names = |build: &str| {
        let ratios = json["builds"][build].as_object().unwrap();
        ratios.iter().map(|(name, ratio)| (name.clone(), ratio.as_f64().unwrap())).collect::<Ratios>()
    };
    let (debug, release) = (names("debug"), names("release"));
    assert!(debug.len() >= 6 && debug.keys().eq(release.keys()), "{debug:?} {release:?}");
    for (build, ratios) in [("debug", debug), ("release", release)] {
        assert_eq!(baseline.objections(build, &ratios, &[]), [""; 0], "{build}");
        let slower = ratios.into_iter().map(|(name, ratio)| (name, ratio * 100.0)).collect::<Ratios>();
        assert_eq!(baseline.objections(build, &slower, &[]).len(), slower.len(), "{build}");
    }
}

#[test]
fn the_stored_trace_is_two_hundred_calls_of_many_kinds() {
    let calls: Vec<serde_json::Value> = serde_json::from_str(&stored("trace.json")).unwrap();
    let mut kinds = BTreeMap::<String, usize>::new();
    for call in &calls {
        let operation: Operation = serde_json::from_value(call["operation"].clone()).unwrap();
        let json = serde_json::to_value(&operation).unwrap();
        assert_eq!(json, call["operation"], "nothing is lost");
        *kinds.entry(json.as_object().unwrap().keys().next().unwrap().clone()).or_default() += 1;
    }
    assert_eq!(calls.len(), 200);
    assert!(kinds.len() >= 9, "{kinds:?}");
    assert!(kinds.values().all(|&count| count <= 100), "{kinds:?}");
}
