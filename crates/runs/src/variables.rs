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

#[cfg(test)]
mod tests {
    use egress_rules::SecretName;

    use super::*;

    fn placeholder(variable: &str, value: &str) -> Placeholder {
        let secret = SecretName::parse("model").unwrap();
        Placeholder { variable: variable.to_owned(), secret, value: value.to_owned() }
    }

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Environment::from_daemon(variables.collect())
    }

    #[test]
    fn a_run_replaces_the_path_of_its_bundle_and_no_placeholder() {
        let own = environment(&[("PIP_CERT", "/workspace/mine.pem"), ("KEY", "own"), ("MODE", "x")]);
        let found = for_connections(&own, true, &[placeholder("KEY", "key-0123")]).unwrap();
        let of = |name| found.get(name).unwrap();
        assert_eq!((of("PIP_CERT"), of("KEY"), of("MODE")), ("/workspace/mine.pem", "key-0123", "x"));
        for name in BUNDLE_VARIABLES.into_iter().filter(|name| *name != "PIP_CERT") {
            assert_eq!(of(name), BUNDLE_PATH, "{name}");
        }
        assert_eq!(found.variables().len(), BUNDLE_VARIABLES.len() + 2);
    }

    #[test]
    fn a_run_without_opened_connections_keeps_its_variables() {
        let own = environment(&[("MODE", "x")]);
        assert_eq!(for_connections(&own, false, &[]).unwrap(), own);
    }

    #[test]
    fn variables_of_the_run_and_its_profile_are_bounded_together() {
        let many: Vec<String> = (0..250).map(|number| format!("V{number}")).collect();
        let own: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "x")).collect();
        let own = environment(&own);
        assert!(for_connections(&own, false, &[]).is_ok());
        let refused = for_connections(&own, true, &[]).unwrap_err();
        assert_eq!(refused.reason, Reason::InvalidArgument);
        assert!(refused.message.contains("variables of the profile"), "{}", refused.message);
    }
}
