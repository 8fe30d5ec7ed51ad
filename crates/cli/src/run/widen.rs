//! `coffer run widen`.

use std::str::FromStr;

use clap::Args;
use egress_rules::{HostPattern, Rule, Scheme};
use serde_json::json;
use wire::v1::WidenEgressRequest;

use super::RunRef;
use crate::client::{Context, quick};
use crate::failure::Ended;

/// Allow more connections of a run, for the rest of the run. Only operators may.
///
/// A host that a rule of the profile denies stays closed, and so does one that rules which narrowed the run leave out.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer run widen 3f2a9c01 --rule files.example.org:443 --rule db.example.org:5432/tcp"
)]
pub(crate) struct Widen {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// A host and port to allow, and the scheme: `https` (default), `http` or `tcp`. Or one JSON object in the form of a rule.
    #[arg(long = "rule", value_name = "HOST:PORT[/SCHEME]", required = true)]
    rules: Vec<Wanted>,
}

/// A rule from the command line.
#[derive(Debug, Clone)]
struct Wanted(Rule);

impl Widen {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let rules: Vec<Rule> = self.rules.into_iter().map(|Wanted(rule)| rule).collect();
        let request = WidenEgressRequest { run_id, egress_json: json!({ "rules": rules }).to_string() };
        let response = client.egress().widen_egress(quick(request)).await?.into_inner();
        context.ui.answer(response, |response, page| {
            page.word(&response.egress.unwrap_or_default().words).end_line();
        })
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('{') {
            return serde_json::from_str(text).map(Self).map_err(|error| error.to_string());
        }
        let (place, scheme) = match text.rsplit_once('/') {
            None | Some((_, "https")) => (text.strip_suffix("/https").unwrap_or(text), Scheme::Https),
            Some((place, "http")) => (place, Scheme::Http),
            Some((place, "tcp")) => (place, Scheme::Tcp),
            Some(_) => return Err("the scheme is `https`, `http` or `tcp`".to_owned()),
        };
        let (host, port) =
            place.rsplit_once(':').ok_or("write a host and a port, such as `files.example.org:443`")?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = HostPattern::parse(host).map_err(|bad| bad.to_string())?;
        let port: u16 = port.parse().map_err(|_| "a port is a number from 1 to 65535")?;
        Ok(Self(Rule::allowing(host, [port].into(), scheme, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_port_is_a_rule() {
        for (text, rule) in [
            (
                "files.example.org:443",
                json!({ "host": "files.example.org", "ports": [443], "scheme": "https", "decision": "allow" }),
            ),
            (
                "*.example.net:80/http",
                json!({ "host": "*.example.net", "ports": [80], "scheme": "http", "decision": "allow" }),
            ),
            (
                "[2001:db8::7]:22/tcp",
                json!({ "host": "2001:db8::7", "ports": [22], "scheme": "tcp", "decision": "allow" }),
            ),
        ] {
            let Wanted(parsed) = text.parse().unwrap();
            assert_eq!(serde_json::to_value(&parsed).unwrap(), rule);
            let Wanted(again) = rule.to_string().parse().unwrap();
            assert_eq!(again, parsed);
        }
        for bad in ["files.example.org", "files.example.org:x", "files.example.org:443/udp", "a b:443", "{}"]
        {
            assert!(bad.parse::<Wanted>().is_err(), "{bad}");
        }
    }
}
