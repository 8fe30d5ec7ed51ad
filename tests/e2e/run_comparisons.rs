//! Comparisons of runs: what they have changed, where the changes conflict, and what they took.

use std::collections::BTreeSet;

use harness::v1::run::State;
use harness::{Clients, Daemon, RunHandle, Setup, as_user, calls, forks, reason, requests, v1};
use tonic::Status;

use crate::cli::{json, out};

async fn compare(clients: &mut Clients, runs: &[&str]) -> Result<v1::CompareRunsResponse, Status> {
    let run_ids = runs.iter().map(|run| (*run).to_owned()).collect();
    let request = v1::CompareRunsRequest { run_ids };
    clients.checkpoints.compare_runs(request).await.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_on_one_base_and_one_directory_are_compared_with_conflicts_and_figures() {
    let daemon = Daemon::start().await;
    let files = [("a.txt", "one\ntwo\n"), ("same.txt", "x\n"), ("d/x.txt", "x\n"), ("d/y.txt", "y\n")];
    let source = daemon.workspace("w", &files);
    let base = daemon.base(&source).await;
    let mut clients = daemon.connect().await;
    for request in [requests::base("harness", &base), requests::overlay("harness", &source)] {
        let mut one = daemon.run_on(request.clone()).await;
        let mut other = daemon.run_on(request.clone()).await;
        let mut idle = daemon.run_on(request).await;
        let change = "printf 'one\\nthree\\nfour\\n' >a.txt; echo y >same.txt; echo 'ü' >'ü 1.txt'; rm -r d; printf '\\0' >bin";
        assert_eq!(one.exec(&["sh", "-c", change]).await.exit_code, Some(0));
        let change = "echo two >a.txt; echo y >same.txt; echo 'ü' >'ü 1.txt'; echo z >d/y.txt; printf '\\0' >bin; echo own >own";
        assert_eq!(other.exec(&["sh", "-c", change]).await.exit_code, Some(0));
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert_eq!(other.exec(&["sh", "-c", spin]).await.exit_code, Some(0));

        let ids = [one.id().to_owned(), other.id().to_owned(), idle.id().to_owned()];
        let found = compare(&mut clients, &[&ids[0], &ids[1], &ids[2]]).await.unwrap();
        let named: Vec<&str> =
            found.runs.iter().map(|one| one.run.as_ref().unwrap().run_id.as_str()).collect();
        assert_eq!(named, [&*ids[0], &*ids[1], &*ids[2]]);
        let paths = |number: usize| -> BTreeSet<&str> {
            found.runs[number].changes.iter().map(|change| change.path.as_str()).collect()
        };
        assert_eq!(paths(0), BTreeSet::from(["a.txt", "bin", "d", "same.txt", "ü 1.txt"]));
        assert_eq!(paths(1), BTreeSet::from(["a.txt", "bin", "d/y.txt", "own", "same.txt", "ü 1.txt"]));
        assert!(paths(2).is_empty() && found.runs[2].total == 0);

        let lines = |number: usize| {
            let run = &found.runs[number];
            (run.lines_added, run.lines_removed, run.lines_incomplete)
        };
        // The lines of the deleted directory are not counted.
        assert_eq!(lines(0), (4, 2, true));
        assert_eq!(lines(1), (4, 3, false));
        assert_eq!(lines(2), (0, 0, false));

        // Equal changes agree. The content of a binary file is not known.
        let conflicts: Vec<&str> = found.conflicts.iter().map(|path| path.path.as_str()).collect();
        assert_eq!(conflicts, ["a.txt", "bin", "d"]);
        assert!(found.conflicts.iter().all(|path| path.run_ids == ids[..2]) && !found.truncated);

        let figures = |number: usize| {
            let run = &found.runs[number];
            (run.calls, run.refused, run.approvals)
        };
        assert_eq!((figures(0), figures(1), figures(2)), ((1, 0, 0), (2, 0, 0), (0, 0, 0)));
        assert!(found.runs[1].cpu_us > found.runs[0].cpu_us && found.runs[2].cpu_us == 0, "{found:?}");
        for ended in [&mut one, &mut other, &mut idle] {
            ended.stop().await;
        }
        // Changes of ended runs are compared until they are settled.
        assert_eq!(compare(&mut clients, &[&ids[0], &ids[1]]).await.unwrap().conflicts.len(), 3);
        one.discard().await.unwrap();
        let found = compare(&mut clients, &[&ids[0], &ids[1]]).await.unwrap();
        assert!(found.runs[0].unavailable.contains("discarded") && found.conflicts.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_cannot_be_compared_are_refused_or_have_their_reason() {
    let access = "access: [{ uid: 4321, roles: [orchestrator] }, { uid: 4322, roles: [orchestrator] }]\n";
    let daemon = Daemon::start_with(Setup { config: access.to_owned(), ..Setup::default() }).await;
    daemon.expose();
    let mut managed = daemon.run_on(requests::managed("harness")).await;
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut overlay = daemon.run_on(requests::overlay("harness", &source)).await;
    overlay.ok(calls::write("a.txt", "two\n")).await;
    let mut clients = daemon.connect().await;
    let (first, second) = (managed.id().to_owned(), overlay.id().to_owned());

    let found = compare(&mut clients, &[&first, &second]).await.unwrap();
    assert!(found.runs[0].unavailable.contains("not an overlay"), "{}", found.runs[0].unavailable);
    assert_eq!((found.runs[1].unavailable.as_str(), found.runs[1].total), ("", 1));
    let shown = out(&daemon, &["run", "compare", &first, &second]).await;
    assert!(shown.contains("has no changes to compare: "), "{shown}");

    let none = "0190b0c0-0000-7000-8000-000000000001";
    assert_eq!(reason(&compare(&mut clients, &[&first, none]).await.unwrap_err()), "NOT_FOUND");
    for wrong in [&[][..], &[first.as_str()][..], &[first.as_str(), first.as_str()][..], &[&*first; 101][..]]
    {
        assert_eq!(reason(&compare(&mut clients, wrong).await.unwrap_err()), "INVALID_ARGUMENT");
    }
    let ids = [first, second];
    as_user(4321, &daemon.socket(), async move |mut clients| {
        let own = clients.runs.create_run(requests::managed("harness")).await.unwrap();
        let own = own.into_inner().run.unwrap().run_id;
        for id in &ids {
            assert_eq!(reason(&compare(&mut clients, &[&own, id]).await.unwrap_err()), "NOT_FOUND");
        }
    })
    .await;
    managed.stop().await;
    overlay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_are_compared_with_a_check_shown_as_a_tree_and_pruned() {
    let daemon = Daemon::start().await;
    let source = daemon.workspace("w", &[("a.txt", "one\n")]);
    let base = daemon.base(&source).await;
    let mut origin = daemon.run_on(requests::base("harness", &base)).await;
    origin.ok(calls::write("a.txt", "begun\n")).await;
    let mut clients = daemon.connect().await;
    let made = forks::checkpoint(&mut clients, origin.id()).await.unwrap();
    let mut forks = Vec::new();
    for text in ["good\n", "bad\n", "good\n"] {
        let mut fork = daemon.run_on(requests::checkpoint("harness", &made.checkpoint_id)).await;
        fork.ok(calls::write("a.txt", text)).await;
        forks.push(fork);
    }
    let ids: Vec<String> = forks.iter().map(|fork| fork.id().to_owned()).collect();

    let line = ["run", "compare", "--of", origin.id(), "--check", "grep -q good a.txt"];
    let found = json(&daemon, &line).await;
    let runs = found["runs"].as_array().unwrap();
    let named: Vec<&str> = runs.iter().map(|one| one["run"]["runId"].as_str().unwrap()).collect();
    assert_eq!(named, ids.iter().map(String::as_str).collect::<Vec<_>>());
    let codes: Vec<_> = runs.iter().map(|one| one["check"]["exitCode"].as_i64().unwrap()).collect();
    assert_eq!(codes, [0, 1, 0], "{found}");
    assert_eq!(found["conflicts"][0]["runIds"].as_array().unwrap().len(), 3);
    // The check is an ordinary call, on record.
    let receipts = clients.events(&ids[0], "call_receipt").await;
    assert_eq!(receipts.len(), 2);

    let tree = out(&daemon, &["run", "tree", &ids[1]]).await;
    let lines: Vec<&str> = tree.lines().collect();
    assert_eq!(lines.len(), 5, "{tree}");
    assert!(
        lines[1].starts_with(&origin.id()[28..])
            && lines[2].starts_with("├─ ")
            && lines[4].starts_with("└─ ")
    );

    let prune = ["run", "prune", "--losers", "--keep", &*ids[0], "--of", origin.id()];
    let listed = json(&daemon, &[&prune[..], &["--dry-run"]].concat()).await;
    assert_eq!(listed["runs"].as_array().unwrap().len(), 2);
    out(&daemon, &[&prune[..], &["--yes"]].concat()).await;
    assert_eq!((origin.show().await.state(), forks[0].show().await.state()), (State::Ready, State::Ready));
    for id in &ids[1..] {
        let request = v1::GetRunRequest { run_id: id.clone() };
        assert_eq!(reason(&clients.runs.get_run(request).await.unwrap_err()), "NOT_FOUND");
    }
    let tree = out(&daemon, &["run", "tree"]).await;
    assert_eq!(tree.lines().count(), 3, "{tree}");
    forks[0].stop().await;
    origin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_of_a_managed_run_are_made_compared_accepted_and_pruned_by_commands() {
    let daemon = Daemon::start().await;
    let mut origin = daemon.run_on(requests::managed("harness")).await;
    origin.ok(calls::write("a.txt", "begun\n")).await;
    let fork = ["run", "fork", origin.id(), "--count", "2", "--label", "try=yes"];
    let made = json(&daemon, &fork).await;
    let forks = made["forks"].as_array().unwrap();
    let ids: Vec<&str> = forks.iter().map(|fork| fork["run"]["runId"].as_str().unwrap()).collect();
    let [winner, loser] = ids[..] else { panic!("{made}") };
    let mut clients = daemon.connect().await;
    for (id, text) in [(winner, "good\n"), (loser, "bad\n")] {
        let run = v1::Run { run_id: id.to_owned(), ..v1::Run::default() };
        let mut fork = RunHandle { run: Box::new(run), clients: clients.clone() };
        assert_eq!(fork.exec(&["cat", "a.txt"]).await.stdout, "begun\n");
        fork.ok(calls::write("a.txt", text)).await;
    }

    let check = ["run", "compare", winner, loser, "--check", "grep -q good a.txt"];
    let found = json(&daemon, &check).await;
    let runs = found["runs"].as_array().unwrap();
    let codes: Vec<_> = runs.iter().map(|one| one["check"]["exitCode"].as_i64().unwrap()).collect();
    assert_eq!(codes, [0, 1], "{found}");
    assert_eq!(found["conflicts"][0]["path"].as_str(), Some("a.txt"), "{found}");
    let tree = out(&daemon, &["run", "tree", winner]).await;
    let lines: Vec<&str> = tree.lines().collect();
    assert!(lines.len() == 4 && lines[1].starts_with(&origin.id()[28..]), "{tree}");
    assert!(lines[2].starts_with("├─ ") && lines[3].starts_with("└─ "), "{tree}");
    assert!(lines[2..].iter().all(|line| line.contains("try=yes")), "{tree}");

    // The origin's workspace takes the changes of the winner once no run uses it.
    out(&daemon, &["run", "stop", winner]).await;
    origin.stop().await;
    out(&daemon, &["run", "accept", winner]).await;
    let workspace = daemon.state_dir().join("workspaces").join(origin.id());
    assert_eq!(std::fs::read_to_string(workspace.join("a.txt")).unwrap(), "good\n");

    out(&daemon, &["run", "prune", "--losers", "--keep", winner, "--of", origin.id(), "--yes"]).await;
    let request = v1::GetRunRequest { run_id: loser.to_owned() };
    assert_eq!(reason(&clients.runs.get_run(request).await.unwrap_err()), "NOT_FOUND");
    let tree = out(&daemon, &["run", "tree"]).await;
    assert_eq!(tree.lines().count(), 3, "{tree}");
    // Neither the accepted changes nor the deleted ones need the checkpoint.
    let checkpoint = made["checkpoint"]["checkpointId"].as_str().unwrap();
    forks::delete(&mut clients, checkpoint).await.unwrap();
}
