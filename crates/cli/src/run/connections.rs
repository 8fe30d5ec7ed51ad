//! `coffer run connections` and `coffer run narrow`.

use clap::Args;
use wire::v1::connection::Phase;
use wire::v1::watch_connections_response::Update;
use wire::v1::{
    Connection, ConnectionUsage, NarrowEgressRequest, RefusedHost, WatchConnectionsRequest,
    WatchConnectionsResponse,
};

use super::RunRef;
use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::{Ended, Failure};
use crate::output::{Output, Style};
use crate::{follow, quantity, time};

/// Show the connections of a run to hosts outside, and the hosts that were refused.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run connections 3f2a9c01 --follow")]
pub(crate) struct Connections {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
    /// Show each change until the run ends.
    #[arg(long, short)]
    follow: bool,
}

/// Narrow the rules for a run's connections, for the rest of the run.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run narrow 3f2a9c01 '{}'")]
pub(crate) struct Narrow {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// One JSON object in the form of a profile's `egress`, or `@FILE` with one.
    #[arg(value_name = "RULES", value_parser = rules)]
    rules: String,
}

/// Reads rules from the command line, or from the file that it names.
pub(crate) fn rules(text: &str) -> Result<String, std::io::Error> {
    match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path),
        None => Ok(text.to_owned()),
    }
}

impl Connections {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = WatchConnectionsRequest { run_id, follow: self.follow };
        let updates = client.egress().watch_connections(request).await?.into_inner();
        follow::print(context.ui, updates, Some, render, |_| false).await?;
        Ok(Exit::Ok)
    }
}

impl Narrow {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = NarrowEgressRequest { run_id, egress_json: self.rules };
        let response = client.egress().narrow_egress(quick(request)).await?.into_inner();
        let Some(egress) = &response.egress else { return Err(Failure::usage("the daemon sent no rules")) };
        let words = egress.words.clone();
        context.ui.answer(response, |_, page| {
            page.word(&words).end_line();
        })
    }
}

fn render(response: &WatchConnectionsResponse, page: &mut Output) {
    match &response.update {
        Some(Update::Connection(connection)) => render_connection(connection, page),
        Some(Update::Refused(refused)) => render_refused(refused, page),
        None => {}
    }
}

fn render_connection(connection: &Connection, page: &mut Output) {
    let (style, phase) = match connection.phase() {
        Phase::Open => (Style::Green, "open"),
        Phase::Waiting => (Style::Yellow, "waits for a reviewer"),
        Phase::Ended if connection.end == "closed" => (Style::Dim, "closed"),
        Phase::Ended | Phase::Unspecified => (Style::Red, "ended"),
    };
    page.word(&time::moment(connection.opened_at.as_ref())).own(" ").styled(style, phase).own(" ");
    page.word(&format!("{}:{}", connection.host, connection.port));
    if !connection.scheme.is_empty() {
        page.own(" ").word(&connection.scheme);
    }
    if !connection.companion.is_empty() {
        page.own(" from ").word(&connection.companion);
    }
    if connection.phase() == Phase::Ended {
        let moved = format!(
            "{} out, {} in",
            quantity::bytes(connection.bytes_out),
            quantity::bytes(connection.bytes_in)
        );
        page.own(" ").word(&moved);
        if let Some(took) = connection.duration.and_then(|took| std::time::Duration::try_from(took).ok()) {
            page.own(", ").word(&time::brief(took));
        }
        if connection.end != "closed" {
            page.own(": ").word(&connection.end);
        }
    }
    if connection.opened {
        page.own(", TLS opened");
    }
    if !connection.upstream.is_empty() {
        page.own(", to ").word(&connection.upstream);
    }
    if !connection.injected.is_empty() {
        page.own(", with ").word(&connection.injected.join(", "));
    }
    for usage in &connection.usage {
        page.own(", ").word(&tokens(usage));
    }
    for request in &connection.requests {
        page.own(", ").word(&format!("{} {} {}", request.method, request.path, request.status));
    }
    page.own(" (").word(&connection.rule).own(")").end_line();
}

/// Returns the tokens of a model in words.
fn tokens(usage: &ConnectionUsage) -> String {
    let input = [usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens];
    let input = input.into_iter().fold(0_u64, u64::saturating_add);
    format!("{}: {input} tokens in, {} out", usage.model, usage.output_tokens)
}

fn render_refused(refused: &RefusedHost, page: &mut Output) {
    let host = match refused.port {
        0 => refused.host.clone(),
        port => format!("{}:{port}", refused.host),
    };
    page.word(&time::moment(refused.last_at.as_ref())).own(" ").styled(Style::Red, "refused").own(" ");
    page.word(&host);
    if !refused.companion.is_empty() {
        page.own(" from ").word(&refused.companion);
    }
    if refused.count > 1 {
        page.own(", ").word(&format!("{} times", refused.count));
    }
    page.own(": ");
    page.word(&refused.reason).own(" (").word(&refused.rule).own(")").end_line();
}

#[cfg(test)]
mod tests {
    use wire::v1::HttpRequest;

    use super::*;
    use crate::output::Look;

    #[test]
    fn a_line_a_connection_and_a_refused_host() {
        let connection = Connection {
            host: "files.example.org".into(),
            port: 8080,
            scheme: "HTTP".into(),
            rule: "egress rule 1: files.example.org".into(),
            phase: Phase::Ended.into(),
            end: "closed".into(),
            bytes_out: 100,
            bytes_in: 2048,
            requests: vec![HttpRequest { method: "GET".into(), path: "/a".into(), status: 200, number: 1 }],
            opened_at: Some(wire::Timestamp::default()),
            duration: Some(wire::duration(std::time::Duration::from_secs(2))),
            companion: "db".into(),
            ..Default::default()
        };
        let refused = RefusedHost {
            host: "other.example.org".into(),
            rule: "egress: unknown name".into(),
            reason: "no rule has this name".into(),
            count: 3,
            companion: "db".into(),
            last_at: Some(wire::Timestamp::default()),
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        for update in [Update::Connection(connection), Update::Refused(refused)] {
            render(&WatchConnectionsResponse { update: Some(update) }, &mut page);
        }
        assert_eq!(
            page.as_str(),
            "1970-01-01T00:00:00.000Z closed files.example.org:8080 HTTP from db 100 B out, 2.0 KiB in, 2.0 s, GET /a 200 (egress rule 1: files.example.org)\n\
             1970-01-01T00:00:00.000Z refused other.example.org from db, 3 times: no rule has this name (egress: unknown name)\n"
        );
    }

    #[test]
    fn a_line_says_what_a_rule_did_for_a_connection() {
        let usage = ConnectionUsage {
            model: "large-3".into(),
            requests: 2,
            input_tokens: 100,
            cached_input_tokens: 20,
            output_tokens: 7,
            ..Default::default()
        };
        let connection = Connection {
            host: "api.example.org".into(),
            port: 443,
            scheme: "HTTPS".into(),
            rule: "egress rule 1: api.example.org".into(),
            phase: Phase::Open.into(),
            opened_at: Some(wire::Timestamp::default()),
            opened: true,
            injected: vec!["model".into()],
            upstream: "https://real.example.org".into(),
            usage: vec![usage],
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render_connection(&connection, &mut page);
        assert_eq!(
            page.as_str(),
            "1970-01-01T00:00:00.000Z open api.example.org:443 HTTPS, TLS opened, to https://real.example.org, with model, \
             large-3: 120 tokens in, 7 out (egress rule 1: api.example.org)\n"
        );
    }
}
