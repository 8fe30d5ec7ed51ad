//! `--check-config`: whether the daemon could start, as far as that can be told without any effect.
//!
//! What is written in the files must be in order, or the check fails. What this host lacks may come later, as an engine that
//! is not started yet does: it is told, and the check succeeds.

use std::path::Path;

use anyhow::Context as _;
use refusal::chain;
use webhook::Sender;

use crate::config::Config;
use crate::{policy, startup};

/// Checks what `file` says, and what it names.
pub(crate) fn check(file: &Path, config: &Config) -> anyhow::Result<()> {
    policy::load(config.policy_dir.as_ref()).context("the policy")?;
    if !config.webhooks.is_empty() || config.audit.hooks.webhook.is_some() {
        Sender::new().map_err(|why| anyhow::anyhow!("webhooks: {why}"))?;
    }
    println!("{}: configuration and policy are in order", file.display());
    if let Err(error) = jail::supported() {
        eprintln!("note: {}; the daemon does not start on this host", chain(&error));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Err(error) = runtime.block_on(startup::engine(config)) {
        eprintln!("note: {error:#}; the daemon does not start until that is mended");
    }
    // A host whose profiles all name images needs none.
    if let Err(error) = runs::read_busybox(config.busybox.clone()) {
        eprintln!("note: {error}");
    }
    Ok(())
}
