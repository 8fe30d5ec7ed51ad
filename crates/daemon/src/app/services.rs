//! Builds the services of the API.

use std::sync::Arc;
use std::time::SystemTime;
use uploads::Uploads;

use anomaly::Alerts;
use anyhow::Context as _;
use audit_service::Index;
use backup_service::Backups;
use bundles::Bundles;
use calls::grants::Grants;
use calls::{Calls, Control, Life, Replays, Transcripts};
use comparisons::Comparisons;
use images::Images;
use listener::{Certificates, GuardLayer, Tokens};
use node::Nodes;
use notices::Push;
use passkeys::Passkeys;
use port_forwarding::PortForwarding;
use terminals::{Readings, Sessions, Terminals};
use web_console::Doors;

use super::broken_store;
use super::parts::Parts;
use crate::config::Config;
use crate::console;
use crate::policy::Loader;
use crate::reload::Reloader;
use crate::rpc::{self, Services};
use readiness::Readiness;

/// Builds the services of the API from the parts that each uses.
pub(super) fn services(
    (calls, parts): (&Arc<Calls>, &Parts),
    config: &Config,
    (tokens, guard, certificates): (Arc<Tokens>, GuardLayer, Option<Arc<Certificates>>),
    (index, alerts, grants, loader): (Arc<Index>, Arc<Alerts>, Arc<Grants>, Arc<Loader>),
    (reloader, readiness): (Arc<Reloader>, Arc<Readiness>),
    (push, doors): (Option<Arc<Push>>, Option<Arc<Doors>>),
) -> anyhow::Result<Services> {
    let Parts { control, workers, records, bases, checkpoints, node, life, store } = parts;
    let Control { gateway, limits, .. } = control;
    let (audit, table, processes) = (&records.audit, &records.table, &workers.processes);
    let (runs, Life { tasks, stop, .. }) = (&workers.runs, life);
    let (audit, gateway, runs) = (|| audit.clone(), || gateway.clone(), || runs.clone());
    let (tasks, stop) = (|| tasks.clone(), || stop.clone());
    let bundles = Bundles::open(&config.state_dir, config.spool_min_free, runs(), audit(), store.clone())
        .context("cannot make the directory of bundles in state_dir")?;
    let backups = Backups::open(&config.state_dir, config.spool_min_free, audit())
        .context("cannot make the directory of backups in state_dir")?;
    let replays = Arc::new(Replays::new(audit(), gateway(), runs()));
    let terminals = Terminals {
        sessions: Sessions::new(config.sessions.clone()),
        readings: Readings::default(),
        gateway: gateway(),
        runs: runs(),
        audit: audit(),
        tasks: tasks(),
        stop: stop(),
    };
    let forwarding = PortForwarding::new(
        gateway().in_force().clone(),
        runs(),
        (audit(), records.escalations.clone()),
        (tasks(), stop()),
    );
    let sources = (audit(), control.quotas.clone());
    let images = Images::new(runs().launcher.clone(), sources, gateway().in_force().clone(), config.images);
    let run = run_service(parts, &alerts);
    let (approval, passkeys) = approval_service(parts, doors.as_deref())?;
    Ok(Services {
        image: rpc::image::Service { images: Arc::new(images), tasks: tasks(), stop: stop() },
        run: run.clone(),
        base: rpc::base::Service { bases: bases.clone(), tasks: tasks(), stop: stop() },
        checkpoint: rpc::checkpoint::Service {
            checkpoints: checkpoints.clone(),
            comparisons: Arc::new(Comparisons::new(runs(), audit(), index.clone())),
            runs: run,
            tasks: tasks(),
        },
        tool: tools(calls, parts),
        process: rpc::process::Service {
            calls: calls.clone(),
            runs: runs(),
            processes: processes.clone(),
            stop: stop(),
        },
        session: rpc::session::Service {
            calls: calls.clone(),
            runs: runs(),
            processes: processes.clone(),
            stop: stop(),
        },
        file: rpc::file::Service {
            calls: calls.clone(),
            table: table.clone(),
            gateway: gateway(),
            runs: runs(),
            uploads: Arc::new(Uploads::new(runs().launcher.directories.privates())),
            tasks: tasks(),
        },
        passkey: rpc::passkey::Service { passkeys, approvals: approval.clone(), tasks: tasks() },
        push: rpc::push::Service { push, audit: audit(), tasks: tasks() },
        approval,
        audit: rpc::audit::Service {
            audit: audit(),
            index,
            bundles: Arc::new(bundles),
            tasks: tasks(),
            stop: stop(),
        },
        backup: rpc::backup::Service { backups: Arc::new(backups), tasks: tasks(), stop: stop() },
        policy: rpc::policy::Service {
            gateway: gateway(),
            runs: runs(),
            approvals: control.approvals.clone(),
            loader,
            replays,
        },
        alert: rpc::alert::Service { alerts, runs: runs(), audit: audit(), stop: stop() },
        permission: rpc::permission::Service { gateway: gateway(), grants, audit: audit(), tasks: tasks() },
        egress: rpc::egress::Service { runs: runs(), stop: stop() },
        forward: rpc::forward::Service(Arc::new(forwarding)),
        limit: rpc::limit::Service { limits: limits.clone(), runs: runs() },
        terminal: rpc::terminal::Service(Arc::new(terminals)),
        trash: rpc::trash::Service { runs: runs() },
        usage: rpc::usage::Service { runs: runs() },
        console: rpc::console::Service { doors },
        node: Nodes(node.clone()),
        token: rpc::token::Service { tokens, gateway: gateway(), tasks: tasks() },
        host: rpc::host::Service {
            runs: runs(),
            gateway: gateway(),
            engine_socket: config.engine.path().to_owned(),
            guard,
            certificates,
        },
        daemon: rpc::daemon::Service { reloader, readiness, gateway: gateway(), started: SystemTime::now() },
    })
}

/// Builds the service of approvals, and the passkeys that decide on some of them.
fn approval_service(
    parts: &Parts,
    doors: Option<&Doors>,
) -> anyhow::Result<(rpc::approval::Service, Arc<Passkeys>)> {
    let (Parts { control, workers, records, life, store, .. }, relying_party) =
        (parts, doors.and_then(console::relying_party));
    let passkeys = Passkeys::open(store.clone(), records.audit.clone(), relying_party);
    let passkeys = Arc::new(passkeys.map_err(broken_store)?);
    let approval = rpc::approval::Service {
        approvals: control.approvals.clone(),
        gateway: control.gateway.clone(),
        runs: workers.runs.clone(),
        audit: records.audit.clone(),
        passkeys: passkeys.clone(),
        stop: life.stop.clone(),
    };
    Ok((approval, passkeys))
}

/// Builds the service through which agents make calls, for gRPC and for MCP.
pub(super) fn tools(calls: &Arc<Calls>, parts: &Parts) -> rpc::tool::Service {
    let transcripts =
        Transcripts { calls: calls.clone(), runs: parts.workers.runs.clone(), store: parts.store.clone() };
    rpc::tool::Service {
        calls: calls.clone(),
        transcripts: Arc::new(transcripts),
        table: parts.records.table.clone(),
        approvals: parts.control.approvals.clone(),
        gateway: parts.control.gateway.clone(),
        runs: parts.workers.runs.clone(),
        spool: parts.records.spool.clone(),
        upstreams: parts.workers.upstreams.clone(),
    }
}

fn run_service(parts: &Parts, alerts: &Arc<Alerts>) -> rpc::run::Service {
    let Parts { control, workers, records, life, .. } = parts;
    rpc::run::Service {
        runs: workers.runs.clone(),
        processes: workers.processes.clone(),
        table: records.table.clone(),
        audit: records.audit.clone(),
        gateway: control.gateway.clone(),
        alerts: alerts.clone(),
        quotas: control.quotas.clone(),
        tasks: life.tasks.clone(),
        stop: life.stop.clone(),
        log_readers: rpc::companion_log::Readers::default(),
    }
}
