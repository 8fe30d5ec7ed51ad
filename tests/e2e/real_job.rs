//! A real job in the development image: an agent finds why the tests of a well-known Python project fail, repairs the
//! function and commits, with nothing but the operations that it has. A reviewer sees the repair and the commit first.

use std::path::Path;
use std::process::Command;

use harness::v1::call_response::Status;
use harness::v1::result::Kind as Answer;
use harness::v1::{CreateRunRequest, ExecRequest, ReadRequest, operation::Kind as Operation};
use harness::{Daemon, RunHandle, Setup, calls, dev_image, git, own, record, requests};

/// What the set-up of `tests/run.sh` fetched.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools/sources/toolz-0.12.1.tar.gz");
const FILE: &str = "toolz/itertoolz.py";
const RIGHT: &str = "        d[item] += 1\n";
const WRONG: &str = "        d[item] = 1\n";

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_repairs_a_python_project() {
    let daemon = Daemon::start_with(setup()).await;
    let source = daemon.workspace("source", &[]);
    unpack(&source);
    git(&source, &["init", "-q", "-b", "main"]);
    commit(&source, "as released");
    break_function(&source);
    commit(&source, "count each item once");
    own(&source, 4321);

    let request = CreateRunRequest { image: dev_image(), ..requests::clone("build", &source) };
    let mut run = daemon.run_on(request).await;
    let workspace = Path::new(&run.run.workspace_path).to_owned();
    let (code, told) = pytest(&mut run).await;
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("FAILED toolz/tests/test_itertoolz.py::test_frequencies"), "{told}");

    let Answer::Grep(found) = run.ok(calls::grep("@project/toolz", "def frequencies")).await else {
        panic!("not a grep")
    };
    let [found] = found.matches.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.path, format!("@project/{FILE}"));
    let read = ReadRequest {
        path: found.path.clone(),
        start_line: Some(found.line),
        end_line: Some(found.line + 15),
        ..Default::default()
    };
    let Answer::Read(read) = run.ok(Operation::Read(read)).await else { panic!("not a read") };
    assert!(read.content.contains(WRONG), "{}", read.content);
    let edit =
        calls::replace(FILE, &format!("for item in seq:\n{WRONG}"), &format!("for item in seq:\n{RIGHT}"));
    let (approval, edited) = run.consented(edit).await;
    assert!(approval.preview.contains(&format!("\n-{WRONG}+{RIGHT}")), "{}", approval.preview);
    assert_eq!(edited.status(), Status::Succeeded, "{:?}", edited.error);

    let (code, told) = pytest(&mut run).await;
    assert_eq!(code, Some(0), "{told}");
    let Answer::Git(diff) = run.ok(calls::git_diff(&[])).await else { panic!("not git") };
    assert!(diff.output.contains(&format!("\n-{WRONG}+{RIGHT}")), "{}", diff.output);
    run.ok(calls::git_add(&[FILE])).await;
    let (_, committed) = run.consented(calls::git_commit("Count every item")).await;
    assert_eq!(committed.status(), Status::Succeeded, "{:?}", committed.error);

    assert_eq!(git(&workspace, &["log", "--format=%s", "-1"]), "Count every item\n");
    assert_eq!(git(&workspace, &["diff", "HEAD", "HEAD~2"]), "", "as it was released");
    assert_eq!(git(&workspace, &["status", "--porcelain"]), "");
    git(&workspace, &["fsck", "--strict"]);
    is_on_record(&mut run).await;
}

/// The built-in profile for unattended work, in which edits and commits ask.
fn setup() -> Setup {
    let build = include_str!("../../crates/policy/policies/build.yaml");
    let asks = build.replace("edit: allow", "edit: ask").replace("git.commit: allow", "git.commit: ask");
    let roles = include_str!("../../crates/policy/policies/roles.yaml").to_owned();
    Setup { policy: vec![("build.yaml", asks), ("roles.yaml", roles)], ..Default::default() }
}

/// Each step as it was decided, in a log that verifies.
async fn is_on_record(run: &mut RunHandle) {
    let id = run.id().to_owned();
    let intents = run.clients.events(&id, "call_intent").await;
    let decided: Vec<_> = intents
        .iter()
        .map(|intent| format!("{} {}", intent.operation, record(intent)["decision"]["outcome"]))
        .collect();
    let expected = [
        r#"exec "allow""#,
        r#"grep "allow""#,
        r#"read "allow""#,
        r#"edit "ask""#,
        r#"exec "allow""#,
        r#"git.diff "allow""#,
        r#"git.add "allow""#,
        r#"git.commit "ask""#,
    ];
    assert_eq!(decided, expected);
    assert!(run.clients.verify().await.intact);
}

/// The tests' exit code and what they said last.
async fn pytest(run: &mut RunHandle) -> (Option<i32>, String) {
    let request = ExecRequest {
        command: "python".to_owned(),
        args: ["-m", "pytest", "-q", "-p", "no:cacheprovider", "toolz"].map(str::to_owned).to_vec(),
        env: [("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned())].into(),
        timeout_ms: Some(120_000),
        ..Default::default()
    };
    let Answer::Exec(result) = run.ok(Operation::Exec(request)).await else { panic!("not an exec") };
    (result.exit_code, result.stdout + &result.stderr)
}

fn unpack(directory: &Path) {
    let status = Command::new("tar")
        .args(["-xzf", SOURCE, "--strip-components=1", "--no-same-owner", "-C"])
        .arg(directory)
        .status()
        .unwrap();
    assert!(status.success(), "{SOURCE} cannot be unpacked; tests/run.sh fetches it");
}

fn commit(directory: &Path, message: &str) {
    git(directory, &["add", "-A"]);
    git(directory, &["commit", "-q", "-m", message]);
}

fn break_function(directory: &Path) {
    let path = directory.join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(RIGHT));
    std::fs::write(path, text.replacen(RIGHT, WRONG, 1)).unwrap();
}
