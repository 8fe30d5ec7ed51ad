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
}

impl Images {
    /// Returns the images that a profile of the policy permits. If the engine does not answer in time, they are those of its last answer.
    pub(crate) async fn permitted(&self, launcher: &Launcher, policy: &Policy) -> Vec<v1::NodeImage> {
        let mut known = self.known.lock().await;
        if known.asked.is_none_or(|asked| asked.elapsed() >= HOLDS) {
            if let Ok(Ok(listed)) = tokio::time::timeout(PATIENCE, launcher.engine.images()).await {
                known.images =
                    listed.into_iter().map(|one| (one.reference.to_string(), one.id.to_string())).collect();
            }
            known.asked = Some(Instant::now());
        }
        let permitted = known.images.iter().filter(|(reference, _)| is_permitted(policy, reference));
        let image = |(reference, id): &(String, String)| v1::NodeImage {
            reference: reference.clone(),
            image_id: id.clone(),
        };
        permitted.take(MOST).map(image).collect()
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
