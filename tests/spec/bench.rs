//! Checks the stored data of `tests/bench`: its baseline, its trace, and the judgement by the baseline.

use std::collections::BTreeMap;

use wire::v1::Operation;

use super::root;

#[path = "../bench/runs/baseline.rs"]
mod baseline;

use baseline::{Baseline, Ratios};

fn stored(file: &str) -> String {
    std::fs::read_to_string(root().join("tests/bench").join(file)).unwrap()
}

/// The ratios of each build that a file of ours has, each of which a measurement is held to.
fn held_to(file: &str) -> BTreeMap<String, Ratios> {
    let text = stored(file);
    let baseline = Baseline::parse(&text).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let builds: BTreeMap<String, Ratios> = serde_json::from_value(json["builds"].clone()).unwrap();
    for (build, ratios) in &builds {
        assert!(ratios.len() >= 6, "{file}: {build}: {ratios:?}");
        assert_eq!(baseline.objections(build, ratios, &[]), [""; 0], "{file}: {build}");
        let slower: Ratios = ratios.iter().map(|(name, ratio)| (name.clone(), ratio * 100.0)).collect();
        assert_eq!(baseline.objections(build, &slower, &[]).len(), slower.len(), "{file}: {build}");
    }
    builds
}

#[test]
fn the_stored_baselines_are_whole_and_that_of_runs_names_the_same_ratios_for_both_builds() {
    let runs = held_to("baseline.json");
    assert!(runs["debug"].keys().eq(runs["release"].keys()), "{runs:?}");
    assert!(held_to("access.json").contains_key("release"));
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

const STORED: &str = r#"{"margin": 3, "builds": {"debug": {"a / b": 2.0, "c / d": 0.01}}}"#;

fn ratios(of: &[(&str, f64)]) -> Ratios {
    of.iter().map(|(name, ratio)| ((*name).to_owned(), *ratio)).collect()
}

fn objections(measured: &[(&str, f64)]) -> Vec<String> {
    Baseline::parse(STORED).unwrap().objections("debug", &ratios(measured), &[])
}

#[test]
fn ratios_within_the_margin_or_faster_pass() {
    assert_eq!(objections(&[("a / b", 6.0), ("c / d", 0.0001)]), [""; 0]);
}

#[test]
fn a_ratio_beyond_the_margin_is_named_with_both_numbers() {
    let said = objections(&[("a / b", 6.01), ("c / d", 0.01)]);
    assert_eq!(said, ["a / b: 6.010, and at most 6.000 (2.000 and its margin)"]);
    assert_eq!(objections(&[("a / b", f64::NAN), ("c / d", f64::INFINITY)]).len(), 2);
}

#[test]
fn a_baseline_that_does_not_fit_the_measurements_is_stale() {
    let said = objections(&[("a / b", 1.0), ("e / f", 1.0)]);
    assert_eq!(said, ["e / f: not in the baseline", "c / d: not measured"]);
    let baseline = Baseline::parse(STORED).unwrap();
    assert!(baseline.objections("release", &Ratios::new(), &[])[0].contains("no build `release`"));
    let spared = baseline.objections("debug", &ratios(&[("a / b", 1.0)]), &["c / d"]);
    assert_eq!(spared, [""; 0], "what a daemon cannot have");
}

#[test]
fn a_baseline_is_read_as_it_was_written() {
    let written = Baseline::parse(STORED).unwrap().with("release", &ratios(&[("a / b", 1.234_56)]));
    let baseline = Baseline::parse(&written).unwrap();
    assert_eq!(baseline.objections("release", &ratios(&[("a / b", 3.703)]), &[]), [""; 0]);
    assert_eq!(baseline.objections("release", &ratios(&[("a / b", 3.704)]), &[]).len(), 1);
    assert_eq!(baseline.objections("debug", &ratios(&[("a / b", 1.0), ("c / d", 0.01)]), &[]), [""; 0]);
}

#[test]
fn a_broken_baseline_is_refused() {
    for text in
        ["", "{}", r#"{"margin": 0.5, "builds": {}}"#, r#"{"margin": 2, "builds": {"debug": {"a": -1}}}"#]
    {
        assert!(Baseline::parse(text).is_err(), "{text}");
    }
}
