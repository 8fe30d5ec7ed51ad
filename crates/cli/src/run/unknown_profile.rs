//! Suggests profiles to a user whose request names one that the policy does not have.

use wire::v1::GetPolicyRequest;

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

/// Reasons of the daemon for a request that names a profile that does not exist.
const REASONS: [&str; 3] = ["INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"];

/// Adds the most similar profiles to the failure of a request with an unknown profile.
///
/// Returns other failures unchanged, also if this user may not read the policy.
pub(super) async fn explain(failure: Failure, profile: &str, client: &Client) -> Failure {
    if !REASONS.contains(&failure.reason()) {
        return failure;
    }
    match client.policy().get_policy(quick(GetPolicyRequest {})).await {
        Ok(policy) => with_similar(failure, profile, &policy.into_inner().profiles),
        Err(_) => failure,
    }
}

fn with_similar(failure: Failure, profile: &str, known: &[String]) -> Failure {
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    if names.is_empty() || names.contains(&profile) {
        return failure;
    }
    let others = || format!("the policy has the profiles {}", names.join(", "));
    failure.with_hint(ids::meant(profile, &names).unwrap_or_else(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_profile_suggests_those_of_the_policy() {
        let known = ["build".to_owned(), "review".to_owned()];
        let hint = |profile: &str, known: &[String]| {
            let failure = Failure::usage("no such profile").with_hint("the daemon's hint");
            let text = with_similar(failure, profile, known).to_string();
            text.split_once("\nhint: ").unwrap().1.to_owned()
        };
        assert_eq!(hint("reveiw", &known), "did you mean `review`?");
        assert_eq!(hint("production", &known), "the policy has the profiles build, review");
        assert_eq!(hint("review", &known), "the daemon's hint", "the failure has another cause");
        assert_eq!(hint("reveiw", &[]), "the daemon's hint");
    }
}
