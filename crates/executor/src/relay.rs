//! Starts a guest whose kernel lets commands open the files of other processes of their user.
//!
//! A relay with a separate user holds its streams, and processes that commands left are ended from inside. See [`worker_protocol::relay`].

use std::time::Duration;

use containers::{Boundary, ContainerId, Engine, ExecId, ExecStream, GUEST_PATH, RunUser};
use operations::Reason;
use refusal::{Refusal, chain};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use worker_protocol::relay::{Key, LISTENS};

use crate::engine::engine_refusal;

/// Time in which a relay has to listen.
const LISTENING: Duration = Duration::from_secs(30);
/// Time in which a sweep has to end. It takes two seconds at most.
const SWEEPING: Duration = Duration::from_secs(30);
/// Number of sweeps. A command can end a sweep, but it is soon ended itself.
const SWEEPS: u32 = 5;

/// A guest that has been started: its streams, and its exec.
pub(crate) struct Relayed {
    pub(crate) stream: ExecStream,
    pub(crate) guest: ExecId,
}

/// Starts a relay, and a guest that communicates through it.
pub(crate) async fn start(
    engine: &Engine,
    container: &ContainerId,
    user: RunUser,
) -> Result<Relayed, Refusal> {
    let key = key()?;
    let argv =
        |words: &[&str]| [GUEST_PATH].iter().chain(words).map(|&word| word.to_owned()).collect::<Vec<_>>();
    let own = Boundary::OwnKernel.own_user(user);
    let mut relay = engine.attach_exec(container, &argv(&["relay"]), own).await.map_err(engine_refusal)?;
    let listens = async {
        relay.input.write_all(key.bytes()).await?;
        relay.input.flush().await?;
        relay.output.read_u8().await
    };
    match timeout(LISTENING, listens).await {
        Ok(Ok(LISTENS)) => {}
        Ok(Ok(_)) => return Err(not_up(container, &relay, "it sent an unexpected answer")),
        Ok(Err(error)) => return Err(not_up(container, &relay, &error.to_string())),
        Err(_) => return Err(not_up(container, &relay, "it does not listen in time")),
    }
    let mut guest =
        engine.attach_exec(container, &argv(&["serve", "--relayed"]), user).await.map_err(engine_refusal)?;
    let given = async {
        guest.input.write_all(key.bytes()).await?;
        guest.input.flush().await
    };
    given.await.map_err(|error| not_up(container, &guest, &error.to_string()))?;
    let exec = guest.exec.clone();
    tokio::spawn(listen(container.clone(), guest));
    Ok(Relayed { stream: relay, guest: exec })
}

fn key() -> Result<Key, Refusal> {
    let mut bytes = [0; Key::LENGTH];
    let mut filled = 0;
    while filled < bytes.len() {
        let more = getrandom(&mut bytes[filled..], GetRandomFlags::empty());
        filled += more.map_err(|error| Refusal::internal("drawing a key for the guest", &error))?;
    }
    Ok(Key::new(bytes))
}

fn not_up(container: &ContainerId, stream: &ExecStream, why: &str) -> Refusal {
    tracing::error!(%container, why, said = stream.errors.text(), "the guest's relay did not start");
    Refusal::new(Reason::EngineUnavailable, "the guest did not start in the container; see the daemon's log")
}

/// Reads the output of the guest's exec until it ends. It consists only of the engine's errors and the guest's last messages.
async fn listen(container: ContainerId, mut guest: ExecStream) {
    let mut bytes = [0; 1024];
    while guest.output.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
    let said = guest.errors.text();
    if !said.is_empty() {
        tracing::warn!(%container, said, "last words of a guest");
    }
}

/// Ends every process of the run's user in the container. Returns true if none is left.
pub async fn sweep(engine: &Engine, container: &ContainerId, user: RunUser) -> bool {
    let argv = [GUEST_PATH.to_owned(), "sweep".to_owned()];
    for _ in 0..SWEEPS {
        let swept = async {
            let mut stream = engine.attach_exec(container, &argv, user).await?;
            // Read to its end, so that the engine knows the exit code.
            let mut bytes = [0; 1024];
            while stream.output.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
            engine.exec_ended(&stream.exec).await
        };
        match timeout(SWEEPING, swept).await {
            Ok(Ok(0)) => return true,
            Ok(Ok(code)) => tracing::warn!(%container, code, "a sweep did not finish"),
            Ok(Err(error)) => tracing::warn!(%container, error = %chain(&error), "a sweep could not be made"),
            Err(_) => tracing::warn!(%container, "a sweep takes too long"),
        }
    }
    false
}
