//! Builds the services of the API.

use std::sync::Arc;
use uploads::Uploads;

use anomaly::Alerts;
use anyhow::Context as _;
use audit_service::Index;
use bundles::Bundles;
use calls::grants::Grants;
use calls::{Calls, Replays};
use listener::Tokens;
use oidc::Issuers;
use terminals::{Sessions, Terminals};

use crate::config::Config;
use crate::images::Images;
use crate::policy::Loader;
use crate::rpc::{self, Services};

/// Builds the services of the API from the parts that each uses.
pub(super) fn services(
    calls: &Arc<Calls>,
    config: &Config,
    (tokens, issuers): (Arc<Tokens>, Arc<Issuers>),
    (index, alerts, grants, loader): (Arc<Index>, Arc<Alerts>, Arc<Grants>, Arc<Loader>),
) -> anyhow::Result<Services> {
    let Calls { audit, gateway, limits, approvals, runs, quotas, store, tasks, stop, .. } = &**calls;
    let (audit, gateway, runs) = (|| audit.clone(), || gateway.clone(), || runs.clone());
    let (tasks, stop) = (|| tasks.clone(), || stop.clone());
    let bundles = Bundles::open(&config.state_dir, config.spool_min_free, runs(), audit(), store.clone())
        .context("cannot make the directory of bundles in state_dir")?;
    let replays = Arc::new(Replays::new(audit(), gateway(), runs()));
    let terminals = Terminals {
        sessions: Sessions::new(config.sessions.clone()),
        gateway: gateway(),
        runs: runs(),
        audit: audit(),
        tasks: tasks(),
        stop: stop(),
    };
    let images = Images::new(runs().launcher.clone(), audit(), gateway(), config.images);
    Ok(Services {
        image: rpc::image::Service { images: Arc::new(images), tasks: tasks(), stop: stop() },
        run: rpc::run::Service {
            runs: runs(),
            calls: calls.clone(),
            audit: audit(),
            gateway: gateway(),
            alerts: alerts.clone(),
            quotas: quotas.clone(),
            tasks: tasks(),
            stop: stop(),
        },
        tool: rpc::tool::Service { calls: calls.clone() },
        process: rpc::process::Service { calls: calls.clone() },
        session: rpc::session::Service { calls: calls.clone() },
        file: rpc::file::Service {
            calls: calls.clone(),
            uploads: Arc::new(Uploads::new(calls.runs.launcher.directories.privates())),
        },
        approval: rpc::approval::Service {
            approvals: approvals.clone(),
            gateway: gateway(),
            runs: runs(),
            audit: audit(),
            stop: stop(),
        },
        audit: rpc::audit::Service {
            audit: audit(),
            index,
            bundles: Arc::new(bundles),
            tasks: tasks(),
            stop: stop(),
        },
        policy: rpc::policy::Service {
            gateway: gateway(),
            runs: runs(),
            approvals: calls.approvals.clone(),
            loader,
            replays,
        },
        alert: rpc::alert::Service { alerts, runs: runs(), audit: audit(), stop: stop() },
        permission: rpc::permission::Service { gateway: gateway(), grants, audit: audit(), tasks: tasks() },
        limit: rpc::limit::Service { limits: limits.clone(), runs: runs() },
        terminal: rpc::terminal::Service(Arc::new(terminals)),
        trash: rpc::trash::Service { runs: runs() },
        token: rpc::token::Service { tokens, gateway: gateway(), tasks: calls.tasks.clone() },
        host: rpc::host::Service {
            runs: runs(),
            gateway: gateway(),
            engine_socket: config.engine.path().to_owned(),
            issuers,
        },
    })
}
