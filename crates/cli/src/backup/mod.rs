//! `coffer backup`: backups of a living daemon, verified, and restored into an empty state directory.

mod create;
mod restore;
mod verify;

use std::path::Path;

use ::backup::{Checked, Verification};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

crate::verbs::verbs! {
    Create(create::Create),
    Verify(verify::Verify),
    Restore(restore::Restore),
}

/// Files and directories of a state directory that no backup has, for people.
const LEFT_BEHIND: &str = "not in it: containers, workspaces, bases, checkpoints, mirrors, output of commands and recordings. Runs that \
                           were alive end when it is restored. The configuration and the policy are files of their own";

/// Verifies a backup on the disk. Its log takes space beside it meanwhile, without a name. The verification ends if the future is dropped.
async fn check(file: &Path, key_file: Option<&Path>) -> Result<Checked, Failure> {
    let name = file.display();
    let verification = Verification::new();
    let checked = tokio::task::spawn_blocking(verification.of(file, key_file)).await;
    let checked = checked.map_err(|error| Failure::failed(error.to_string()))?;
    checked.map_err(|error| Failure::failed(format!("{name}: {}", chain(&error))))
}

/// Does the work, or drops it at Ctrl-C, SIGTERM or the end of the terminal, so that it ends what it began.
async fn interruptible<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let [mut interrupt, mut terminate, mut hangup] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    let number = tokio::select! {
        done = work => return done,
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
        _ = hangup.recv() => 1,
    };
    Err(tryout::Failure::Interrupted(number).into())
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::exit::Exit;

    #[tokio::test]
    async fn a_signal_drops_the_work_and_what_it_holds() {
        let held = Arc::new(());
        let work = async {
            let _held = held.clone();
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
            std::future::pending().await
        };
        let failure = interruptible::<()>(work).await.unwrap_err();
        assert_eq!((failure.exit(), Arc::strong_count(&held)), (Exit::Command(143), 1));
        assert!(matches!(interruptible(async { Ok(7) }).await, Ok(7)));
    }
}
