//! Scenarios of both SDKs, played by their own tests.

use harness::balancer::{Balancer, Nodes, OPERATORS};
use tokio::process::Command;

use crate::{python_sdk, tool_lists, typescript_sdk};

/// The scenarios: one for each part of the API that an agent's loop uses, as far as they ask for no directory of the user who runs the tests
/// and for no level of approvals, which a token of an issuer does not have. All of them would take minutes.
const SCENARIOS: [&str; 12] = [
    "commands: output is told while it comes, whole characters at a time",
    "commands: a call of one request id is made once",
    "files: a patch changes all files or none, in both forms",
    "processes: a command in the background is given input, and has a result when it ends",
    "processes: a terminal has a size, and shows what is typed",
    "runs: a paused sandbox takes no calls until it goes on",
    "runs: a person is asked, refuses once and consents once",
    "runs: a model gets tools, and every outcome is an answer",
    "runs: records come in order, from a place on, of some kinds",
    "runs: a checkpoint has an id, and the run goes on",
    "sessions: session keeps its directory",
    "transfers: a tree goes up and comes down",
];

/// Points the tests of an SDK at the one address, and chooses the scenarios.
fn through(balancer: &Balancer, nodes: &Nodes, mut suite: Command) -> Command {
    suite
        .env("COFFERDAM_TEST_ENDPOINT", balancer.url())
        .env("COFFERDAM_TEST_ROOTS", nodes.roots())
        .env("COFFERDAM_TEST_TOKEN", nodes.token(OPERATORS))
        .env("COFFERDAM_TEST_SCENARIOS", format!("^({})$", SCENARIOS.join("|")))
        .env("COFFERDAM_TLS", balancer.tls());
    suite
}

/// Plays the scenarios by one half of the Python SDK.
pub(super) async fn python_passes(balancer: &Balancer, nodes: &Nodes, half: &[&str]) {
    let suite = python_sdk::suite(&tool_lists::python(), "scenarios", half);
    let passed = python_sdk::passes(through(balancer, nodes, suite)).await;
    assert_eq!(passed, SCENARIOS.len(), "not every scenario was played");
}

/// Plays the scenarios by the TypeScript SDK.
pub(super) async fn typescript_passes(balancer: &Balancer, nodes: &Nodes) {
    let suite = typescript_sdk::suite(&typescript_sdk::node(), "scenarios").await;
    let passed = typescript_sdk::passes(through(balancer, nodes, suite)).await;
    assert_eq!(passed, SCENARIOS.len(), "not every scenario was played");
}
