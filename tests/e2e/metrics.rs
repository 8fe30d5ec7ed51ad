//! Tests the metrics: a scrape has the numbers of what was done, Prometheus takes it and the alert rules, and hostile calls make no series.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use harness::{Daemon, Setup, calls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

/// Longer than a scrape or the start of Prometheus takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn started(config: &str) -> (Daemon, String) {
    let daemon = Daemon::start_with(Setup { config: config.to_owned(), ..Setup::default() }).await;
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("metrics are at /metrics")).unwrap();
    let (_, address) = line.rsplit_once("address=").unwrap();
    let address = address.trim().to_owned();
    (daemon, address)
}

/// Returns the status line and the body of an answer.
async fn get(address: &str, path: &str, header: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Scrapes until the text has this line: records are counted a moment after they are durable.
async fn until_it_has(address: &str, line: &str) -> String {
    let scraped = tokio::time::timeout(PATIENCE, async {
        loop {
            let (_, text) = get(address, "/metrics", "").await;
            if text.lines().any(|one| one == line) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let Ok(text) = scraped.await else {
        panic!("no scrape has {line}:\n{}", get(address, "/metrics", "").await.1);
    };
    text
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_has_the_numbers_of_what_was_done() {
    let (daemon, address) = started("metrics: { listen: \"127.0.0.1:0\" }\n").await;
    let (status, text) = get(&address, "/metrics", "").await;
    assert!(status.contains("200") && text.ends_with("# EOF\n"), "{status} {text}");
    assert!(series(&text) <= 200, "{} series at rest:\n{text}", series(&text));

    let workspace = daemon.workspace("w", &[("a.txt", "text")]);
    let mut run = daemon.run("open", &workspace).await;
    for _ in 0..3 {
        run.ok(calls::read("a.txt")).await;
    }
    // It fails, which its answer says.
    run.call(calls::read("none.txt")).await.unwrap();
    let text = until_it_has(
        &address,
        "cofferdam_calls_total{operation=\"read\",outcome=\"failed\",reason=\"NOT_FOUND\"} 1",
    )
    .await;
    for expected in [
        "cofferdam_calls_total{operation=\"read\",outcome=\"succeeded\",reason=\"\"} 3",
        "cofferdam_profile_calls_total{profile=\"open\",outcome=\"succeeded\"} 3",
        "cofferdam_call_seconds_count 4",
        "cofferdam_stage_seconds_count{stage=\"lane\"} 4",
        "cofferdam_runs{state=\"READY\"} 1",
        "cofferdam_run_ready_seconds_count{start_kind=\"cold\",profile=\"open\"} 1",
        "cofferdam_audit_available 1",
    ] {
        assert!(text.lines().any(|line| line == expected), "{expected} is not in\n{text}");
    }
    let engine =
        text.lines().find_map(|line| line.strip_prefix("cofferdam_engine_calls_total{result=\"answered\"} "));
    assert!(engine.unwrap().parse::<u64>().unwrap() > 0, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_keeps_the_metrics_from_other_users() {
    use std::os::unix::fs::OpenOptionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let mut options = std::fs::OpenOptions::new();
    std::io::Write::write_all(
        &mut options.write(true).create(true).mode(0o600).open(&file).unwrap(),
        b"t0ken",
    )
    .unwrap();
    let config = format!("metrics: {{ listen: \"127.0.0.1:0\", token_file: {} }}\n", file.display());
    let (_daemon, address) = started(&config).await;
    assert!(get(&address, "/metrics", "").await.0.contains("401"));
    assert!(get(&address, "/metrics", "Authorization: Bearer t0ken\r\n").await.0.contains("200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_calls_make_no_series() {
    let (daemon, address) = started("metrics: { listen: \"127.0.0.1:0\" }\n").await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let count = if std::env::var_os("COFFERDAM_LONG").is_some() { 10_000 } else { 300 };
    for number in 0..count {
        let name = format!("invented-{number}\"}}\n# evil");
        let _ = run.call(calls::read(&name)).await;
    }
    let expected = format!("cofferdam_call_seconds_count {count}");
    let text = until_it_has(&address, &expected).await;
    assert!(!text.contains("invented") && series(&text) <= 250, "{} series:\n{text}", series(&text));
}

/// The programs of Debian's package `prometheus`, which tests/run.sh unpacks.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/prometheus/usr/bin").join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_it_and_evaluates_the_alert_rules() {
    let (daemon, address) = started("metrics: { listen: \"127.0.0.1:0\" }\n").await;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus/cofferdam.rules.yml");
    let checked =
        Command::new(program("promtool")).args(["check", "rules"]).arg(&rules).output().await.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let directory = daemon.outside().join("prometheus");
    std::fs::create_dir(&directory).unwrap();
    let config = directory.join("prometheus.yml");
    std::fs::write(
        &config,
        format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{}]\nscrape_configs:\n  \
             - job_name: cofferdam\n    static_configs: [{{ targets: [\"{address}\"] }}]\n",
            rules.display()
        ),
    )
    .unwrap();
    let web = format!("127.0.0.1:{}", harness::free_port());
    let log = std::fs::File::create(directory.join("log")).unwrap();
    let _prometheus = Command::new(program("prometheus"))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
        .arg(format!("--web.listen-address={web}"))
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let asked = |query: &'static str| {
        let web = web.clone();
        async move {
            let answer = TcpStream::connect(&web).await.is_ok();
            if answer { get(&web, query, "").await.1 } else { String::new() }
        }
    };
    let evaluated = tokio::time::timeout(PATIENCE, async {
        loop {
            let up = asked("/api/v1/query?query=cofferdam_build_info").await;
            let rules = asked("/api/v1/rules").await;
            if up.contains("\"version\"")
                && rules.contains("\"health\":\"ok\"")
                && !rules.contains("\"health\":\"unknown\"")
            {
                return rules;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let Ok(rules) = evaluated.await else {
        panic!(
            "Prometheus did not take the scrape:\n{}",
            std::fs::read_to_string(directory.join("log")).unwrap()
        );
    };
    assert_eq!(rules.matches("\"health\":\"ok\"").count(), 12, "{rules}");
    assert!(!rules.contains("\"health\":\"err\""), "{rules}");
    assert!(!rules.contains("CofferdamDown\",\"state\":\"firing"), "{rules}");
}
