//! Counts the calls that wait beside an approval, for their run, their principal and their tenant, and bounds their number.
//!
//! They hold no slot. The bounds are those of calls that wait for a slot: `concurrency.waiting` of the profile for a run,
//! `concurrency.principal` for a principal, and `limits.calls_waiting` for the daemon, of which a tenant leaves places for others.

use std::collections::HashMap;
use std::sync::Arc;

use gateway::limits::concurrency::tenant_may_wait;
use operations::Reason;
use parking_lot::Mutex;
use policy::{Caller, Policy};
use refusal::Refusal;

use super::Limits;

/// Numbers of waiting calls.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Counts>);

/// Groups that each have a bound.
const SCOPES: [&str; 4] = ["run", "principal", "tenant", "daemon"];
/// Counts by run, by principal, by tenant, and of the daemon.
type Counts = [HashMap<String, u32>; 4];

/// One waiting call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Queued {
    waiting: Arc<Waiting>,
    names: [String; 4],
}

impl Waiting {
    /// Counts a call. If its run, its principal, its tenant or the daemon has as many already, returns that scope and its bound.
    fn enter(
        self: &Arc<Self>,
        caller: &Caller,
        tenant: &str,
        [run, principal, daemon]: [u32; 3],
    ) -> Result<Queued, (&'static str, u32)> {
        let names = [caller.run_id.clone(), caller.principal.clone(), tenant.to_owned(), String::new()];
        let mut counts = self.0.lock();
        let of_all = counts[3].get("").copied().unwrap_or_default();
        // A line that is full is named before the tenant's part of it.
        let of_tenant = if of_all < daemon { tenant_may_wait(daemon, of_all) } else { u32::MAX };
        let most = [run, principal, of_tenant, daemon];
        for ((scope, most), (counts, name)) in SCOPES.into_iter().zip(most).zip(counts.iter().zip(&names)) {
            if counts.get(name).copied().unwrap_or_default() >= most {
                return Err((scope, most));
            }
        }
        for (counts, name) in counts.iter_mut().zip(&names) {
            *counts.entry(name.clone()).or_default() += 1;
        }
        Ok(Queued { waiting: self.clone(), names })
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        for (counts, name) in self.waiting.0.lock().iter_mut().zip(&self.names) {
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                }
            }
        }
    }
}

impl Limits {
    /// Counts a call that is going to wait for an approval of its run.
    pub(crate) fn wait_beside(
        &self,
        policy: &Policy,
        caller: &Caller,
        profile: &str,
    ) -> Result<Queued, Refusal> {
        let caps = policy.profile(profile).map(|profile| profile.concurrency).ok_or_else(|| {
            let message = "the policy no longer has the profile of this run";
            Refusal::new(Reason::PermissionDenied, message).with("rule", "profile")
        })?;
        let (_, whole) = self.reservations.of_all();
        let tenant = self.tenancy.tenant_of(&caller.principal);
        let bounds = [caps.waiting, caps.principal, whole.waiting];
        self.beside.enter(caller, &tenant, bounds).map_err(|(scope, most)| {
            let rule = match scope {
                "run" => format!("profile {profile}: concurrency.waiting"),
                "principal" => format!("profile {profile}: concurrency.principal"),
                _ => "limits.calls_waiting".to_owned(),
            };
            let message = match scope {
                "tenant" => {
                    "calls of this tenant that wait for a reviewer leave no place but those for other tenants"
                        .to_owned()
                }
                _ => format!("{most} calls of this {scope} already wait for a reviewer, which is the limit"),
            };
            Refusal::new(Reason::Overloaded, message).with("rule", rule).with("limit", most.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use policy::Caller;

    use super::Waiting;

    fn caller(run: &str, principal: &str) -> Caller {
        Caller {
            principal: principal.to_owned(),
            agent_id: "alice".to_owned(),
            role: "worker".to_owned(),
            run_id: run.to_owned(),
        }
    }

    #[test]
    fn waiting_calls_are_bounded_and_uncounted_at_their_end() {
        let waiting = Arc::new(Waiting::default());
        let enter = |run, principal| waiting.enter(&caller(run, principal), principal, [2, 3, 8]);
        let first = enter("a", "p").unwrap();
        let second = enter("a", "p").unwrap();
        assert_eq!(enter("a", "p").unwrap_err(), ("run", 2));
        let third = enter("b", "p").unwrap();
        assert_eq!(enter("b", "p").unwrap_err(), ("principal", 3));
        let other = enter("a", "q").unwrap_err();
        assert_eq!(other, ("run", 2), "a refused call is counted nowhere");
        drop(first);
        let again = enter("a", "p").unwrap();
        drop((again, second, third));
        assert!(waiting.0.lock().iter().all(std::collections::HashMap::is_empty));
    }

    #[test]
    fn a_tenant_of_many_principals_leaves_places_for_others() {
        let waiting = Arc::new(Waiting::default());
        let enter = |tenant: &str, number: u32| {
            let caller = caller(&format!("{tenant}-{number}"), &format!("uid:{tenant}-{number}"));
            waiting.enter(&caller, tenant, [9, 9, 4])
        };
        let held = [enter("big", 1).unwrap(), enter("big", 2).unwrap()];
        assert_eq!(enter("big", 3).unwrap_err(), ("tenant", 2));
        let (other, modest) = (enter("other", 1).unwrap(), enter("modest", 1).unwrap());
        assert_eq!(enter("late", 1).unwrap_err(), ("daemon", 4));
        drop((held, other, modest));
        assert!(waiting.0.lock().iter().all(std::collections::HashMap::is_empty));
    }
}
