use std::cell::RefCell;

use presentation::output::Look;

use super::*;

/// A person with prepared answers, on a host that keeps what ran.
struct Script<'h> {
    answers: Vec<bool>,
    shown: Vec<String>,
    told: Vec<String>,
    ran: &'h RefCell<Vec<String>>,
    result: Result<(), String>,
}

impl<'h> Script<'h> {
    fn new(answers: &[bool], ran: &'h RefCell<Vec<String>>) -> Self {
        let answers = answers.iter().rev().copied().collect();
        Self { answers, shown: Vec::new(), told: Vec::new(), ran, result: Ok(()) }
    }
}

impl Terminal for Script<'_> {
    fn agrees(&mut self, topic: &str, remedy: &Remedy) -> io::Result<bool> {
        self.shown.push(format!("{topic}: {}", remedy.shown()));
        Ok(self.answers.pop().unwrap())
    }

    fn run(&mut self, command: &[String]) -> Result<(), String> {
        self.ran.borrow_mut().push(command.join(" "));
        self.result.clone()
    }

    fn tell(&mut self, outcome: &str) {
        self.told.push(outcome.to_owned());
    }
}

fn remedy(command: &str) -> Remedy {
    let command = command.split(' ').map(str::to_owned).collect();
    Remedy { why: "set it right".into(), command }
}

/// Findings of a host whose engine must be installed and then started, and whose links are open.
fn host(ran: &[String]) -> Vec<Finding> {
    let has = |command: &str| ran.iter().any(|ran| ran == command);
    let engine = match (has("install engine"), has("start engine")) {
        (_, true) => Finding::good("engine", "version 1"),
        (true, false) => {
            Finding::missing("engine", "no answer", "start it").with_remedy(Some(remedy("start engine")))
        }
        (false, false) => {
            Finding::missing("engine", "no engine", "install it").with_remedy(Some(remedy("install engine")))
        }
    };
    let links = if has("set links") {
        Finding::good("links", "closed")
    } else {
        Finding::limited("links", "open", "set them").with_remedy(Some(remedy("set links")))
    };
    vec![engine, links]
}

async fn offered(script: &mut Script<'_>) -> Vec<Finding> {
    let ran = script.ran;
    let first = host(&ran.borrow());
    offer(first, |seen| seen, script, async || host(&ran.borrow())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_step_is_asked_and_checked_again() {
    let ran = RefCell::default();
    let mut script = Script::new(&[true, true, true], &ran);
    let left = offered(&mut script).await;
    assert!(left.iter().all(|finding| finding.verdict == Verdict::Good), "{left:?}");
    assert_eq!(script.shown, ["engine: install engine", "engine: start engine", "links: set links"]);
    assert_eq!(*ran.borrow(), ["install engine", "start engine", "set links"]);
    let told = [
        "engine is not right yet: no answer",
        "engine is right now: version 1",
        "links is right now: closed",
    ];
    assert_eq!(script.told, told);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_without_a_yes() {
    let ran = RefCell::default();
    let mut script = Script::new(&[false, false], &ran);
    let left = offered(&mut script).await;
    assert_eq!((left, script.told.len(), ran.borrow().len()), (host(&[]), 0, 0));
    assert_eq!(script.shown, ["engine: install engine", "links: set links"]);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_is_reported_and_not_offered_again() {
    let ran = RefCell::default();
    let mut script = Script::new(&[true, false], &ran);
    script.result = Err("it failed with exit status: 1".into());
    // The host does not change, because the command failed.
    let left = offer(host(&[]), |seen| seen, &mut script, async || host(&[])).await.unwrap();
    assert_eq!(left, host(&[]));
    let told = ["install engine: it failed with exit status: 1", "engine is not right yet: no engine"];
    assert_eq!(script.told, told);
    assert_eq!(script.shown.len(), 2);
}

#[test]
fn without_a_terminal_the_commands_are_printed() {
    let printed = |findings: &[Finding]| {
        let mut page = Output::new(Look::PIPE);
        render(findings, &mut page);
        page.as_str().to_owned()
    };
    let shown = printed(&host(&[]));
    assert!(shown.ends_with("help:\n  install engine\n  set links\n"), "{shown}");
    assert!(printed(&[]).contains("No command is known"));
}

#[test]
fn findings_of_a_daemon_get_the_commands_of_their_host() {
    let mut findings = vec![
        Finding::good("engine", "version 1"),
        Finding::limited("links", "open", "as the daemon reports it"),
        Finding::good("default image", "made of busybox"),
    ];
    let image = Finding::limited("default image", "none", "x").with_remedy(Some(remedy("install busybox")));
    let memory = Finding::limited("memory", "open", "x").with_remedy(Some(remedy("set memory")));
    let local = host(&[]).into_iter().chain([image, memory, Finding::good("seccomp", "works")]).collect();
    with_local_remedies(&mut findings, local);
    let commands: Vec<_> = remedies(&findings).into_iter().map(|(_, remedy)| remedy.shown()).collect();
    assert_eq!((commands, findings.len()), (vec!["set links".to_owned(), "set memory".to_owned()], 4));
}
