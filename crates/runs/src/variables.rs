//! The environment variables of a run. Its record has the plain ones, and the store seals the secret ones.

use std::collections::BTreeMap;

use crate::placeholders::Placeholder;
use crate::record::Spec;
use containers::{BUNDLE_PATH, BUNDLE_VARIABLES};
use operations::{Environment, Reason};
use policy::Profile;
use refusal::Refusal;

/// Checks the limits of the variables in a request, each kind alone and both together.
pub(crate) fn parse(
    env: &BTreeMap<String, String>,
    secret_env: &BTreeMap<String, String>,
    profile: &Profile,
) -> Result<(), Refusal> {
    // Check each field alone, so that the message names it.
    Environment::parse("env", env.clone())?;
    Environment::parse("secret_env", secret_env.clone())?;
    if let Some(name) = env.keys().find(|name| secret_env.contains_key(*name)) {
        return Err(Refusal::invalid("secret_env", format!("has {name}, which is in env, too")));
    }
    let all = Environment::parse("env and secret_env", together(env, secret_env))?;
    let placeholders = &profile.egress.settings().placeholders;
    for (field, variables) in [("env", env), ("secret_env", secret_env)] {
        if let Some(name) = variables.keys().find(|name| placeholders.contains_key(*name)) {
            let why =
                format!("has {name}, in which this profile gives the placeholder of a secret: leave it out");
            return Err(Refusal::invalid(field, why));
        }
    }
    match refused(profile, &all) {
        None => Ok(()),
        Some(why) => {
            Err(Refusal::new(Reason::PermissionDenied, format!("env: {why}")).with("rule", "exec.env"))
        }
    }
}

/// Returns the environment of every command of the run.
pub(crate) fn environment(spec: &Spec, secrets: &BTreeMap<String, String>) -> Environment {
    Environment::from_daemon(together(&spec.env, secrets))
}

/// Returns the environment with the variables that connections of the run need.
///
/// The run's own variables replace those that name its bundle of certificates. Placeholders replace all others.
pub(crate) fn for_connections(
    own: &Environment,
    has_bundle: bool,
    placeholders: &[Placeholder],
) -> Result<Environment, Refusal> {
    let bundle = BUNDLE_VARIABLES.iter().filter(|_| has_bundle).map(|name| (*name, BUNDLE_PATH));
    let own = own.variables().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let placeholders = placeholders.iter().map(|held| (held.variable.as_str(), held.value.as_str()));
    let all = bundle.chain(own).chain(placeholders);
    let all = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(Environment::parse("env, with the variables of the profile", all)?)
}

/// Returns the reason that the profile does not allow these variables.
pub(crate) fn refused(profile: &Profile, environment: &Environment) -> Option<String> {
    profile.exec.refuses_for_a_run(environment.variables())
}

fn together(env: &BTreeMap<String, String>, secrets: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    env.iter().chain(secrets).map(|(name, value)| (name.clone(), value.clone())).collect()
}
