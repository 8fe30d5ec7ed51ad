//! Checks for `--check-config` that the daemon could start, as far as that is possible without any effect.
//!
//! A problem in the files makes the check fail. Something that this host lacks may come later, for example an engine
//! that has not started yet. The check then prints a note and succeeds.

use std::collections::BTreeMap;
use std::path::Path;

use oidc::Issuers;
use refusal::chain;
use rustix::fs::Access;
use secrets::{SecretError, Secrets, Source};
use webhook::{Sender, Tls};

use crate::config::{Config, unpriced};
use crate::startup;

/// Checks the configuration in `file`, and the files that it names.
pub(crate) fn check(file: &Path, config: &Config) -> anyhow::Result<()> {
    let policy = startup::policy(config)?;
    if !config.webhooks.is_empty() || config.audit.hooks.webhook.is_some() {
        Sender::new().map_err(|why| anyhow::anyhow!("webhooks: {why}"))?;
    }
    if config.traces.is_some() {
        Tls::new().map_err(|why| anyhow::anyhow!("traces: {why}"))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("{}: configuration and policy are in order", file.display());
    if let Err(error) = jail::supported() {
        eprintln!("note: {}; the daemon does not start on this host", chain(&error));
    }
    for note in unpriced(&config.model_prices, &policy) {
        eprintln!("note: {note}");
    }
    for note in runtime.block_on(secrets(config)) {
        eprintln!("note: {note}");
    }
    for note in runtime.block_on(issuers(config)) {
        eprintln!("note: {note}");
    }
    if let Err(error) = runtime.block_on(startup::engine(config)) {
        eprintln!("note: {error:#}; the daemon does not start until that is fixed");
    }
    // Only a note: a host whose profiles all name images needs no busybox.
    if let Err(error) = runs::read_busybox(config.busybox.clone()) {
        eprintln!("note: {error}");
    }
    Ok(())
}

/// Returns a note for each secret that has no value now. No command is run, but its program has to be there.
///
/// These are no errors, because a file may come later, and a check by hand has neither the variables nor the credentials of the service.
async fn secrets(config: &Config) -> Vec<String> {
    let (commands, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        config.secrets.clone().into_iter().partition(|(_, source)| matches!(source, Source::Command { .. }));
    let unreadable = Secrets::new(others).unreadable().await;
    let mut notes: Vec<String> = unreadable.iter().map(SecretError::for_operator).collect();
    for (name, source) in commands {
        if let Source::Command { argv, .. } = source
            && let Some(program) = argv.first()
            && let Err(error) = rustix::fs::access(program.as_str(), Access::EXEC_OK)
        {
            let error = std::io::Error::from(error);
            notes.push(format!("the secret {name} cannot be read: {program} cannot be executed: {error}"));
        }
    }
    notes.iter().map(|note| format!("{note}. Requests that need it are refused until then")).collect()
}

/// Returns a note for each issuer whose keys cannot be loaded.
///
/// These are no errors, because an issuer may be down for a while.
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
