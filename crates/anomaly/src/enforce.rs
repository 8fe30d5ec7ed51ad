//! Imposes and lifts the measures of alerts. Repeating either changes nothing, so that it can be repeated after a restart.

use std::sync::Arc;

use crate::alert::{Alert, Measure, Whom};
use async_trait::async_trait;
use gateway::limits::{Agent, Throttle, ThrottleSource};
use gateway::{Gateway, Measure as Consent, MeasureScope};
use identity::RunId;
use runs::record::Hold;
use timestamp::UnixMillis;

use runs::Runs;

/// Changes the terms of calls. Failures are for operators.
#[async_trait]
pub(super) trait Enforcement: Send + Sync {
    /// Imposes the alert's measure, until its time.
    async fn impose(&self, alert: &Alert) -> Result<(), String>;
    /// Lifts the measure.
    async fn lift(&self, alert: &Alert) -> Result<(), String>;
}

/// The enforcement of the daemon.
pub(super) struct AlertActions {
    pub(super) gateway: Arc<Gateway>,
    pub(super) runs: Arc<Runs>,
}

#[async_trait]
impl Enforcement for AlertActions {
    async fn impose(&self, alert: &Alert) -> Result<(), String> {
        // Bounded also when a later daemon imposes it again, whose clock may have been set back.
        let longest =
            alert.imposed.measure.lasts().map_or(u64::MAX, |lasts| UnixMillis::now().0.saturating_add(lasts));
        let until = UnixMillis(alert.imposed.until.unwrap_or(u64::MAX).min(longest));
        match alert.imposed.measure {
            Measure::None => {}
            Measure::RequireApproval { .. } => self.gateway.impose(Consent {
                alert_id: alert.id.to_string(),
                scope: scope(alert),
                rule: alert.rule.clone(),
                justification: format!("the alert {} asks for consent: {}", alert.id, alert.summary()),
                until,
            }),
            Measure::Throttle { per_minute, .. } => {
                if alert.agent_id.is_empty() {
                    return Err("the alert names no agent".to_owned());
                }
                self.gateway.limits().throttle(
                    ThrottleSource::Alert,
                    &agent(alert),
                    Throttle { per_minute, until },
                );
            }
            Measure::Freeze => {
                let hold = Hold::Alert(alert.id.to_string());
                self.runs.hold(run(alert)?, hold, None).await.map_err(|refusal| refusal.message)?;
            }
            Measure::Stop => {
                self.runs.stop(run(alert)?).await.map_err(|refusal| refusal.message)?;
            }
        }
        Ok(())
    }

    async fn lift(&self, alert: &Alert) -> Result<(), String> {
        match alert.imposed.measure {
            Measure::RequireApproval { .. } => {
                self.gateway.lift(&alert.id.to_string());
            }
            // The caller then imposes the throttles of the agent's other alerts again.
            Measure::Throttle { .. } => {
                self.gateway.limits().lift_throttle(ThrottleSource::Alert, &agent(alert));
            }
            Measure::Freeze => {
                let hold = Hold::Alert(alert.id.to_string());
                self.runs.release(run(alert)?, &hold).await.map_err(|refusal| refusal.message)?;
            }
            Measure::None | Measure::Stop => {}
        }
        Ok(())
    }
}

/// Returns the agent whose calls fired the alert.
fn agent(alert: &Alert) -> Agent {
    Agent { principal: alert.principal.clone(), id: alert.agent_id.clone() }
}

/// Returns the scope of an alert: an agent's calls in all its runs of this principal, or the calls in one run.
fn scope(alert: &Alert) -> MeasureScope {
    match &alert.subject {
        Whom::Run { run_id } => MeasureScope::Run(run_id.clone()),
        Whom::Agent { .. } => {
            MeasureScope::Agent { principal: alert.principal.clone(), agent_id: alert.agent_id.clone() }
        }
    }
}

fn run(alert: &Alert) -> Result<RunId, String> {
    RunId::parse(&alert.run_id).map_err(|_| "the alert names no run".to_owned())
}
