//! Tests that a line of one plain command has the same result as in a shell, in each way to run it.

use std::path::Path;

use harness::v1::call_response::Status;
use harness::{Daemon, RunHandle, calls, requests, v1};
use serde_json::{Value, json};

/// Everything that the lines need, made by the run itself.
const FILES: &str = r#"
set -e
mkdir -p bin sub .venv/bin node_modules/.bin target/debug 'a dir'
printf '#!/bin/sh\necho "$0 $# $*"\n' > run.sh
chmod 755 run.sh
for file in bin/rails .venv/bin/python target/debug/x 'a dir/x y' sub/tool a.txt b.txt; do cp run.sh "$file"; done
cp run.sh plain; chmod 644 plain
printf 'echo "text $0 $*"\n' > text
printf '#!/no/such/thing -x\n' > nointerpreter
printf '#!/bin/sh\r\necho\r\n' > crlf
printf '#!/bin/sh\nexit 3\n' > exit3
printf '#!/bin/sh\nkill -9 $$\n' > killed
printf '#!/workspace/run.sh first\n' > nested
: > empty
chmod 755 text nointerpreter crlf exit3 killed nested empty
ln -s run.sh link
ln -s /workspace/nowhere dangling
"#;

/// Lines, each run in the workspace and in `sub`.
const LINES: &[&str] = &[
    "./run.sh",
    "./run.sh a 'b c' \"d\" --e=f",
    "bin/rails test",
    ".venv/bin/python -V",
    "target/debug/x --flag",
    "'a dir/x y' 1",
    "./text q r",
    "./empty",
    "./link z",
    "./nested a",
    "./exit3",
    "./killed",
    "./plain",
    "./gone",
    "gone-altogether",
    "./nointerpreter",
    "./crlf",
    "./dangling",
    "./bin",
    "./bin/",
    "./run.sh/",
    "./run.sh/x",
    ".//run.sh a",
    "././run.sh",
    "bin/../run.sh a",
    "../workspace/run.sh",
    "../run.sh x",
    "../bin/echo hi",
    "../bin/rails",
    "/workspace/run.sh x",
    "/workspace/sub/../run.sh x",
    "/bin/echo hi",
    "/gone",
    "./sub/tool",
    "./tool",
    "nice ./run.sh a",
    "env A=1 ./run.sh a",
    "env ./gone",
    "nohup ./run.sh a",
    "timeout 5 ./run.sh a",
    "sh ./run.sh a",
    "sh run.sh a",
    "run.sh",
    "A=1 ./run.sh",
    "time ./run.sh",
    "exec ./run.sh",
    "command ./run.sh",
    ". ./exit3",
    "./run.sh *.txt",
    "./run.sh $HOME",
    "./run.sh # comment",
    "./run.sh \\\n  a",
    "./run.sh && ./exit3",
    "./run.sh | cat",
    "cd sub && ../run.sh",
    "! ./exit3",
    "./run.sh; ./run.sh",
    "(./run.sh)",
    "kill -l 9",
    "test -f run.sh",
    "test -f gone",
    "[ -f run.sh ]",
    "true",
    "false",
    "pwd",
    "echo -n a",
    "printf '%s-' a b",
    "'./run.sh'",
    "./run'.sh' a",
    "\"./gone\"",
    "./run.sh ''",
    "./run.sh -- -x",
    "./run.sh \\$HOME",
    "./run.sh '*'",
    "./run.sh *",
    "./run.sh ~",
    "./run.sh a\\ b",
    "./run.sh a'b'\"c\"d",
    "\"./run.sh\" x",
    "\\./run.sh x",
    "./run.sh a=b",
    "./run.sh ünï €",
    "./run.sh $(echo a)",
    "./run.sh `echo a`",
    "./run.sh {a,b}",
    "./run.sh [a-z]",
    "./run.sh ?.txt",
    "./run.sh $((1 + 1))",
    "./run.sh ${HOME:-x}",
    "./run.sh 2>&1",
    "./run.sh > /dev/null",
    "./run.sh < /dev/null a",
    "./run.sh;",
    " ./run.sh a ",
    "\t./run.sh\ta",
    "./run.sh a\n./run.sh b",
    "./exit3 || ./run.sh a",
    "if ./exit3; then echo a; else echo b; fi",
    "for i in 1 2; do ./run.sh $i; done",
    "sh -c './run.sh a'",
    "sh -c \"./run.sh 'b c'\"",
    "sh -ec './exit3; echo no'",
    "eval ./run.sh a",
    "env -i ./run.sh a",
    "env A=1 B=2 sh -c 'echo $A$B'",
    "echo a | xargs ./run.sh",
    "command -v true",
    "command -v gone-altogether",
    "type gone-altogether",
    "exit 3",
    "exit",
    ":",
    "cd sub",
    "cd gone",
    "umask",
    "export A=1",
    "A=1",
    "eval",
    "kill -0 $$",
    "test a = a",
    "test a = b",
    "[ a = b ]",
    "expr 1 + 1",
    "echo",
    "echo 'a  b'",
    "echo a  b",
    "echo \"a\\\\b\"",
    "echo -e 'a\\tb'",
    "printf '%s\\n' a b",
    "printf %d 0x10",
    "cat plain",
    "cat gone",
    "cat < text",
    "ls gone",
    "ls a.txt b.txt",
    "bin//rails a",
    "./bin/../bin/rails a",
    "./sub/../run.sh a",
    "/workspace/./run.sh a",
    "./a\\ dir/x\\ y 1",
    "./'a dir'/\"x y\" 1",
    "./nowhere/run.sh",
    "./plain/run.sh",
    "text",
    "'run.sh a'",
    "''",
    "\"\" a",
];

async fn dialect(run: &mut RunHandle, (dialect, name): (&str, &str), arguments: Value) -> v1::CallResponse {
    let request = v1::call_request::Request::Dialect(v1::DialectCall {
        dialect: dialect.to_owned(),
        name: name.to_owned(),
        arguments_json: arguments.to_string(),
    });
    run.call(request).await.unwrap()
}

/// Standard output and exit code.
fn ended(response: &v1::CallResponse) -> (String, Option<i32>) {
    if let Some(v1::result::Kind::Exec(result) | v1::result::Kind::Shell(result)) = response.kind() {
        return (result.stdout.clone(), result.exit_code);
    }
    let failure = response.error.as_ref().unwrap();
    let code = failure.details.get("exit_code").map(|code| code.parse().unwrap());
    assert!(code.is_none_or(|code: i32| failure.message.ends_with(&format!("[exit code {code}]"))));
    (String::new(), code)
}

fn in_directory(operation: v1::operation::Kind, directory: &str) -> v1::operation::Kind {
    let cwd = directory.to_owned();
    match operation {
        v1::operation::Kind::Shell(shell) => v1::operation::Kind::Shell(v1::ShellRequest { cwd, ..shell }),
        v1::operation::Kind::Exec(exec) => v1::operation::Kind::Exec(v1::ExecRequest { cwd, ..exec }),
        other => other,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_line_has_the_same_result_as_in_a_shell() {
    let daemon = Daemon::start().await;
    let mut differences = Vec::new();
    for profile in ["open", "harness"] {
        let mut run = daemon.run_on(requests::managed(profile)).await;
        let made = run.ran(calls::shell(FILES)).await;
        assert_eq!(made.exit_code, Some(0), "{made:?}");
        for directory in ["/workspace", "/workspace/sub"] {
            for line in LINES {
                // Something more, so that a shell runs it; a line feed, so that a comment ends.
                let script = in_directory(calls::shell(&format!("{line}\n")), directory);
                let shell = ended(&run.call(script).await.unwrap());
                let arguments = json!({"command": line, "workdir": directory});
                let response = dialect(&mut run, ("code", "bash"), arguments).await;
                let plain = ended(&response);
                if plain != shell {
                    differences
                        .push(format!("{profile}, {directory}: {line}: {plain:?}, in a shell {shell:?}"));
                }
                let code = plain.1.unwrap_or_default();
                let is_said = response.rendered.contains(&format!("exit code {code}"))
                    || response.rendered.contains("ended by signal");
                assert!(is_said, "{line}: {}", response.rendered);
            }
        }
        run.stop().await;
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_named_by_its_path_in_every_dialect_and_operation() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    assert_eq!(run.ran(calls::shell(FILES)).await.exit_code, Some(0));
    for command in ["./run.sh", "run.sh/../run.sh", "@project/run.sh", "/workspace/run.sh"] {
        if command.contains("..") {
            let failure = run.fails(calls::exec(&[command])).await;
            assert_eq!(failure.details["exit_code"], "127", "a file is no directory: {failure:?}");
            continue;
        }
        let expected = format!("{} 1 a\n", if command == "./run.sh" { command } else { "/workspace/run.sh" });
        assert_eq!(run.exec(&[command, "a"]).await.stdout, expected);
        for tool in [("exec", "exec"), ("gateway", "run_command")] {
            let said = dialect(&mut run, tool, json!({"command": command, "args": ["a"]})).await;
            assert_eq!(ended(&said), (expected.clone(), Some(0)), "{tool:?}: {said:?}");
        }
        let forge = dialect(&mut run, ("forge", "bash"), json!({"command": "./run.sh a"})).await;
        assert_eq!(ended(&forge).0, "./run.sh 1 a\n");
    }
    // From its own directory, not from the workspace's.
    let tool = in_directory(calls::exec(&["./tool"]), "@project/sub");
    assert_eq!(run.ran(tool).await.stdout, "./tool 0 \n");
    let above = in_directory(calls::exec(&["../run.sh"]), "@project/sub");
    assert_eq!(run.ran(above).await.stdout, "../run.sh 0 \n");
    // A link makes another path of one with `..`: what policy has read is not what would run.
    run.ran(calls::shell("mkdir -p far/away; ln -s far/away near; cp run.sh far/tool")).await;
    let elsewhere = run.fails(calls::exec(&["near/../tool"])).await;
    assert_eq!(elsewhere.reason, "SANDBOX_VIOLATION", "{elsewhere:?}");

    let started =
        v1::ProcessRequest { command: "./text".to_owned(), args: vec!["p".to_owned()], ..Default::default() };
    let v1::result::Kind::Process(process) = run.ok(v1::operation::Kind::Process(started)).await else {
        panic!("no process")
    };
    let request = v1::WaitProcessRequest {
        run_id: run.id().to_owned(),
        process_id: process.process_id,
        ..Default::default()
    };
    let process = run.clients.processes.wait_process(request).await.unwrap().into_inner().process.unwrap();
    assert_eq!((process.exit_code, process.stdout_bytes), (Some(0), "text ./text p\n".len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn installed_packages_run_where_names_decide_nothing_and_nowhere_else() {
    let daemon = Daemon::start().await;
    for (profile, runs) in [("harness", true), ("open", false)] {
        let mut run = daemon.run_on(requests::managed(profile)).await;
        run.ran(calls::shell(FILES)).await;
        run.ran(calls::shell("cp run.sh node_modules/.bin/jest")).await;
        for line in ["node_modules/.bin/jest a", "node_modules/.bin/jest a && true"] {
            let request = v1::call_request::Request::Dialect(v1::DialectCall {
                dialect: "code".to_owned(),
                name: "bash".to_owned(),
                arguments_json: json!({"command": line}).to_string(),
            });
            let answer = run.call(request).await;
            let ran = answer.is_ok_and(|answer| answer.status() == Status::Succeeded);
            assert_eq!(ran, runs, "{profile}: {line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_the_workspace_asks_as_its_whole_path_does_and_consent_binds_it() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("run.sh", "#!/bin/sh\necho seen\n")]);
    set_executable(&workspace.join("run.sh"));
    let mut run = daemon.run("review", &workspace).await;
    for command in ["./run.sh", "/workspace/run.sh", "@project/run.sh"] {
        let (_, answer) = run.consented(calls::exec(&[command])).await;
        assert_eq!(ended(&answer), ("seen\n".to_owned(), Some(0)), "{command}");
    }
    let waiting = run.waits(calls::exec(&["./run.sh"]));
    let id = run.id().to_owned();
    let approval = run.clients.pending_approval(&id).await;
    std::fs::write(workspace.join("run.sh"), "#!/bin/sh\necho swapped\n").unwrap();
    run.clients.approve(&approval.approval_id).await.unwrap();
    let answer = waiting.await.unwrap();
    assert!(!format!("{answer:?}").contains("swapped"), "{answer:?}");
}

fn set_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}
