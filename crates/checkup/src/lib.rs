#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod alerts;
mod disk;
mod fix;
mod image;
mod spool;

use std::path::{Path, PathBuf};

use clap::Args;
use cofferdam_client::Connect;
use command_context::client::{Client, Context, quick};
use doctor::{Finding, Verdict};
use mcp::RunToken;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use presentation::output::{Output, Style};
use presentation::quantity::count;
use serde_json::Value;
use wire::v1::host_finding::Verdict as WireVerdict;
use wire::v1::query_events_request::Order;
use wire::v1::{
    EventFilter, ExamineHostRequest, HostFinding, ListRunsRequest, ListRunsResponse, QueryEventsRequest,
};

/// Number of runs that are examined.
const NEWEST: u32 = 1_000;
/// Number of records about the disk that are examined, including those of runs.
const NEWEST_OF_DISK: u32 = 200;
/// The busybox that a daemon uses by default.
const BUSYBOX: &str = "/bin/busybox";
/// Topic of the finding that names the examined host.
const HOST: &str = "host";

/// Examine the daemon's host and report what it can and cannot do.
///
/// If a daemon answers, it examines its own host. If there is none, `coffer` examines the host that it runs on.
/// Its hints show the commands that may help, as this host has them; `--fix` offers to run them.
/// Exits with 1 if a daemon cannot run there, and with 3 if this user may not ask the daemon: then nothing is
/// examined.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer doctor")]
pub struct Doctor {
    /// Socket of the container engine, used if no daemon answers. Default: DOCKER_HOST, or Docker's own.
    #[arg(long, value_name = "PATH")]
    engine: Option<PathBuf>,
    /// Offer the commands that may set this host right, one by one. Each runs only after a yes at the terminal;
    /// without a terminal they are printed.
    #[arg(long)]
    fix: bool,
}

/// Result of an examination.
struct Examined {
    findings: Vec<Finding>,
    exit: Exit,
}

impl Doctor {
    pub async fn run(self, context: &Context, token: Option<&str>) -> Ended {
        if self.fix && context.daemon.endpoint().socket().is_none() {
            return Err(Failure::usage("--fix sets this host right, and the daemon may run on another one")
                .with_hint("run `coffer doctor --fix` on the daemon's host"));
        }
        let ui = context.ui;
        let examined = self.look(context, token).await;
        let terminal = fix::OwnTerminal::open(ui).filter(|_| self.fix);
        let prints_commands = self.fix && terminal.is_none();
        ui.answer(&examined.findings, |findings, page| {
            examined.render(page);
            if prints_commands {
                fix::render(findings, page);
            }
        })?;
        let Some(mut terminal) = terminal else { return Ok(examined.exit) };
        let again = async || self.look(context, token).await;
        let last = fix::offer(examined, |examined| &examined.findings, &mut terminal, again).await?;
        Ok(last.exit)
    }

    async fn look(&self, context: &Context, token: Option<&str>) -> Examined {
        let asked = ask(&daemon(context, token)).await;
        if let Err(failure) = &asked
            && failure.exit() == Exit::Denied
        {
            let group = context.daemon.endpoint().socket().and_then(doctor::join_group);
            let findings = vec![limited("daemon", failure).with_remedy(group)];
            return Examined { findings, exit: Exit::Denied };
        }
        let is_told = asked.is_ok();
        let mut findings = self.examine(context, asked).await;
        if self.fix && is_told {
            fix::with_local_remedies(&mut findings, self.local().await);
        }
        let fit = findings.iter().all(|finding| finding.verdict != Verdict::Missing);
        Examined { findings, exit: if fit { Exit::Ok } else { Exit::Failed } }
    }

    /// Examines the host where this program runs.
    async fn local(&self) -> Vec<Finding> {
        let mut findings = doctor::examine(self.engine.clone()).await;
        findings.push(doctor::default_image(Path::new(BUSYBOX)));
        findings
    }

    async fn examine(
        &self,
        context: &Context,
        asked: Result<(Client, ListRunsResponse), Failure>,
    ) -> Vec<Finding> {
        match asked {
            Ok((client, listed)) => {
                let mut findings =
                    vec![Finding::good("daemon", format!("answers on {}", context.daemon.endpoint()))];
                findings.extend(image::examine(&records(&client, &["daemon_started"], 1).await));
                findings.extend(spool::finding(
                    &records(&client, &["disk_space", "daemon_started"], NEWEST_OF_DISK).await,
                ));
                findings.extend(disk::examine(&listed));
                findings.extend(alerts::examine(&client).await);
                findings.extend(told(&client).await);
                findings
            }
            // A daemon that answers with an error reports nothing about its host, which may be another one.
            Err(failure) if failure.exit() != Exit::Unreachable => vec![limited("daemon", &failure)],
            Err(failure) => {
                let mut findings = vec![
                    limited("daemon", &failure),
                    Finding::good(HOST, "this host, because no daemon answers"),
                ];
                findings.extend(self.local().await);
                findings
            }
        }
    }
}

impl Examined {
    fn render(&self, page: &mut Output) {
        if self.exit == Exit::Denied {
            render_not_permitted(&self.findings, page);
        } else {
            render(&self.findings, page);
        }
    }
}

/// Returns the daemon to ask, without the token of a run, which opens nothing that is examined.
///
/// The user's own uid or certificate may open it.
fn daemon(context: &Context, token: Option<&str>) -> Connect {
    let daemon = context.daemon.clone();
    if token.is_some_and(|token| RunToken::parse(token).is_ok()) { daemon.with_token(None) } else { daemon }
}

async fn ask(daemon: &Connect) -> Result<(Client, ListRunsResponse), Failure> {
    let request = ListRunsRequest { page_size: NEWEST, ..Default::default() };
    let client = daemon.connect().await?;
    let listed = client.runs().list_runs(quick(request)).await?.into_inner();
    Ok((client, listed))
}

/// Returns the newest records of these kinds, newest first, or none if the user may not see them.
async fn records(client: &Client, kinds: &[&str], most: u32) -> Vec<Value> {
    let kinds = kinds.iter().copied().map(str::to_owned).collect();
    let request = QueryEventsRequest {
        filter: Some(EventFilter { kinds, ..Default::default() }),
        order: Order::NewestFirst.into(),
        page_size: most,
        ..Default::default()
    };
    let Ok(answer) = client.audit().query_events(quick(request)).await else { return Vec::new() };
    let events = answer.into_inner().events;
    events.iter().filter_map(|event| serde_json::from_str(&event.record_json).ok()).collect()
}

/// Returns the daemon's findings about its host.
async fn told(client: &Client) -> Vec<Finding> {
    match client.host().examine_host(quick(ExamineHostRequest {})).await {
        Ok(answer) => {
            let findings = answer.into_inner().findings.into_iter().map(finding);
            std::iter::once(Finding::good(HOST, "the daemon's, as the daemon reports it"))
                .chain(findings)
                .collect()
        }
        // Does not examine this host instead, because the daemon's host may be another one.
        Err(status) => vec![limited(HOST, &status.into())],
    }
}

fn finding(told: HostFinding) -> Finding {
    let verdict = match told.verdict() {
        WireVerdict::Good => Verdict::Good,
        WireVerdict::Limited | WireVerdict::Unspecified => Verdict::Limited,
        WireVerdict::Missing => Verdict::Missing,
    };
    let follows = Some(told.follows).filter(|follows| !follows.is_empty());
    Finding { topic: told.topic.into(), verdict, found: told.found, follows, remedy: None }
}

fn limited(topic: &'static str, failure: &Failure) -> Finding {
    let text = failure.to_string();
    let (found, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
    Finding::limited(topic, found, hint)
}

/// Renders the findings for a user who may not ask the daemon.
fn render_not_permitted(findings: &[Finding], page: &mut Output) {
    render_each(findings, page);
    page.own("\nNothing was examined: you may not use the daemon's socket. The daemon may be running.\n");
}

fn render_each(findings: &[Finding], page: &mut Output) {
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or_default();
    for finding in findings {
        let (style, mark) = match finding.verdict {
            Verdict::Good => (Style::Green, "ok     "),
            Verdict::Limited => (Style::Yellow, "limited"),
            Verdict::Missing => (Style::Red, "MISSING"),
        };
        page.styled(style, mark)
            .own("  ")
            .column(&finding.topic, width)
            .own(" ")
            .word(&finding.found)
            .end_line();
        if let Some(follows) = &finding.follows {
            page.own("         ").column("", width).own(" → ").word(follows).end_line();
        }
    }
}

fn render(findings: &[Finding], page: &mut Output) {
    render_each(findings, page);
    let number = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count() as u64;
    page.own("\n");
    match (number(Verdict::Missing), number(Verdict::Limited)) {
        (0, 0) => page.own("Nothing is missing: the daemon can use every feature.\n"),
        (0, limited) => page
            .own("Nothing is missing, with ")
            .word(&count(limited, "limitation", "limitations"))
            .own(".\n"),
        (missing, _) => page
            .word(&count(missing, "thing is", "things are"))
            .own(" missing: the daemon cannot run on this host.\n"),
    };
}

#[cfg(test)]
mod tests {
    use cofferdam_client::{Endpoint, Token};
    use presentation::output::Look;
    use presentation::ui::{Format, Ui};

    use super::*;

    fn text(findings: &[Finding]) -> String {
        let mut page = Output::new(Look::PIPE);
        render(findings, &mut page);
        page.as_str().into()
    }

    #[test]
    fn only_the_token_of_a_run_is_left_out() {
        for (token, sent) in
            [(Some("cfa_an-api-token"), true), (Some("cft_01a2003d_secret"), false), (None, false)]
        {
            let shown = token.map(|token| Token::new(token).unwrap());
            let daemon = Connect::to(Endpoint::default()).with_token(shown);
            let context = Context { ui: Ui::new(Format::Table), daemon, explains: false };
            assert_eq!(super::daemon(&context, token).is_by_user(), !sent, "{token:?}");
        }
    }

    #[test]
    fn each_finding_shows_the_fact_and_its_consequence() {
        let findings = [
            Finding::good("engine", "Docker 20.10\x1b[2J"),
            Finding::limited("Landlock", "not in this kernel", "one layer less"),
            Finding::missing("openat2", "not in this kernel", "a kernel of 5.6 or later is needed"),
        ];
        assert_eq!(
            text(&findings),
            "ok       engine    Docker 20.10␛[2J\n\
             limited  Landlock  not in this kernel\n\
             \u{20}                  → one layer less\n\
             MISSING  openat2   not in this kernel\n\
             \u{20}                  → a kernel of 5.6 or later is needed\n\
             \n1 thing is missing: the daemon cannot run on this host.\n"
        );
        assert!(text(&findings[..2]).ends_with("\nNothing is missing, with 1 limitation.\n"));
        assert!(text(&findings[..1]).ends_with("can use every feature.\n"));
    }
}
