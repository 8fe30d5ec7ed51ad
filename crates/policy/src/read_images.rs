//! Reads names of images, and reports each beginning of names that is for other images than it seems to be for, or for none.

use document::At;

use crate::image_names::{ID, is_registry, parts};

/// What engines add to names, each with a `/` after it. Without the `/` it is a beginning of other names.
const ADDED: [&str; 5] =
    ["docker.io", "index.docker.io", "library", "docker.io/library", "index.docker.io/library"];
/// Beginnings of digests.
const ALGORITHMS: [&str; 3] = ["sha256:", "sha384:", "sha512:"];

/// The problem of a beginning of names, and what to write in its place.
type Mistake = (String, String);

/// Reads the name of an image or runtime, which the engine gets unchanged.
pub(super) fn reference(at: &At<'_>, pattern: bool) -> Option<String> {
    let text = at.text()?;
    is_well_formed(at, text, pattern).then(|| text.to_owned())
}

/// Returns true if a text can be a name of images. Otherwise reports it as a problem of the value.
pub(super) fn is_well_formed(at: &At<'_>, text: &str, pattern: bool) -> bool {
    let beginning = text.strip_suffix('*').filter(|_| pattern);
    let body = beginning.unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:/@+-".contains(c);
    let is_good = (1..=255).contains(&text.len()) && body.chars().all(plain) && !body.starts_with('-');
    if !is_good {
        at.problem("must be 1 to 255 characters of letters, digits and `._:/@+-`");
        return false;
    }
    let Some((problem, hint)) = beginning.and_then(mistake) else { return true };
    at.problem_hint(problem, Some(hint));
    false
}

/// Returns the problem of a beginning of names, if it is for no image that a person means by it.
fn mistake(beginning: &str) -> Option<Mistake> {
    if let Some((host, port)) = registry_on_port(beginning) {
        let port = if port.is_empty() { "PORT" } else { port };
        return Some((
            format!("is for tags of an image `{host}`, and for no image of a registry on a port"),
            format!("write `{host}:{port}/*` for that registry, or `library/{beginning}*` for these tags"),
        ));
    }
    if ADDED.contains(&beginning) {
        return Some((
            format!("is for other names that begin so, and not for all images of `{beginning}/`"),
            format!("write `{beginning}/*` for these images, or a longer beginning of the other names"),
        ));
    }
    match beginning.strip_prefix(ID.0) {
        Some(digits) if !digits.contains('/') => {
            (!is_hexadecimal(digits) || digits.len() > ID.1).then(|| {
                let problem = format!("is for no image: an id is `{}` and {} digits of `0-9a-f`", ID.0, ID.1);
                (problem, format!("write `{}*` for all ids, or `library/{beginning}*` for tags", ID.0))
            })
        }
        _ => mistake_of_name(beginning),
    }
}

/// Returns the host and the port of a beginning of tags that looks like a registry on a port, which has a `/` after it.
fn registry_on_port(beginning: &str) -> Option<(&str, &str)> {
    let (host, port) = beginning.split_once(':')?;
    let is_meant = !host.contains('/') && is_registry(host) && port.bytes().all(|byte| byte.is_ascii_digit());
    is_meant.then_some((host, port))
}

/// Returns the problem of a beginning that no name has, as the names of images are compared.
fn mistake_of_name(beginning: &str) -> Option<Mistake> {
    let (named, digest) =
        beginning.split_once('@').map_or((beginning, None), |(named, digest)| (named, Some(digest)));
    let (_, rest) = parts(named);
    let (path, tag) = rest.split_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
    let has_whole_path = tag.is_some() || digest.is_some();
    // Without a `/` it may be the beginning of a registry, which may have capitals.
    let is_path = has_whole_path || named.contains('/');
    let is_bare = path.is_empty() || path.ends_with('/');
    let is_wrong = (is_path && !can_begin_path(path))
        || (has_whole_path && is_bare)
        || tag.is_some_and(|tag| tag.contains(['/', ':', '+']));
    if is_wrong {
        let hint = "a name is `registry/path:tag` or `registry/path@sha256:…`, without `https://`, and its path has \
                    small letters";
        return Some(("is for no image: no name begins so".into(), hint.into()));
    }
    let digest = digest?;
    if let (Some(_), Some((path, _))) = (tag, named.rsplit_once(':')) {
        return Some((
            "is for no image: a tag beside a digest is left out".into(),
            format!("write `{path}@{digest}*` for the digests, or `{named}` for the tag"),
        ));
    }
    let is_digest = ALGORITHMS.iter().any(|algorithm| {
        algorithm.starts_with(digest) || digest.strip_prefix(algorithm).is_some_and(is_hexadecimal)
    });
    (!is_digest).then(|| {
        let problem = "is for no image: a digest is `sha256:` and digits of `0-9a-f`".to_owned();
        (problem, format!("write `{named}@*` for all digests"))
    })
}

fn can_begin_path(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/".contains(&byte);
    text.bytes().all(is_plain) && !text.starts_with('/') && !text.contains("//")
}

fn is_hexadecimal(digits: &str) -> bool {
    digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_names::permits;

    fn loaded(name: &str) -> Result<(), String> {
        let policy = format!(
            "profiles: {{p: {{allowed_images: ['{name}'], operations: {{}}}}}}\nroles: {{r: {{allow: '*'}}}}\n"
        );
        let loaded = crate::Policy::from_files([("p.yaml", policy)]);
        loaded.map(|_| ()).map_err(|problems| problems.0[0].to_string())
    }

    fn is_for(allowed: &str, image: &str) -> bool {
        permits(&[allowed.to_owned()], image)
    }

    /// Returns the beginnings in backquotes that a hint has.
    fn written(hint: &str) -> Vec<&str> {
        hint.split('`').skip(1).step_by(2).filter(|text| text.ends_with('*')).collect()
    }

    #[test]
    fn each_beginning_of_an_images_name_is_for_it_or_is_a_problem() {
        let digest = format!("db@sha256:{}", "a".repeat(64));
        for image in [
            "db:15",
            "library/db:15",
            "docker.io/library/db:15",
            "index.docker.io/db:15",
            "docker.io/team/db:15",
            "team/db:15",
            "localhost:5000/db:15",
            "registry.example.org/team/db:15",
            "Registry.example.org:5000/db:15",
            &digest,
            &format!("registry.example.org/team/{digest}"),
        ] {
            for end in 1..=image.len() {
                let beginning = &image[..end];
                // A part of what engines add is a beginning of other names.
                let is_added = ADDED.iter().any(|added| *added != beginning && added.starts_with(beginning));
                let name = format!("{beginning}*");
                let is_meant = is_for(&name, image);
                assert!(is_meant || is_added || mistake(beginning).is_some(), "{name} {image}");
                assert!(!is_meant || loaded(&name).is_ok(), "{name} {image}");
            }
        }
    }

    #[test]
    fn a_beginning_that_is_for_no_image_that_is_meant_is_a_problem() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        let id = format!("sha256:{}", "c".repeat(64));
        for (name, image, problem) in [
            ("localhost:5000*", "localhost:5000/db:1", "is for tags of an image `localhost`"),
            ("localhost:*", "localhost:5000/db:1", "`localhost:PORT/*`"),
            ("registry.example.org:50*", "registry.example.org:50/db", "`registry.example.org:50/*`"),
            ("docker.io*", "docker.io/team/db", "`docker.io/*`"),
            ("index.docker.io*", "index.docker.io/team/db", "`index.docker.io/*`"),
            ("library*", "library/db", "`library/*`"),
            ("docker.io/library*", "docker.io/library/db", "`docker.io/library/*`"),
            ("db:1@*", &format!("db:1{digest}"), "`db@*` for the digests, or `db:1`"),
            (
                "localhost:5000/db:1@sha256:a*",
                &format!("localhost:5000/db:1{digest}"),
                "`localhost:5000/db@sha256:a*`",
            ),
            ("db@aaa*", &format!("db{digest}"), "`db@*`"),
            ("db@sha256:A*", &format!("db{digest}"), "`db@*`"),
            ("sha256:C*", &id, "`sha256:*`"),
            (&format!("{id}c*"), &id, "`sha256:*`"),
            ("https://registry.example.org/*", "registry.example.org/db", "no name begins so"),
            ("registry.example.org//*", "registry.example.org/db", "no name begins so"),
            ("/db*", "db", "no name begins so"),
            ("team/Db*", "team/db", "no name begins so"),
            ("team/Db:1*", "team/db:1", "no name begins so"),
            ("team/:1*", "team/db:1", "no name begins so"),
            ("@sha256:*", &format!("db{digest}"), "no name begins so"),
            ("team/db:1/other*", "team/db:1", "no name begins so"),
            ("db:1:*", "db:1", "no name begins so"),
        ] {
            let found = loaded(name).unwrap_err();
            assert!(
                found.contains("allowed_images[0]: is for ") && found.contains(problem),
                "{name}: {found}"
            );
            assert!(!is_for(name, image), "{name}");
            let hinted = mistake(name.strip_suffix('*').unwrap()).unwrap().1;
            for other in written(&hinted).into_iter().filter(|other| !other.contains("PORT")) {
                assert_eq!(loaded(other), Ok(()), "{name}: {other}");
            }
        }
    }

    #[test]
    fn a_beginning_that_is_for_images_is_no_problem() {
        for name in [
            "localhost:5000/*",
            "localhost*",
            "library/localhost:5000*",
            "localhost:5000/db:1*",
            "registry.example.org/db:1*",
            "registry.example.org*",
            "Registry*",
            "docker.io/*",
            "docker.io.example.org*",
            "library/library*",
            "my.tool:v1*",
            "my.tool:1",
            "my.tool:V1*",
            "db:5000*",
            "db:5000/*",
            "db@*",
            "team/db@sha*",
            "db@sha512:a*",
            "sha256:1*",
            "library/sha256:latest*",
            &"c".repeat(64),
            &format!("db:1@sha256:{}", "a".repeat(64)),
            "*",
        ] {
            assert_eq!(loaded(name), Ok(()), "{name}");
        }
        assert!(is_for("localhost:5000/*", "localhost:5000/db:1"));
        assert!(is_for("library/localhost:5000*", "localhost:5000"));
        assert!(is_for("library/library*", "library-of-tools"));
    }
}
