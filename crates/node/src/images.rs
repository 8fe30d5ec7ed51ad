//! The images that the engine has, asked for at most every few seconds.

use std::time::{Duration, Instant};

use policy::Policy;
use runs::Launcher;
use wire::v1;

/// Time for which an answer of the engine holds.
const HOLDS: Duration = Duration::from_secs(15);
/// Longest wait for the engine. Its last answer is shown after that.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum number of images that are shown.
const MOST: usize = 256;

/// Names and digests of images, as the engine has answered last.
#[derive(Debug, Default)]
pub(crate) struct Images {
    known: tokio::sync::Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    asked: Option<Instant>,
    /// Reference and id of each image.
    images: Vec<(String, String)>,
    /// Those that a policy permits, and its digest. Each watcher asks once a second.
    permitted: Option<(String, Vec<v1::NodeImage>)>,
}

impl Images {
    /// Returns the images that a profile of the policy permits. If the engine does not answer in time, they are those of its last answer.
    pub(crate) async fn permitted(&self, launcher: &Launcher, policy: &Policy) -> Vec<v1::NodeImage> {
        let mut known = self.known.lock().await;
        if known.asked.is_none_or(|asked| asked.elapsed() >= HOLDS) {
            if let Ok(Ok(listed)) = tokio::time::timeout(PATIENCE, launcher.engine.images()).await {
                let named = listed.into_iter().map(|one| (one.reference.to_string(), one.id.to_string()));
                known.learn(named.collect());
            }
            known.asked = Some(Instant::now());
        }
        known.permitted_by(policy)
    }
}

impl Known {
    fn learn(&mut self, images: Vec<(String, String)>) {
        if self.images != images {
            self.images = images;
            self.permitted = None;
        }
    }

    fn permitted_by(&mut self, policy: &Policy) -> Vec<v1::NodeImage> {
        if let Some((digest, permitted)) = &self.permitted
            && digest == policy.digest()
        {
            return permitted.clone();
        }
        let permitted = self.images.iter().filter(|(reference, _)| is_permitted(policy, reference));
        let image = |(reference, id): &(String, String)| v1::NodeImage {
            reference: reference.clone(),
            image_id: id.clone(),
        };
        let permitted: Vec<_> = permitted.take(MOST).map(image).collect();
        self.permitted = Some((policy.digest().to_owned(), permitted.clone()));
        permitted
    }
}

/// Returns true if a profile permits the image by its name, with or without the tag `latest`.
fn is_permitted(policy: &Policy, reference: &str) -> bool {
    let names = [Some(reference), reference.strip_suffix(":latest")];
    policy
        .profile_names()
        .filter_map(|name| policy.profile(name))
        .any(|profile| names.iter().flatten().any(|name| profile.permits_image(Some(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_judged_again_after_a_change_of_the_policy_or_of_them() {
        let policy = |image: &str| {
            let text = format!("profiles:\n  p: {{ operations: {{}}, image: '{image}' }}\n");
            Policy::from_part("policy", &text).unwrap()
        };
        let images =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), String::new())).collect::<Vec<_>>();
        let shown = |known: &mut Known, policy: &Policy| {
            let shown = known.permitted_by(policy).into_iter();
            shown.map(|image| image.reference).collect::<Vec<_>>()
        };
        let (one, two) = (policy("a:1"), policy("b:1"));
        let mut known = Known::default();
        known.learn(images(&["a:1", "b:1"]));
        assert_eq!(shown(&mut known, &one), ["a:1"]);
        assert_eq!(shown(&mut known, &two), ["b:1"]);
        known.learn(images(&["a:1", "b:1"]));
        assert!(known.permitted.is_some(), "nothing has changed");
        known.learn(images(&["a:1"]));
        assert!(shown(&mut known, &two).is_empty());
        assert_eq!(shown(&mut known, &one), ["a:1"]);
    }

    #[test]
    fn an_image_that_no_profile_permits_is_not_shown() {
        let text =
            "profiles:\n  p: { operations: {}, image: 'tools:1', allowed_images: ['team/*', 'bare'] }\n";
        let policy = Policy::from_part("policy", text).unwrap();
        for (reference, permitted) in [
            ("tools:1", true),
            ("tools:2", false),
            ("team/a:latest", true),
            ("bare:latest", true),
            ("secret-project:latest", false),
        ] {
            assert_eq!(is_permitted(&policy, reference), permitted, "{reference}");
        }
    }
}
