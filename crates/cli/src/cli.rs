//! The command tree: noun, then verb.

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use cofferdam_client::{Connect, Endpoint, NodeId, Token};
use fleet_view::{Fleet, Source, is_of_one_node};

use crate::client::Context;
use crate::endpoint::Files;
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::ui::{Format, Ui};
use crate::{
    approval, audit, backup, base, bundle, call, checkpoint, completions, console, cp, egress, limits,
    manual, mcp, passkey, permission, plan, policy, process, run, session, tls, token, transcript, trash,
    upgrade, workspace,
};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the tool failed, or a check found something wrong
  2  the command line or the request is malformed
  3  denied by permission (also of the daemon's socket), policy, rate limit or approval
  4  awaiting an approval
  5  the daemon cannot be reached
  6  `audit verify --key`: the log is intact, but no checkpoint is signed with the key
`call exec`, `call shell`, `session run`, `process wait` and `run shell` exit as their command does
and have codes of their own: see their help.";

const ENDPOINT: &str = "COFFERDAM_ENDPOINT";
const TLS: &str = "COFFERDAM_TLS";
const FLEET: &str = "COFFERDAM_FLEET";
const BAD_TOKEN: &str =
    "the token contains invalid characters: copy it as `coffer run create --issue-token` printed it";

/// Work with Cofferdam: runs, calls, approvals and the audit log.
#[derive(Debug, Parser)]
#[command(
    name = "coffer",
    version,
    before_help = "Example: RUN=$(coffer run create --profile review --bind .) && coffer call list $RUN",
    after_help = EXIT_CODES,
    max_term_width = 100,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Args, Debug)]
pub(crate) struct Globals {
    /// Where the daemon listens, such as https://cofferd.example.org:7443. Default: COFFERDAM_ENDPOINT, or
    /// unix:/run/cofferdam/cofferd.sock.
    #[arg(long, global = true, value_name = "ENDPOINT", help_heading = "Global options")]
    endpoint: Option<Endpoint>,
    /// An API token, or a run's token, which allows calls to that run's tools and nothing else. Prefer
    /// COFFERDAM_TOKEN, which `ps` does not show.
    #[arg(long, global = true, value_name = "TOKEN", help_heading = "Global options")]
    token: Option<String>,
    /// All nodes of a fleet, for lists and watches of runs, approvals and alerts, `audit tail`, `query` and `verify`,
    /// `image push`, `base push`, `node show` and `status`: a file with the list of nodes, as `coffer fleet` takes it, or
    /// dns:NAME[:PORT]. Without a value: COFFERDAM_FLEET. A node that does not answer is a warning.
    #[arg(long, global = true, value_name = "FILE|dns:NAME", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "endpoint", help_heading = "Global options")]
    fleet: Option<String>,
    /// One node of the fleet, by its number, for all commands.
    #[arg(
        long,
        global = true,
        value_name = "N",
        conflicts_with = "endpoint",
        help_heading = "Global options"
    )]
    node: Option<NodeId>,
    #[command(flatten)]
    tls: Files,
    /// How to print data: for people, as proto3 JSON or YAML for programs (streams: one object per line, or one YAML
    /// document per object), or the ids alone, one per line.
    #[arg(
        long,
        short,
        global = true,
        value_name = "FORMAT",
        default_value = "table",
        help_heading = "Global options"
    )]
    pub(crate) output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create, show and end runs.
    #[command(subcommand)]
    Run(run::Command),
    /// List, show and delete the directories that the daemon keeps after runs have ended.
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Make, push, verify and delete bases: trees of files that never change, on which many runs can begin.
    #[command(subcommand)]
    Base(base::Command),
    /// Copy what a run has changed at one moment, list the copies and delete them.
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Import, build, push, list and show the images that runs can use. For operators.
    #[command(subcommand)]
    Image(transfer_commands::ImageCommand),
    /// Call a tool in a run.
    #[command(subcommand)]
    Call(Box<call::Command>),
    Exec(Box<call::Exec>),
    Shell(run::Shell),
    /// Start and control processes that stay.
    #[command(subcommand)]
    Process(process::Command),
    /// Open shells that stay, and run commands in them.
    #[command(subcommand)]
    Session(session::Command),
    Cp(cp::Cp),
    /// Run the tool calls in a model's text, which are fenced blocks, turn by turn.
    #[command(subcommand)]
    Transcript(transcript::Command),
    /// Show files that were deleted in a run.
    #[command(subcommand)]
    Trash(trash::Command),
    /// List approvals and decide on them.
    #[command(subcommand)]
    Approval(approval::Command),
    /// List alerts and acknowledge them.
    #[command(subcommand)]
    Alert(alert_commands::Command),
    /// Read and verify the audit log.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Export a run's evidence and verify it anywhere.
    #[command(subcommand)]
    Bundle(bundle::Command),
    /// Check, show, explain, replay and reload the policy.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Prepare rules for connections out of runs.
    #[command(subcommand)]
    Egress(egress::Command),
    /// Grant and revoke permissions in addition to the policy.
    #[command(subcommand)]
    Permission(permission::Command),
    /// Make, list, show and revoke API tokens.
    #[command(subcommand)]
    Token(token::Command),
    /// List and remove the passkeys of reviewers.
    #[command(subcommand)]
    Passkey(passkey::Command),
    /// Make and renew certificates for the daemon and its clients.
    #[command(subcommand)]
    Tls(tls::Command),
    Console(console::Console),
    Limits(limits::Limits),
    Usage(usage_report::Usage),
    Top(top::Top),
    /// Back up store, keys and audit log, and restore them.
    #[command(subcommand)]
    Backup(backup::Command),
    Throttle(limits::Throttle),
    Mcp(mcp::Mcp),
    Plan(plan::Plan),
    Doctor(checkup::Doctor),
    Upgrade(upgrade::Upgrade),
    /// Show a node of a fleet, and take it out of service.
    #[command(subcommand)]
    Node(node_commands::Command),
    /// Write configurations of balancers that make one address of the nodes of a fleet.
    #[command(subcommand)]
    Fleet(fleet_commands::Command),
    Status(daemon_control::Status),
    Reload(daemon_control::Reload),
    LogLevel(daemon_control::LogLevel),
    #[command(flatten)]
    Tryout(tryout::Command),
    Completions(completions::Completions),
    Manual(manual::Manual),
}

/// Other names of verbs, in every noun.
const ALIASES: [(&str, &[&str]); 5] = [
    ("list", &["ls"]),
    ("show", &["inspect"]),
    ("delete", &["rm"]),
    ("revoke", &["delete", "rm"]),
    ("close", &["delete", "rm"]),
];

/// Adds the other names of verbs to a command and to all below it.
fn with_aliases(command: clap::Command) -> clap::Command {
    command.mut_subcommands(|verb| {
        let aliases = ALIASES.iter().find(|(name, _)| *name == verb.get_name());
        with_aliases(verb).visible_aliases(aliases.map_or(&[][..], |(_, aliases)| *aliases).iter().copied())
    })
}

impl Cli {
    /// Returns the whole command tree.
    pub(crate) fn tree() -> clap::Command {
        with_aliases(Self::command())
    }

    /// Reads the command line of this process, or prints why it is wrong and exits.
    pub(crate) fn read() -> Self {
        Self::from_arg_matches(&Self::tree().get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// Executes the command line.
    pub(crate) async fn run(self, ui: Ui) -> Ended {
        let Globals { endpoint, token, tls, fleet, node, .. } = self.globals;
        let token = token.or_else(|| variable("COFFERDAM_TOKEN"));
        let shown = token.as_deref().map(Token::new).transpose().map_err(|_| Failure::usage(BAD_TOKEN))?;
        let tls = tls.or(variable(TLS));
        let connect = |endpoint| {
            let agent = concat!("coffer/", env!("CARGO_PKG_VERSION"));
            Connect::to(endpoint).with_tls(tls.clone()).with_token(shown.clone()).with_agent(agent)
        };
        let daemon = match (source(fleet.as_deref(), node.is_some())?, node) {
            (None, _) => connect(endpoint.map_or_else(configured_endpoint, Ok)?),
            (Some(source), Some(node)) => Fleet::open(&source, ui, connect).await?.connect_to(node).await?,
            (Some(source), None) => {
                return self.command.over(&Fleet::open(&source, ui, connect).await?).await;
            }
        };
        let context = Context { ui, daemon, explains: false };
        let ended = match self.command {
            Command::Run(command) => command.run(&context).await,
            Command::Workspace(command) => command.run(&context).await,
            Command::Base(command) => command.run(&context).await,
            Command::Checkpoint(command) => command.run(&context).await,
            Command::Image(command) => command.run(&context).await,
            Command::Call(command) => command.run(&context).await,
            Command::Exec(exec) => exec.run(&context).await,
            Command::Shell(shell) => shell.run(&context).await,
            Command::Process(command) => command.run(&context).await,
            Command::Session(command) => command.run(&context).await,
            Command::Cp(cp) => cp.run(&context).await,
            Command::Transcript(command) => command.run(&context).await,
            Command::Trash(command) => command.run(&context).await,
            Command::Approval(command) => command.run(&context).await,
            Command::Alert(command) => command.run(&context).await,
            Command::Audit(command) => command.run(&context).await,
            Command::Bundle(command) => command.run(&context).await,
            Command::Policy(command) => command.run(&context).await,
            Command::Egress(command) => command.run(&context).await,
            Command::Permission(command) => command.run(&context).await,
            Command::Token(command) => command.run(&context).await,
            Command::Passkey(command) => command.run(&context).await,
            Command::Tls(command) => command.run(&context).await,
            Command::Console(console) => console.run(&context).await,
            Command::Limits(limits) => limits.run(&context).await,
            Command::Usage(usage) => usage.run(&context).await,
            Command::Top(top) => top.run(&context).await,
            Command::Backup(command) => command.run(&context).await,
            Command::Throttle(throttle) => throttle.run(&context).await,
            Command::Mcp(mcp) => mcp.run(&context, token.as_deref()).await,
            Command::Plan(plan) => plan.run(&context).await,
            Command::Node(command) => command.run(&context).await,
            Command::Fleet(command) => command.run(&context),
            Command::Status(status) => status.run(&context).await,
            Command::Reload(reload) => reload.run(&context).await,
            Command::LogLevel(level) => level.run(&context).await,
            Command::Doctor(doctor) => doctor.run(&context, token.as_deref()).await,
            Command::Upgrade(upgrade) => upgrade.run(),
            Command::Tryout(command) => command.run().await.map(|()| Exit::Ok).map_err(Failure::from),
            Command::Completions(completions) => completions.run(&mut Self::tree()),
            Command::Manual(manual) => manual.run(Self::tree()),
        };
        ended.map_err(|failure| failure.over(&context.daemon))
    }
}

impl Command {
    /// Executes the command over all nodes of a fleet.
    async fn over(self, fleet: &Fleet) -> Ended {
        match self {
            Self::Run(run::Command::List(list)) => list.over(fleet).await,
            Self::Run(run::Command::Watch(watch)) => watch.over(fleet).await,
            Self::Approval(approval::Command::List(list)) => list.over(fleet).await,
            Self::Approval(approval::Command::Watch(watch)) => watch.over(fleet).await,
            Self::Alert(command) => command.over(fleet).await,
            Self::Audit(audit::Command::Tail(tail)) => tail.over(fleet).await,
            Self::Audit(audit::Command::Query(query)) => query.over(fleet).await,
            Self::Audit(audit::Command::Verify(verify)) => verify.over(fleet).await,
            Self::Image(command) => command.over(fleet).await,
            Self::Base(base::Command::Push(push)) => push.over(fleet).await,
            Self::Node(node_commands::Command::Show(_)) => fleet_view::show(fleet).await,
            Self::Status(status) => fleet_view::status(fleet, status.profiles).await,
            _ => Err(is_of_one_node("this command is")),
        }
    }
}

/// Returns the fleet that the command line asks for. `has_node`: it names one node of it.
fn source(named: Option<&str>, has_node: bool) -> Result<Option<Source>, Failure> {
    let named = match named {
        None if !has_node => return Ok(None),
        None | Some("") => variable(FLEET),
        Some(named) => Some(named.to_owned()),
    };
    let named = named.ok_or_else(|| {
        Failure::usage(format!("which fleet? Write --fleet=FILE or --fleet=dns:NAME, or set {FLEET}"))
    })?;
    let Ok(source) = named.parse::<Source>();
    Ok(Some(source))
}

/// Returns an environment variable that is not empty.
///
/// Clap could read it, but would then list options that variables set in the usage line of every error.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn configured_endpoint() -> Result<Endpoint, Failure> {
    let Some(named) = variable(ENDPOINT) else { return Ok(Endpoint::default()) };
    named.parse().map_err(|wrong| Failure::usage(format!("{ENDPOINT} is `{named}`: {wrong}")))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    #[test]
    fn the_command_tree_is_sound() {
        Cli::tree().debug_assert();
    }

    /// One snapshot for the whole tree, so that a reviewer sees every change of the command line at a glance.
    ///
    /// The global options are printed once, with the first command. One whose text about them differs has its own.
    #[test]
    fn help() {
        let mut command = Cli::tree();
        command.build();
        let whole = short_help(&command);
        let begin = whole.find("\nGlobal options:\n").unwrap();
        let end = begin + 2 + whole[begin + 1..].find("\n\n").unwrap();
        let mut all = format!("===== coffer =====\n{whole}\n");
        for child in command.get_subcommands() {
            collect(child, &whole[begin..end], &mut all);
        }
        insta::assert_snapshot!("help", all);
    }

    /// Appends the help of a command and of those beneath it, without the text about the global options.
    fn collect(command: &clap::Command, globals: &str, all: &mut String) {
        let name = command.get_bin_name().unwrap();
        writeln!(all, "===== {name} =====\n{}", short_help(command).replace(globals, "")).unwrap();
        for child in command.get_subcommands() {
            collect(child, globals, all);
        }
    }

    fn short_help(command: &clap::Command) -> String {
        command.clone().term_width(100).render_help().to_string()
    }

    /// Splits the example of a help text into the command lines of `coffer` in it, as a shell would.
    fn command_lines(example: &str) -> Vec<Vec<String>> {
        let (mut found, mut words, mut word, mut quote) = (Vec::new(), Vec::new(), String::new(), None);
        let mut rest = example.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '$' if quote != Some('\'') && rest.next_if_eq(&'(').is_some() => {
                    let inner: String = rest.by_ref().take_while(|c| *c != ')').collect();
                    found.extend(command_lines(&inner));
                    word.push_str(if inner.starts_with("cat ") { VKEY } else { "3f2a9c01" });
                }
                _ if quote == Some(c) => quote = None,
                _ if quote.is_some() => word.push(c),
                '\'' | '"' => quote = Some(c),
                '|' | '&' | '\n' => {
                    words.push(std::mem::take(&mut word));
                    found.push(std::mem::take(&mut words));
                }
                '<' | '>' => words.push(c.into()),
                ' ' => words.push(std::mem::take(&mut word)),
                _ => word.push(c),
            }
        }
        assert_eq!(quote, None, "{example}");
        words.push(word);
        found.push(words);
        for words in &mut found {
            words.retain(|word| !word.is_empty());
            words.truncate(words.iter().position(|word| word == "<" || word == ">").unwrap_or(words.len()));
            let set = words.iter().take_while(|word| word.contains('=')).count();
            words.drain(..set);
        }
        found.retain(|words| words.first().is_some_and(|word| word == "coffer"));
        found
    }

    /// A key of an audit log, for examples that read one from a file.
    const VKEY: &str = "cofferdam-audit/000102030405060708090a0b0c0d0e0f+0d9dbfc0+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";

    #[test]
    fn every_example_is_a_command_line() {
        fn check(command: &clap::Command, wrong: &mut Vec<String>) {
            let help = command.get_before_help().map(ToString::to_string).unwrap_or_default();
            let lines = command_lines(help.trim_start_matches("Example: "));
            assert!(!lines.is_empty() || help.is_empty(), "{help}");
            wrong.extend(lines.iter().filter_map(|line| {
                let parsed = Cli::tree().try_get_matches_from(line);
                parsed.err().map(|error| format!("{}: {error}", line.join(" ")))
            }));
            command.get_subcommands().for_each(|child| check(child, wrong));
        }
        let mut wrong = Vec::new();
        check(&Cli::tree(), &mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn a_fleet_is_named_with_an_equals_sign_or_by_the_variable() {
        let globals = |line: &[&str]| {
            Cli::from_arg_matches(&Cli::tree().try_get_matches_from(line).unwrap()).unwrap().globals
        };
        let fleet = |line: &[&str]| globals(line).fleet;
        assert_eq!(fleet(&["coffer", "run", "list"]), None);
        assert_eq!(fleet(&["coffer", "--fleet", "run", "list"]).as_deref(), Some(""));
        assert_eq!(fleet(&["coffer", "audit", "verify", "--fleet"]).as_deref(), Some(""));
        assert_eq!(fleet(&["coffer", "--fleet=nodes.yaml", "status"]).as_deref(), Some("nodes.yaml"));
        assert_eq!(globals(&["coffer", "--node", "7", "status"]).node.map(NodeId::get), Some(7));
        for wrong in [
            &["coffer", "--fleet=a", "--endpoint", "unix:/a", "status"][..],
            &["coffer", "--node", "0", "status"],
            &["coffer", "--node", "7", "--endpoint", "unix:/a", "status"],
        ] {
            assert!(Cli::tree().try_get_matches_from(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(source(None, false).unwrap(), None);
        assert_eq!(source(Some("dns:a.org"), false).unwrap(), Some(Source::Dns("a.org".to_owned())));
    }

    #[test]
    fn the_short_forms_of_other_tools_are_known() {
        for line in [
            "coffer run ls",
            "coffer run inspect 3f2a9c01 -o yaml",
            "coffer run rm 3f2a9c01",
            "coffer run logs 3f2a9c01 --follow",
            "coffer token rm 3f2a9c01",
            "coffer token inspect 3f2a9c01 -o name",
            "coffer workspace inspect 3f2a9c01",
            "coffer permission inspect 3f2a9c01 -o json",
            "coffer image inspect tools:1",
            "coffer process inspect 3f2a9c01 web",
            "coffer session inspect 3f2a9c01 build",
            "coffer exec 3f2a9c01 -- wc -l README.md",
            "coffer shell 3f2a9c01",
        ] {
            let read = Cli::tree().try_get_matches_from(line.split(' '));
            let read = read.and_then(|matches| Cli::from_arg_matches(&matches));
            assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
        }
        let unknown = Cli::tree().try_get_matches_from(["coffer", "run", "lst"]).unwrap_err().to_string();
        assert!(unknown.contains("'list'"), "{unknown}");
    }

    #[test]
    fn every_verb_leads_with_an_example() {
        fn check(command: &clap::Command) {
            if command.get_subcommands().next().is_none() {
                let lead = command.get_before_help().map(ToString::to_string).unwrap_or_default();
                assert!(lead.starts_with("Example: "), "{}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::tree());
    }
}
