use std::fs;
use std::path::Path;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// A command that the shell executes.
fn shell(script: &str, timeout: Duration, refresh: Duration) -> Arc<Command> {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).into();
    Arc::new(Command::new(SecretName::parse("model").unwrap(), argv, timeout, refresh))
}

async fn value(command: &Arc<Command>) -> Result<String, Why> {
    command.get().await.map(|secret| secret.expose().to_owned())
}

/// Number of lines of a file, to which a command adds one.
fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn the_output_is_the_value_and_errors_have_neither_output_nor_arguments() {
    assert_eq!(value(&shell("echo hunter2", LONG, LONG)).await.unwrap(), "hunter2");
    for (script, why) in [
        ("echo hunter2; exit 3", Why::Exit(3)),
        ("echo hunter2; kill -9 $$", Why::Killed),
        ("echo hunter2 hunter2", Why::Character),
        ("echo hunter2 >&2", Why::Empty),
        ("while :; do echo hunter2hunter2hunter2; done", Why::TooLong),
    ] {
        let error = value(&shell(script, LONG, LONG)).await.unwrap_err();
        assert_eq!(error, why, "{script}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let argv = vec!["/no/such/program".to_owned()];
    let missing = Arc::new(Command::new(SecretName::parse("model").unwrap(), argv, LONG, LONG));
    assert_eq!(value(&missing).await, Err(Why::Start(std::io::ErrorKind::NotFound)));
}

#[tokio::test]
async fn a_command_has_no_shell_no_input_no_environment_and_the_root_as_its_directory() {
    let argv = ["/bin/echo", "$HOME;id"].map(str::to_owned).into();
    let plain = Arc::new(Command::new(SecretName::parse("model").unwrap(), argv, LONG, LONG));
    assert_eq!(value(&plain).await.unwrap(), "$HOME;id");
    let script =
        "echo \"$(tr '\\0' '\\n' </proc/self/environ | grep -vc '^PATH=')-$(pwd)-$(wc -c)\" | tr -d ' '";
    assert_eq!(value(&shell(script, LONG, LONG)).await.unwrap(), "0-/-0");
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    let script = format!("sleep 1000 & echo $! >{}; wait", pid.display());
    assert_eq!(value(&shell(&script, Duration::from_secs(3), LONG)).await, Err(Why::Timeout));
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    // The process may be a zombie until its parent, now another one, has waited for it.
    let is_alive = || {
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        status.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    for _ in 0..600 {
        if !is_alive() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("process {pid} is alive");
}

#[tokio::test]
async fn a_value_counts_until_it_is_refreshed() {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let script = format!("echo x >>{0}; wc -l <{0} | tr -d ' '", count.display());
    let kept = shell(&script, LONG, LONG);
    assert_eq!((value(&kept).await.unwrap(), value(&kept).await.unwrap()), ("1".into(), "1".into()));
    let fresh = shell(&script, LONG, Duration::ZERO);
    assert_eq!((value(&fresh).await.unwrap(), value(&fresh).await.unwrap()), ("2".into(), "3".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_runs_at_a_time_and_serves_all_who_wait() {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let command = shell(&format!("echo x >>{}; sleep 0.2; echo value", count.display()), LONG, LONG);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let command = Arc::clone(&command);
            tokio::spawn(async move { value(&command).await })
        })
        .collect();
    for one in waiting {
        assert_eq!(one.await.unwrap().unwrap(), "value");
    }
    assert_eq!(lines(&count), 1);
}

/// Makes the last value as old as that.
async fn age(command: &Command, age: Duration) {
    let mut known = command.known.lock().await;
    let (read, _) = known.last.as_mut().unwrap();
    *read = Instant::now().checked_sub(age).unwrap();
}

#[tokio::test]
async fn the_last_value_counts_for_a_while_if_the_command_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (works, count) = (directory.path().join("works"), directory.path().join("count"));
    fs::write(&works, "value\n").unwrap();
    let script = format!("echo x >>{}; cat {}", count.display(), works.display());
    let refresh = Duration::from_secs(30);
    let command = shell(&script, LONG, refresh);
    assert_eq!(value(&command).await.unwrap(), "value");
    fs::remove_file(&works).unwrap();
    assert_eq!((value(&command).await.unwrap(), lines(&count)), ("value".to_owned(), 1));
    age(&command, refresh).await;
    assert_eq!((value(&command).await.unwrap(), lines(&count)), ("value".to_owned(), 2));
    age(&command, refresh * 2).await;
    assert_eq!(value(&command).await, Err(Why::Exit(1)));
    assert_eq!(lines(&count), 2, "a failure is not repeated at once");
    assert!(command.known.lock().await.last.is_none(), "the old value is gone");

    fs::write(&works, "other\n").unwrap();
    let long_ago = Instant::now().checked_sub(RETRY).unwrap();
    command.known.lock().await.failed = Some((long_ago, Why::Exit(1)));
    assert_eq!(value(&command).await.unwrap(), "other");
}

#[tokio::test]
async fn a_command_goes_on_if_its_caller_stops_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let command = shell(&format!("echo x >>{}; sleep 3; echo value", count.display()), LONG, LONG);
    let left = timeout(Duration::from_millis(100), value(&command)).await;
    assert!(left.is_err());
    assert_eq!(value(&command).await.unwrap(), "value");
    assert_eq!(lines(&count), 1);
}
