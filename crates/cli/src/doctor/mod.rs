//! `coffer doctor`: what this host can and cannot do, and what follows.
//!
//! [`host`] and [`engine`] look at the host and give [`Finding`]s; nothing is changed and nothing is started. Only
//! findings that are [`Verdict::Missing`] keep a daemon from running here.

mod alerts;
mod engine;
mod finding;
mod host;
mod image;
mod kernel;

use std::path::PathBuf;

use clap::Args;
use wire::v1::ListRunsRequest;

use self::finding::{Finding, Verdict};
use crate::client::{Client, Context, quick};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::page::{Ink, Page};
use crate::quantity::count;

/// Say what this host can and cannot do, and what follows.
///
/// Ends with 1 when a daemon could not run here.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer doctor")]
pub(crate) struct Doctor {
    /// Socket of the container engine. Default: DOCKER_HOST, or Docker's own.
    #[arg(long, value_name = "PATH")]
    engine: Option<PathBuf>,
}

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let findings = self.examine(context).await;
        if context.ui.is_json() {
            context.ui.json(&findings)?;
        } else {
            let mut page = context.ui.page();
            render(&findings, &mut page);
            context.ui.show(&page)?;
        }
        let fit = findings.iter().all(|finding| finding.verdict != Verdict::Missing);
        Ok(if fit { Exit::Ok } else { Exit::Failed })
    }

    async fn examine(self, context: &Context) -> Vec<Finding> {
        let mut findings = daemon(context).await;
        findings.extend(engine::examine(self.engine).await);
        findings.extend(host::examine());
        findings
    }
}

async fn daemon(context: &Context) -> Vec<Finding> {
    let asked = async {
        let request = ListRunsRequest { page_size: 1, ..Default::default() };
        let client = Client::new(context.endpoint.connect().await?);
        client.runs().list_runs(quick(request)).await?;
        Ok::<_, Failure>(client)
    };
    match asked.await {
        Ok(client) => {
            let mut findings = vec![Finding::good("daemon", format!("answers on {}", context.endpoint))];
            findings.extend(image::examine(&client).await);
            findings.extend(alerts::examine(&client).await);
            findings
        }
        Err(failure) => {
            let text = failure.to_string();
            let (found, hint) = text.split_once("\nhint: ").unwrap_or((&text, ""));
            vec![Finding::limited("daemon", found, hint)]
        }
    }
}

fn render(findings: &[Finding], page: &mut Page) {
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or_default();
    for finding in findings {
        let (ink, mark) = match finding.verdict {
            Verdict::Good => (Ink::Green, "ok     "),
            Verdict::Limited => (Ink::Yellow, "limited"),
            Verdict::Missing => (Ink::Red, "MISSING"),
        };
        page.ink(ink, mark).own("  ").column(finding.topic, width).own(" ").word(&finding.found).end_line();
        if let Some(follows) = &finding.follows {
            page.own("         ").column("", width).own(" → ").word(follows).end_line();
        }
    }
    let number = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count() as u64;
    page.own("\n");
    match (number(Verdict::Missing), number(Verdict::Limited)) {
        (0, 0) => page.own("A daemon can run here, with everything that it knows how to use.\n"),
        (0, limited) => page
            .own("A daemon can run here, ")
            .word(&count(limited, "limitation", "limitations"))
            .own(" apart.\n"),
        (missing, _) => page
            .own("A daemon cannot run here: ")
            .word(&count(missing, "thing is", "things are"))
            .own(" missing.\n"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Look;

    fn text(findings: &[Finding]) -> String {
        let mut page = Page::new(Look::PIPE);
        render(findings, &mut page);
        page.as_str().into()
    }

    #[test]
    fn says_what_is_and_what_follows() {
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
             \nA daemon cannot run here: 1 thing is missing.\n"
        );
        assert!(text(&findings[..2]).ends_with("A daemon can run here, 1 limitation apart.\n"));
        assert!(text(&findings[..1]).contains("with everything"));
    }
}
