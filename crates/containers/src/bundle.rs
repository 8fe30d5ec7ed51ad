//! The bundle of certificates of a run whose egress opens connections: the host's roots and the run's own authority.
//!
//! One file of the daemon is mounted read-only at a fixed path, and over each bundle that the image has; another one, with the same
//! certificates in the form that Java reads, in the same way. A place that the image lacks stays without a mount: the runtime would make a
//! mount point there, which a writable root would keep. Chromium reads the authority from a policy file that no image has, so this one file
//! does get a mount point, where the image has the directory of Chromium's configuration. The daemon rewrites the files in place, so all
//! their mounts show the same content.

use std::path::{Path, PathBuf};

/// Path of the bundle in every container that has one.
pub const BUNDLE_PATH: &str = "/.cofferdam/ca-bundle.pem";

/// Path of the same certificates for Java, in every container that has a bundle.
pub(crate) const JAVA_STORE_PATH: &str = "/.cofferdam/cacerts.p12";

/// Variables by which programs find a bundle.
pub const BUNDLE_VARIABLES: [&str; 10] = [
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];

/// Paths of the bundles of distributions: Debian and Alpine, then Fedora, then Alpine. Those for Java are of the same distributions, and
/// of Eclipse Temurin. The last ones are [`POLICIES`].
pub(crate) const PLACES: [&str; 12] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/opt/java/openjdk/lib/security/cacerts",
    "/opt/java/openjdk/jre/lib/security/cacerts",
    POLICIES[0],
    POLICIES[1],
    POLICIES[2],
];

/// Paths of a policy file for Chromium of Debian and Fedora, for Chrome, and for Chromium of Ubuntu. It is beside the files of the image.
pub const POLICIES: [&str; 3] = [
    "/etc/chromium/policies/managed/cofferdam.json",
    "/etc/opt/chrome/policies/managed/cofferdam.json",
    "/etc/chromium-browser/policies/managed/cofferdam.json",
];

/// Number of directories at the end of the way to a policy file that an image may lack.
pub(crate) const MADE_FOR_POLICIES: usize = 2;

/// Returns the directories of a place, outermost first. `/etc` of each image is a directory.
pub(crate) fn parents(place: &str) -> impl Iterator<Item = &str> {
    let parents = place.match_indices('/').map(|(at, _)| &place[..at]);
    parents.filter(|parent| !["", "/etc"].contains(parent))
}

/// Returns the daemon's file with the certificates for Java, beside the bundle.
pub fn java_store(bundle: &Path) -> PathBuf {
    bundle.with_file_name("cacerts.p12")
}

/// Returns the daemon's file with the policy for Chromium, beside the bundle.
pub fn chromium_policy(bundle: &Path) -> PathBuf {
    bundle.with_file_name("chromium.json")
}

/// Returns the daemon's file for this path of a container.
fn file_of(bundle: &Path, target: &str) -> PathBuf {
    if POLICIES.contains(&target) {
        chromium_policy(bundle)
    } else if target == JAVA_STORE_PATH || target.ends_with("/cacerts") {
        java_store(bundle)
    } else {
        bundle.to_owned()
    }
}

/// Returns the places of the list among these paths, which a record has stored.
pub fn known_bundles<'p>(paths: impl IntoIterator<Item = &'p str>) -> Vec<&'static str> {
    paths.into_iter().filter_map(|path| PLACES.into_iter().find(|place| *place == path)).collect()
}

/// Returns the mounts of the bundle at `source`, of the store for Java and of the policy for Chromium: their own paths, and those of the
/// image's bundles.
pub fn bundle_mounts(source: &Path, image: &[&'static str]) -> impl Iterator<Item = (PathBuf, &'static str)> {
    [BUNDLE_PATH, JAVA_STORE_PATH].iter().chain(image).map(move |target| (file_of(source, target), *target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_of_a_place_is_looked_at() {
        assert_eq!(
            parents("/opt/java/openjdk/cacerts").collect::<Vec<_>>(),
            ["/opt", "/opt/java", "/opt/java/openjdk"]
        );
        assert_eq!(parents("/etc/ssl/cert.pem").collect::<Vec<_>>(), ["/etc/ssl"]);
        assert_eq!(
            parents("/etc/pki/tls/certs/ca-bundle.crt").collect::<Vec<_>>(),
            ["/etc/pki", "/etc/pki/tls", "/etc/pki/tls/certs"]
        );
    }

    #[test]
    fn each_place_has_the_certificates_in_its_form() {
        let source = Path::new("/srv/run/ca-bundle.pem");
        let mounts: Vec<_> = bundle_mounts(source, &PLACES).collect();
        assert_eq!(mounts.len(), PLACES.len() + 2);
        for (file, target) in mounts {
            let is_java = target.ends_with("cacerts") || target == JAVA_STORE_PATH;
            let name = match target {
                policy if policy.contains("/policies/") => "chromium.json",
                _ if is_java => "cacerts.p12",
                _ => "ca-bundle.pem",
            };
            assert_eq!(file, Path::new("/srv/run").join(name), "{target}");
        }
    }

    #[test]
    fn a_policy_is_in_a_directory_that_the_image_may_lack() {
        for policy in POLICIES {
            let made: Vec<_> = parents(policy).collect();
            let (of_image, made) = made.split_at(made.len() - MADE_FOR_POLICIES);
            assert!(!of_image.is_empty() && !of_image.iter().any(|parent| parent.ends_with("policies")));
            assert!(made[0].ends_with("/policies") && made[1].ends_with("/policies/managed"), "{made:?}");
        }
    }

    #[test]
    fn stored_paths_are_places_of_the_list_or_nothing() {
        let stored = ["/etc/shadow", PLACES[2], "/etc/ssl/cert.pem/", PLACES[0]];
        assert_eq!(known_bundles(stored), [PLACES[2], PLACES[0]]);
    }
}
