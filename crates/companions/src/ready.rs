//! Waits until a companion passes its check.

use std::time::Duration;

use containers::{EngineError, GUEST_PATH, HostProcess, RunUser};
use policy::{Check, Readiness};
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::companion::Companion;
use crate::program::{NoProgram, Program};

/// Time for one check by command.
const CHECK: Duration = Duration::from_secs(10);
/// Time in which a check that takes too long has to end.
const KILL: Duration = Duration::from_secs(1);

/// Reason that a companion is not ready.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    #[error("it has ended with the code {0} before it was ready")]
    Ended(i64),
    #[error("it was not ready within {seconds} s: {last}")]
    Late { seconds: u64, last: String },
    #[error("its check is too long")]
    Check(#[from] NoProgram),
}

impl Companion {
    /// Waits until it passes its check, or has ended, or its time is over.
    pub async fn is_ready(
        &self,
        readiness: &Readiness,
        program: &Program,
        user: RunUser,
    ) -> Result<(), NotReady> {
        let command = match &readiness.check {
            Check::Command(args) => Some(program.message_with(args)?),
            Check::Tcp(_) => None,
        };
        let until = Instant::now() + Duration::from_secs(readiness.timeout_seconds);
        let mut last = "no check has ended".to_owned();
        let checks = async {
            loop {
                let checked = match (&readiness.check, &command) {
                    (Check::Tcp(port), _) => self.accepts(*port).await,
                    (Check::Command(_), message) => {
                        self.passes(message.as_deref().unwrap_or_default(), user).await
                    }
                };
                match checked {
                    Ok(()) => return,
                    Err(why) => last = why,
                }
                sleep(Duration::from_millis(readiness.interval_milliseconds)).await;
            }
        };
        let outcome = tokio::select! {
            passed = timeout_at(until, checks) => passed.map_err(|_| None),
            code = self.ended() => Err(Some(code)),
        };
        outcome.map_err(|ended| match ended {
            Some(code) => NotReady::Ended(code),
            None => NotReady::Late { seconds: readiness.timeout_seconds, last },
        })
    }

    async fn accepts(&self, port: u16) -> Result<(), String> {
        self.dial(port).await.map(drop).map_err(|_| format!("nothing accepts connections at port {port}"))
    }

    /// Executes a check in the container. Ends it if it takes too long, so that no two run at the same time.
    async fn passes(&self, message: &[u8], user: RunUser) -> Result<(), String> {
        let failed = |error: EngineError| {
            tracing::debug!(companion = self.name(), %error, "a check was not made");
            "the engine did not execute the check".to_owned()
        };
        let argv = [GUEST_PATH.to_owned(), "companion".to_owned()];
        let mut exec = self.engine.attach_exec(&self.container, &argv, user).await.map_err(failed)?;
        let checked = timeout(CHECK, async {
            exec.input.write_all(message).await?;
            exec.input.shutdown().await?;
            // Its output ends with it.
            tokio::io::copy(&mut exec.output, &mut tokio::io::sink()).await
        });
        if let Ok(Ok(_)) = checked.await {
            return match self.engine.exec_ended(&exec.exec).await.map_err(failed)? {
                0 => Ok(()),
                code => Err(format!("the check ended with the code {code}")),
            };
        }
        if let Ok(pid) = self.engine.exec_pid(&exec.exec).await
            && let Ok(process) = HostProcess::of_engine(pid)
        {
            let _ = tokio::task::spawn_blocking(move || process.kill(KILL)).await;
        }
        Err(format!("the check took longer than {} s", CHECK.as_secs()))
    }
}
