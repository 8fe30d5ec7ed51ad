//! Others that make sandboxes: each is a script of `peers/` in an environment that `tests/bench.sh` has made, and lives as
//! long as it is asked to. One that cannot is left out, with its reason.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::lives::{LeftOut, Life};

/// Where `tests/bench.sh` has installed them; empty or missing: there is none.
const PLACE: &str = "COFFERDAM_BENCH_PEERS";
/// For a life of one of them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Name, directory beneath [`PLACE`], script.
const PEERS: [(&str, &str, &str); 2] =
    [("llm-sandbox", "llm_sandbox", "peer_llm_sandbox.py"), ("SWE-ReX", "swerex", "peer_swerex.py")];

/// One of them, which waits for requests.
pub(crate) struct Peer {
    _child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// Those that could be started, and why others could not.
pub(crate) fn start(image: &str, workspace: &Path) -> (Vec<(&'static str, Peer)>, LeftOut) {
    let (mut started, mut left_out) = (Vec::new(), Vec::new());
    for (name, place, script) in PEERS {
        match Peer::start(place, script, image, workspace) {
            Ok(peer) => started.push((name, peer)),
            Err(why) => left_out.push((name, why)),
        }
    }
    (started, left_out)
}

impl Peer {
    fn start(place: &str, script: &str, image: &str, workspace: &Path) -> Result<Self, String> {
        let peers = std::env::var_os(PLACE)
            .filter(|place| !place.is_empty())
            .ok_or("tests/bench.sh has not installed it")?;
        let place = Path::new(&peers).join(place);
        let python = place.join("bin/python");
        if !python.exists() {
            return Err("it could not be installed; target/bench.log says why".to_owned());
        }
        let mut child = Command::new(python)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/peers").join(script))
            .args([image, &workspace.display().to_string()])
            .env("COFFERDAM_PEER_SERVER", place.join("server"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| error.to_string())?;
        let (requests, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Ok(Self { _child: child, requests, answers: BufReader::new(answers).lines() })
    }

    /// One life, or why it cannot live.
    pub(crate) async fn live(&mut self) -> Result<Life, String> {
        self.requests.write_all(b"life\n").await.map_err(|error| error.to_string())?;
        let line = tokio::time::timeout(PATIENCE, self.answers.next_line()).await;
        let line = line.map_err(|_| format!("it took more than {} s", PATIENCE.as_secs()))?;
        let line = line.map_err(|error| error.to_string())?.ok_or("it ended")?;
        let answer: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
        if let Some(error) = answer["error"].as_str() {
            return Err(error.to_owned());
        }
        let step = |name: &str| {
            answer[name].as_u64().map(Duration::from_nanos).ok_or(format!("it tells no `{name}`"))
        };
        let destroyed = step("destroy")?;
        Ok(Life {
            ready: step("create")?,
            ran: step("true")?,
            read: step("read")?,
            stop: destroyed,
            gone: destroyed,
        })
    }
}
