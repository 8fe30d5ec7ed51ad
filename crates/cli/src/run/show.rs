//! `coffer run show`.

use clap::Args;
use wire::v1::automatic_checkpoints::Every;
use wire::v1::companion_status::State as CompanionState;
use wire::v1::run::{Changes, EndCause};
use wire::v1::workspace::Source;
use wire::v1::{CompanionStatus, DiskUse, Egress, GetRunRequest, Limits, Run, disk_use};

use super::RunRef;
use crate::client::{Context, quick};
use crate::failure::Ended;
use crate::output::{Output, Style};
use crate::{quantity, time};

/// Show one run, with the hardening in force.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run show 3f2a9c01")]
pub(crate) struct Show {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN", default_value = "-")]
    run: RunRef,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let response = client.runs().get_run(quick(GetRunRequest { run_id })).await?.into_inner();
        context.ui.answer(response, |response, page| render(&response.run.unwrap_or_default(), page))
    }
}

fn render(run: &Run, page: &mut Output) {
    let duration = |d: Option<&wire::Duration>| {
        d.and_then(|d| std::time::Duration::try_from(*d).ok()).map(time::brief).unwrap_or_default()
    };
    let mut labels: Vec<_> = run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.sort_unstable();
    let plain = run.env.iter().map(|(name, value)| format!("{name}={value}"));
    let variables: Vec<_> =
        plain.chain(run.secret_env.iter().map(|name| format!("{name}=(secret)"))).collect();
    page.facts(&[
        ("run", run.run_id.clone()),
        ("state", run.state().as_str_name().into()),
        ("failure", command_context::failure::of_run(run)),
        ("held by", super::pause::holds(run)),
        ("profile", run.profile.clone()),
        ("agent", run.agent_id.clone()),
        ("role", run.role.clone()),
        ("made by", run.principal.clone()),
        ("workspace", workspace(run)),
        ("begun on", begun_on(run)),
        ("saved", checkpoints(run)),
        ("on host", run.workspace_path.clone()),
        ("changes", changes(run).into()),
        ("/pkg", run.pkg_path.clone()),
        ("writable", run.writable_paths.join(" ")),
        ("ownership", run.ownership.clone()),
        ("image", run.image.clone()),
        ("image id", run.image_id.clone()),
        ("container", run.container_id.clone()),
        ("limits", run.limits.as_ref().map(limits).unwrap_or_default()),
        ("on disk", run.disk.as_ref().map(disk).unwrap_or_default()),
        ("egress", run.egress.as_ref().map(connections).unwrap_or_default()),
        ("moved", run.egress.as_ref().map(moved).unwrap_or_default()),
        ("rules", run.egress.as_ref().map(|egress| egress.digest.clone()).unwrap_or_default()),
        ("models", run.model_use.as_ref().map(usage_report::used).unwrap_or_default()),
        ("budget", run.model_use.as_ref().map(usage_report::left).unwrap_or_default()),
        ("created", time::known(run.created_at.as_ref())),
        ("ready", time::known(run.ready_at.as_ref())),
        ("start", super::start::kind(run)),
        ("adopted", adopted(run)),
        ("ended", ended(run)),
        ("ttl", duration(run.ttl.as_ref())),
        ("idle", duration(run.idle_timeout.as_ref())),
        ("lease", lease(run)),
        ("env", variables.join(" ")),
        ("labels", labels.join(" ")),
    ]);
    if !run.companions.is_empty() {
        page.own("\n").styled(Style::Bold, "Companions").own("\n");
        let names = run.companions.iter().map(|companion| companion.name.len());
        let width = names.max().unwrap_or_default().min(32);
        for status in &run.companions {
            page.own("  ").column(&status.name, width).own(" ").word(&companion(status)).end_line();
        }
    }
    if !run.hardening.is_empty() {
        page.own("\n").styled(Style::Bold, "Hardening in force").own("\n");
        let width = run.hardening.iter().map(|fact| fact.name.len()).max().unwrap_or_default().min(32);
        for fact in &run.hardening {
            page.own("  ").column(&fact.name, width).own(" ").word(&fact.value).end_line();
        }
    }
}

/// Describes the state of a companion, and where programs of the run reach it.
fn companion(status: &CompanionStatus) -> String {
    let state = match status.state() {
        CompanionState::Unspecified => String::new(),
        CompanionState::Exited => format!("EXITED with {}, ", status.exit_code),
        state => format!("{}, ", state.as_str_name()),
    };
    let ports: Vec<String> = status.ports.iter().map(u32::to_string).collect();
    let ports = if ports.is_empty() { "no port".to_owned() } else { format!("port {}", ports.join(" ")) };
    let address = if status.address.is_empty() { String::new() } else { format!(" at {}", status.address) };
    let words: Vec<&str> = status.egress.lines().collect();
    let reaches = if words.is_empty() { String::new() } else { format!("; {}", words.join(" ")) };
    format!("{state}{ports}{address}, {}{reaches}", status.image)
}

/// Describes when the run ended, and why if it was not stopped by a request.
fn ended(run: &Run) -> String {
    let when = time::known(run.ended_at.as_ref());
    match run.end_cause() {
        EndCause::Unspecified => when,
        EndCause::Ttl => format!("{when}: its ttl was reached"),
        EndCause::IdleTimeout => format!("{when}: no call was made within its idle timeout"),
        EndCause::Lease => format!("{when}: its lease was not renewed"),
        EndCause::NodeDrained => format!("{when}: its node was drained"),
    }
}

fn lease(run: &Run) -> String {
    let lasts = run.lease.and_then(|lease| std::time::Duration::try_from(lease).ok());
    match (lasts, &run.lease_ends_at) {
        (None, _) => String::new(),
        (Some(lasts), None) => time::brief(lasts),
        (Some(lasts), ends @ Some(_)) => {
            format!("{}, until {}", time::brief(lasts), time::moment(ends.as_ref()))
        }
    }
}

/// Describes when the present daemon adopted the run, and how many restarts of the daemon the run survived.
fn adopted(run: &Run) -> String {
    match (&run.adopted_at, run.restarts) {
        (None, _) => String::new(),
        (at, 1) => time::moment(at.as_ref()),
        (at, restarts) => {
            format!("{}, and {} times before", time::moment(at.as_ref()), restarts.saturating_sub(1))
        }
    }
}

fn changes(run: &Run) -> &'static str {
    match run.changes() {
        Changes::Unspecified => "",
        Changes::Pending => "neither accepted nor discarded: `coffer run diff` shows them",
        Changes::Accepted => "accepted",
        Changes::Discarded => "discarded",
    }
}

fn workspace(run: &Run) -> String {
    match run.workspace.as_ref().and_then(|workspace| workspace.source.as_ref()) {
        Some(Source::Bind(bind)) => format!("bind {}", bind.path),
        Some(Source::Managed(managed)) if managed.workspace_id.is_empty() => "managed".into(),
        Some(Source::Managed(managed)) => format!("managed, of run {}", managed.workspace_id),
        Some(Source::Overlay(overlay)) => format!("overlay on {}", overlay.path),
        Some(Source::Base(base)) => format!("base {}", base.base_id),
        Some(Source::Checkpoint(checkpoint)) => format!("checkpoint {}", checkpoint.checkpoint_id),
        Some(Source::Clone(clone)) => {
            let at = if clone.revision.is_empty() { "" } else { " at " };
            format!("clone of {}{}{at}{}", clone.repository, clone.url, clone.revision)
        }
        None => String::new(),
    }
}

/// Names the checkpoints that the daemon makes of the run by itself.
fn checkpoints(run: &Run) -> String {
    let Some(automatic) = &run.checkpoints else { return String::new() };
    let moment = match automatic.every() {
        Every::Turn => "before each task",
        Every::Write => "after each write",
        Every::Unspecified => return String::new(),
    };
    format!("{moment}, the newest {} are kept", automatic.keep)
}

/// Names the checkpoint with whose files the run began.
fn begun_on(run: &Run) -> String {
    let from = run.forked_from.as_ref();
    from.map(|from| format!("checkpoint {} of run {}", from.checkpoint_id, from.run_id)).unwrap_or_default()
}

fn limits(limits: &Limits) -> String {
    let mut parts = Vec::new();
    if limits.memory_bytes > 0 {
        parts.push(format!("memory {}", quantity::bytes(limits.memory_bytes)));
    }
    if limits.cpu_millis > 0 {
        parts.push(format!("cpus {}.{:03}", limits.cpu_millis / 1000, limits.cpu_millis % 1000));
    }
    if limits.pids > 0 {
        parts.push(format!("processes {}", limits.pids));
    }
    if limits.file_size_bytes > 0 {
        parts.push(format!("file size {}", quantity::bytes(limits.file_size_bytes)));
    }
    if limits.open_files > 0 {
        parts.push(format!("open files {}", limits.open_files));
    }
    if limits.disk_bytes > 0 {
        parts.push(format!("disk {} in {} files", quantity::bytes(limits.disk_bytes), limits.disk_files));
    }
    parts.join(", ")
}

fn disk(disk: &DiskUse) -> String {
    let least = if disk.at_least { "more than " } else { "" };
    let used = format!("{least}{} in {} files", quantity::bytes(disk.used_bytes), disk.used_files);
    match disk.state() {
        disk_use::State::Over => format!("{used}: the quota is used up, writes are refused"),
        disk_use::State::Locked => {
            format!("{used}: the quota is used up, writes and commands are refused")
        }
        _ => used,
    }
}

/// Describes the connections since the daemon created or adopted the run.
fn connections(egress: &Egress) -> String {
    let all = egress.open_connections.saturating_add(egress.ended_connections);
    format!(
        "{} open, {all} in all, {} refused; {} lookups of names refused",
        egress.open_connections, egress.refused_connections, egress.refused_names
    )
}

fn moved(egress: &Egress) -> String {
    let (out, into) = (quantity::bytes(egress.bytes_out), quantity::bytes(egress.bytes_in));
    format!("{out} out, {into} in")
}

#[cfg(test)]
mod tests {
    use wire::v1::budget_bound::{Scope, Unit};
    use wire::v1::run::{ColdBecause, StartKind, State};
    use wire::v1::{BindWorkspace, BudgetBound, HardeningFact, ModelCounts, ModelUse, Workspace};

    use super::*;
    use crate::output::Look;

    #[test]
    fn the_setting_of_automatic_checkpoints_is_shown() {
        let of = |every: Every| {
            let automatic = wire::v1::AutomaticCheckpoints { every: every.into(), keep: 3 };
            checkpoints(&Run { checkpoints: Some(automatic), ..Default::default() })
        };
        assert_eq!(of(Every::Turn), "before each task, the newest 3 are kept");
        assert_eq!(of(Every::Write), "after each write, the newest 3 are kept");
        assert_eq!(checkpoints(&Run::default()), "");
    }

    #[test]
    fn known_facts_are_shown() {
        let run = Run {
            run_id: "r".into(),
            state: State::Failed.into(),
            failure: "its agent ended\nstate    READY".into(),
            workspace: Some(Workspace {
                source: Some(Source::Bind(BindWorkspace { path: "/srv/a".into() })),
            }),
            limits: Some(Limits { memory_bytes: 1 << 30, cpu_millis: 1500, pids: 64, ..Default::default() }),
            egress: Some(Egress {
                digest: "5e2c".into(),
                open_connections: 2,
                ended_connections: 5,
                refused_names: 7,
                refused_connections: 1,
                bytes_out: 100,
                bytes_in: 2048,
                ..Default::default()
            }),
            model_use: Some(ModelUse {
                total: Some(ModelCounts { requests: 2, output_tokens: 70, ..Default::default() }),
                bounds: vec![BudgetBound {
                    scope: Scope::Run.into(),
                    unit: Unit::Requests.into(),
                    used: 2,
                    limit: 5,
                    renews_at: None,
                }],
            }),
            start_kind: StartKind::Cold.into(),
            cold_because: ColdBecause::NoneWaits.into(),
            labels: [("b".into(), "2".into()), ("a".into(), "1".into())].into(),
            companions: vec![
                CompanionStatus {
                    name: "cache".into(),
                    image: "redis:7".into(),
                    state: CompanionState::Ready.into(),
                    ports: vec![6379, 6380],
                    address: "198.18.0.1".into(),
                    ..Default::default()
                },
                CompanionStatus {
                    name: "db".into(),
                    image: "postgres:15".into(),
                    state: CompanionState::Exited.into(),
                    exit_code: 3,
                    ..Default::default()
                },
            ],
            hardening: vec![HardeningFact { name: "network".into(), value: "none".into() }],
            ..Default::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&run, &mut page);
        assert_eq!(
            page.as_str(),
            "run        r\n\
             state      FAILED\n\
             failure    its agent ended␊state    READY\n\
             workspace  bind /srv/a\n\
             limits     memory 1.0 GiB, cpus 1.500, processes 64\n\
             egress     2 open, 7 in all, 1 refused; 7 lookups of names refused\n\
             moved      100 B out, 2.0 KiB in\n\
             rules      5e2c\n\
             models     2 requests, 70 tokens\n\
             budget     3 of 5 requests for the run\n\
             start      cold: all that waited were taken\n\
             labels     a=1 b=2\n\
             \nCompanions\n  cache  READY, port 6379 6380 at 198.18.0.1, redis:7\n  \
             db     EXITED with 3, no port, postgres:15\n\
             \nHardening in force\n  network  none\n"
        );
    }
}
