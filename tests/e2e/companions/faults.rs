//! Companions that end, are never ready, or are asked for what they are not open for.

use harness::v1::companion_status::State;
use harness::{reason, requests, v1};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn co5_a_companion_that_ends_before_it_is_ready_ends_the_launch_with_its_output() {
    let (daemon, image) = (daemon().await, image("co5"));
    let status = refused(&daemon, vec![companion("db", &image, "echo no such cluster; exit 7")]).await;
    assert_eq!(reason(&status), "PRECONDITION_FAILED");
    for part in ["db: ", "the code 7", "no such cluster"] {
        assert!(status.message().contains(part), "{status}");
    }
    // The output of a companion cannot hide the message, and has no secrets.
    let mut db = companion("db", &image, "printf '\\033[2J%s\\n' \"$KEY\"; exit 1");
    db.secret_env = map(&[("KEY", "open-sesame-open")]);
    let status = refused(&daemon, vec![db]).await;
    assert!(!status.message().contains(['\u{1b}']) && !status.message().contains("open-sesame"), "{status}");
    let absent = refused(&daemon, vec![companion("db", &image, "exec no-such-program")]).await;
    assert!(absent.message().contains("the code 127"), "{absent}");
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co6_a_companion_that_is_never_ready_ends_the_launch_in_time() {
    let (daemon, image) = (daemon().await, image("co6"));
    let mut db = companion("db", &image, "echo waiting; exec sleep 600");
    db.ready.as_mut().unwrap().timeout_seconds = 2;
    let began = std::time::Instant::now();
    let status = refused(&daemon, vec![db.clone()]).await;
    assert!(
        status.message().contains("not ready within 2 s") && status.message().contains("waiting"),
        "{status}"
    );
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    let check = ["sh", "-c", "echo never; exit 3"].map(str::to_owned).to_vec();
    db.ready.as_mut().unwrap().check = Some(Check::Command(v1::readiness::Command { args: check }));
    let status = refused(&daemon, vec![db]).await;
    assert!(status.message().contains("the check ended with the code 3"), "{status}");
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co7_ports_that_were_not_asked_for_are_refused() {
    let (daemon, image) = (daemon().await, image("co7"));
    let script = format!("httpd -p 5433 -h /www; httpd -p 5434 -h /www; {SERVE}");
    let mut db = companion("db", &image, &script);
    db.ports = vec![5433];
    let mut run = daemon.run_on(request(vec![db])).await;
    assert_eq!(run.run.companions[0].ports, [5432, 5433]);
    assert_eq!(shell(&mut run, "wget -qO- http://db:5433/page").await, (Some(0), "hello\n".to_owned()));
    assert_ne!(shell(&mut run, "wget -qO- http://db:5434/page").await.0, Some(0));
    let refused = details(&mut run, "egress_refused", |details| details["port"] == 5434).await;
    assert_eq!(refused["host"], "companion:db");
    assert!(refused["why"].as_str().unwrap().contains("Its ports: 5432, 5433."), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn co8_names_images_and_circles_are_checked_before_anything_is_made() {
    let more = "  named:\n    operations: { shell: allow }\n    egress: { rules: [{ host: db, ports: [5432], decision: allow }] }\n    \
                companions: { images: [\"*\"] }\n";
    let (daemon, image) = (daemon_with("", "", more).await, image("co8"));
    let named = |name: &str| companion(name, &image, SERVE);
    for name in ["", "localhost", "Db", "a.b", "-a", "127", "x\u{1b}"] {
        assert_eq!(reason(&refused(&daemon, vec![named(name)]).await), "INVALID_ARGUMENT", "{name}");
    }
    let mut circle = [named("a"), named("b")];
    circle[0].depends_on = vec!["b".to_owned()];
    circle[1].depends_on = vec!["a".to_owned()];
    for (companions, words) in [
        (vec![named("db"), named("db")], "the same name"),
        (circle.to_vec(), "waits for another"),
        (vec![v1::Companion { memory_mib: 257, ..named("db") }], "256 MiB"),
        ((0..5).map(|number| named(&format!("a{number}"))).collect(), "allows 4"),
        (vec![v1::Companion { ready: Some(v1::Readiness::default()), ..named("db") }], "a port or a command"),
    ] {
        let status = refused(&daemon, companions).await;
        assert_eq!(reason(&status), "INVALID_ARGUMENT", "{status}");
        assert!(status.message().contains(words), "{status}");
    }
    let taken = CreateRunRequest { companions: vec![named("db")], ..requests::managed("named") };
    let taken = daemon.run_with(taken).await.map(|run| run.run).unwrap_err();
    assert!(taken.message().contains("a rule of `egress`"), "{taken}");
    let other = v1::Companion { image: "debian:12".to_owned(), ..named("db") };
    assert_eq!(reason(&refused(&daemon, vec![other]).await), "IMAGE_NOT_ALLOWED");
    let absent = v1::Companion { image: "cofferdam-test/companion-none:1".to_owned(), ..named("db") };
    assert_eq!(reason(&refused(&daemon, vec![absent]).await), "IMAGE_MISSING");
    let alone = CreateRunRequest { companions: vec![named("db")], ..requests::managed("alone") };
    let alone = daemon.run_with(alone).await.map(|run| run.run).unwrap_err();
    assert!(alone.message().contains("allows none"), "{alone}");
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn co9_a_companion_that_ends_is_shown_and_refuses_with_a_reason() {
    let (daemon, image) = (daemon().await, image("co9"));
    let script = "httpd -p 5432 -h /www; sleep 3; exit 5";
    let mut run = daemon.run_on(request(vec![companion("db", &image, script)])).await;
    let shown = becomes(&mut run, State::Exited).await;
    assert_eq!(shown.exit_code, 5);
    let ended = details(&mut run, "worker_event", |details| details["worker"] == "companion:db").await;
    assert_eq!((&ended["event"], &ended["exit_code"]), (&"ended".into(), &5.into()), "{ended}");
    assert_ne!(shell(&mut run, "wget -qO- http://db:5432/page").await.0, Some(0));
    let refused = details(&mut run, "egress_refused", |details| details["port"] == 5432).await;
    assert!(refused["why"].as_str().unwrap().contains("has ended with the code 5"), "{refused}");
    assert_eq!(shell(&mut run, "echo alive").await.1, "alive\n");
}
