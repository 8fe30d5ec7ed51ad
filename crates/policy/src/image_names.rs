//! Names of images, as a profile has them.
//!
//! An image has several names: `db`, `db:latest` and the name with the engine's own registry are one. Rules count for all of them, so that
//! no other spelling gets an image other rules.
//!
//! An id and a digest name content, whatever names it has. In a list of allowed images, `*` is for them, too. Where images have different
//! rules, [`closest`] gives them those of a beginning of names only if no other rules can be meant for the same image.

/// Registry of names without one, as engines have it.
const REGISTRY: &str = "docker.io";
/// Another name of it.
const ALIAS: &str = "index.docker.io";
/// Beginning of names in this registry that have one part.
const OFFICIAL: &str = "library/";
/// Tag of names without one.
const TAG: &str = "latest";
/// Characters before a tag and before a digest.
const PARTS: [char; 2] = [':', '@'];
/// Beginning of an image's id, and the number of its hexadecimal digits.
pub(super) const ID: (&str, usize) = ("sha256:", 64);

/// Returns true if one of the names of images, each of which may end in `*`, is for this image.
pub(crate) fn permits(allowed: &[String], image: &str) -> bool {
    allowed.iter().any(|allowed| closeness(allowed, image).is_some())
}

/// Returns the name that describes an image most closely, of names that may end in `*`. Each of them has its own rules.
///
/// A request may name an image by its id, or by its digest, in place of its tag. So a beginning of names is not for an id or a digest if
/// another of the names can be for the same image: the result is none, which is strict.
pub(crate) fn closest<'n>(names: impl Iterator<Item = &'n str> + Clone, image: &str) -> Option<&'n str> {
    let matching = names.clone().filter_map(|name| Some((closeness(name, image)?, name)));
    let (_, closest) = matching.max()?;
    let image = whole(image);
    let is_for_content = closest.contains('@') || is_of_ids(closest);
    let mut others = names.filter(|name| closeness(name, &image).is_none());
    (is_for_content || !others.any(|other| can_be_of(other, &image))).then_some(closest)
}

/// Returns true if a name that does not match this id or digest can be for the same image. Returns false for an image named by a tag.
fn can_be_of(name: &str, image: &str) -> bool {
    match image.split_once('@') {
        Some((repository, _)) => {
            form(name).0.strip_prefix(repository).is_some_and(|rest| rest.starts_with(':'))
        }
        None => is_id(image) && !is_of_ids(name),
    }
}

/// Measure of how closely a name describes an image: the bytes of the image's whole name that it has, then the length of its form.
///
/// The second one tells apart `db*`, `docker.io/db*` and `library/db*`, which say ever more of the same image.
type Closeness = (usize, usize);

/// Returns how closely a name, which may end in `*`, describes an image. Returns none if it is for others.
///
/// A name without `*` describes its image most closely.
fn closeness(allowed: &str, image: &str) -> Option<Closeness> {
    let image = whole(image);
    let Some(beginning) = allowed.strip_suffix('*') else {
        return (whole(allowed) == image).then_some((usize::MAX, usize::MAX));
    };
    // What engines add to names has no part in an id, and the beginning of a name is for none.
    if is_id(&image) {
        let is_for_ids = beginning.is_empty() || is_of_ids(allowed);
        return (is_for_ids && image.starts_with(beginning)).then_some((beginning.len(), beginning.len()));
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
    } else if beginning.contains(PARTS) {
        // As in a whole name without `/`: a tag, and not the port of a registry.
        official.and_then(|name| name.strip_prefix(beginning))
    } else {
        short.strip_prefix(beginning)
    };
    left.map(|left| (image.len() - left.len(), form(allowed).0.len()))
}

/// Returns the one form of a name without its `*`, and true if it had one. Names of the same form are for the same images.
pub(crate) fn form(name: &str) -> (String, bool) {
    let Some(beginning) = name.strip_suffix('*') else { return (whole(name), false) };
    let is_for_names = !beginning.contains('/') && !beginning.contains(PARTS);
    if is_for_names || is_of_ids(name) {
        return (beginning.to_owned(), true);
    }
    let (registry, rest) = parts(beginning);
    let is_official = registry == REGISTRY && !rest.contains('/') && rest.contains(PARTS);
    let official = if is_official { OFFICIAL } else { "" };
    (format!("{registry}/{official}{rest}"), true)
}

/// Returns the one form of an image's name: `registry/path:tag`, `registry/path@digest` or `sha256:` with the digits of an id.
///
/// Engines ignore a tag beside a digest, so it is left out.
fn whole(name: &str) -> String {
    if is_id(name) {
        return format!("{}{}", ID.0, name.strip_prefix(ID.0).unwrap_or(name));
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

/// Returns true for a whole id, and for the beginning of ids.
fn is_of_ids(name: &str) -> bool {
    is_id(name) || (name.starts_with(ID.0) && name.ends_with('*'))
}

/// Returns true if the first part of a name is a registry: it has a dot, a port or a capital, or is `localhost`.
pub(super) fn is_registry(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':']) || part.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Splits a name into its registry and the rest.
pub(super) fn parts(name: &str) -> (&str, &str) {
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
        assert!(is_for(&id, &id[7..]) && is_for(&id[7..], &id), "engines take both for the same image");
        for id in [id.as_str(), &id[7..]] {
            assert!(is_for("*", id));
            for beginning in ["library/*", "c*", "s*", "sha*", &format!("{REGISTRY}/*")] {
                assert!(!is_for(beginning, id), "{beginning} {id}");
            }
        }
        for id in [id.as_str(), &id[7..]] {
            assert!(is_for("sha256:*", id) && is_for("sha256:cc*", id) && !is_for("sha256:d*", id));
        }
    }

    #[test]
    fn a_beginning_of_tags_is_for_no_registry_on_a_port() {
        assert!(is_for("db:5*", "db:5000") && is_for("db@*", &format!("db@sha256:{}", "a".repeat(64))));
        for beginning in ["db:*", "db:5*", "db:5000*"] {
            assert!(!is_for(beginning, "db:5000/other:1"), "{beginning}");
        }
        assert!(is_for("db:5000/*", "db:5000/other:1") && is_for("db*", "db:5000/other:1"));
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
            let all: Vec<Closeness> = all.map(|name| closeness(name, image).unwrap()).to_vec();
            assert!(all.is_sorted_by(|one, next| one < next), "{image}: {all:?}");
        }
        assert_eq!(closeness("db:1", "db:15"), None);
    }

    #[test]
    fn names_that_say_more_of_the_same_beginning_are_closer() {
        for official in ["d", "z"] {
            let [plain, hub, library] =
                ["", &format!("{REGISTRY}/"), OFFICIAL].map(|of| format!("{of}{official}*"));
            let all = [&*plain, &*hub, &*library];
            let of = |image: &str| closest(all.into_iter(), image).map(str::to_owned);
            assert_eq!(of(&format!("{official}b:1")), Some(library.clone()));
            assert_eq!(of(&format!("{official}b/tool:1")), Some(hub.clone()));
            assert_eq!(of(&format!("{official}b.example.org/tool:1")), Some(plain.clone()));
        }
    }

    #[test]
    fn no_id_and_no_digest_gets_an_image_the_rules_of_another_name() {
        let (id, digest) = (format!("sha256:{}", "c".repeat(64)), format!("db@sha256:{}", "d".repeat(64)));
        let of = |names: &[&str], image: &str| closest(names.iter().copied(), image).map(str::to_owned);
        let some = |name: &str| Some(name.to_owned());
        for image in [id.as_str(), &id[7..], &digest, &digest.replace('@', ":15@")] {
            assert_eq!(of(&["*"], image), some("*"), "all images have the same rules: {image}");
            for other in ["db:15", "db:1*", "db:*", "library/db:*", &format!("{REGISTRY}/db:15")] {
                assert_eq!(of(&["*", other], image), None, "it may be the image {other}: {image}");
            }
        }
        for other in ["db*", "cache:1", "team/*", &digest] {
            assert_eq!(of(&["*", other], &id), None, "{other}");
        }
        // The rules for the content itself count.
        for own in [id.as_str(), &id[7..], "sha256:*", "sha256:cc*"] {
            assert_eq!(of(&["*", "db:15", own], &id), some(own), "{own}");
        }
        for own in [digest.as_str(), "db@*", "library/db@sha256:*"] {
            assert_eq!(of(&["*", "db:15", own], &digest), some(own), "{own}");
        }
        // Rules for other images do not count.
        assert_eq!(of(&["*", "sha256:d*"], &id), some("*"));
        assert_eq!(
            of(&["*", "db*", "cache:1", "team/db:1", "registry.example.org/db:1"], &digest),
            some("db*")
        );
        assert_eq!(of(&["*", "db:15"], "db:15"), some("db:15"));
        assert_eq!(of(&["*", "db:15"], "db:16"), some("*"));
        assert_eq!(of(&["db:15"], &id), None);
    }

    #[test]
    fn names_for_the_same_images_have_one_form() {
        for same in [
            &["db", "db:latest", "library/db", "HUB/db:latest", "index.HUB/library/db"][..],
            &["db:*", "library/db:*", "HUB/db:*", "HUB/library/db:*", "index.HUB/db:*"],
            &["library/d*", "HUB/library/d*"],
            &["team/*", "HUB/team/*"],
            &["db@*", "library/db@*"],
        ] {
            let forms: Vec<_> = same.iter().map(|name| form(&name.replace("HUB", REGISTRY))).collect();
            assert!(forms.iter().all(|form| *form == forms[0]), "{forms:?}");
        }
        let id = format!("sha256:{}", "c".repeat(64));
        assert_eq!(form(&id), form(&id[7..]));
        let (hub, registry) = (format!("{REGISTRY}/*"), "registry.example.org/db:*");
        let others = [
            "*",
            "d*",
            "library/d*",
            &hub,
            "db:*",
            "db:1",
            "db:1*",
            "team/db:*",
            registry,
            "sha256:*",
            "library/sha256:*",
        ];
        let forms: std::collections::BTreeSet<_> = others.iter().map(|name| form(name)).collect();
        assert_eq!(forms.len(), others.len());
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
