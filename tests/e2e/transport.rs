//! Sizes below and above every bound that a policy may set: each call is answered whole, in part, or with a failure in words.
//! None is `INTERNAL`, and none costs the worker.

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, Setup, calls, pid_of, reason, requests, v1};
use serde_json::json;
use v1::ContentEncoding;

/// Bounds of `harness`, as the crate `operations` derives them.
const MAX_READ: usize = 3_670_016;
const MAX_WRITE: usize = 2_752_512;
const MAX_COMMAND: usize = 3_670_016;
const MAX_OUTPUT: usize = 262_144;
/// Largest message that a client accepts by default.
const MESSAGE: usize = 4 * 1024 * 1024;

/// A daemon whose `harness` shows as much output as a policy may ask for.
async fn widest() -> Daemon {
    let profile = include_str!("../../crates/policy/policies/harness.yaml");
    let profile = profile.replace("max_output_bytes: 65536", &format!("max_output_bytes: {MAX_OUTPUT}"));
    let policy =
        vec![("harness.yaml", profile), ("roles.yaml", "roles: {director: {allow: \"*\"}}\n".to_owned())];
    Daemon::start_with(Setup { policy, ..Default::default() }).await
}

fn guest(run: &RunHandle) -> u32 {
    pid_of(&run.run.container_id, "/.cofferdam/guest serve").expect("a guest serves")
}

/// A file of this many of one byte, in octal.
async fn fill(run: &mut RunHandle, name: &str, byte: &str, size: usize) {
    run.ran(calls::shell(&format!("head -c {size} /dev/zero | tr '\\0' '\\{byte}' > {name}"))).await;
}

fn read(path: &str, encoding: ContentEncoding) -> Operation {
    Operation::Read(v1::ReadRequest {
        path: path.to_owned(),
        encoding: encoding.into(),
        ..Default::default()
    })
}

fn dialect(dialect: &str, name: &str, arguments: &serde_json::Value) -> v1::DialectCall {
    v1::DialectCall {
        dialect: dialect.to_owned(),
        name: name.to_owned(),
        arguments_json: arguments.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_any_size_is_read_in_part_or_as_a_stream() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let before = guest(&run);
    let sizes =
        [MAX_OUTPUT, MAX_OUTPUT + 1, 1_400_000, 2_000_000, MAX_READ, MAX_READ + 1, 4_200_000, 20_000_000];
    for (size, byte) in sizes.into_iter().zip(["170", "012", "001"].into_iter().cycle()) {
        fill(&mut run, "f", byte, size).await;
        for (encoding, most) in
            [(ContentEncoding::Utf8, MAX_READ), (ContentEncoding::Base64, MAX_READ / 4 * 3)]
        {
            let answer = run.call(read("f", encoding)).await.unwrap();
            let Some(Answer::Read(read)) = answer.kind() else { panic!("{size} {byte}: {:?}", answer.error) };
            let expected = if encoding == ContentEncoding::Base64 {
                size.min(most).div_ceil(3) * 4
            } else {
                size.min(most)
            };
            assert_eq!(
                (read.content.len(), read.truncated),
                (expected, size > most),
                "{size} {byte} {encoding:?}"
            );
            assert_eq!(usize::try_from(read.size_bytes), Ok(size));
            // It is on record as it was answered, and asked for again.
            assert_eq!(run.get(&answer.call_id).await.status(), Status::Succeeded);
        }
        for (name, tool, arguments) in [
            ("code", "read", json!({"file_path": "f"})),
            ("native", "read_file", json!({"path": "f"})),
            ("fs", "fs.read", json!({"path": "f"})),
            ("gateway", "read_file", json!({"path": "f"})),
            ("forge", "read", json!({"path": "f"})),
            ("editor", "view", json!({"path": "f"})),
        ] {
            let answer = run.call(dialect(name, tool, &arguments)).await.unwrap();
            assert_eq!(answer.status(), Status::Succeeded, "{name} {size} {byte}: {:?}", answer.error);
            let Some(Answer::Read(read)) = answer.kind() else { panic!("{name} {size} {byte}: no result") };
            assert_eq!(read.content, "", "the content is in what is rendered, and nowhere else");
        }
        assert_eq!(run.download("f", 0).await.unwrap().data.len(), size);
    }
    assert_eq!(guest(&run), before, "no size costs the worker");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_accepted_up_to_their_bound_and_refused_clearly() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let before = guest(&run);
    let write = |content: String, encoding: ContentEncoding| {
        let path = "f".to_owned();
        Operation::Write(v1::WriteRequest { path, content, encoding: encoding.into(), ..Default::default() })
    };
    let text = |bytes: usize| write("\u{1}".repeat(bytes), ContentEncoding::Utf8);
    let base64 = |bytes: usize| write("AAAA".repeat(bytes / 3), ContentEncoding::Base64);
    for whole in [text(MAX_WRITE), base64(MAX_WRITE)] {
        run.ok(whole).await;
        assert_eq!(run.ran(calls::shell("wc -c < f")).await.stdout.trim(), MAX_WRITE.to_string());
    }
    for more in [text(MAX_WRITE + 1), base64(MAX_WRITE + 3)] {
        assert_eq!(reason(&run.call(more).await.unwrap_err()), "WRITE_LIMIT");
    }
    assert_eq!(reason(&run.call(text(MESSAGE)).await.unwrap_err()), "INVALID_ARGUMENT");
    run.upload("f", &vec![1; 20_000_000]).await;
    assert_eq!(run.ran(calls::shell("wc -c < f")).await.stdout.trim(), "20000000");

    // An edit and a patch bring only the change, so the file may be larger than any message.
    let text = "---\nartifacts: []\n---\n".to_owned() + &"A line of a long file.\n".repeat(220_000) + "end\n";
    run.upload("long.md", text.as_bytes()).await;
    let edit = json!({"file_path": "long.md", "old_string": "end", "new_string": "ends"});
    assert_eq!(run.call(dialect("code", "edit", &edit)).await.unwrap().status(), Status::Succeeded);
    run.ok(calls::patch("*** Begin Patch\n*** Update File: long.md\n@@\n-ends\n+ended\n*** End Patch\n"))
        .await;
    let artifacts_append = vec!["a".to_owned()];
    let front = v1::UpdateFrontmatter { path: "long.md".to_owned(), artifacts_append, ..Default::default() };
    let change = Some(v1::patch_request::Change::UpdateFrontmatter(front));
    run.ok(Operation::Patch(v1::PatchRequest { change })).await;
    let seen = run.ran(calls::shell("wc -c < long.md; tail -n 1 long.md")).await.stdout;
    let (size, last) = seen.trim().split_once('\n').unwrap();
    assert!(size.parse::<usize>().unwrap() > 5_000_000 && last == "ended", "{seen}");
    run.upload("long.md", &vec![b'x'; 8 << 20]).await;
    let more = json!({"path": "long.md", "insert_line": 0, "insert_text": "y"});
    let refused = run.call(dialect("editor", "insert", &more)).await.unwrap().error.unwrap();
    assert_eq!(refused.reason, "WRITE_LIMIT");

    // Arguments and standard input together.
    let argument = "a".repeat(120_000);
    let args = vec![argument.clone(); 17];
    let given = args.len() * argument.len();
    let stdin = |bytes: usize| {
        let script = ["-c".to_owned(), "wc -c".to_owned(), "sh".to_owned()];
        let args = script.into_iter().chain(args.clone()).collect();
        Operation::Exec(v1::ExecRequest {
            command: "sh".to_owned(),
            args,
            stdin: vec![1; bytes],
            ..Default::default()
        })
    };
    let most = MAX_COMMAND - 2 * 1024 * 1024;
    assert_eq!(
        run.ran(stdin(most)).await.stdout.trim(),
        most.to_string(),
        "beside {given} bytes of arguments"
    );
    assert_eq!(reason(&run.call(stdin(most + 1)).await.unwrap_err()), "INVALID_ARGUMENT");
    assert_eq!(guest(&run), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worst_output_and_the_worst_names_are_answered_or_fail_their_call_alone() {
    let daemon = widest().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let before = guest(&run);
    for byte in ["001", "377", "012", "170"] {
        let script = format!("f() {{ head -c 1000000 /dev/zero | tr '\\0' '\\{byte}'; }}; f; f >&2; exit 3");
        let answer = run.call(calls::shell(&script)).await.unwrap();
        let Some(Answer::Shell(shell)) = answer.kind() else { panic!("{byte}: {:?}", answer.error) };
        assert_eq!(
            (shell.exit_code, usize::try_from(shell.stderr_omitted_bytes)),
            (Some(3), Ok(1_000_000 - MAX_OUTPUT))
        );
        let request = v1::GetCallRequest {
            call_id: answer.call_id.clone(),
            stdout_offset: Some(0),
            stderr_offset: Some(0),
            max_output_bytes: 1 << 20,
        };
        let got = run.clients.tools.get_call(request).await.unwrap().into_inner();
        assert!(!got.stdout.unwrap().data.is_empty() && !got.stderr.unwrap().data.is_empty(), "{byte}");
        for (name, tool, arguments) in [
            ("code", "bash", json!({"command": script})),
            ("exec", "exec", json!({"command": "sh", "args": ["-c", script]})),
            ("gateway", "run_command", json!({"command": "sh", "args": ["-c", script]})),
            ("forge", "bash", json!({"command": script})),
        ] {
            let answer = run.call(dialect(name, tool, &arguments)).await.unwrap();
            let Some(Answer::Exec(command) | Answer::Shell(command)) = answer.kind() else {
                panic!("{name} {byte}: {:?}", answer.error)
            };
            assert_eq!(
                (command.exit_code, usize::try_from(command.stdout_omitted_bytes)),
                (Some(3), Ok(1_000_000 - MAX_OUTPUT))
            );
            let error = answer.error.clone().unwrap_or_default();
            assert_eq!(error.reason, "", "{name} {byte}: the bound covers the worst case");
        }
    }
    // Names of control characters, which JSON makes six times as long, and lines of them.
    let names = "mkdir d && cd d && n=$(printf '\\001%.0s' $(seq 240)) && for i in $(seq 1500); do echo x > $i$n; done";
    run.ran(calls::shell(names)).await;
    run.ran(calls::shell("for i in $(seq 3000); do printf '\\001\\001\\001\\001x\\n'; done > lines")).await;
    let list = v1::ListRequest { path: "d".to_owned(), max_entries: Some(10_000), ..Default::default() };
    let glob = v1::GlobRequest { pattern: "d/*".to_owned(), max_results: Some(10_000), ..Default::default() };
    let grep = v1::GrepRequest {
        path: "lines".to_owned(),
        pattern: "x".to_owned(),
        max_matches: Some(1_000),
        before: Some(20),
        after: Some(20),
        ..Default::default()
    };
    let diff = v1::EditRequest {
        path: "lines".to_owned(),
        change: Some(v1::edit_request::Change::StrReplace(v1::StrReplace {
            old_str: "x".to_owned(),
            new_str: "\u{1}y".to_owned(),
            replace_all: true,
        })),
        ..Default::default()
    };
    for operation in
        [Operation::List(list), Operation::Glob(glob), Operation::Grep(grep), Operation::Edit(diff)]
    {
        run.ok(operation).await;
    }
    for (name, tool, arguments) in [
        ("fs", "fs.list", json!({"path": "@project/d"})),
        ("fs", "fs.search", json!({"path": "@project/lines", "pattern": "x"})),
        ("native", "list_files", json!({"path": "d"})),
        ("gateway", "list_directory", json!({"path": "d"})),
        ("code", "glob", json!({"pattern": "d/*"})),
    ] {
        let answer = run.call(dialect(name, tool, &arguments)).await.unwrap();
        let error = answer.error.unwrap_or_default();
        assert!(["", "READ_LIMIT"].contains(&error.reason.as_str()), "{name} {tool}: {error:?}");
    }
    assert_eq!(guest(&run), before, "no outcome costs the worker");
    let id = run.id().to_owned();
    let receipts = run.clients.events(&id, "call_receipt").await;
    assert!(
        receipts.iter().all(|receipt| !receipt.record_json.contains("INTERNAL")),
        "nothing of ours broke"
    );
}
