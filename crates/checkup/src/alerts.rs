//! Examines the daemon's newest alerts: whether anyone acknowledges them, whether their measures took effect, and whether webhooks receive
//! them.

use std::collections::BTreeMap;

use command_context::client::{Client, quick};
use doctor::Finding;
use presentation::quantity::count;
use wire::v1::alert::{Severity, State};
use wire::v1::alert_delivery::State as Delivery;
use wire::v1::alert_measure::State as Measure;
use wire::v1::{Alert, ListAlertsRequest};

/// Number of the newest alerts that are examined.
const NEWEST: u32 = 500;

/// Asks a daemon that answers. There are no findings for users who may not see alerts.
pub(super) async fn examine(client: &Client) -> Vec<Finding> {
    let request = ListAlertsRequest { page_size: NEWEST, ..Default::default() };
    match client.alerts().list_alerts(quick(request)).await {
        Ok(listed) => findings(&listed.into_inner().alerts),
        Err(_) => Vec::new(),
    }
}

fn findings(alerts: &[Alert]) -> Vec<Finding> {
    let mut findings = vec![open(alerts)];
    findings.extend(measures(alerts));
    findings.extend(webhooks(alerts));
    findings
}

fn open(alerts: &[Alert]) -> Finding {
    const TOPIC: &str = "alerts";
    let open: Vec<_> = alerts.iter().filter(|alert| alert.state() == State::Open).collect();
    if open.is_empty() {
        return Finding::good(TOPIC, "none is open");
    }
    let severe = open.iter().filter(|alert| alert.severity() >= Severity::High).count();
    let found = match severe {
        0 => format!("{} open", open.len()),
        severe => format!("{} open, {severe} of them HIGH or CRITICAL", open.len()),
    };
    Finding::limited(
        TOPIC,
        found,
        "look at them with `coffer alert list`, and acknowledge what you have seen",
    )
}

/// Reports measures that did not take effect. Returns `None` if there are none.
fn measures(alerts: &[Alert]) -> Option<Finding> {
    let failed = |alert: &&Alert| {
        let measure = alert.measure.as_ref();
        alert.state() == State::Open && measure.is_some_and(|measure| measure.state() == Measure::Failed)
    };
    let failed: Vec<_> = alerts.iter().filter(failed).collect();
    let newest = failed.first()?;
    let what = count(failed.len() as u64, "alert has", "alerts have");
    let why = newest.measure.as_ref().map(|measure| measure.failure.clone()).unwrap_or_default();
    Some(Finding::limited(
        "measures",
        format!("{what} failed to impose the policy's measure; the last failure: {why}"),
        format!(
            "`coffer alert show {}` shows the cause; until then the agent is not restricted",
            newest.alert_id
        ),
    ))
}

/// Alerts that a webhook did not accept since it last accepted one.
#[derive(Default)]
struct Silence<'a> {
    given_up: u64,
    waiting: u64,
    failure: &'a str,
    works: bool,
}

/// Returns one finding for each webhook to which an alert was sent.
fn webhooks(alerts: &[Alert]) -> Vec<Finding> {
    const TOPIC: &str = "webhooks";
    let mut by_name: BTreeMap<&str, Silence<'_>> = BTreeMap::new();
    for delivery in alerts.iter().flat_map(|alert| &alert.deliveries) {
        let silence = by_name.entry(&delivery.webhook).or_default();
        match delivery.state() {
            _ if silence.works => continue,
            Delivery::Delivered => silence.works = true,
            Delivery::GaveUp => silence.given_up += 1,
            Delivery::Due if delivery.attempts > 0 => silence.waiting += 1,
            _ => continue,
        }
        if silence.failure.is_empty() {
            silence.failure = &delivery.failure;
        }
    }
    let finding = |(name, silence): (&str, Silence<'_>)| {
        let Silence { given_up, waiting, failure, works } = silence;
        match given_up + waiting {
            0 if works => Some(Finding::good(TOPIC, format!("{name} accepts alerts"))),
            0 => None,
            missed => Some(Finding::limited(
                TOPIC,
                format!(
                    "{name} did not accept the last {}, {given_up} of them permanently: {failure}",
                    count(missed, "alert", "alerts")
                ),
                format!(
                    "check `{name}` under `alerts.webhooks` of the configuration; alerts do not reach it"
                ),
            )),
        }
    };
    by_name.into_iter().filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use wire::v1::{AlertDelivery, AlertMeasure};

    use super::*;

    fn alert(severity: Severity, deliveries: &[(&str, Delivery)]) -> Alert {
        let deliveries = deliveries.iter().map(|(webhook, state)| AlertDelivery {
            webhook: (*webhook).to_owned(),
            state: (*state).into(),
            attempts: 1,
            failure: if *state == Delivery::Delivered { String::new() } else { "answered 500".to_owned() },
            ..Default::default()
        });
        Alert {
            alert_id: "a".into(),
            severity: severity.into(),
            state: State::Open.into(),
            deliveries: deliveries.collect(),
            ..Default::default()
        }
    }

    #[test]
    fn no_open_alerts_are_a_good_finding() {
        assert_eq!(findings(&[]), [Finding::good("alerts", "none is open")]);
        let seen = Alert {
            state: State::Acknowledged.into(),
            ..alert(Severity::High, &[("pager", Delivery::Delivered)])
        };
        assert_eq!(
            findings(&[seen]),
            [Finding::good("alerts", "none is open"), Finding::good("webhooks", "pager accepts alerts")]
        );
    }

    #[test]
    fn undelivered_alerts_since_the_last_success_are_counted() {
        let (due, gone, done) = (Delivery::Due, Delivery::GaveUp, Delivery::Delivered);
        let alerts = [
            alert(Severity::Low, &[("mail", done), ("pager", due)]),
            alert(Severity::High, &[("mail", gone), ("pager", gone)]),
            alert(Severity::Low, &[("mail", gone), ("pager", done)]),
            alert(Severity::Low, &[("mail", gone), ("pager", gone)]),
        ];
        let found = findings(&alerts);
        assert_eq!(found[0].found, "4 open, 1 of them HIGH or CRITICAL");
        assert_eq!(found[1], Finding::good("webhooks", "mail accepts alerts"));
        assert_eq!(
            found[2].found,
            "pager did not accept the last 2 alerts, 1 of them permanently: answered 500"
        );
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn a_measure_that_is_not_in_force_is_reported() {
        let measure = AlertMeasure {
            action: "freeze".into(),
            state: Measure::Failed.into(),
            failure: "the run has ended".into(),
            ..Default::default()
        };
        let found = findings(&[Alert { measure: Some(measure), ..alert(Severity::Low, &[]) }]);
        assert_eq!(
            found[1].found,
            "1 alert has failed to impose the policy's measure; the last failure: the run has ended"
        );
        assert!(found[1].follows.as_ref().is_some_and(|follows| follows.contains("coffer alert show a")));
    }
}
