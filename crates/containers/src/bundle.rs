//! The bundle of certificates of a run whose egress opens connections: the host's roots and the run's own authority.
//!
//! One file of the daemon is mounted read-only at a fixed path, and over each bundle that the image has; another one, with the same
//! certificates in the form that Java reads, in the same way. A place that the image lacks stays without a mount: the runtime would make a
//! mount point there, which a writable root would keep. The daemon rewrites the files in place, so all their mounts show the same content.

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

/// Number of paths at the end of [`PLACES`] that are for Java.
const OF_JAVA: usize = 5;
/// Paths of the bundles of distributions: Debian and Alpine, then Fedora, then Alpine. Those for Java are of the same distributions, and
/// of Eclipse Temurin.
pub(crate) const PLACES: [&str; 9] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/opt/java/openjdk/lib/security/cacerts",
    "/opt/java/openjdk/jre/lib/security/cacerts",
];

/// Returns the directories of a place, outermost first. `/etc` of each image is a directory.
pub(crate) fn parents(place: &str) -> impl Iterator<Item = &str> {
    let parents = place.match_indices('/').map(|(at, _)| &place[..at]);
    parents.filter(|parent| !["", "/etc"].contains(parent))
}

/// Returns the daemon's file with the certificates for Java, beside the bundle.
pub fn java_store(bundle: &Path) -> PathBuf {
    bundle.with_file_name("cacerts.p12")
}

/// Returns the places of the list among these paths, which a record has stored.
pub fn known_bundles<'p>(paths: impl IntoIterator<Item = &'p str>) -> Vec<&'static str> {
    paths.into_iter().filter_map(|path| PLACES.into_iter().find(|place| *place == path)).collect()
}

/// Returns the mounts of the bundle at `source` and of the store for Java: their own paths, and those of the image's bundles.
pub fn bundle_mounts(source: &Path, image: &[&'static str]) -> impl Iterator<Item = (PathBuf, &'static str)> {
    [BUNDLE_PATH, JAVA_STORE_PATH].iter().chain(image).map(move |target| {
        let is_of_java =
            *target == JAVA_STORE_PATH || PLACES.iter().rev().take(OF_JAVA).any(|place| place == target);
        (if is_of_java { java_store(source) } else { source.to_owned() }, *target)
    })
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
            let name = if is_java { "cacerts.p12" } else { "ca-bundle.pem" };
            assert_eq!(file, Path::new("/srv/run").join(name), "{target}");
        }
    }

    #[test]
    fn stored_paths_are_places_of_the_list_or_nothing() {
        let stored = ["/etc/shadow", PLACES[2], "/etc/ssl/cert.pem/", PLACES[0]];
        assert_eq!(known_bundles(stored), [PLACES[2], PLACES[0]]);
    }
}
