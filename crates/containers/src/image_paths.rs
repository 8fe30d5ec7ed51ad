//! Checks the paths of an image that the engine opens itself, and those on which a container has mounts.
//!
//! To find the ids of a container's user, the engine opens the image's `/etc/passwd` and `/etc/group`: as root, outside of the container,
//! and without checking their types. It would wait forever for the other end of a FIFO. Meanwhile it would hold the container's lock, so
//! that the container could not be removed before the engine is restarted. A device would be one of the host's. So each of these paths is
//! checked in another container of the image, which is never started.

use std::path::Path;

use crate::bundle::{BUNDLE_PATH, JAVA_STORE_PATH, MADE_FOR_POLICIES, PLACES, POLICIES, parents};
use crate::docker::Engine;
use crate::engine::{EngineError, FileKind, ImageRefused};
use crate::hardening::GUEST_PATH;
use crate::ids::ContainerId;

/// Paths that must be directories. The engine or the runtime makes those that are missing.
const DIRECTORIES: [&str; 9] =
    ["/etc", "/proc", "/sys", "/dev", "/tmp", "/workspace", "/state", "/pkg", "/.cofferdam"];
const FILES: [&str; 8] = [
    "/etc/passwd",
    "/etc/group",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    GUEST_PATH,
    BUNDLE_PATH,
    JAVA_STORE_PATH,
];

/// Checks the image of a container that was made without mounts and never started. Returns the bundles of certificates that it has.
pub async fn check_image_paths(
    engine: &Engine,
    container: &ContainerId,
) -> Result<Result<Vec<&'static str>, ImageRefused>, EngineError> {
    for path in DIRECTORIES {
        if let Some(found) = engine.look(container, path).await?
            && found.kind != FileKind::Directory
        {
            return Ok(refused(path, found.kind, FileKind::Directory));
        }
    }
    for path in FILES {
        let Some(found) = engine.look(container, path).await? else { continue };
        let leads_to = match found.kind {
            FileKind::File => continue,
            FileKind::Link if leads_on(&found.leads_to) => engine.look(container, &found.leads_to).await?,
            _ => Some(found.clone()),
        };
        if leads_to.is_some_and(|last| last.kind != FileKind::File) {
            return Ok(refused(path, found.kind, FileKind::File));
        }
    }
    image_bundles(engine, container).await.map(Ok)
}

/// Returns the bundles that an image has, in a container that was never started. `/etc` of the image is a directory.
///
/// A bundle beneath a link is left out: the link could lead to a place where something else is mounted once the container runs, and the
/// runtime would make the file there. A link to another bundle of the list is that bundle. A policy for Chromium is among them if the image
/// has its directory, and neither a link nor a file on the way.
async fn image_bundles(engine: &Engine, container: &ContainerId) -> Result<Vec<&'static str>, EngineError> {
    let mut found = Vec::new();
    for place in PLACES {
        let is_policy = POLICIES.contains(&place);
        let made = if is_policy { MADE_FOR_POLICIES } else { 0 };
        if !is_beneath_directories(engine, container, place, made).await? {
            continue;
        }
        let has_place = if is_policy {
            is_free(engine, container, place).await?
        } else {
            is_bundle(engine, container, place).await?
        };
        if has_place {
            found.push(place);
        }
    }
    Ok(found)
}

/// Returns true if there are directories alone on the way to a place. The last `made` of them may be missing.
async fn is_beneath_directories(
    engine: &Engine,
    container: &ContainerId,
    place: &str,
    made: usize,
) -> Result<bool, EngineError> {
    let needed = parents(place).count().saturating_sub(made);
    for (number, parent) in parents(place).enumerate() {
        match engine.look(container, parent).await? {
            Some(found) if found.kind == FileKind::Directory => {}
            None if number >= needed => return Ok(true),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Returns true if nothing but a file is at a place, which is the daemon's by its name.
async fn is_free(engine: &Engine, container: &ContainerId, place: &str) -> Result<bool, EngineError> {
    Ok(engine.look(container, place).await?.is_none_or(|found| found.kind == FileKind::File))
}

async fn is_bundle(engine: &Engine, container: &ContainerId, place: &str) -> Result<bool, EngineError> {
    let Some(found) = engine.look(container, place).await? else { return Ok(false) };
    match found.kind {
        FileKind::File => Ok(true),
        FileKind::Link if leads_on(&found.leads_to) && !PLACES.contains(&found.leads_to.as_str()) => {
            let last = engine.look(container, &found.leads_to).await?;
            Ok(last.is_some_and(|last| last.kind == FileKind::File))
        }
        _ => Ok(false),
    }
}

/// Returns true if a file that is mounted may be there.
///
/// In other directories something else is mounted once the container runs, and the runtime would make the file in that mount.
fn leads_on(target: &str) -> bool {
    target.starts_with('/') && DIRECTORIES.iter().skip(1).all(|other| !Path::new(target).starts_with(other))
}

fn refused<T>(path: &'static str, found: FileKind, wanted: FileKind) -> Result<T, ImageRefused> {
    Err(ImageRefused::WrongKind { path, found, wanted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_may_lead_to_a_path_without_a_mount() {
        for (target, may) in [
            ("/accounts/users", true),
            ("/etc/accounts", true),
            ("/statement", true),
            ("/proc/1/environ", false),
            ("/workspace/passwd", false),
            ("/dev/full", false),
            ("", false),
        ] {
            assert_eq!(leads_on(target), may, "{target}");
        }
    }
}
