//! A run's connections as models, people and anomaly rules see them.

use std::time::Duration;

use harness::{Daemon, RunHandle, calls, requests, v1};

use super::server::Server;
use super::{client, daemon, daemon_of, details, rules, shell};
use crate::alerts::alert;
use crate::cli::{json, out};

async fn tools(run: &mut RunHandle, dialect: &str) -> v1::ListToolsResponse {
    let (run_id, dialect) = (run.id().to_owned(), dialect.to_owned());
    let request = v1::ListToolsRequest { run_id, dialect, ..Default::default() };
    run.clients.tools.list_tools(request).await.unwrap().into_inner()
}

async fn egress_of(run: &mut RunHandle) -> Option<v1::Egress> {
    let request = v1::GetRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap().egress
}

async fn narrow(run: &RunHandle, egress_json: &str) -> v1::Egress {
    let request =
        v1::NarrowEgressRequest { run_id: run.id().to_owned(), egress_json: egress_json.to_owned() };
    client(run).narrow_egress(request).await.unwrap().into_inner().egress.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn n60_lists_of_tools_say_which_hosts_commands_can_reach() {
    let daemon = daemon(&rules(8080, 22)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let words = "You can reach: files.example.org over HTTP on port 8080 (GET alone); git.example.org over TCP on port 22. \
                 Everything else does not resolve. ";
    for dialect in ["code", "forge"] {
        let listed = tools(&mut run, dialect).await;
        assert!(listed.network.starts_with(words), "{}", listed.network);
        for text in [&listed.tools_json, &listed.prompt].into_iter().filter(|text| !text.is_empty()) {
            assert_eq!(text.matches(&format!(" Network: {words}")).count(), 1, "{text}");
            assert!(!text.contains("There is no network"), "{text}");
        }
    }
    // At once when the rules are narrowed, and for a run that never had any.
    narrow(&run, "{}").await;
    let mut without = daemon.run_on(requests::managed("none")).await;
    for run in [&mut run, &mut without] {
        let listed = tools(run, "code").await;
        let none = "There is no network: no host name resolves, and no address outside can be reached.";
        assert_eq!(listed.network, none);
        assert!(listed.tools_json.contains("There is no network"), "{}", listed.tools_json);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n62_a_run_shows_its_counts_and_the_digest_of_its_rules() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = daemon(&rules(http.port, echo.port)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let before = egress_of(&mut run).await.unwrap();
    assert_eq!(before.digest.len(), 64);
    assert_eq!(
        v1::Egress { digest: String::new(), words: String::new(), ..before.clone() },
        v1::Egress::default()
    );
    let script = format!(
        "wget -qO- http://files.example.org:{}/; wget -qO- http://other.example.org/; echo x | nc -w 5 10.1.2.3 22",
        http.port
    );
    shell(&mut run, &script).await;
    let mut after = before;
    for _ in 0..1_200 {
        after = egress_of(&mut run).await.unwrap();
        if after.ended_connections == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!((after.open_connections, after.ended_connections), (0, 2), "{after:?}");
    assert!(after.refused_names >= 1 && after.refused_connections == 1, "{after:?}");
    assert!(after.bytes_out > 50 && after.bytes_in > 50, "{after:?}");
    let get = v1::GetEgressRequest { run_id: run.id().to_owned() };
    assert_eq!(client(&run).get_egress(get).await.unwrap().into_inner().egress, Some(after.clone()));

    let id = run.id().to_owned();
    let shown = out(&daemon, &["run", "show", &id]).await;
    assert!(shown.contains("0 open, 2 in all, 1 refused; ") && shown.contains(&after.digest), "{shown}");
    let shown = json(&daemon, &["run", "show", &id]).await;
    assert_eq!(shown["run"]["egress"]["digest"], after.digest.as_str(), "{shown}");

    let narrowed = narrow(&run, "{}").await;
    assert_ne!(narrowed.digest, after.digest);
    assert_eq!(egress_of(&mut run).await.unwrap().digest, narrowed.digest);
    let mut without = daemon.run_on(requests::managed("none")).await;
    assert_eq!(egress_of(&mut without).await, None);
}

/// A daemon whose anomaly rules about connections fire early.
async fn watchful(http: u16, tcp: u16) -> Daemon {
    let anomalies = "anomalies:\n  egress_volume: { threshold: 1 }\n  egress_refusals: { threshold: 3 }\n  \
                     egress_after_secret: { action: freeze, severity: high }\n";
    daemon_of("", &rules(http, tcp), anomalies).await
}

#[tokio::test(flavor = "multi_thread")]
async fn n63_much_that_leaves_and_many_refused_names_raise_alerts() {
    let (http, echo) = (Server::http().await, Server::echo().await);
    let daemon = watchful(http.port, echo.port).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let much = format!("head -c 1100000 /dev/zero | nc -w 5 git.example.org {} | wc -c", echo.port);
    shell(&mut run, &much).await;
    let raised = alert(&mut run.clients, |alert| alert.rule == "egress_volume").await;
    assert_eq!((raised.run_id.as_str(), raised.count), (run.id(), 1));
    let receipts = run.clients.events(run.run.run_id.clone().as_str(), "egress_receipt").await;
    assert_eq!(raised.sequences, receipts.iter().map(|receipt| receipt.sequence).collect::<Vec<_>>());

    for name in ["a", "b", "c"] {
        shell(&mut run, &format!("nslookup {name}.example.net")).await;
    }
    let raised = alert(&mut run.clients, |alert| alert.rule == "egress_refusals").await;
    assert_eq!((raised.run_id.as_str(), raised.count), (run.id(), 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn n64_a_new_host_after_a_secret_was_read_freezes_the_run() {
    let http = Server::http().await;
    let daemon = watchful(http.port, 9).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    run.ok(calls::write(".env", "KEY=1\n")).await;
    run.ok(calls::read(".env")).await;
    let (_, said) = shell(&mut run, &format!("wget -qO- http://files.example.org:{}/", http.port)).await;
    assert!(said.starts_with("GET / "), "{said}");
    let raised = alert(&mut run.clients, |alert| {
        alert.measure.as_ref().is_some_and(|measure| measure.state() == v1::alert_measure::State::InForce)
    })
    .await;
    assert_eq!(
        (raised.rule.as_str(), raised.run_id.as_str(), raised.count),
        ("egress_after_secret", run.id(), 1)
    );
    let id = run.id().to_owned();
    let read = run.clients.events(&id, "call_receipt").await;
    let read = read.iter().find(|event| event.operation == "read").unwrap().sequence;
    let contact = run.clients.events(&id, "egress_intent").await[0].sequence;
    assert_eq!(raised.sequences, [read, contact]);
    let request = v1::GetRunRequest { run_id: id };
    let shown = run.clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap();
    assert_eq!(shown.state(), v1::run::State::Paused);
}

#[tokio::test(flavor = "multi_thread")]
async fn n66_refused_names_of_a_live_and_of_an_ended_run_make_one_proposal() {
    let daemon = daemon(&rules(80, 22)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    shell(
        &mut run,
        "nslookup other.example.org; nslookup xn--exmple-4nf.org; nc -w 5 files.example.org 8080",
    )
    .await;
    details(&mut run, "egress_refused", 3).await;
    let id = run.id().to_owned();
    let live = out(&daemon, &["egress", "learn", &id]).await;
    run.stop().await;
    let ended = out(&daemon, &["egress", "learn", &id]).await;
    for proposal in [&live, &ended] {
        for line in [
            "\n        - { host: \"other.example.org\", ports: [443], decision: allow }\n",
            "\n        - { host: \"files.example.org\", ports: [8080], scheme: tcp, decision: allow }\n",
            "\n        # - { host: \"xn--exmple-4nf.org\", ports: [443], decision: allow }\n",
        ] {
            assert!(proposal.contains(line), "{line}: {proposal}");
        }
        let file = daemon.outside().join("proposal.yaml");
        std::fs::write(&file, format!("profiles:\n  mine:\n    operations: {{}}\n{proposal}")).unwrap();
        out(&daemon, &["policy", "check", file.to_str().unwrap()]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n112_a_proposal_says_after_which_connection_a_name_was_asked_for() {
    let http = Server::http().await;
    let daemon = daemon(&rules(http.port, 22)).await;
    let mut run = daemon.run_on(requests::managed("out")).await;
    let script = format!("wget -qO- http://files.example.org:{}/; nslookup other.example.net", http.port);
    shell(&mut run, &script).await;
    shell(&mut run, "nslookup alone.example.com").await;
    details(&mut run, "egress_refused", 2).await;
    let id = run.id().to_owned();
    let live = out(&daemon, &["egress", "learn", &id]).await;
    run.stop().await;
    let ended = out(&daemon, &["egress", "learn", &id]).await;
    for proposal in [&live, &ended] {
        let after = format!(
            "        # asked after files.example.org:{}\n        - {{ host: \"other.example.net\"",
            http.port
        );
        assert!(proposal.contains(&after), "{proposal}");
        assert_eq!(proposal.matches("# asked after ").count(), 1, "{proposal}");
        assert!(proposal.contains("alone.example.com"), "{proposal}");
    }
}
