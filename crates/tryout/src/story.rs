//! The main job, for a person who sees it for the first time: an agent works on a clone within the limits of policy and
//! its human, and everything is on record.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use crate::coffer::{Coffer, Ended};
use crate::failure::Failure;
use crate::sample;
use crate::say::Say;

const PROFILE: &str = "review";
/// Exit code of `coffer call exec` for a refused command, since other codes are the command's.
const DENIED: i32 = 126;
/// Bytes of a README that are read, at most.
const LARGEST: u64 = 1024 * 1024;
const TICK: Duration = Duration::from_millis(200);

/// Repository of the story, and the change that the agent makes.
pub(crate) struct Subject<'a> {
    repository: &'a str,
    described: &'static str,
    /// Text that the agent searches for.
    search: String,
    /// Files in which it searches.
    files: &'static str,
    counted: &'static [&'static str],
    edited: &'static str,
    old: String,
    new: String,
    message: &'static str,
    /// True if the story runs the test of the sample before and after the change.
    has_test: bool,
}

impl<'a> Subject<'a> {
    /// Returns the story of the sample project.
    pub(crate) fn sample(repository: &'a str) -> Self {
        Self {
            repository,
            described: "a small project",
            search: "sum".to_owned(),
            files: "*.sh",
            counted: &["README.md", "tally.sh"],
            edited: "tally.sh",
            old: sample::BUG.to_owned(),
            new: sample::REPAIR.to_owned(),
            message: "Add up the first price, too",
            has_test: true,
        }
    }

    /// Returns the story of a person's repository, whose README the agent changes in the clone.
    pub(crate) fn of(repository: &'a Path) -> Result<Self, Failure> {
        let next = "name a git repository with a README.md, or leave --repository out";
        let path = repository
            .to_str()
            .ok_or_else(|| Failure::usage(format!("{} is not a plain path", repository.display()), next))?;
        if !repository.join(".git").exists() {
            return Err(Failure::usage(format!("{path} is not a git repository"), next));
        }
        let text =
            readme(repository).map_err(|error| Failure::usage(format!("{path}/README.md: {error}"), next))?;
        let headline = text.lines().next().unwrap_or_default().trim();
        if headline.is_empty() || text.matches(headline).count() != 1 {
            let what = "does not begin with a headline that occurs once";
            return Err(Failure::usage(format!("{path}/README.md {what}"), next));
        }
        let words = headline.split(|c: char| !c.is_alphanumeric());
        let longest = words.max_by_key(|word| word.len()).unwrap_or_default();
        Ok(Self {
            repository: path,
            described: "this repository",
            search: longest.to_owned(),
            files: "*.md",
            counted: &["README.md"],
            edited: "README.md",
            old: headline.to_owned(),
            new: format!("{headline} (edited in a run)"),
            message: "Say where this was edited",
            has_test: false,
        })
    }
}

/// Reads the README of a repository, which has to be a file.
fn readme(repository: &Path) -> io::Result<String> {
    let file = File::open(repository.join("README.md"))?;
    let mut text = String::new();
    if file.metadata()?.is_file() {
        file.take(LARGEST).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// A story that is being told.
pub(crate) struct Story<'a> {
    coffer: &'a Coffer,
    say: Say,
    subject: &'a Subject<'a>,
    /// Id of the run, which the shown command lines call `$RUN`.
    run: String,
}

impl<'a> Story<'a> {
    /// Tells the story to its end. The end of the daemon ends a run that is left.
    pub(crate) async fn tell(coffer: &'a Coffer, say: Say, subject: &'a Subject<'a>) -> Result<(), Failure> {
        let mut story = Self { coffer, say, subject, run: String::new() };
        story.create().await?;
        story.look().await?;
        story.execute().await?;
        story.change().await?;
        story.record().await?;
        story.end().await
    }

    async fn create(&mut self) -> Result<(), Failure> {
        let Subject { repository, described, .. } = self.subject;
        self.say.title(&format!("A run: one hardened container, with a clone of {described} in it"));
        let words: [&str; 8] =
            ["run", "create", "--profile", PROFILE, "--agent", "alice", "--clone", *repository];
        self.say.typed(&typed(&words, ""));
        let ended = self.coffer.run(&words).await?;
        self.say.output(&ended.err, 4);
        self.check(&ended, 0)?;
        ended.out.trim().clone_into(&mut self.run);
        self.say.note(&format!("the run: {}", self.run));
        Ok(())
    }

    async fn look(&self) -> Result<(), Failure> {
        let Subject { search, files, .. } = self.subject;
        self.say.title("The agent looks around");
        self.shown(8, 0, &["call", "list", &self.run]).await?;
        self.shown(6, 0, &["call", "read", &self.run, "README.md", "--lines", "1-6"]).await?;
        let words = ["call", "grep", self.run.as_str(), search, "--glob", files, "-C", "0", "--max", "4"];
        self.shown(6, 0, &words).await
    }

    async fn execute(&self) -> Result<(), Failure> {
        self.say.title("It runs a program: read-only ones run by themselves");
        let mut words = vec!["call", "exec", self.run.as_str(), "--", "wc", "-l"];
        words.extend(self.subject.counted);
        self.shown(4, 0, &words).await?;
        self.say.title("… and what the policy forbids does not");
        self.shown(4, DENIED, &["call", "exec", &self.run, "--", "rm", "-rf", "."]).await
    }

    async fn change(&self) -> Result<(), Failure> {
        let Subject { edited, old, new, message, has_test, .. } = self.subject;
        if *has_test {
            self.say.title("Any other program waits for consent, such as the project's test, which fails");
            self.test(1).await?;
        }
        self.say.title("It wants to edit a file: that waits for consent");
        self.with_consent(14, 0, &["call", "edit", &self.run, edited, "--old", old, "--new", new]).await?;
        self.say.title("The change, and a commit of it in the clone");
        self.shown(14, 0, &["call", "git", &self.run, "diff"]).await?;
        self.with_consent(4, 0, &["call", "git", &self.run, "add", edited]).await?;
        self.with_consent(6, 0, &["call", "git", &self.run, "commit", "-m", message]).await?;
        self.shown(4, 0, &["call", "git", &self.run, "status"]).await?;
        if *has_test {
            self.say.title("The test again, which succeeds now");
            self.test(0).await?;
        }
        Ok(())
    }

    async fn test(&self, expected: i32) -> Result<(), Failure> {
        self.with_consent(4, expected, &["call", "exec", &self.run, "--", "sh", "test.sh"]).await
    }

    async fn record(&self) -> Result<(), Failure> {
        self.say.title("All of it is on record, and the record proves itself");
        self.shown(60, 0, &["audit", "tail", "--run", &self.run]).await?;
        self.shown(3, 0, &["audit", "verify"]).await
    }

    async fn end(&self) -> Result<(), Failure> {
        self.say.title("The end of the run");
        self.shown(3, 0, &["run", "stop", &self.run]).await?;
        self.shown(3, 0, &["run", "delete", &self.run]).await
    }

    /// Runs a command line and shows the first lines of its output.
    async fn shown(&self, lines: usize, expected: i32, words: &[&str]) -> Result<(), Failure> {
        self.say.typed(&typed(words, &self.run));
        let ended = self.coffer.run(words).await?;
        self.ended(&ended, lines, expected)
    }

    /// Makes a call that may need consent: waits as an agent would, and consents as its human would.
    async fn with_consent(&self, lines: usize, expected: i32, words: &[&str]) -> Result<(), Failure> {
        self.say.typed(&typed(words, &self.run));
        let waiting = waiting(words);
        let call = self.coffer.run(&waiting);
        tokio::pin!(call);
        loop {
            tokio::select! {
                ended = &mut call => return self.ended(&ended?, lines, expected),
                () = tokio::time::sleep(TICK) => {
                    if let Some(approval) = self.pending().await? {
                        self.consent(&approval).await?;
                    }
                }
            }
        }
    }

    async fn consent(&self, approval: &str) -> Result<(), Failure> {
        self.say.note("waiting for consent; its human reads what would happen:");
        self.shown(40, 0, &["approval", "show", approval]).await?;
        self.shown(2, 0, &["approval", "approve", approval, "--comment", "fine"]).await
    }

    /// Returns an approval of the run that waits.
    async fn pending(&self) -> Result<Option<String>, Failure> {
        let words = ["--output", "json", "approval", "list", "--run", self.run.as_str()];
        Ok(first_approval(&self.coffer.run(&words).await?.out))
    }

    fn ended(&self, ended: &Ended, lines: usize, expected: i32) -> Result<(), Failure> {
        self.say.output(&format!("{}{}", ended.out, ended.err), lines);
        self.check(ended, expected)
    }

    fn check(&self, ended: &Ended, expected: i32) -> Result<(), Failure> {
        let Some(wrong) = wrong_end(ended.code, expected) else { return Ok(()) };
        self.say.complain(&wrong);
        Err(Failure::failed(
            "the demonstration stopped at the command above",
            "`coffer doctor` says what this host lacks",
        ))
    }
}

/// Describes an exit code that is not the expected one.
fn wrong_end(code: Option<i32>, expected: i32) -> Option<String> {
    match code {
        Some(code) if code == expected => None,
        Some(code) if expected == 0 => Some(format!("that ended with exit code {code}")),
        Some(code) => Some(format!("that had to end with exit code {expected}, and ended with {code}")),
        None => Some("a signal ended that".to_owned()),
    }
}

fn first_approval(listed: &str) -> Option<String> {
    let listed: serde_json::Value = serde_json::from_str(listed).ok()?;
    listed["approvals"][0]["approvalId"].as_str().map(str::to_owned)
}

/// Adds `--wait`, before the words of a command if there are any.
fn waiting<'w>(words: &[&'w str]) -> Vec<&'w str> {
    let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
    [&words[..at], &["--wait"], &words[at..]].concat()
}

/// Writes a command line as a person would type it, with the run's id in a variable.
fn typed(words: &[&str], run: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || ".,:/_=-".contains(c);
    let word = |word: &&str| match *word {
        word if !run.is_empty() && word == run => "$RUN".to_owned(),
        word if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        word => format!("'{word}'"),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_shown_as_a_person_types_them() {
        let words = ["call", "edit", "01a2", "tally.sh", "--old", "NR > 1 { sum", "--new", ""];
        assert_eq!(typed(&words, "01a2"), "call edit $RUN tally.sh --old 'NR > 1 { sum' --new ''");
        assert_eq!(typed(&["run", "create"], ""), "run create");
    }

    #[test]
    fn wait_is_an_option_of_coffer_and_not_of_the_command() {
        assert_eq!(waiting(&["call", "exec", "a", "--", "sh"]), ["call", "exec", "a", "--wait", "--", "sh"]);
        assert_eq!(waiting(&["call", "edit", "a"]), ["call", "edit", "a", "--wait"]);
    }

    #[test]
    fn an_approval_is_found_in_the_list_and_in_nothing_else() {
        assert_eq!(
            first_approval(r#"{"approvals": [{"approvalId": "a"}, {"approvalId": "b"}]}"#).as_deref(),
            Some("a")
        );
        for other in ["", "{}", r#"{"approvals": []}"#, r#"{"approvals": [{"approvalId": 3}]}"#, "["] {
            assert_eq!(first_approval(other), None);
        }
    }

    #[test]
    fn a_step_that_ends_otherwise_is_a_failure() {
        assert_eq!(wrong_end(Some(126), DENIED), None);
        assert_eq!(wrong_end(Some(1), 0).as_deref(), Some("that ended with exit code 1"));
        assert_eq!(wrong_end(None, 0).as_deref(), Some("a signal ended that"));
        assert!(wrong_end(Some(0), DENIED).unwrap().contains("had to end with exit code 126"));
    }

    #[test]
    fn a_repository_needs_a_headline_to_change() {
        let directory = tempfile::tempdir().unwrap();
        let problem = |text: Option<&str>| {
            if let Some(text) = text {
                std::fs::write(directory.path().join("README.md"), text).unwrap();
            }
            Subject::of(directory.path()).err().map(|failure| failure.to_string())
        };
        assert!(problem(None).unwrap().ends_with("is not a git repository"));
        std::fs::create_dir(directory.path().join(".git")).unwrap();
        assert!(problem(None).unwrap().contains("README.md: "));
        assert!(problem(Some("\n# Late\n")).unwrap().ends_with("a headline that occurs once"));
        assert!(problem(Some("# Pump\n# Pump\n")).unwrap().ends_with("a headline that occurs once"));
        assert_eq!(problem(Some("# Pump\n")), None);
    }
}
