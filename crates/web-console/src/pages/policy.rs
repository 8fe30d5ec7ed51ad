//! The policy in force, and one of its profiles.

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use maud::{Markup, html};
use wire::v1::{GetPolicyRequest, GetPolicyResponse};

use super::elements::{address, facts};
use super::foreign;
use super::request::Query;
use crate::State;
use crate::api::quick;
use crate::error::Problem;
use crate::layout::page;
use crate::viewer::Viewer;

pub(super) fn routes() -> Router<State> {
    Router::new().route("/policy", get(shown))
}

async fn shown(viewer: Viewer, Query(query): Query) -> Result<Response, Problem> {
    let policy = viewer.services.policy().get_policy(quick(GetPolicyRequest {})).await?.into_inner();
    Ok(page("Policy", Some(&viewer), render(&policy, query.get("profile"))))
}

fn render(policy: &GetPolicyResponse, profile: &str) -> Markup {
    html! {
        h1 { "Policy" }
        (facts([
            ("Digest", Some(foreign::line(&policy.digest))),
            ("Roles", Some(foreign::line(&policy.roles.join(", ")))),
        ]))
        h2 { "Profiles" }
        ul {
            @for name in &policy.profiles {
                li {
                    a href=(address("/policy", &[("profile", name)])) aria-current=[(name == profile).then_some("true")] {
                        (foreign::heading(name))
                    }
                }
            }
        }
        @if !profile.is_empty() {
            h2 { "Profile " (foreign::heading(profile)) }
            @match section(&policy.yaml, profile) {
                Some(yaml) => (foreign::block(&yaml)),
                None => p.note { "The policy has no profile of this name." },
            }
        }
        h2 { "The whole policy" }
        details { summary { "Show it" } (foreign::block(&policy.yaml)) }
    }
}

/// Returns the lines of a profile: those beneath its name, in the mapping `profiles` of the policy.
fn section(yaml: &str, profile: &str) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
    let mut lines = yaml
        .lines()
        .skip_while(|line| line.trim_end() != "profiles:")
        .skip(1)
        .take_while(|line| indent(line) > 0);
    let is_name = |line: &&str| {
        let name = line.trim().strip_suffix(':').unwrap_or_default();
        indent(line) == 2 && (name == profile || name.trim_matches(['"', '\'']) == profile)
    };
    lines.find(is_name)?;
    let inner = lines.take_while(|line| indent(line) > 2);
    let found: Vec<&str> = inner.map(|line| line.get(4..).unwrap_or(line.trim_start())).collect();
    Some(found.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::super::foreign::tests::{HOSTILE, assert_harmless};
    use super::*;

    const YAML: &str = "version: 1\nprofiles:\n  build:\n    exec:\n      default: allow\n    x: 1\n  \"review\":\n    y: 2\nroles:\n  build:\n    z: 3\n";

    #[test]
    fn the_lines_of_one_profile_are_found() {
        assert_eq!(section(YAML, "build").as_deref(), Some("exec:\n  default: allow\nx: 1"));
        assert_eq!(section(YAML, "review").as_deref(), Some("y: 2"));
        assert_eq!(section("profiles:\n  a:\n   é", "a").as_deref(), Some("é"));
        for none in ["", "exec", "z", "roles", "buil"] {
            assert_eq!(section(YAML, none), None, "{none}");
        }
    }

    #[test]
    fn texts_of_the_policy_are_harmless() {
        let policy = GetPolicyResponse {
            digest: HOSTILE.to_owned(),
            profiles: vec![HOSTILE.to_owned()],
            roles: vec![HOSTILE.to_owned()],
            yaml: format!("profiles:\n  a:\n    {HOSTILE}\n"),
        };
        assert_harmless(&render(&policy, "a"));
        assert_harmless(&render(&policy, HOSTILE));
    }
}
