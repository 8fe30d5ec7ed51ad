//! The bundle of certificates of a run whose egress opens connections: the host's roots and the run's own authority.
//!
//! One file of the daemon is mounted read-only at a fixed path, and over each bundle that the image has. A place that the image lacks stays
//! without a mount: the runtime would make a mount point there, which a writable root would keep. The daemon rewrites the file in place, so
//! all its mounts show the same content.

use std::path::Path;

/// Path of the bundle in every container that has one.
pub const BUNDLE_PATH: &str = "/.cofferdam/ca-bundle.pem";

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

/// Paths of the bundles of distributions: Debian and Alpine, then Fedora, then Alpine.
pub(crate) const PLACES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the directories of a place below `/etc`, outermost first.
pub(crate) fn parents(place: &str) -> impl Iterator<Item = &str> {
    let etc = "/etc".len();
    place.match_indices('/').map(move |(at, _)| &place[..at]).filter(move |parent| parent.len() > etc)
}

/// Returns the places of the list among these paths, which a record has stored.
pub fn known_bundles<'p>(paths: impl IntoIterator<Item = &'p str>) -> Vec<&'static str> {
    paths.into_iter().filter_map(|path| PLACES.into_iter().find(|place| *place == path)).collect()
}

/// Returns the mounts of the bundle at `source`: its own path, and those of the image's bundles.
pub(crate) fn targets<'b>(
    source: Option<&'b Path>,
    image: &'b [&'static str],
) -> impl Iterator<Item = (&'b Path, &'static str)> {
    let all = [BUNDLE_PATH].into_iter().chain(image.iter().copied());
    source.into_iter().flat_map(move |source| all.clone().map(move |target| (source, target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_of_a_place_is_looked_at() {
        assert_eq!(parents("/etc/ssl/cert.pem").collect::<Vec<_>>(), ["/etc/ssl"]);
        assert_eq!(
            parents("/etc/pki/tls/certs/ca-bundle.crt").collect::<Vec<_>>(),
            ["/etc/pki", "/etc/pki/tls", "/etc/pki/tls/certs"]
        );
    }

    #[test]
    fn a_container_without_a_bundle_has_no_mount_of_one() {
        assert_eq!(targets(None, &PLACES).count(), 0);
        let (source, image) = (Path::new("/srv/ca-bundle.pem"), [PLACES[0]]);
        let of_two = targets(Some(source), &image).collect::<Vec<_>>();
        assert_eq!(of_two, [(source, BUNDLE_PATH), (source, PLACES[0])]);
    }

    #[test]
    fn stored_paths_are_places_of_the_list_or_nothing() {
        let stored = ["/etc/shadow", PLACES[2], "/etc/ssl/cert.pem/", PLACES[0]];
        assert_eq!(known_bundles(stored), [PLACES[2], PLACES[0]]);
    }
}
