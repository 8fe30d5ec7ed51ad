//! `coffer up` and `coffer down`.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cleanup;
use crate::coffer::{endpoint, this_program};
use crate::config::{FILE, POLICY, SOCKET, Settings, User, real};
use crate::daemon;
use crate::failure::Failure;
use crate::init::write_policy;
use crate::needs;
use crate::project::Project;
use crate::say::{Say, data};
use crate::signals::Signals;

/// Directory of the daemons of `coffer up`, one for each user. Only root can change it.
const PARENT: &str = "/var/lib/cofferdam-up";

/// Start a daemon for your own tries, which stays until `coffer down`.
///
/// Runs can use the named directories. The profile `project` fits the files of the first, as with `coffer init`; the
/// built-in profiles are there, too. You are agent and approver, so use it for tries alone. Prints a line that sets
/// COFFERDAM_ENDPOINT. With sudo, the daemon is for the user who called sudo. Needs root and a container engine.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer up ~/src/hello")]
pub struct Up {
    /// Directories whose files runs can use.
    #[arg(value_name = "DIR", default_value = ".")]
    roots: Vec<PathBuf>,
    /// The static busybox of which the default image is made.
    #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
    busybox: PathBuf,
}

/// End the daemon of `coffer up`, or of `coffer demo --keep`, and its runs.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer down")]
pub struct Down {
    /// Directory of the daemon. Default: that of `coffer up`.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Delete the directory, with the audit log, the workspaces and everything else.
    #[arg(long)]
    delete: bool,
}

impl Up {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let say = Say::new();
        let roots: Vec<PathBuf> = self.roots.iter().map(|root| real(root)).collect::<Result<_, _>>()?;
        let program = needs::check("up", &self.busybox).await?;
        let user = User::caller();
        for root in &roots {
            apart(root, &directory_of(user))?;
        }
        daemon::make_directory(&directory_of(user))?;
        let directory = real(&directory_of(user))?;
        let settings =
            Settings { directory: &directory, roots: &roots, has_policy: true, busybox: &self.busybox, user };
        let text = settings.render()?;
        if let Some(pid) = daemon::running(&directory) {
            return already_up(say, &directory, &text, pid);
        }
        let project = roots.first().map(|root| Project::examine(root)).transpose()?.unwrap_or_default();
        write_policy(&directory.join(POLICY), &project, None)?;
        daemon::write(&directory.join(FILE), &text)?;
        say.note("starting cofferd; the first start on an engine makes the default image");
        let mut signals = Signals::catch()?;
        if let Err(failure) = signals.or(daemon::start(&program, &directory)).await {
            daemon::stop(&directory).await;
            return Err(failure);
        }
        for line in project.reasons() {
            say.note(&line);
        }
        next_commands(say, &directory, roots.first())
    }
}

impl Down {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let say = Say::new();
        if !rustix::process::geteuid().is_root() {
            let next = format!("run `sudo {} down`", this_program()?.display());
            return Err(Failure::failed("the daemon is root's, so only root can end it", next));
        }
        let directory = match &self.directory {
            Some(directory) => real(directory)?,
            None => real(&directory_of(User::caller())).unwrap_or_else(|_| directory_of(User::caller())),
        };
        if !daemon::is_private(&directory) {
            return if self.directory.is_some() {
                let what = format!("{} is no directory of `coffer up` or `coffer demo`", directory.display());
                Err(Failure::usage(what, "end other daemons with your service manager"))
            } else {
                say.line("Nothing is up.");
                Ok(())
            };
        }
        let was_up = daemon::running(&directory).is_some();
        if !daemon::stop(&directory).await {
            say.note("cofferd did not end by itself and was killed");
        }
        say.line(if was_up { "cofferd has ended, and its runs with it." } else { "Nothing is up." });
        if self.delete {
            cleanup::remove(&directory)?;
            say.line(&format!("{} is deleted.", directory.display()));
        } else {
            say.line(&format!(
                "Its log and workspaces stay in {}; --delete deletes them.",
                directory.display()
            ));
        }
        Ok(())
    }
}

fn directory_of(user: Option<User>) -> PathBuf {
    Path::new(PARENT).join(user.map_or(0, |user| user.uid).to_string())
}

/// Returns true if the socket is that of a daemon of `coffer up` or `coffer demo`, where a user decides on approvals of its own.
///
/// Only root can read the configuration there, and only root makes a directory for another user's daemon.
pub fn lets_decide_own(socket: &Path) -> bool {
    let Some(directory) = socket.parent().filter(|_| socket.ends_with(SOCKET)) else { return false };
    directory.parent() == Some(Path::new(PARENT)) || daemon::is_private(directory)
}

/// Checks that the files of runs and those of the daemon are apart.
fn apart(root: &Path, directory: &Path) -> Result<(), Failure> {
    if directory.starts_with(root) || root.starts_with(directory) {
        return Err(Failure::usage(
            format!("{} and the daemon's own directory overlap", root.display()),
            "name the directory of a project: `coffer up DIR`",
        ));
    }
    Ok(())
}

/// Reports a daemon that runs already. It is no failure if it is the one that was asked for.
fn already_up(say: Say, directory: &Path, text: &str, pid: i32) -> Result<(), Failure> {
    if std::fs::read_to_string(directory.join(FILE)).is_ok_and(|present| present == text) {
        say.line(&format!("cofferd is up already (process {pid})."));
        return next_commands(say, directory, None);
    }
    Err(Failure::failed(
        format!("cofferd is up already (process {pid}), with other directories or settings"),
        "`coffer down` ends it; then use `coffer up` again",
    ))
}

fn next_commands(say: Say, directory: &Path, root: Option<&PathBuf>) -> Result<(), Failure> {
    let coffer = this_program()?;
    let coffer = coffer.display();
    data(&format!("export COFFERDAM_ENDPOINT={}", endpoint(directory)));
    let workspace = match root {
        Some(root) if root.join(".git").exists() => format!("--clone {}", root.display()),
        _ => "--managed".to_owned(),
    };
    say.title("Next, after the line with COFFERDAM_ENDPOINT");
    say.line(&format!("  RUN=$({coffer} run create --profile review {workspace})"));
    say.line(&format!("  {coffer} call list $RUN"));
    say.line(&format!("  sudo {coffer} down"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_directory() {
        assert_eq!(directory_of(None), Path::new("/var/lib/cofferdam-up/0"));
        let user = User { uid: 1000, gid: 100 };
        assert_eq!(directory_of(Some(user)), Path::new("/var/lib/cofferdam-up/1000"));
    }

    #[test]
    fn only_private_daemons_let_a_user_decide_on_its_own_calls() {
        let own = directory_of(Some(User { uid: 1000, gid: 100 }));
        assert!(lets_decide_own(&own.join(SOCKET)));
        let demo = tempfile::tempdir().unwrap();
        assert!(!lets_decide_own(&demo.path().join(SOCKET)));
        let settings = Settings {
            directory: demo.path(),
            roots: &[],
            has_policy: false,
            busybox: Path::new("/bin/busybox"),
            user: None,
        };
        let text = settings.render().unwrap();
        assert!(text.contains("allow_self_approval: true"), "{text}");
        std::fs::write(demo.path().join(FILE), text).unwrap();
        assert!(lets_decide_own(&demo.path().join(SOCKET)));
        for other in ["/run/cofferdam/cofferd.sock", "/var/lib/cofferdam-up/1000/other.sock"] {
            assert!(!lets_decide_own(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn runs_cannot_use_the_directory_of_the_daemon() {
        let directory = directory_of(None);
        for root in ["/", "/var/lib", "/var/lib/cofferdam-up/0/state"] {
            assert!(apart(Path::new(root), &directory).is_err(), "{root}");
        }
        assert_eq!(apart(Path::new("/home/me/src"), &directory), Ok(()));
    }

    #[test]
    fn a_daemon_with_other_settings_is_not_passed_off_as_this_one() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "a").unwrap();
        assert_eq!(already_up(Say::new(), directory.path(), "a", 7), Ok(()));
        let other = already_up(Say::new(), directory.path(), "b", 7).unwrap_err();
        assert!(other.to_string().contains("process 7") && other.next().contains("coffer down"));
    }
}
