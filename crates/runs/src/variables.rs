//! The environment variables of a run. Its record has the plain ones, and the store seals the secret ones.

use std::collections::BTreeMap;

use crate::record::Spec;
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

/// Returns the reason that the profile does not allow these variables.
pub(crate) fn refused(profile: &Profile, environment: &Environment) -> Option<String> {
    profile.exec.refuses_for_a_run(environment.variables())
}

fn together(env: &BTreeMap<String, String>, secrets: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    env.iter().chain(secrets).map(|(name, value)| (name.clone(), value.clone())).collect()
}
