//! A program in the container that is spoken with over its standard streams, for as long as it runs: an MCP server.
//!
//! The one thing that is begun here without a permit of its own. Which program it is says the operator's policy and nobody
//! else; what leads here is the permit of a call to it, or the question of an agent that may call it which tools it has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jail::SandboxPath;
use ops::{Bounds, Exec};
use tokio_util::sync::CancellationToken;
use worker::client::{LaneError, OutputSink, Terminal, TerminalSize, TerminalSpec};

use super::Lanes;

/// Longest that a server runs; the next call starts another.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Most bytes that it may write in that time.
const MOST: u64 = 64 << 30;

impl Lanes {
    /// Starts the program, in the workspace and in a leaf cgroup called after `name`. Dropping what is returned, or
    /// `cancel`, ends it and all that it started.
    pub(crate) fn spoken_with(
        &self,
        name: &str,
        command: &[String],
        env: &BTreeMap<String, String>,
        output: &Arc<dyn OutputSink>,
        cancel: &CancellationToken,
    ) -> Result<Terminal, LaneError> {
        let (Some((program, args)), Ok(cwd), Some(size)) =
            (command.split_first(), SandboxPath::parse("."), TerminalSize::new(1, 1))
        else {
            return Err(LaneError::NotPlaced("it has no program".to_owned()));
        };
        let exec = Exec {
            command: program.clone(),
            args: args.to_vec(),
            cwd,
            env: env.clone(),
            stdin: Vec::new(),
            // Has no meaning for what is spoken with, and must be one.
            timeout: Duration::from_secs(120),
            only_reads: false,
        };
        let bounds = Bounds { max_spool_bytes: MOST, max_output_bytes: 0, ..Bounds::default() };
        let spec = TerminalSpec {
            exec: &exec,
            login_shell: false,
            bounds: &bounds,
            size,
            pipes: true,
            deadline: LONGEST,
            output,
        };
        let placement = self.agent.leaf(name).map(|leaf| Arc::new(leaf) as _);
        self.agent.client().terminal(spec, placement, cancel)
    }
}
