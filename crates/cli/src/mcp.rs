//! `coffer mcp`: a run's tools for a client of the Model Context Protocol that starts this program as its server.
//!
//! It uses the run's token, and has only the rights of that token even if an operator starts it, because an agent must not get an
//! operator's rights. Standard output is reserved for the protocol. Messages before and after the session go to standard error.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use mcp::{Approver, Bridge, RunClient, RunToken};

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Environment variable from which older releases read the token.
const EARLIER_NAME: &str = "COFFERDAM_RUN_TOKEN";
/// Length of the longest file with a token, in bytes.
const LONGEST_FILE: u64 = 4096;
const HOW: &str = "create a run with `coffer run create --issue-token`, which prints its token once; then set COFFERDAM_TOKEN, or name a file with the token, which only you can read, with --token-file";

/// Serve a run's tools to an MCP client, on standard input and output.
///
/// Uses the token of one run, from --token-file, --token or COFFERDAM_TOKEN, and can do nothing that the
/// token does not allow.
/// In a client's configuration: command `coffer`, arguments `mcp`, and the token in its environment.
#[derive(Args, Debug)]
#[command(before_help = "Example: COFFERDAM_TOKEN=cft_… coffer mcp\n         \
    coffer mcp --run 9c01d4e2 --token-file ~/.config/cofferdam/run.token --dialect fs")]
pub(crate) struct Mcp {
    /// Fail unless the token belongs to this run; a beginning or end of its id is enough.
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Read the token from this file, which other users must not be able to read or change.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The dialect in which tools are offered: code, native, fs, exec, gateway, forge or editor.
    #[arg(long, value_name = "DIALECT", default_value = "code")]
    dialect: String,
    /// Let the person at the client decide on approvals, as the user who runs this command, over a connection
    /// without the token.
    ///
    /// That user needs the approver's role, and cannot approve calls of their own runs unless the daemon's
    /// configuration allows self-approval. Only for clients that show each question to a person: a client
    /// that answers by itself approves by itself.
    #[arg(long)]
    decide_approvals: bool,
    /// Refuse calls (AWAITING_APPROVAL) that would wait for a reviewer of another call of the run.
    #[arg(long)]
    refuse_awaiting_approval: bool,
}

impl Mcp {
    pub(crate) async fn run(self, context: &Context, token: Option<&str>) -> Ended {
        let token = self.token(token)?;
        let channel = context.daemon.channel().await?;
        let client = RunClient::new(mcp::api(channel), &token, &self.dialect)
            .refusing_awaiting_approval(self.refuse_awaiting_approval);
        // Reports an invalid token or dialect here, because an MCP client could not correct it.
        client.list_tools().await?;
        let mut bridge = Bridge::new(client);
        if self.decide_approvals {
            bridge = bridge.with_approver(Approver::new(mcp::api(context.daemon.channel().await?)));
        }
        match mcp::serve_stdio(bridge).await {
            Ok(()) => Ok(Exit::Ok),
            Err(error) => Err(Failure::failed(format!("the client did not speak MCP: {error}"))),
        }
    }

    fn token(&self, global: Option<&str>) -> Result<RunToken, Failure> {
        let text = match (&self.token_file, global) {
            (Some(file), _) => read(file)?,
            (None, Some(token)) => token.to_owned(),
            (None, None) if std::env::var_os(EARLIER_NAME).is_some() => {
                return Err(Failure::usage(format!(
                    "{EARLIER_NAME} is not read: set COFFERDAM_TOKEN instead"
                )));
            }
            (None, None) => {
                return Err(Failure::usage("an MCP client needs the token of a run").with_hint(HOW));
            }
        };
        let token = RunToken::parse(&text).map_err(|bad| Failure::usage(bad.to_string()).with_hint(HOW))?;
        match &self.run {
            Some(run) if run.is_empty() || !(token.run().starts_with(run) || token.run().ends_with(run)) => {
                Err(Failure::usage(format!("the token is not for run {run}, but for {}", token.run())))
            }
            _ => Ok(token),
        }
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let unreadable = |error: io::Error| Failure::usage(format!("{shown} cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    if mode & 0o077 != 0 {
        let failure = Failure::usage(format!("others can read or change {shown}, which holds a token"));
        return Err(failure.with_hint(format!("chmod 600 {shown}")));
    }
    let mut text = String::new();
    file.take(LONGEST_FILE).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::Mcp;
    use crate::exit::Exit;

    fn command(run: Option<&str>) -> Mcp {
        Mcp {
            run: run.map(str::to_owned),
            token_file: None,
            dialect: String::new(),
            decide_approvals: false,
            refuse_awaiting_approval: false,
        }
    }

    #[test]
    fn the_token_must_be_the_named_run_s() {
        let given = Some("cft_01a2003d-e913_secret");
        assert_eq!(command(None).token(given).unwrap().run(), "01a2003d-e913");
        assert!(command(Some("01a2")).token(given).is_ok() && command(Some("e913")).token(given).is_ok());
        for other in ["", "ffff", "2003"] {
            let failure = command(Some(other)).token(given).unwrap_err();
            assert!(failure.exit() == Exit::Usage && !failure.to_string().contains("secret"), "{failure}");
        }
    }

    #[test]
    fn a_missing_token_is_reported_with_the_way_to_get_one() {
        let failure = command(None).token(None).unwrap_err();
        assert!(failure.to_string().contains("--issue-token"), "{failure}");
        assert!(command(None).token(Some("nonsense")).unwrap_err().to_string().contains("--issue-token"));
    }

    #[test]
    fn a_token_s_file_is_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "cft_run_secret\n").unwrap();
        let with = Mcp { token_file: Some(file.clone()), ..command(None) };
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        assert!(with.token(None).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(with.token(None).unwrap().run(), "run");
        assert!(Mcp { token_file: Some("/no/such".into()), ..command(None) }.token(None).is_err());
    }
}
