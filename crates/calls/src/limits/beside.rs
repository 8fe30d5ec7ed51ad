//! Counts the calls that wait beside an approval, for their run and their principal, and bounds their number.
//!
//! They hold no slot. The bounds are those of calls that wait for a slot: `concurrency.waiting` of the profile for a run,
//! `concurrency.principal` for a principal, and `limits.calls_waiting` for the daemon.

use std::collections::HashMap;
use std::sync::Arc;

use operations::Reason;
use parking_lot::Mutex;
use policy::{Caller, Policy};
use refusal::Refusal;

use super::Limits;

/// Numbers of waiting calls.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Counts>);

/// Groups that each have a bound.
const SCOPES: [&str; 3] = ["run", "principal", "daemon"];
/// Counts by run, by principal, and of the daemon.
type Counts = [HashMap<String, u32>; 3];

/// One waiting call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Queued {
    waiting: Arc<Waiting>,
    names: [String; 3],
}

impl Waiting {
    /// Counts a call. If its run, its principal or the daemon has as many already, returns that scope and its bound.
    fn enter(self: &Arc<Self>, caller: &Caller, most: [u32; 3]) -> Result<Queued, (&'static str, u32)> {
        let names = [caller.run_id.clone(), caller.principal.clone(), String::new()];
        let mut counts = self.0.lock();
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
        self.beside.enter(caller, [caps.waiting, caps.principal, whole.waiting]).map_err(|(scope, most)| {
            let rule = match scope {
                "run" => format!("profile {profile}: concurrency.waiting"),
                "principal" => format!("profile {profile}: concurrency.principal"),
                _ => "limits.calls_waiting".to_owned(),
            };
            let message =
                format!("{most} calls of this {scope} already wait for a reviewer, which is the limit");
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
        let enter = |run, principal| waiting.enter(&caller(run, principal), [2, 3, 4]);
        let first = enter("a", "p").unwrap();
        let second = enter("a", "p").unwrap();
        assert_eq!(enter("a", "p").unwrap_err(), ("run", 2));
        let third = enter("b", "p").unwrap();
        assert_eq!(enter("b", "p").unwrap_err(), ("principal", 3));
        let other = enter("a", "q").unwrap_err();
        assert_eq!(other, ("run", 2), "a refused call is counted nowhere");
        let fourth = enter("c", "q").unwrap();
        assert_eq!(enter("d", "r").unwrap_err(), ("daemon", 4));
        drop(first);
        let again = enter("a", "p").unwrap();
        drop((again, second, third, fourth));
        assert!(waiting.0.lock().iter().all(std::collections::HashMap::is_empty));
    }
}
