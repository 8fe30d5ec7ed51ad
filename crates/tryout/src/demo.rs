//! `coffer demo`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::cleanup;
use crate::coffer::{Coffer, endpoint, this_program};
use crate::config::{FILE, Settings, User, real};
use crate::daemon;
use crate::failure::Failure;
use crate::needs;
use crate::sample;
use crate::say::Say;
use crate::signals::Signals;
use crate::story::{Story, Subject};

/// Parent of the private directory. It is on a disk, so overlays work there, unlike in most /tmp.
const PARENT: &str = "/var/tmp";

/// Show Cofferdam at work: a run, a refusal, a consent and the record, with a private daemon.
///
/// Makes a directory in /var/tmp, starts a daemon in it, and removes everything at the end, also after Ctrl-C. An
/// installed Cofferdam is not touched. Needs root and a container engine.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer demo")]
pub struct Demo {
    /// Leave the daemon running, and print how to use and end it.
    #[arg(long)]
    keep: bool,
    /// A git repository to clone instead of a small project. Its README.md is changed in the clone alone.
    #[arg(long, value_name = "DIR")]
    repository: Option<PathBuf>,
    /// The static busybox of which the default image is made.
    #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
    busybox: PathBuf,
}

impl Demo {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let say = Say::new();
        let began = Instant::now();
        let repository = self.repository.as_deref().map(real).transpose()?;
        let program = needs::check("demo", &self.busybox).await?;
        let mut signals = Signals::catch()?;
        let directory = private_directory()?;
        let shown = signals.or(self.show(say, &program, &directory, repository.as_deref())).await;
        if self.keep && shown.is_ok() {
            return kept(say, &directory, began);
        }
        let orderly = daemon::stop(&directory).await;
        if !orderly {
            say.note("cofferd did not end by itself and was killed");
        }
        let removed = cleanup::remove(&directory);
        if let (Err(_), Err(left)) = (&shown, &removed) {
            say.complain(&left.to_string());
        }
        shown?;
        removed?;
        summary(say, began);
        say.line(
            "Everything of this demonstration is removed. `coffer up` starts a daemon for your own tries.",
        );
        Ok(())
    }

    async fn show(
        &self,
        say: Say,
        program: &Path,
        directory: &Path,
        repository: Option<&Path>,
    ) -> Result<(), Failure> {
        let made = directory.join("projects").join("tally");
        let made = made.to_string_lossy();
        let (subject, root) = if let Some(repository) = repository {
            (Subject::of(repository)?, repository.to_path_buf())
        } else {
            sample::make(Path::new(&*made))?;
            (Subject::sample(&made), directory.join("projects"))
        };
        let settings = Settings {
            directory,
            roots: &[root],
            has_policy: false,
            busybox: &self.busybox,
            user: User::caller(),
        };
        daemon::write(&directory.join(FILE), &settings.render()?)?;
        say.note("starting a private cofferd; the first start on an engine makes the default image");
        daemon::start(program, directory).await?;
        let told = Story::tell(&Coffer::of(directory)?, say, &subject).await;
        if told.is_err() {
            say.note("the end of cofferd's log:");
            say.output(&daemon::last_lines(directory), daemon::LAST_LINES);
        }
        told
    }
}

/// Makes a directory with an unpredictable name, which only root can change. Its user can reach the socket.
fn private_directory() -> Result<PathBuf, Failure> {
    let made = tempfile::Builder::new().prefix("cofferdam-demo.").tempdir_in(PARENT);
    let made = made.map_err(|error| Failure::of_file(Path::new(PARENT), &error))?.keep();
    daemon::make_directory(&made)?;
    real(&made)
}

fn summary(say: Say, began: Instant) {
    say.title(&format!("That was Cofferdam, in {} s", began.elapsed().as_secs()));
    say.line(
        "A run was made, read, searched and edited with consent; a forbidden command was refused; every call is on record.",
    );
}

fn kept(say: Say, directory: &Path, began: Instant) -> Result<(), Failure> {
    summary(say, began);
    let coffer = this_program()?;
    let coffer = coffer.display();
    say.line("cofferd is still running. Talk to it, and end it:");
    say.line(&format!("  export COFFERDAM_ENDPOINT={}", endpoint(directory)));
    say.line(&format!("  {coffer} run create --profile review --managed"));
    let sudo = if User::caller().is_some() { "sudo " } else { "" };
    say.line(&format!("  {sudo}{coffer} down --delete {}", directory.display()));
    Ok(())
}
