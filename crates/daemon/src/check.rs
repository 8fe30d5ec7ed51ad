//! `--check-config`: whether the daemon could start, as far as that can be told without any effect.
//!
//! What is written in the files must be in order, or the check fails. What this host lacks may come later, as an engine that
//! is not started yet does: it is told, and the check succeeds.

use std::path::Path;

use oidc::Issuers;
use refusal::chain;
use webhook::{Sender, Tls};

use crate::config::Config;
use crate::startup;

/// Checks what `file` says, and what it names.
pub(crate) fn check(file: &Path, config: &Config) -> anyhow::Result<()> {
    startup::policy(config)?;
    if !config.webhooks.is_empty() || config.audit.hooks.webhook.is_some() {
        Sender::new().map_err(|why| anyhow::anyhow!("webhooks: {why}"))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}: configuration and policy are in order", file.display());
    if let Err(error) = jail::supported() {
        eprintln!("note: {}; the daemon does not start on this host", chain(&error));
    }
    for note in runtime.block_on(issuers(config)) {
        eprintln!("note: {note}");
    }
    if let Err(error) = runtime.block_on(startup::engine(config)) {
        eprintln!("note: {error:#}; the daemon does not start until that is fixed");
    }
    // A host whose profiles all name images needs none.
    if let Err(error) = runs::read_busybox(config.busybox.clone()) {
        eprintln!("note: {error}");
    }
    Ok(())
}

/// What is wrong with the keys of issuers that are elsewhere: an issuer may be down for a while.
async fn issuers(config: &Config) -> Vec<String> {
    if config.oidc.is_empty() {
        return Vec::new();
    }
    let note =
        |(index, why)| format!("oidc[{index}].jwks: {why}; until that is fixed its tokens are refused");
    let opened = Issuers::open(config.oidc.clone());
    let (issuers, tls) = match (opened, Tls::new()) {
        (Ok(issuers), Ok(tls)) => (issuers, tls),
        (Err(wrong), _) => return vec![note(wrong)],
        (_, Err(why)) => return vec![format!("oidc: {why}")],
    };
    issuers.look(&tls).await.into_iter().map(note).collect()
}
