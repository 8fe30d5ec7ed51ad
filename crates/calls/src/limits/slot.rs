//! Gives a call its slot among the running calls: at once, after a wait, or not at all.

use std::time::Duration;

use gateway::limits::concurrency::{Busy, Reservation, Together, Turn, Wake};
use operations::Reason;
use policy::Caller;
use refusal::Refusal;
use tokio::sync::oneshot;

use super::Limits;

/// Longest wait of a call that a reviewer has consented to. The calls that run now have ended long before.
const CONSENTED: Duration = Duration::from_secs(600);

impl Limits {
    /// Waits for a slot under the profile's caps and the daemon's. Dropping the future gives up the wait.
    pub(crate) async fn reserve(
        &self,
        caller: &Caller,
        profile: &str,
        turn: Turn,
    ) -> Result<Reservation, Refusal> {
        // The one in force now: the call may have waited for a reviewer since it began.
        let policy = self.gateway.policy();
        let Some(caps) = policy.profile(profile).map(|profile| profile.concurrency) else {
            let message = "the policy no longer has the profile of this run";
            return Err(Refusal::new(Reason::PermissionDenied, message).with("rule", "profile"));
        };
        let tenant = self.tenancy.tenant_of(&caller.principal);
        let mut waits = None;
        let names = [caller.run_id.as_str(), caller.principal.as_str(), tenant.as_str()];
        let reservation = self.reservations.enter(names, &caps, turn, || {
            let (wake, woken) = oneshot::channel();
            waits = Some(woken);
            let wake: Wake = Box::new(move || {
                // A caller that has given up meanwhile returns the slot by dropping it.
                let _ = wake.send(());
            });
            wake
        });
        let reservation = reservation.map_err(|busy| refusal(&busy, profile))?;
        let Some(woken) = waits else { return Ok(reservation) };
        let wait = match turn {
            Turn::Ordinary => caps.wait(),
            Turn::Consented => CONSENTED,
        };
        // The queue keeps its end of the channel for as long as the reservation exists.
        if tokio::time::timeout(wait, woken).await.is_err()
            && let Some(busy) = reservation.waits_for()
        {
            return Err(refusal(&busy, profile).with("waited_s", wait.as_secs().to_string()));
        }
        Ok(reservation)
    }
}

/// Returns the refusal of a call that gets no slot. The time after which it may try again is marked as an estimate.
fn refusal(busy: &Busy, profile: &str) -> Refusal {
    let rule = match busy.scope {
        Together::Run | Together::Principal => {
            format!("profile {profile}: concurrency.{}", busy.scope.as_str())
        }
        Together::Daemon => "limits.calls".to_owned(),
    };
    Refusal::new(Reason::Overloaded, busy.to_string())
        .with("rule", rule)
        .with("limit", busy.limit.to_string())
        .retry_after(busy.retry_after)
        .with("retry_after_is", "estimated")
}
