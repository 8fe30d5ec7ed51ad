use wire::v1::{
    BindWorkspace, CompanionStatus, Egress, ForkedFrom, HardeningFact, ModelCounts, ProcessRequest,
    RateWindow, Workspace,
};

use super::super::super::foreign::tests::{HOSTILE, assert_harmless};
use super::*;

const ID: &str = "0198a1b2-0000-7000-8000-00000000aaaa";

fn hostile() -> String {
    HOSTILE.to_owned()
}

fn process() -> Process {
    let request =
        ProcessRequest { command: hostile(), args: vec![hostile()], script: hostile(), ..Default::default() };
    Process { process_id: hostile(), request: Some(request), failure: hostile(), ..Default::default() }
}

fn run() -> Run {
    Run {
        run_id: hostile(),
        state: State::Ready.into(),
        profile: hostile(),
        image: hostile(),
        image_id: hostile(),
        container_id: hostile(),
        agent_id: hostile(),
        role: hostile(),
        principal: hostile(),
        failure: hostile(),
        workspace: Some(Workspace { source: Some(Source::Bind(BindWorkspace { path: hostile() })) }),
        labels: [(hostile(), hostile())].into(),
        hardening: vec![HardeningFact { name: hostile(), value: hostile() }],
        holds: vec![RunHold { cause_id: hostile(), principal: hostile(), ..Default::default() }],
        forked_from: Some(ForkedFrom { checkpoint_id: hostile(), run_id: hostile() }),
        companions: vec![CompanionStatus {
            name: hostile(),
            image: hostile(),
            address: hostile(),
            ..Default::default()
        }],
        egress: Some(Egress { words: hostile(), ..Default::default() }),
        model_use: Some(ModelUse { total: Some(ModelCounts::default()), bounds: Vec::new() }),
        disk: Some(DiskUse::default()),
        limits: Some(Limits::default()),
        ..Default::default()
    }
}

fn shown(run: Run) -> Shown {
    let limit = RateLimit { name: hostile(), windows: vec![RateWindow::default()], ..Default::default() };
    Shown {
        family: vec![run.clone()],
        run,
        processes: Ok(vec![process()]),
        sessions: Ok(vec![Session { session_id: hostile(), process: Some(process()), ..Default::default() }]),
        limits: Ok(GetRateLimitsResponse { limits: vec![limit], ..Default::default() }),
    }
}

#[test]
fn texts_of_a_run_are_harmless() {
    let hidden = html! { input type="hidden" name="csrf" value="x"; };
    assert_harmless(&render(&shown(run()), Some(&hidden)));
    let refused =
        Shown { processes: Err(hostile()), sessions: Err(hostile()), limits: Err(hostile()), ..shown(run()) };
    assert_harmless(&render(&refused, None));
    assert_harmless(&confirm_stop(HOSTILE, &hidden));
}

#[test]
fn a_run_that_lives_is_paused_resumed_and_stopped_by_those_who_may() {
    let hidden = html! { input type="hidden" name="csrf" value="x"; };
    let of = |state: State, hidden| {
        let run = Run { run_id: ID.to_owned(), state: state.into(), ..Default::default() };
        render(&shown(run), hidden).0
    };
    let (ready, paused) = (of(State::Ready, Some(&hidden)), of(State::Paused, Some(&hidden)));
    assert!(ready.contains(&format!("action=\"/runs/{ID}/pause\"")) && !ready.contains("/resume"));
    assert!(paused.contains(&format!("action=\"/runs/{ID}/resume\"")) && !paused.contains("/pause\""));
    for (state, hidden) in
        [(State::Ready, None), (State::Stopped, Some(&hidden)), (State::Creating, Some(&hidden))]
    {
        assert!(!of(state, hidden).contains("<form"), "{state:?}");
    }
    let asked = confirm_stop(ID, &hidden).0;
    assert!(asked.contains("method=\"post\"") && asked.contains("name=\"csrf\""));
}
