//! Companions as people ask for them: by options of `coffer`, and by a Compose file.

use std::process::Stdio;

use harness::binary;

use super::*;
use crate::cli::{json, out};

/// The services of a Compose file. The second starts after the check of the first has passed.
fn services(image: &Image) -> String {
    let image = &image.0;
    format!(
        "services:\n  db:\n    image: {image}\n    command: [\"echo $$WORD; {SERVE}\"]\n    environment: {{ WORD: hello }}\n    \
         healthcheck: {{ test: [CMD-SHELL, \"test -e /www/page\"], interval: 100ms, timeout: 5s }}\n    expose: [5432]\n    \
         mem_limit: 64m\n  cache:\n    image: {image}\n    command: [\"{SERVE}\"]\n    depends_on:\n      \
         db: {{ condition: service_healthy }}\n    ports: [\"5432/tcp\"]\n"
    )
}

const CREATE: [&str; 7] = ["run", "create", "--profile", "beside", "--role", "director", "--managed"];

#[tokio::test(flavor = "multi_thread")]
async fn the_services_of_a_compose_file_are_reached_shown_and_logged() {
    let (daemon, image) = (daemon().await, image("compose"));
    let file = daemon.workspace("files", &[("compose.yaml", &services(&image))]).join("compose.yaml");
    let file = file.to_str().unwrap();
    let third = format!("name=third,image={},tcp=5432,after=cache,memory=32,command='{SERVE}'", image.0);
    let line = [&CREATE[..], &["--compose", file, "--companion", &third]].concat();
    let run = out(&daemon, &line).await.trim_end().to_owned();

    for host in ["db", "cache", "third"] {
        let page =
            out(&daemon, &["exec", &run, "--", "wget", "-qO-", &format!("http://{host}:5432/page")]).await;
        assert_eq!(page, "hello\n", "{host}");
    }
    let shown = json(&daemon, &["run", "show", &run]).await;
    let companions = shown["run"]["companions"].as_array().unwrap();
    let names: Vec<_> = companions.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["db", "cache", "third"]);
    let page = out(&daemon, &["run", "show", &run]).await;
    assert!(page.contains("\nCompanions\n  db     READY, port 5432 at "), "{page}");
    assert_eq!(out(&daemon, &["run", "logs", &run, "--companion", "db"]).await, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compose_file_with_anything_else_makes_no_run() {
    let (daemon, image) = (daemon().await, image("compose-bad"));
    let bad = services(&image).replace("    mem_limit: 64m\n", "    volumes: [\"/:/host\"]\n");
    let file = daemon.workspace("files", &[("compose.yaml", &bad)]).join("compose.yaml");
    let mut coffer = tokio::process::Command::new(binary("coffer"));
    coffer.env("COFFERDAM_ENDPOINT", format!("unix:{}", daemon.socket().display())).stdin(Stdio::null());
    let refused = coffer.args(CREATE).arg("--compose").arg(&file).output().await.unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    let place = format!("{}:8: services.db.volumes: ", file.display());
    assert!(refused.status.code() == Some(2) && told.contains(&place), "{told}");
    let runs = daemon.connect().await.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap();
    assert_eq!(runs.into_inner().runs, []);
}
