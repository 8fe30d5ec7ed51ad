//! The request of CreateRun for the forks of a checkpoint: the settings of its run, as far as the request to fork has no others.
//!
//! Secrets, tokens and consents are not inherited. Policy and limits apply as to every new run, so a setting that the profile no longer
//! allows is refused.

use std::fmt::Display;

use operations::Reason;
use refusal::Refusal;
use runs::Rules;
use runs::record::Limits;
use wire::v1;
use wire::v1::workspace::Source;

use crate::record::{Checkpoint, Inherited};

/// A run to make as CreateRun does.
#[derive(Clone)]
pub struct NewFork {
    pub request: v1::CreateRunRequest,
    /// Rules that its connections have to pass beside those of its profile.
    pub narrowed: Vec<Rules>,
    /// Only find the run that the same request made before.
    pub must_exist: bool,
}

/// Returns the forks of a request, without a request id.
pub(crate) fn inherit(checkpoint: &Checkpoint, request: &v1::ForkRunRequest) -> Result<NewFork, Refusal> {
    let Some(Inherited { spec, narrowed }) = &checkpoint.inherited else {
        let message = "the checkpoint is of an earlier release, which did not keep the settings of its run: \
                       create a run with workspace.checkpoint";
        return Err(Refusal::new(Reason::PreconditionFailed, message));
    };
    if !spec.companions.is_empty() {
        let message = format!(
            "the run was created with companions ({}), whose variables are not kept: create runs with \
             workspace.checkpoint and with the companions, which start anew",
            spec.companions.join(", ")
        );
        return Err(Refusal::new(Reason::PreconditionFailed, message));
    }
    let workspace = v1::CheckpointWorkspace { checkpoint_id: checkpoint.id.to_string() };
    let env = spec.env.iter().filter(|(name, _)| !request.secret_env.contains_key(*name));
    let env = env.chain(&request.env).map(|(name, value)| (name.clone(), value.clone()));
    let labels = spec.labels.iter().chain(&request.labels);
    let request = v1::CreateRunRequest {
        profile: spec.profile.clone(),
        image: spec.image.clone(),
        workspace: Some(v1::Workspace { source: Some(Source::Checkpoint(workspace)) }),
        pkg_path: spec.pkg_path.as_ref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default(),
        agent_id: spec.agent_id.clone(),
        role: spec.role.clone(),
        limits: Some(limits(&spec.limits, &request.limits.unwrap_or_default())?),
        ttl: request.ttl.or(spec.ttl.map(wire::duration)),
        idle_timeout: spec.idle_timeout.map(wire::duration),
        labels: labels.map(|(name, value)| (name.clone(), value.clone())).collect(),
        issue_token: request.issue_tokens,
        env: env.collect(),
        secret_env: request.secret_env.clone(),
        lease: request.lease.or(spec.lease.map(wire::duration)),
        writable_paths: spec.writable_paths.clone(),
        ..v1::CreateRunRequest::default()
    };
    Ok(NewFork { request, narrowed: narrowed.clone(), must_exist: false })
}

/// Returns the limits of a run, lowered where the request asks for less. A request for more is refused.
fn limits(of: &Limits, asked: &v1::Limits) -> Result<v1::Limits, Refusal> {
    Ok(v1::Limits {
        memory_bytes: lowered("limits.memory_bytes", asked.memory_bytes, of.memory_bytes)?,
        cpu_millis: lowered("limits.cpu_millis", asked.cpu_millis, of.cpu_millis)?,
        pids: lowered("limits.pids", asked.pids, of.pids)?,
        file_size_bytes: lowered("limits.file_size_bytes", asked.file_size_bytes, of.file_size_bytes)?,
        open_files: lowered("limits.open_files", asked.open_files, of.open_files)?,
        disk_bytes: lowered("limits.disk_bytes", asked.disk_bytes, of.disk_bytes)?,
        disk_files: lowered("limits.disk_files", asked.disk_files, of.disk_files)?,
    })
}

/// Returns the lower limit of the two. 0 is none.
fn lowered<T: Copy + Ord + Default + Display>(field: &'static str, asked: T, of: T) -> Result<T, Refusal> {
    let none = T::default();
    match (asked, of) {
        (asked, of) if asked == none => Ok(of),
        (asked, of) if of != none && asked > of => {
            Err(Refusal::invalid(field, format!("is above the limit of the run, {of}")))
        }
        (asked, _) => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use identity::RunId;
    use timestamp::Timestamp;

    use super::*;
    use crate::table::tests::checkpoint;

    fn origin() -> Checkpoint {
        let mut run = runs::testing::record();
        run.spec.env = BTreeMap::from([("A".into(), "1".into()), ("B".into(), "2".into())]);
        run.spec.secret_env = vec!["TOKEN".into()];
        run.spec.labels = BTreeMap::from([("team".into(), "a".into())]);
        run.spec.limits = Limits { memory_bytes: 100, pids: 50, ..Limits::default() };
        run.spec.lease = Some(Duration::from_secs(30));
        run.extended = Some(Duration::from_secs(90));
        let inherited = Some(Inherited::of(&run));
        Checkpoint { inherited, ..checkpoint(RunId::new(), Timestamp::now(), 1) }
    }

    #[test]
    fn forks_inherit_the_settings_of_the_run_and_no_secrets() {
        let origin = origin();
        let asked = v1::ForkRunRequest {
            env: BTreeMap::from([("B".into(), "3".into())]),
            secret_env: BTreeMap::from([("A".into(), "hidden".into())]),
            labels: BTreeMap::from([("try".into(), "1".into())]),
            limits: Some(v1::Limits { memory_bytes: 60, ..v1::Limits::default() }),
            issue_tokens: true,
            ..v1::ForkRunRequest::default()
        };
        let NewFork { request, narrowed, .. } = inherit(&origin, &asked).unwrap();
        assert_eq!((request.profile.as_str(), request.agent_id.as_str()), ("review", "alice"));
        assert_eq!(request.env, BTreeMap::from([("B".into(), "3".into())]));
        assert_eq!(request.secret_env, BTreeMap::from([("A".into(), "hidden".into())]));
        assert_eq!(request.labels, BTreeMap::from([("team".into(), "a".into()), ("try".into(), "1".into())]));
        assert_eq!(request.ttl, Some(wire::duration(Duration::from_secs(90))), "the ttl that was set later");
        assert_eq!(request.lease, Some(wire::duration(Duration::from_secs(30))));
        let limits = request.limits.unwrap();
        assert_eq!((limits.memory_bytes, limits.pids, limits.disk_bytes), (60, 50, 0));
        assert!(request.issue_token && narrowed.is_empty());
        let of = v1::CheckpointWorkspace { checkpoint_id: origin.id.to_string() };
        assert_eq!(request.workspace.unwrap().source, Some(Source::Checkpoint(of)));
        let plain = inherit(&origin, &v1::ForkRunRequest::default()).unwrap().request;
        assert_eq!((plain.env.len(), plain.secret_env.len(), plain.issue_token), (2, 0, false));
    }

    #[test]
    fn forks_have_no_higher_limits_than_the_run_and_need_its_settings() {
        let origin = origin();
        let limits = v1::Limits { pids: 51, ..v1::Limits::default() };
        let asked = v1::ForkRunRequest { limits: Some(limits), ..v1::ForkRunRequest::default() };
        let refused = inherit(&origin, &asked).err().unwrap();
        assert_eq!(refused.metadata, [("field".into(), "limits.pids".to_owned())]);
        let earlier = Checkpoint { inherited: None, ..origin };
        let refused = inherit(&earlier, &v1::ForkRunRequest::default()).err().unwrap();
        assert_eq!(refused.reason, Reason::PreconditionFailed);
    }
}
