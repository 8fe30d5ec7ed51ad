//! Names of images, as a profile has them.

use document::At;

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
    allowed
        .iter()
        .any(|allowed| allowed.strip_suffix('*').map_or(allowed == image, |prefix| image.starts_with(prefix)))
}
