//! Checks names that operators give to images, and paths of Dockerfiles.

use containers::ImageReference;
use refusal::Refusal;

/// Prefix of the names that only the daemon gives.
const OWN: &str = "cofferdam/";
/// Names of the registry that engines add to names without one.
const REGISTRIES: [&str; 2] = ["docker.io/", "index.docker.io/"];
/// Beginning that they add to names of one part, too.
const OFFICIAL: &str = "library/";
/// Registry of names that Podman was given without one.
const LOCAL: &str = "localhost/";

/// Returns the name with its tag, in the shortest of the forms that are one name to the engine.
pub(super) fn short(reference: &ImageReference) -> String {
    let name = reference.tagged();
    let rest = REGISTRIES.iter().find_map(|registry| name.strip_prefix(registry)).unwrap_or(&name);
    let official = rest.strip_prefix(OFFICIAL).filter(|name| !name.contains('/'));
    official.unwrap_or(rest).to_owned()
}

/// Parses a name that an operator may give to an image.
pub(super) fn own_name(name: &str) -> Result<ImageReference, Refusal> {
    let reference = ImageReference::parse(name).map_err(|error| Refusal::invalid("reference", error))?;
    // A digest identifies the content of an image. It cannot be given as a name.
    if name.contains('@') || name.starts_with("sha256:") {
        return Err(Refusal::invalid("reference", "is a digest: give a name and a tag, such as tools:1"));
    }
    let short = short(&reference);
    if short.strip_prefix(LOCAL).unwrap_or(&short).starts_with(OWN) {
        let message = format!("is a name of {OWN}, which is the daemon's own");
        return Err(Refusal::invalid("reference", message));
    }
    let tagged = reference.tagged();
    let repository = tagged.rsplit_once(':').map_or(tagged.as_str(), |(repository, _)| repository);
    if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(Refusal::invalid("reference", "has capitals before its tag, which the engine refuses"));
    }
    Ok(reference)
}

/// Checks the path of a Dockerfile, which is relative to the directory of the build.
pub(super) fn dockerfile(path: String) -> Result<String, Refusal> {
    if path.is_empty() {
        return Ok("Dockerfile".to_owned());
    }
    let plain = path.len() <= 1_000
        && !path.starts_with('/')
        && path.chars().all(|c| !c.is_control())
        && path.split('/').all(|part| !part.is_empty() && part != "..");
    if plain { Ok(path) } else { Err(Refusal::invalid("dockerfile", "is not a path within the directory")) }
}

#[cfg(test)]
mod tests {
    use containers::ImageReference;

    use super::{dockerfile, own_name, short};

    #[test]
    fn only_valid_operator_names_are_accepted() {
        for good in ["tools:1", "tools", "team/tools:1.2-A", "registry.example.org:5000/team/tools:1"] {
            assert!(own_name(good).is_ok(), "{good}");
        }
        let digest = format!("sha256:{}", "a".repeat(64));
        for bad in ["", "cofferdam/default:1", "../x", "a b", "Tools:1", &digest, &format!("tools@{digest}")]
        {
            assert!(own_name(bad).is_err(), "{bad}");
        }
        for registry in ["docker.io/", "index.docker.io/", "localhost/", "docker.io/localhost/"] {
            assert!(own_name(&format!("{registry}cofferdam/default:1")).is_err(), "{registry}");
        }
        assert!(own_name("registry.example.org/cofferdam/tools:1").is_ok());
    }

    #[test]
    fn the_forms_of_one_name_have_one_short_form() {
        let short = |name: &str| short(&ImageReference::parse(name).unwrap());
        for name in
            ["tools", "tools:latest", "library/tools", "docker.io/tools", "index.docker.io/library/tools"]
        {
            assert_eq!(short(name), "tools:latest", "{name}");
        }
        for other in
            ["localhost/tools:1", "docker.io.example/tools:1", "library/team/tools:1", "team/tools:1"]
        {
            assert_eq!(short(other), other);
        }
    }

    #[test]
    fn a_dockerfile_is_in_the_directory() {
        assert_eq!(dockerfile(String::new()).unwrap(), "Dockerfile");
        assert_eq!(dockerfile("build/Dockerfile.dev".to_owned()).unwrap(), "build/Dockerfile.dev");
        for bad in ["../Dockerfile", "/etc/passwd", "a//b", "a\nb", "a/../../b"] {
            assert!(dockerfile(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
