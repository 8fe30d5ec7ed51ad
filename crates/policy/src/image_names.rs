//! Names of images, as a profile has them.
//!
//! An image has several names: `db`, `db:latest` and the name with the engine's own registry are one. Rules count for all of them, so that
//! no other spelling gets an image other rules.

use document::At;

/// Registry of names without one, as engines have it.
const REGISTRY: &str = "docker.io";
/// Another name of it.
const ALIAS: &str = "index.docker.io";
/// Beginning of names in this registry that have one part.
const OFFICIAL: &str = "library/";
/// Tag of names without one.
const TAG: &str = "latest";
/// Beginning of an image's id, and the number of its hexadecimal digits.
const ID: (&str, usize) = ("sha256:", 64);

/// Reads the name of an image or runtime, which the engine gets unchanged.
pub(super) fn reference(at: &At<'_>, pattern: bool) -> Option<String> {
    let text = at.text()?;
    let body = if pattern { text.strip_suffix('*').unwrap_or(text) } else { text };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/@+-".contains(c);
    if text.len() > 255 || !body.chars().all(plain) || body.starts_with('-') {
        at.problem("must be at most 255 characters of letters, digits and `._:/@+-`");
        return None;
    }
    Some(text.to_owned())
}

/// Returns true if one of the names of images, each of which may end in `*`, is for this image.
pub(crate) fn permits(allowed: &[String], image: &str) -> bool {
    allowed.iter().any(|allowed| closeness(allowed, image).is_some())
}

/// Returns how closely a name, which may end in `*`, describes an image: the number of the bytes of the image's whole name that it has.
///
/// Returns none if it is for others. A name without `*` describes its image most closely.
pub(crate) fn closeness(allowed: &str, image: &str) -> Option<usize> {
    let image = whole(image);
    let Some(beginning) = allowed.strip_suffix('*') else {
        return (whole(allowed) == image).then_some(usize::MAX);
    };
    // What engines add to names has no part in an id, and the beginning of a name is for none.
    if is_id(&image) {
        let is_of_ids = beginning.is_empty() || beginning.starts_with(ID.0);
        return (is_of_ids && image.starts_with(beginning)).then_some(beginning.len());
    }
    let (registry, rest) = parts(&image);
    // The name as people write it, without what engines add.
    let official = rest.strip_prefix(OFFICIAL).filter(|name| registry == REGISTRY && !name.contains('/'));
    let short = if registry == REGISTRY { official.unwrap_or(rest) } else { &image };
    let left = if beginning.contains('/') {
        let (of, begins) = parts(beginning);
        let begins = begins.strip_prefix(OFFICIAL).filter(|_| official.is_some()).unwrap_or(begins);
        let name = official.unwrap_or(rest);
        (of == registry).then(|| name.strip_prefix(begins)).flatten()
    } else {
        short.strip_prefix(beginning)
    };
    left.map(|left| image.len() - left.len())
}

/// Returns the one form of an image's name: `registry/path:tag`, or `registry/path@digest`.
///
/// Engines ignore a tag beside a digest, so it is left out.
fn whole(name: &str) -> String {
    if is_id(name) {
        return name.to_owned();
    }
    let (registry, rest) = parts(name);
    let (tagged, digest) =
        rest.split_once('@').map_or((rest, None), |(tagged, digest)| (tagged, Some(digest)));
    let (path, tag) = match tagged.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (tagged, TAG),
    };
    let official = if registry == REGISTRY && !path.contains('/') { OFFICIAL } else { "" };
    match digest {
        Some(digest) => format!("{registry}/{official}{path}@{digest}"),
        None => format!("{registry}/{official}{path}:{tag}"),
    }
}

/// Returns true for the whole id of an image.
fn is_id(name: &str) -> bool {
    let digits = name.strip_prefix(ID.0).unwrap_or(name);
    digits.len() == ID.1 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Splits a name into its registry and the rest. The first part is a registry if it has a dot, a port or a capital, or is `localhost`.
fn parts(name: &str) -> (&str, &str) {
    let is_registry = |part: &str| {
        part == "localhost" || part.contains(['.', ':']) || part.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    match name.split_once('/') {
        Some((ALIAS, rest)) => (REGISTRY, rest),
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (REGISTRY, name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_for(allowed: &str, image: &str) -> bool {
        permits(&[allowed.to_owned()], image)
    }

    #[test]
    fn all_names_of_an_image_are_one() {
        let names = ["db", "db:latest", "library/db", "HUB/db", "HUB/library/db:latest"]
            .map(|name| name.replace("HUB", REGISTRY));
        for one in &names {
            for other in &names {
                assert!(is_for(one, other), "{one} {other}");
            }
            assert!(is_for(one, &format!("{ALIAS}/library/db")), "{one}");
            for other in
                ["db:1", "team/db", "registry.example.org/db", "localhost/db", "localhost:5000/db", "db1"]
            {
                assert!(!is_for(one, other) && !is_for(other, one), "{one} {other}");
            }
        }
        assert!(is_for("registry.example.org:5000/team/db", "registry.example.org:5000/team/db:latest"));
        assert!(!is_for("registry.example.org:5000/team/db", "registry.example.org/team/db"));
    }

    #[test]
    fn a_digest_is_not_a_tag_and_no_tag_hides_it() {
        let (one, other) = (format!("db@sha256:{}", "a".repeat(64)), format!("db@sha256:{}", "b".repeat(64)));
        assert!(is_for(&one, &one) && is_for(&one, &one.replace('@', ":1@")));
        assert!(!is_for(&one, &other) && !is_for("db", &one) && !is_for("db:1", &one.replace('@', ":1@")));
        // Any tag is no word for any digest.
        assert!(!is_for("db:*", &one) && !is_for("db:1*", &one.replace('@', ":1@")) && is_for("db*", &one));
        let id = format!("sha256:{}", "c".repeat(64));
        assert!(is_for(&id, &id) && !is_for(&id, &format!("{REGISTRY}/library/{id}")));
        assert!(
            !is_for(&id, &id[7..]),
            "engines take both for the same image, and a profile has to name them"
        );
        for id in [id.as_str(), &id[7..]] {
            assert!(is_for("*", id));
            for beginning in ["library/*", "c*", "s*", "sha*", &format!("{REGISTRY}/*")] {
                assert!(!is_for(beginning, id), "{beginning} {id}");
            }
        }
        assert!(is_for("sha256:*", &id) && is_for("sha256:cc*", &id) && !is_for("sha256:d*", &id));
    }

    #[test]
    fn a_beginning_is_for_each_name_of_its_images_and_for_no_others() {
        let official = format!("{REGISTRY}/library/db:15");
        for beginning in ["*", "d*", "db:*", "db:1*", "library/*", "library/db:*"] {
            assert!(is_for(beginning, "db:15") && is_for(beginning, &official), "{beginning}");
        }
        for beginning in ["", "library/", "db:", "library/d", "d"] {
            let beginning = format!("{REGISTRY}/{beginning}*");
            assert!(is_for(&beginning, "db:15") && is_for(&beginning, &official), "{beginning}");
            assert!(!is_for(&beginning, "registry.example.org/db:15"), "{beginning}");
        }
        // What engines add has no part in a beginning.
        for beginning in ["doc*", "lib*", "l*", "team/*", "registry*", &format!("{REGISTRY}/lib*")] {
            assert!(!is_for(beginning, "db:15") && !is_for(beginning, &official), "{beginning}");
        }
        for beginning in
            ["reg*", "registry.example.org*", "registry.example.org/*", "registry.example.org/team/db:*"]
        {
            assert!(is_for(beginning, "registry.example.org/team/db:15"), "{beginning}");
        }
        assert!(!is_for("team/*", "library/team/db") && is_for("library/*", "library/team/db"));
        assert!(is_for("team/*", "team/db") && is_for("te*", &format!("{REGISTRY}/team/db")));
        assert!(
            !is_for("registry.example.org/library/*", "registry.example.org/db")
                && !is_for("library/*", "team/db")
        );
        assert!(is_for("db:*", "db") && is_for("*", "registry.example.org/db"));
    }

    #[test]
    fn the_closest_name_of_an_image_is_found_for_each_of_its_names() {
        let official = format!("{REGISTRY}/library/db:15");
        for image in ["db:15", official.as_str()] {
            let all = ["*", &format!("{REGISTRY}/*"), "d*", "library/db*", "db:*", "db:15"];
            let lengths: Vec<usize> = all.map(|name| closeness(name, image).unwrap()).to_vec();
            assert!(lengths.is_sorted(), "{image}: {lengths:?}");
        }
        assert_eq!(closeness("db:1", "db:15"), None);
    }

    /// A profile may have beginnings as the names of its rules.
    #[test]
    fn a_beginning_is_within_itself() {
        for name in
            ["*", "db*", "db:*", "team/*", "registry.example.org/*", "registry.example.org:5000/db:1*"]
        {
            assert!(is_for(name, name), "{name}");
        }
    }
}
