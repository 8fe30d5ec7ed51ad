//! An archive of `docker save`: a manifest, a configuration and layers, of exactly one image.
//!
//! What it says of its names is left out: it gets the name that the operator gave. So no archive can take the name of another
//! image. Its digests are the engine's to verify.

use std::io::{self, Read, Write};

use serde_json::{Value, json};
use tar::{EntryType, Header};

use super::BadTar;
use super::check::{Links, Tee, members};
use super::member::Member;
use super::walk::{BLOCK, End, Found, Walk};
use crate::ids::ImageReference;

const MANIFEST: &[u8] = b"manifest.json";
/// Names of images in other forms, which would count as well.
const NAMES: [&[u8]; 3] = [b"repositories", b"index.json", b"oci-layout"];
/// Bytes of a manifest of one image.
const MAX_MANIFEST: u64 = 1 << 20;
/// How compressed data begins: gzip, zstd, xz, bzip2.
const COMPRESSED: [&[u8]; 4] =
    [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0xfd, b'7', b'z', b'X', b'Z'], b"BZh"];
/// Where a tar says that it is one.
const MAGIC: std::ops::Range<usize> = 257..262;

/// Whether this is how compressed data begins.
pub(super) fn is_compressed(head: &[u8]) -> bool {
    COMPRESSED.iter().any(|begin| head.starts_with(begin))
}

/// Whether a member of this name is a part of such an archive.
pub(super) fn is_part(name: &[u8]) -> bool {
    let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_digest = |text: &[u8]| text.len() == 64 && text.iter().all(u8::is_ascii_hexdigit);
    let stem = first.strip_suffix(b".json").unwrap_or(first);
    first == b"blobs" || first == MANIFEST || NAMES.contains(&first) || is_digest(stem)
}

pub(super) fn pass(
    input: impl Read,
    mut output: impl Write,
    reference: &ImageReference,
) -> Result<(), BadTar> {
    let mut walk = Walk::new(input, End::Said);
    let mut has_manifest = false;
    while let Some(Found { member, headers }) = walk.next()? {
        match member.kind {
            EntryType::Regular if member.name == MANIFEST => {
                if has_manifest {
                    return Err(BadTar::NoArchive("it has two manifests"));
                }
                has_manifest = true;
                let manifest = manifest(&mut walk, &member, reference)?;
                write_file(&mut output, MANIFEST, &manifest)?;
            }
            EntryType::Regular if NAMES.contains(&member.name.as_slice()) => {}
            EntryType::Regular if is_plain(&member.name) => {
                output.write_all(&headers)?;
                content(&mut walk, &member, &mut output)?;
                fill(&mut output, member.size)?;
            }
            EntryType::Directory if is_plain(&member.name) => output.write_all(&headers)?,
            // A layer that is there already, as older engines write it: `../LAYER/layer.tar`.
            EntryType::Symlink if is_plain(&member.name) && leads_to_a_layer(&member) => {
                output.write_all(&headers)?;
            }
            _ => return Err(member.refused("is no part of an archive of `docker save`")),
        }
        walk.finish(&member)?;
    }
    walk.drain()?;
    if !has_manifest {
        return Err(BadTar::NoArchive("it has no manifest.json"));
    }
    output.write_all(&[0; 2 * BLOCK])?;
    Ok(output.flush()?)
}

/// The manifest with the one name.
fn manifest<R: Read>(
    walk: &mut Walk<R>,
    member: &Member,
    reference: &ImageReference,
) -> Result<Vec<u8>, BadTar> {
    if member.size > MAX_MANIFEST {
        return Err(BadTar::NoArchive("its manifest.json is longer than 1 MiB"));
    }
    let mut text = Vec::new();
    walk.content().read_to_end(&mut text).map_err(|error| cut(error, member))?;
    let parsed: Vec<Value> =
        serde_json::from_slice(&text).map_err(|_| BadTar::NoArchive("its manifest.json is no list"))?;
    let [image] = parsed.as_slice() else {
        return Err(BadTar::NoArchive("it has none, or more than one: save the image by itself"));
    };
    let plain = |value: &Value| value.as_str().is_some_and(|name| is_plain(name.as_bytes()));
    let layers = image["Layers"].as_array().filter(|layers| layers.iter().all(plain));
    let (true, Some(layers)) = (plain(&image["Config"]), layers) else {
        return Err(BadTar::NoArchive("its manifest.json names no configuration or layers of its own"));
    };
    let manifest = json!([{ "Config": image["Config"], "RepoTags": [reference.tagged()], "Layers": layers }]);
    serde_json::to_vec(&manifest).map_err(|error| BadTar::Io(error.into()))
}

/// Passes the content of a member on. What is within a layer is checked on the way.
fn content<R: Read>(walk: &mut Walk<R>, member: &Member, output: &mut impl Write) -> Result<(), BadTar> {
    let mut head = Vec::with_capacity(BLOCK);
    let mut content = walk.content();
    (&mut content).take(BLOCK as u64).read_to_end(&mut head).map_err(|error| cut(error, member))?;
    if is_compressed(&head) {
        return Err(BadTar::Compressed(member.shown()));
    }
    let is_tar = head.get(MAGIC) == Some(b"ustar");
    let mut tee = Tee { input: head.as_slice().chain(content), output };
    if is_tar {
        let mut layer = Walk::new(&mut tee, End::Known);
        members(&mut layer, Links::Anywhere).map_err(|error| within(error, member))?;
    }
    io::copy(&mut tee, &mut io::sink()).map_err(|error| cut(error, member))?;
    Ok(())
}

fn within(error: BadTar, member: &Member) -> BadTar {
    match error {
        BadTar::Member { name, why } => BadTar::Member { name: format!("{}: {name}", member.shown()), why },
        BadTar::Io(error) => cut(error, member),
        other => other,
    }
}

fn cut(error: io::Error, member: &Member) -> BadTar {
    if error.kind() == io::ErrorKind::UnexpectedEof { BadTar::Cut(member.shown()) } else { error.into() }
}

/// A name of plain parts.
fn is_plain(name: &[u8]) -> bool {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let is_part = |part: &[u8]| {
        !part.is_empty()
            && part != b"."
            && part != b".."
            && part.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
    };
    name.split(|byte| *byte == b'/').all(is_part)
}

fn leads_to_a_layer(member: &Member) -> bool {
    member.link.as_deref().and_then(|target| target.strip_prefix(b"../")).is_some_and(is_plain)
        && member.name.split(|byte| *byte == b'/').count() == 2
}

fn write_file(output: &mut impl Write, name: &[u8], content: &[u8]) -> Result<(), BadTar> {
    let mut header = Header::new_ustar();
    let size = content.len() as u64;
    header.set_path(String::from_utf8_lossy(name).as_ref())?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    output.write_all(header.as_bytes())?;
    output.write_all(content)?;
    fill(output, size)
}

/// Fills the last block of a content.
fn fill(output: &mut impl Write, size: u64) -> Result<(), BadTar> {
    let missing = size.wrapping_neg() % BLOCK as u64;
    output.write_all(&[0; BLOCK][..usize::try_from(missing).unwrap_or(0)])?;
    Ok(())
}
