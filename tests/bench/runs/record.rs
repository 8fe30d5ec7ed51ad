//! An agent repairs a program of twenty functions, one after the other: the loop of `examples/repair_loop.py`, with its model in place of a
//! model. It runs the tests, looks for the function that failed, reads it and its test, changes it, tests and commits.

use std::path::PathBuf;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind;
use harness::v1::result::Kind as Answer;
use harness::v1::{GlobRequest, Operation, ReadRequest, Run};
use harness::{Daemon, calls};

use super::ours::Ours;

/// One call of a trace, and how it ended.
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) status: Status,
}

impl Call {
    /// The operation's name, as the API's JSON has it.
    pub(crate) fn name(&self) -> String {
        let json = serde_json::to_value(&self.operation).unwrap();
        json.as_object().and_then(|fields| fields.keys().next().cloned()).unwrap()
    }
}

/// Name, body as it should be, body as it is at first, arguments, what it should print.
const FUNCTIONS: [[&str; 5]; 20] = [
    ["area", "echo $(($1 * $2))", "echo $(($1 + $2))", "6 7", "42"],
    ["average", "echo $((($1 + $2) / 2))", "echo $(($1 + $2 / 2))", "10 20", "15"],
    ["cube", "echo $(($1 * $1 * $1))", "echo $(($1 * $1))", "3", "27"],
    ["double", "echo $(($1 * 2))", "echo $(($1 * 3))", "21", "42"],
    ["first", "echo \"$1\"", "echo \"$2\"", "a b", "a"],
    ["greet", "echo \"hello, $1\"", "echo \"hullo, $1\"", "Ada", "hello, Ada"],
    ["half", "echo $(($1 / 2))", "echo $(($1 / 3))", "84", "42"],
    ["join", "echo \"$1-$2\"", "echo \"$1+$2\"", "a b", "a-b"],
    [
        "larger",
        "[ \"$1\" -gt \"$2\" ] && echo \"$1\" || echo \"$2\"",
        "[ \"$1\" -lt \"$2\" ] && echo \"$1\" || echo \"$2\"",
        "3 9",
        "9",
    ],
    ["last", "echo \"$2\"", "echo \"$1\"", "a b", "b"],
    ["minutes", "echo $(($1 * 60))", "echo $(($1 * 24))", "2", "120"],
    ["negate", "echo $((0 - $1))", "echo $((1 - $1))", "7", "-7"],
    ["odd", "echo $(($1 % 2))", "echo $(($1 % 3))", "9", "1"],
    ["perimeter", "echo $((2 * ($1 + $2)))", "echo $((2 * $1 + $2))", "3 4", "14"],
    ["quote", "echo \"'$1'\"", "echo \"$1\"", "word", "'word'"],
    ["remainder", "echo $(($1 % $2))", "echo $(($1 / $2))", "17 5", "2"],
    [
        "smaller",
        "[ \"$1\" -lt \"$2\" ] && echo \"$1\" || echo \"$2\"",
        "[ \"$1\" -gt \"$2\" ] && echo \"$1\" || echo \"$2\"",
        "3 9",
        "3",
    ],
    ["square", "echo $(($1 * $1))", "echo $(($1 + $1))", "5", "25"],
    ["subtract", "echo $(($1 - $2))", "echo $(($2 - $1))", "9 4", "5"],
    ["twice", "echo \"$1 $1\"", "echo \"$1\"", "la", "la la"],
];
/// Prints the first test that fails.
const TESTS: &str = "for test in tests/*.sh; do sh \"$test\" || exit 1; done\necho all passed\n";

/// The program with its mistakes, in a repository.
pub(crate) fn project(daemon: &Daemon, name: &str) -> PathBuf {
    let mut files = vec![("test.sh".to_owned(), TESTS.to_owned())];
    for [name, _, wrong, arguments, expected] in FUNCTIONS {
        let comment = format!("# {name}: one of twenty functions.\n");
        files.push((format!("src/{name}.sh"), format!("{comment}{name}() {{\n    {wrong}\n}}\n")));
        let test = format!(
            ". ./src/{name}.sh\nfound=$({name} {arguments})\n[ \"$found\" = \"{expected}\" ] || {{ echo \"FAILED {name}: $found\"; exit 1; }}\n"
        );
        files.push((format!("tests/{name}.sh"), test));
    }
    let files: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    daemon.repository(name, &files)
}

/// The loop; its calls.
pub(crate) async fn record(ours: &Ours) -> Vec<Call> {
    let workspace = project(&ours.daemon, "recorded");
    let run = ours.client.create(&workspace).await.unwrap();
    let mut agent = Agent { ours, run, calls: Vec::new() };
    while let Some(name) = agent.failing().await {
        agent.repair(&name).await;
    }
    assert_eq!(agent.calls.len(), 200);
    agent.ours.client.stop(&agent.run).await;
    agent.calls
}

struct Agent<'a> {
    ours: &'a Ours,
    run: Run,
    calls: Vec<Call>,
}

impl Agent<'_> {
    async fn call(&mut self, operation: Kind) -> Option<Answer> {
        let response = self.ours.client.call(&self.run, operation.clone()).await;
        let operation = Operation { kind: Some(operation) };
        self.calls.push(Call { operation, status: response.status() });
        response.into_kind()
    }

    /// The function whose test fails first.
    async fn failing(&mut self) -> Option<String> {
        let Some(Answer::Exec(result)) = self.call(calls::exec(&["sh", "test.sh"])).await else {
            panic!("not an exec")
        };
        let failed = result.stdout.lines().find_map(|line| line.strip_prefix("FAILED "))?;
        failed.split_once(':').map(|(name, _)| name.to_owned())
    }

    async fn repair(&mut self, name: &str) {
        let Some(Answer::Grep(found)) = self.call(calls::grep("@project/src", &format!("{name}()"))).await
        else {
            panic!("not a grep")
        };
        let (path, line) = (found.matches[0].path.clone(), found.matches[0].line);
        let read = ReadRequest {
            path: path.clone(),
            start_line: Some(line),
            end_line: Some(line + 5),
            ..Default::default()
        };
        let Some(Answer::Read(function)) = self.call(Kind::Read(read)).await else { panic!("not a read") };
        self.call(calls::read(&format!("@project/tests/{name}.sh"))).await;
        let turn = self.calls.len() / 10;
        if turn > 0 {
            self.look_around(turn).await;
        }
        let Some([_, right, wrong, ..]) = FUNCTIONS.iter().find(|[known, ..]| known == &name) else {
            panic!("{name}")
        };
        assert!(function.content.contains(wrong), "{}", function.content);
        self.call(calls::replace(&path, wrong, right)).await;
        self.call(calls::exec(&["sh", &format!("tests/{name}.sh")])).await;
        self.call(calls::git_diff(&[])).await;
        self.call(calls::git_add(&[&format!("src/{name}.sh")])).await;
        self.call(calls::git_commit(&format!("Repair {name}"))).await;
    }

    /// What else an agent does at such a moment: another thing each time.
    async fn look_around(&mut self, turn: usize) {
        let operation = match turn % 5 {
            0 => calls::list("@project/tests"),
            1 => Kind::Glob(GlobRequest { pattern: "**/*.sh".to_owned(), ..Default::default() }),
            2 => calls::shell("wc -l src/*.sh | tail -n 1; ls tests | wc -l"),
            3 => calls::write("NOTES.md", &format!("# Notes\n\nFunctions repaired so far: {turn}\n")),
            _ => calls::git_log("HEAD"),
        };
        self.call(operation).await;
    }
}
