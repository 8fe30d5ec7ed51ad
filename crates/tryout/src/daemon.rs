//! Starts and ends a private daemon. All that is known of it is in its directory, so that another process can end it.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use crate::cleanup;
use crate::coffer::Coffer;
use crate::config::{self, FILE, LOG, PID};
use crate::failure::Failure;

/// Time of a start. The first one on an engine makes the default image.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time of an orderly end.
const ORDERLY: Duration = Duration::from_secs(30);
/// Process id of the parent of the kernel's processes, which have no command line.
const KERNEL: &str = "2";
const TICK: Duration = Duration::from_millis(100);
/// Lines of the log that are shown after a failure.
pub(crate) const LAST_LINES: usize = 15;

/// Makes a directory that only root can change. Others can reach its socket.
pub(crate) fn make_directory(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o711).create(path);
    // The umask may have been stricter.
    let opened = made.and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o711)));
    opened.map_err(|error| Failure::of_file(path, &error))
}

/// Writes a file that only its owner can read, in place of an earlier one.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = atomic_file::replace(path, |file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::of_file(path, &error))
}

/// Starts `program` with the configuration in the directory, and waits until the daemon answers.
///
/// After a failure, and if the future is dropped, [`stop`] ends what was started.
pub(crate) async fn start(program: &Path, directory: &Path) -> Result<(), Failure> {
    check(program, directory).await?;
    let path = directory.join(LOG);
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
    let log = log.map_err(|error| Failure::of_file(&path, &error))?;
    let second = log.try_clone().map_err(|error| Failure::of_file(&path, &error))?;
    let child = Command::new(program)
        .arg("--config")
        .arg(directory.join(FILE))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(second)
        // Ctrl-C reaches `coffer` alone, which ends the daemon in order.
        .process_group(0)
        .spawn()
        .map_err(|error| Failure::failed(format!("{} cannot be started: {error}", program.display()), ""))?;
    let pid = child.id().map(|pid| pid.to_string()).unwrap_or_default();
    write(&directory.join(PID), &pid)?;
    answers(directory).await
}

/// Has the daemon's program check the configuration.
async fn check(program: &Path, directory: &Path) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.arg("--config").arg(directory.join(FILE)).arg("--check-config");
    let checked = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
    let checked = checked
        .map_err(|error| Failure::failed(format!("{} cannot be started: {error}", program.display()), ""))?;
    if checked.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&checked.stderr).trim().to_owned();
    Err(Failure::failed(format!("cofferd refuses its configuration:\n{said}"), ""))
}

/// Waits until the daemon answers.
async fn answers(directory: &Path) -> Result<(), Failure> {
    let coffer = Coffer::of(directory)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if coffer.run(&["run", "list"]).await?.code == Some(0) {
            return Ok(());
        }
        let ended = running(directory).is_none();
        if ended || Instant::now() > deadline {
            let what = if ended { "cofferd ended at its start" } else { "cofferd does not answer" };
            return Err(Failure::failed(
                format!("{what}; the end of its log:\n{}", last_lines(directory)),
                "`coffer doctor` says what this host lacks",
            ));
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Returns the end of the daemon's log.
pub(crate) fn last_lines(directory: &Path) -> String {
    let log = fs::read_to_string(directory.join(LOG)).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Returns the process id of the directory's daemon, if it runs.
///
/// The id may have passed to another process, so its command line has to name the directory. A process that has ended
/// and was not waited for has no command line. For a moment neither has one that executes another program, and cofferd
/// executes itself again at its start.
pub(crate) fn running(directory: &Path) -> Option<i32> {
    let pid: i32 =
        fs::read_to_string(directory.join(PID)).ok()?.trim().parse::<i32>().ok().filter(|pid| *pid > 0)?;
    let mut line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    while line.is_empty() && !has_ended(pid) {
        std::thread::sleep(Duration::from_millis(1));
        line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    }
    names(&line, &directory.join(FILE)).then_some(pid)
}

/// Returns true if a process is gone, or ended without being waited for (proc_pid_stat(5)). So is one of the kernel.
fn has_ended(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    let (state, parent) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    matches!(state, "" | "Z" | "X") || parent == KERNEL
}

/// Returns true if a command line has this path as an argument.
fn names(line: &[u8], path: &Path) -> bool {
    line.split(|byte| *byte == 0).any(|argument| argument == path.as_os_str().as_encoded_bytes())
}

/// Ends the directory's daemon and its runs. Kills the daemon if it does not end in order, and then returns false.
pub(crate) async fn stop(directory: &Path) -> bool {
    let Some(pid) = running(directory) else { return true };
    signal(pid, Signal::TERM);
    if ends_within(directory, ORDERLY).await {
        return true;
    }
    signal(pid, Signal::KILL);
    ends_within(directory, ORDERLY).await;
    cleanup::remove_containers(&instance(directory)).await;
    false
}

async fn ends_within(directory: &Path, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while running(directory).is_some() {
        if Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(TICK).await;
    }
    true
}

fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

/// Returns the label that the daemon's containers have.
fn instance(directory: &Path) -> String {
    fs::read_to_string(directory.join("state/instance")).unwrap_or_default().trim().to_owned()
}

/// Finds `cofferd` beside this program, or else in `PATH`.
pub(crate) fn find(this: &Path, path: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    let beside = this.parent().map(Path::to_path_buf);
    let directories = beside.into_iter().chain(path.into_iter().flat_map(std::env::split_paths));
    directories
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join("cofferd"))
        .find(|program| program.is_file())
}

/// Reads whether the configuration in a directory is one of a private daemon.
pub(crate) fn is_private(directory: &Path) -> bool {
    let text = fs::read_to_string(directory.join(FILE)).unwrap_or_default();
    text.lines().next() == Some(config::MARK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_of_this_directory_is_the_daemon() {
        let config = Path::new("/var/tmp/a/cofferd.yaml");
        assert!(names(b"/usr/bin/cofferd\0--config\0/var/tmp/a/cofferd.yaml\0", config));
        for other in [&b"cofferd\0--config\0/var/tmp/ab/cofferd.yaml\0"[..], b"", b"vi\0/etc/passwd\0"] {
            assert!(!names(other, config));
        }
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(running(directory.path()), None);
        fs::write(directory.path().join(PID), std::process::id().to_string()).unwrap();
        assert_eq!(running(directory.path()), None);
    }

    #[test]
    fn program_beside_this_one_comes_before_those_in_path() {
        let here = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let this = here.path().join("coffer");
        let path = elsewhere.path().as_os_str();
        assert_eq!(find(&this, Some(path)), None);
        fs::write(elsewhere.path().join("cofferd"), "").unwrap();
        assert_eq!(find(&this, Some(path)), Some(elsewhere.path().join("cofferd")));
        fs::write(here.path().join("cofferd"), "").unwrap();
        assert_eq!(find(&this, Some(path)), Some(here.path().join("cofferd")));
    }

    #[test]
    fn a_directory_without_the_mark_is_not_a_private_daemon_s() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_private(directory.path()));
        fs::write(directory.path().join(FILE), "state_dir: /var/lib/cofferdam\n").unwrap();
        assert!(!is_private(directory.path()));
        fs::write(directory.path().join(FILE), format!("{}\n", config::MARK)).unwrap();
        assert!(is_private(directory.path()));
    }
}
