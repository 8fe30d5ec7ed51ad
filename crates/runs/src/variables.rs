//! The environment variables of a run: plain ones, which its record has, and secret ones, which the store seals.

use std::collections::BTreeMap;

use gateway::Profile;
use operations::{Environment, Reason};
use refusal::Refusal;
use store::run::Spec;

/// Holds the variables that a request names to their bounds, all together.
pub(crate) fn parse(
    env: &BTreeMap<String, String>,
    secret_env: &BTreeMap<String, String>,
    profile: &Profile,
) -> Result<(), Refusal> {
    // By themselves, so that the message names the field.
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

/// What every command of the run has.
pub(crate) fn environment(spec: &Spec, secrets: &BTreeMap<String, String>) -> Environment {
    Environment::from_daemon(together(&spec.env, secrets))
}

/// Why the profile does not let a run have these.
pub(crate) fn refused(profile: &Profile, environment: &Environment) -> Option<String> {
    profile.exec.refuses_for_a_run(environment.variables())
}

fn together(env: &BTreeMap<String, String>, secrets: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    env.iter().chain(secrets).map(|(name, value)| (name.clone(), value.clone())).collect()
}
