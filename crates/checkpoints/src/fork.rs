//! Makes runs that begin with the state of a run or of a checkpoint.
//!
//! ```text
//!  run ──► checkpoint ──┬─► CreateRun ID/1 ─► READY
//!                       ├─► CreateRun ID/2 ─► READY        a few at a time
//!                       └─► CreateRun ID/3 ─► OVERLOADED ─► no further ones
//! ```
//!
//! A request with an id can be repeated after any failure, also of the daemon. The checkpoint has the id of the request and is found
//! again. Each fork has an id that follows from it: those that exist are found, and those that are missing are made. All of them come
//! from the checkpoint's record alone, so that a repetition asks for the same, whatever has become of the run.

use std::collections::BTreeMap;

use identity::{CheckpointId, Principal, RunId};
use operations::Reason;
use prost::Message as _;
use refusal::Refusal;
use tokio::task::JoinSet;
use wire::v1;
use wire::v1::fork_run_request::Origin;

use crate::forking::{AT_ONCE, Places};
use crate::inherit::{NewFork, inherit};
use crate::record::{Checkpoint, ForkRequest};
use crate::{Cause, Checkpoints};

/// Most forks of one request.
const MOST: u32 = 100;
/// Longest request id. The request id of a fork also has its number.
const LONGEST_ID: usize = 120;
/// Label of the checkpoint of a live run.
const LABEL: &str = "fork";

impl Checkpoints {
    /// Makes forks, each with `create`. The caller lets it run to its end.
    ///
    /// Makes as many as there is room for. If that is none, the request is refused as the first one was.
    pub async fn fork<Making>(
        &self,
        request: v1::ForkRunRequest,
        principal: &Principal,
        create: impl Fn(NewFork) -> Making,
    ) -> Result<v1::ForkRunResponse, Refusal>
    where
        Making: Future<Output = Result<v1::Fork, Refusal>> + Send + 'static,
    {
        self.audit.check()?;
        check(&request)?;
        let places = self.forking.of(&principal.name);
        let (checkpoint, is_new) = {
            let _one_at_a_time = places.origin.lock().await;
            self.origin(&request, principal).await?
        };
        let made = self.fork_from(&checkpoint, &request, &places, create).await;
        if made.is_err() && is_new && request.request_id.is_empty() {
            // No request can find it again.
            if let Err(refusal) = self.remove(checkpoint.id, Cause::Principal(principal)).await {
                tracing::warn!(checkpoint = %checkpoint.id, why = refusal.message, "the checkpoint of a refused request was not deleted");
            }
        }
        made
    }

    /// Makes the forks of a checkpoint, which is kept meanwhile.
    async fn fork_from<Making>(
        &self,
        checkpoint: &Checkpoint,
        request: &v1::ForkRunRequest,
        places: &Places,
        create: impl Fn(NewFork) -> Making,
    ) -> Result<v1::ForkRunResponse, Refusal>
    where
        Making: Future<Output = Result<v1::Fork, Refusal>> + Send + 'static,
    {
        let _kept = self.table.keep(checkpoint.id)?;
        let wanted = inherit(checkpoint, request)?;
        let numbered = |number: u32, must_exist: bool| {
            let mut fork = NewFork { must_exist, ..wanted.clone() };
            if !request.request_id.is_empty() {
                fork.request.request_id = format!("{}/{number}", request.request_id);
            }
            create(fork)
        };
        let Made { forks, failures, first } =
            make_all(request.count, places, !request.request_id.is_empty(), numbered).await?;
        match first {
            Some(refusal) if forks.is_empty() => Err(refusal),
            _ => Ok(v1::ForkRunResponse {
                checkpoint: Some(checkpoint.to_wire()),
                forks: forks.into_values().collect(),
                failures,
            }),
        }
    }

    /// Returns the checkpoint on which the forks begin, and whether it was made now.
    async fn origin(
        &self,
        request: &v1::ForkRunRequest,
        principal: &Principal,
    ) -> Result<(Checkpoint, bool), Refusal> {
        let run = match &request.origin {
            Some(Origin::CheckpointId(id)) => {
                return Ok((self.table.of(CheckpointId::parse(id)?, principal)?, false));
            }
            Some(Origin::RunId(id)) => RunId::parse(id)?,
            None => return Err(Refusal::invalid("origin", "is missing: one of run_id, checkpoint_id")),
        };
        let requested = (!request.request_id.is_empty()).then(|| ForkRequest {
            // Each principal has separate request ids.
            id: format!("{} {}", principal.name, request.request_id),
            digest: self.runs.store.fingerprint(&request.encode_to_vec()),
        });
        if let Some(requested) = &requested
            && let Some(found) = self.table.requested(&requested.id)
        {
            if found.requested.as_ref() != Some(requested) {
                return Err(Refusal::new(
                    Reason::AlreadyExists,
                    "request_id: this id was used for different forks; a repetition must have the same content",
                ));
            }
            return Ok((self.table.of(found.id, principal)?, false));
        }
        if self.runs.of(run, principal)?.state.has_ended() {
            return Err(Refusal::new(
                Reason::RunNotReady,
                "the run has ended: fork one of its checkpoints, with checkpoint_id",
            ));
        }
        // No checkpoint is left of forks that this node does not make.
        self.runs.check_open(principal).await?;
        let asked = v1::CheckpointRunRequest { run_id: run.to_string(), label: LABEL.to_owned() };
        Ok((self.create_for(asked, principal, requested).await?, true))
    }
}

fn check(request: &v1::ForkRunRequest) -> Result<(), Refusal> {
    if !(1..=MOST).contains(&request.count) {
        return Err(Refusal::invalid("count", format!("must be 1 to {MOST}")));
    }
    let id = &request.request_id;
    if id.len() > LONGEST_ID || id.chars().any(char::is_control) {
        let message = format!("must be at most {LONGEST_ID} characters without control characters");
        return Err(Refusal::invalid("request_id", message));
    }
    Ok(())
}

/// Forks that were made, and those that were not.
#[derive(Debug, Default)]
struct Made {
    /// By number.
    forks: BTreeMap<u32, v1::Fork>,
    failures: Vec<v1::ForkFailure>,
    /// The first refusal.
    first: Option<Refusal>,
}

impl Made {
    /// Counts `count` forks that were not made for this reason.
    fn failed(&mut self, refusal: &Refusal, count: u32) {
        self.first.get_or_insert_with(|| refusal.clone());
        let reason = refusal.reason.as_str();
        match self.failures.iter_mut().find(|failure| failure.reason == reason) {
            Some(failure) => failure.count += count,
            None => self.failures.push(v1::ForkFailure {
                reason: reason.to_owned(),
                message: refusal.message.clone(),
                count,
            }),
        }
    }
}

/// Makes all forks, a few at a time, each with `create` by its number.
///
/// After a refusal that the others would get as well, it makes no further ones. With `can_exist`, it finds those that exist.
async fn make_all<Making>(
    count: u32,
    places: &Places,
    can_exist: bool,
    create: impl Fn(u32, bool) -> Making,
) -> Result<Made, Refusal>
where
    Making: Future<Output = Result<v1::Fork, Refusal>> + Send + 'static,
{
    let (mut made, mut making) = (Made::default(), JoinSet::new());
    let (mut begun, mut last) = (0, None::<Refusal>);
    loop {
        while (can_exist || last.is_none()) && begun < count && making.len() < AT_ONCE {
            let place = places.forks.clone().acquire_owned().await;
            let place = place.map_err(|error| Refusal::internal("waiting for a place", &error))?;
            begun += 1;
            let must_exist = last.is_some();
            let (number, fork) = (begun, create(begun, must_exist));
            making.spawn(async move {
                let _place = place;
                (number, must_exist, fork.await)
            });
        }
        match making.join_next().await {
            None => break,
            Some(Ok((number, _, Ok(fork)))) => drop(made.forks.insert(number, fork)),
            Some(Ok((_, must_exist, Err(refusal)))) => {
                let refusal = last.clone().filter(|_| must_exist).unwrap_or(refusal);
                made.failed(&refusal, 1);
                if !is_of_one(refusal.reason) {
                    last.get_or_insert(refusal);
                }
            }
            Some(Err(error)) => made.failed(&Refusal::internal("making a fork", &error), 1),
        }
    }
    if let Some(refusal) = last.filter(|_| begun < count) {
        made.failed(&refusal, count - begun);
    }
    Ok(made)
}

/// Returns true if the reason says nothing about other forks of the same request.
fn is_of_one(reason: Reason) -> bool {
    matches!(reason, Reason::AlreadyExists | Reason::RunNotReady | Reason::Internal | Reason::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::forking::Forking;

    use super::*;

    fn forked(number: u32) -> v1::Fork {
        v1::Fork { token: number.to_string(), ..v1::Fork::default() }
    }

    #[tokio::test]
    async fn as_many_forks_are_made_as_there_is_room_for_and_no_others_are_tried() {
        let places = Forking::default().of("uid:1");
        let tried = Arc::new(AtomicU32::new(0));
        let create = |number: u32, _| {
            let tried = tried.clone();
            async move {
                tried.fetch_add(1, Ordering::Relaxed);
                if number <= 10 { Ok(forked(number)) } else { Err(Refusal::new(Reason::Overloaded, "full")) }
            }
        };
        let made = make_all(100, &places, false, create).await.unwrap();
        assert_eq!(made.forks.keys().copied().collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
        let full = v1::ForkFailure { reason: "OVERLOADED".into(), message: "full".into(), count: 90 };
        assert_eq!(made.failures, [full]);
        let tried = tried.load(Ordering::Relaxed);
        assert!(tried <= 10 + u32::try_from(AT_ONCE).unwrap(), "{tried}");
    }

    #[tokio::test]
    async fn a_repetition_without_room_finds_all_forks_that_exist() {
        let places = Forking::default().of("uid:1");
        let create = |number: u32, must_exist: bool| async move {
            match (number, must_exist) {
                (2, _) => Err(Refusal::new(Reason::Overloaded, "full")),
                (30, true) => Err(Refusal::new(Reason::NotFound, "there is none")),
                (30, false) => panic!("it is tried although there is no room"),
                _ => Ok(forked(number)),
            }
        };
        let made = make_all(40, &places, true, create).await.unwrap();
        assert_eq!(made.forks.len(), 38);
        let full = v1::ForkFailure { reason: "OVERLOADED".into(), message: "full".into(), count: 2 };
        assert_eq!(made.failures, [full]);
    }

    #[tokio::test]
    async fn a_failure_of_one_fork_is_none_of_the_others_and_failures_are_counted_by_reason() {
        let places = Forking::default().of("uid:1");
        let create = |number: u32, _| async move {
            match number % 3 {
                0 => Err(Refusal::new(Reason::Internal, "broken")),
                1 => Err(Refusal::new(Reason::RunNotReady, "gone")),
                _ => Ok(forked(number)),
            }
        };
        let made = make_all(9, &places, false, create).await.unwrap();
        assert_eq!(made.forks.into_keys().collect::<Vec<_>>(), [2, 5, 8]);
        let mut failures: Vec<_> =
            made.failures.iter().map(|failure| (&*failure.reason, failure.count)).collect();
        failures.sort_unstable();
        assert_eq!(failures, [("INTERNAL", 3), ("RUN_NOT_READY", 3)]);
        assert!(made.first.is_some());
    }

    #[test]
    fn counts_and_request_ids_are_bounded() {
        let request = |count, id: &str| v1::ForkRunRequest {
            count,
            request_id: id.to_owned(),
            ..v1::ForkRunRequest::default()
        };
        for (count, id, field) in [
            (0, "", "count"),
            (101, "", "count"),
            (10_000, "", "count"),
            (1, &*"x".repeat(121), "request_id"),
            (1, "a\nb", "request_id"),
        ] {
            let refused = check(&request(count, id)).unwrap_err();
            assert_eq!(refused.metadata, [("field".into(), field.to_owned())]);
        }
        assert!(check(&request(100, &"x".repeat(120))).is_ok());
    }
}
