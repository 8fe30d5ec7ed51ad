//! `coffer doctor --fix`: offers each command that may set a finding right, and runs those that the user agrees to.
//!
//! Trust boundary: a command runs only after a yes at the terminal, and is shown first. It comes from the checks of this program,
//! never from a daemon.

use std::io;
use std::process::Command;
use std::time::Duration;

use doctor::{Finding, Remedy, Verdict, remedies};
use presentation::output::{Output, Style};
use presentation::question;
use presentation::ui::Ui;

/// Number of times that a check runs after its fix. An engine needs a moment to start.
const CHECKS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Person who decides on each command, and the place where it runs.
pub(super) trait Terminal {
    /// Shows a command and asks if it may run.
    fn agrees(&mut self, topic: &str, remedy: &Remedy) -> io::Result<bool>;

    /// Runs a command. Returns why it failed, if it did.
    fn run(&mut self, command: &[String]) -> Result<(), String>;

    /// Tells the outcome of a fix.
    fn tell(&mut self, outcome: &str);
}

/// Offers the remedies of the findings one by one, and examines the host again after each command.
///
/// A command is offered once. Returns the findings of the last examination.
pub(super) async fn offer<T>(
    mut seen: T,
    findings: impl Fn(&T) -> &[Finding],
    terminal: &mut impl Terminal,
    examine: impl AsyncFn() -> T,
) -> io::Result<T> {
    let mut offered: Vec<Vec<String>> = Vec::new();
    loop {
        let all = remedies(findings(&seen));
        let next = all.into_iter().find(|(_, remedy)| !offered.contains(&remedy.command));
        let Some((topic, remedy)) = next.map(|(topic, remedy)| (topic.to_owned(), remedy.clone())) else {
            return Ok(seen);
        };
        offered.push(remedy.command.clone());
        if !terminal.agrees(&topic, &remedy)? {
            continue;
        }
        let ran = terminal.run(&remedy.command);
        seen = examine().await;
        for _ in 1..CHECKS {
            if ran.is_err() || remaining(findings(&seen), &topic, &remedy).is_none() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
            seen = examine().await;
        }
        if let Err(why) = &ran {
            terminal.tell(&format!("{}: {why}", remedy.shown()));
        }
        terminal.tell(&outcome(findings(&seen), &topic));
    }
}

/// Returns the finding of a topic if it still has the same remedy.
fn remaining<'f>(findings: &'f [Finding], topic: &str, remedy: &Remedy) -> Option<&'f Finding> {
    findings.iter().find(|finding| finding.topic == topic && finding.remedy.as_ref() == Some(remedy))
}

fn outcome(findings: &[Finding], topic: &str) -> String {
    match findings.iter().find(|finding| finding.topic == topic) {
        Some(finding) if finding.verdict == Verdict::Good => {
            format!("{topic} is right now: {}", finding.found)
        }
        Some(finding) => format!("{topic} is not right yet: {}", finding.found),
        None => format!("{topic} is no longer reported"),
    }
}

/// Copies the remedies that this program found for its host to the findings of the same topics.
///
/// A daemon reports findings without commands. Limitations that only this program found are added.
pub(super) fn with_local_remedies(findings: &mut Vec<Finding>, local: Vec<Finding>) {
    for found in local.into_iter().filter(|found| found.remedy.is_some()) {
        match findings.iter_mut().find(|finding| finding.topic == found.topic) {
            Some(finding) if finding.verdict == Verdict::Good => {}
            Some(finding) => finding.remedy = found.remedy,
            None => findings.push(found),
        }
    }
}

/// Renders the commands for a user who cannot be asked.
pub(super) fn render(findings: &[Finding], page: &mut Output) {
    let all = remedies(findings);
    if all.is_empty() {
        page.own("\nNo command is known that would set more right.\n");
        return;
    }
    page.own("\nThere is no terminal to ask at, so nothing ran. Commands that may help:\n");
    for (_, remedy) in all {
        page.own("  ").word(&remedy.shown()).end_line();
    }
}

/// The terminal of this process.
pub(super) struct OwnTerminal(Ui);

impl OwnTerminal {
    /// Returns the terminal if a person reads the questions and can answer.
    pub(super) fn open(ui: Ui) -> Option<Self> {
        question::can_ask(ui).then_some(Self(ui))
    }
}

impl Terminal for OwnTerminal {
    fn agrees(&mut self, topic: &str, remedy: &Remedy) -> io::Result<bool> {
        let mut page = self.0.talk();
        page.own("\n").styled(Style::Bold, topic).own(": to ").word(&remedy.why).own(", run\n  ");
        page.word(&remedy.shown()).own("\nRun it? [y/N] ");
        question::ask(self.0, &page)
    }

    fn run(&mut self, command: &[String]) -> Result<(), String> {
        let [program, arguments @ ..] = command else { return Err("there is no command".to_owned()) };
        match Command::new(program).args(arguments).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("it failed with {status}")),
            Err(error) => Err(format!("it cannot be started: {error}")),
        }
    }

    fn tell(&mut self, outcome: &str) {
        self.0.note(outcome);
    }
}

#[cfg(test)]
#[path = "fix_tests.rs"]
mod tests;
