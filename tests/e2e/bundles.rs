//! Run bundles: made through the API and the command line, verified offline, bent, and made where the log is no longer
//! whole.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use audit::VerifierKey;
use audit::bundle::verify;
use harness::v1::create_bundle_response::Event;
use harness::v1::operation::Kind as Operation;
use harness::v1::{BundleMade, CreateBundleRequest};
use harness::{Clients, Daemon, RunHandle, Setup, as_user, calls, reason, requests};
use tonic::Status;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/verify_bundle.py");

async fn create(clients: &Clients, request: CreateBundleRequest) -> Result<(Vec<u8>, BundleMade), Status> {
    let mut events = clients.audit.clone().create_bundle(request).await?.into_inner();
    let (mut bundle, mut made) = (Vec::new(), None);
    while let Some(response) = events.message().await? {
        assert!(made.is_none(), "it is said last");
        match response.event.unwrap() {
            Event::Progress(progress) => assert!(progress.records_read <= progress.head_sequence),
            Event::Data(data) => bundle.extend(data),
            Event::Made(last) => made = Some(last),
        }
    }
    Ok((bundle, made.expect("a bundle that is whole says so")))
}

fn of(run: &RunHandle) -> CreateBundleRequest {
    CreateBundleRequest { run_id: run.id().to_owned(), ..Default::default() }
}

fn members(bundle: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(bundle);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

/// What the second verifier says of each file: it has read `docs/src/audit-format.md` and not our code.
fn python(key: &str, files: &[&Path]) -> Vec<String> {
    let output = Command::new("python3").arg(SCRIPT).args(["--key", key]).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_verifies_and_tampering_with_any_member_is_found() {
    let daemon = Daemon::start().await;
    let workspace = daemon.repository("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let mut other = daemon.run_on(requests::managed("open")).await;
    for n in 0..30 {
        run.ok(calls::read("a.txt")).await;
        other.ok(calls::write(&format!("{n}.txt"), "x")).await;
    }
    let secret = format!("ghp{}", "_16C7e42F292c6912E7710c838347Ae178B4a");
    run.ok(calls::write("a.txt", &format!("two\ntoken = \"{secret}\"\n"))).await;
    run.call(calls::exec(&["sudo", "id"])).await.unwrap_err();
    let delete = harness::v1::DeleteRequest { path: "a.txt".to_owned(), ..Default::default() };
    let asked = run.asks(Operation::Delete(delete)).await;
    run.clients
        .decide(&asked.approval_id, harness::v1::decide_approval_request::Decision::Deny)
        .await
        .unwrap();
    // With its receipt.
    run.outcome(&asked.call_id).await;

    let file = daemon.outside().join("run.bundle");
    let path = file.to_str().unwrap();
    let key = String::from_utf8(daemon.coffer(&["audit", "key"]).stdout).unwrap().trim().to_owned();
    let created = daemon.coffer(&["bundle", "create", run.id(), path]);
    assert!(created.status.success(), "{created:?}");
    let verified = daemon.coffer(&["bundle", "verify", path, "--key", &key]);
    let said = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.status.success() && said.starts_with(&format!("intact: run {}", run.id())), "{said}");
    // Never over what is there, and no part of one stays where none was made.
    assert!(!daemon.coffer(&["bundle", "create", run.id(), path]).status.success());
    let none = daemon.outside().join("none.bundle");
    let missing = "0198a1b2-0000-7000-8000-000000000000";
    assert!(!daemon.coffer(&["bundle", "create", missing, none.to_str().unwrap()]).status.success());
    assert!(!none.exists());

    let bundle = std::fs::read(&file).unwrap();
    let members = members(&bundle);
    let trusted: VerifierKey = key.parse().unwrap();
    let verified = verify(&bundle[..], Some(&trusted)).unwrap();
    assert!(verified.from_beginning && verified.missing_policies.is_empty(), "{verified:?}");
    let instance = std::fs::read_to_string(daemon.state_dir().join("instance")).unwrap();
    assert_eq!((verified.node, verified.instance.as_str()), (None, instance.trim()));
    let id = run.id().to_owned();
    let expected: Vec<_> =
        run.clients.events(&id, "").await.into_iter().map(|event| event.record_json).collect();
    let records = String::from_utf8(members["records.jsonl"].clone()).unwrap();
    // The bundle's own record came afterwards.
    assert_eq!(records.lines().collect::<Vec<_>>(), expected[..expected.len() - 1]);
    let run_json: serde_json::Value = serde_json::from_slice(&members["run.json"]).unwrap();
    assert_eq!(
        (&run_json["runId"], &run_json["imageId"]),
        (&run.id().into(), &run.run.image_id.as_str().into())
    );
    let summary: serde_json::Value = serde_json::from_slice(&members["summary.json"]).unwrap();
    assert_eq!(summary["approvals"][0]["state"], "DENIED");
    assert_eq!(summary["image_digests"][0], run.run.image_id.as_str());
    let diff = String::from_utf8(members["diff.patch"].clone()).unwrap();
    assert!(diff.contains("-one\n+two\n") && diff.contains("[redacted:"), "{diff}");
    assert!(!bundle.windows(secret.len()).any(|part| part == secret.as_bytes()));

    // One bit of each member, in several places; the second verifier agrees each time.
    let (mut files, mut bent) = (vec![file.clone()], 0);
    let mut archive = tar::Archive::new(&bundle[..]);
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        // What git has staged is nothing.
        let Some(last) = entry.size().checked_sub(1) else { continue };
        for place in [0, last / 2, last] {
            let mut content = bundle.clone();
            content[usize::try_from(entry.raw_file_position() + place).unwrap()] ^= 1;
            match verify(&content[..], Some(&trusted)) {
                Err(error) => assert!(error.to_string().contains(&name), "{name} at {place}: {error}"),
                // The key that counts is the one that is given.
                Ok(_) => assert_eq!(name, "key.txt"),
            }
            if name != "key.txt" {
                let path = daemon.outside().join(format!("bent-{bent}"));
                std::fs::write(&path, &content).unwrap();
                files.push(path);
                bent += 1;
            }
        }
    }
    assert!(bent >= 24, "{bent}");
    let verdicts = python(&key, &files.iter().map(std::path::PathBuf::as_path).collect::<Vec<_>>());
    assert!(verdicts[0].starts_with(&format!("intact {} {}", run.id(), verified.records)), "{}", verdicts[0]);
    assert!(verdicts[1..].iter().all(|verdict| verdict.starts_with("broken")), "{verdicts:?}");
    // Another log's key.
    let other = Daemon::start().await;
    let foreign = String::from_utf8(other.coffer(&["audit", "key"]).stdout).unwrap();
    assert!(!daemon.coffer(&["bundle", "verify", path, "--key", foreign.trim()]).status.success());
    assert!(run.clients.verify().await.intact);
    let left = std::fs::read_dir(daemon.state_dir().join("bundles")).unwrap().count();
    assert_eq!(left, 0, "nothing of it stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_of_an_overlay_has_its_changes_and_one_of_a_deleted_run_its_records() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run_on(requests::overlay("open", &workspace)).await;
    run.ok(calls::write("a.txt", "two\n")).await;
    let id = run.id().to_owned();
    let stop = harness::v1::StopRunRequest { run_id: id.clone() };
    run.clients.runs.stop_run(stop).await.unwrap();
    let (bundle, made) = create(&run.clients, of(&run)).await.unwrap();
    assert!(made.complete && made.notes.is_empty(), "{made:?}");
    let members = members(&bundle);
    assert!(String::from_utf8_lossy(&members["diff.patch"]).contains("-one\n+two\n"));
    assert!(String::from_utf8_lossy(&members["changes.json"]).contains("a.txt"));

    let discard = harness::v1::DiscardRunRequest { run_id: id.clone() };
    run.clients.runs.discard_run(discard).await.unwrap();
    let delete = harness::v1::DeleteRunRequest { run_id: id.clone(), ..Default::default() };
    run.clients.runs.delete_run(delete).await.unwrap();
    let (bundle, made) = create(&run.clients, of(&run)).await.unwrap();
    assert!(made.complete && made.notes.iter().any(|note| note.contains("deleted")), "{made:?}");
    assert!(verify(&bundle[..], None).is_ok_and(|verified| verified.run_id == id));
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_decide_who_gets_a_bundle_and_its_content() {
    const ORCHESTRATOR: u32 = 4321;
    const OTHER: u32 = 4322;
    const AUDITOR: u32 = 4323;
    let access = format!(
        "access: [{{ uid: {ORCHESTRATOR}, roles: [orchestrator] }}, {{ uid: {OTHER}, roles: [orchestrator] }}, \
         {{ uid: {AUDITOR}, roles: [auditor] }}, {{ uid: 4324, roles: [approver] }}]\n"
    );
    let daemon = Daemon::start_with(Setup { config: access, ..Default::default() }).await;
    daemon.expose();
    let workspace = daemon.repository("w", &[("a.txt", "one\n")]);
    let request = requests::bind("open", &workspace);
    let (id, own) = as_user(ORCHESTRATOR, &daemon.socket(), async move |mut clients: Clients| {
        let run = clients.runs.create_run(request).await.unwrap().into_inner().run.unwrap();
        let request = CreateBundleRequest { run_id: run.run_id.clone(), ..Default::default() };
        (run.run_id, create(&clients, request).await.unwrap().0)
    })
    .await;
    assert!(members(&own).contains_key("diff.patch"));
    let ask = async |uid: u32| {
        let request = CreateBundleRequest { run_id: id.clone(), ..Default::default() };
        as_user(uid, &daemon.socket(), async move |clients: Clients| create(&clients, request).await).await
    };
    let (audited, made) = ask(AUDITOR).await.unwrap();
    assert!(!members(&audited).keys().any(|name| name == "diff.patch"));
    assert!(made.notes.iter().any(|note| note.contains("auditor")), "{made:?}");
    assert_eq!(reason(&ask(OTHER).await.unwrap_err()), "NOT_FOUND");
    assert_eq!(reason(&ask(4324).await.unwrap_err()), "PERMISSION_DENIED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_first_records_were_removed_has_a_clear_answer() {
    let config = "audit: { segment_size: 64KiB, segment_age: 1s, compress_after: 1s, remove_after: 5s, \
                  checkpoint: { records: 10, interval: 1s } }\n";
    let daemon = Daemon::start_with(Setup { config: config.to_owned(), ..Default::default() }).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let id = run.id().to_owned();
    let first = run.clients.events(&id, "").await[0].sequence;
    let removed = async {
        loop {
            run.call(calls::read("a.txt")).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            let removed = run.clients.verify().await.removed_records;
            if removed >= first {
                return removed;
            }
        }
    };
    let removed = tokio::time::timeout(std::time::Duration::from_secs(120), removed).await.unwrap();
    let refused = create(&run.clients, of(&run)).await.map(|(_, made)| made).unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED");
    assert!(
        refused.message().contains("no longer has the first records of this run"),
        "{}",
        refused.message()
    );
    let whatever = CreateBundleRequest { allow_incomplete: true, ..of(&run) };
    let (bundle, made) = create(&run.clients, whatever).await.unwrap();
    assert!(!made.complete && made.notes[0].contains("were removed"), "{made:?}");
    let verified = verify(&bundle[..], None).unwrap();
    assert!(!verified.from_beginning && verified.records as u64 == made.records, "{verified:?}");
    let first = String::from_utf8(members(&bundle)["records.jsonl"].clone()).unwrap();
    let first: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
    assert!(first["sequence"].as_u64().unwrap() > removed);
    // A run that began behind the removal is whole, unless its start took so long that the removal has reached it.
    let whole = async {
        loop {
            let later = daemon.run_on(requests::managed("open")).await;
            match create(&later.clients, of(&later)).await {
                Ok(whole) => return whole,
                Err(refused) => assert_eq!(reason(&refused), "PRECONDITION_FAILED"),
            }
        }
    };
    let (bundle, made) = tokio::time::timeout(std::time::Duration::from_secs(30), whole).await.unwrap();
    assert!(made.complete && verify(&bundle[..], None).unwrap().from_beginning, "{made:?}");
}
