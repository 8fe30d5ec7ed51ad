//! An archive made by `docker save`: a manifest, a configuration and the layers of exactly one image.
//!
//! ```text
//!  tar within it ─► a layer, written anew ──► digest ─┐
//!  short file    ─► kept ─► configuration ────────────┴─► digests of its layers ─► manifest with the one name
//!  all else      ─► left out
//! ```
//!
//! The archive gets the name that the operator gave, so that it cannot take another image's name. A layer keeps its length: if its new
//! headers are shorter, zeros fill the end. If no byte of any layer changes, the configuration is passed on unchanged, and the image keeps
//! its digest.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::check::{Links, cut, members};
use super::header::{BLOCK, is_header};
use super::member::{Kind, Member};
use super::meter::Meter;
use super::walk::{End, Walk};
use super::{BadTar, write};
use crate::ids::{ImageId, ImageReference};

const MANIFEST: &[u8] = b"manifest.json";
/// Files that name images in other formats.
const NAMES: [&[u8]; 3] = [b"repositories", b"index.json", b"oci-layout"];
/// Size limit of one kept file in bytes, and of all of them together.
const MAX_KEPT: u64 = 1 << 20;
const MAX_KEPT_OF_ALL: u64 = 16 << 20;
/// Largest number of parts of an archive.
const MAX_PARTS: usize = 10_000;
/// Longest name of a part, and longest target of a link, bytes. All of them are kept.
const MAX_NAME: usize = 1_024;
/// Largest number of links from a name to its layer.
const MAX_STEPS: usize = 8;
/// First bytes of compressed data: gzip, zstd, xz, bzip2.
const COMPRESSED: [&[u8]; 4] =
    [&[0x1f, 0x8b], &[0x28, 0xb5, 0x2f, 0xfd], &[0xfd, b'7', b'z', b'X', b'Z'], b"BZh"];

/// Returns true if this is the beginning of compressed data.
pub(super) fn is_compressed(head: &[u8]) -> bool {
    COMPRESSED.iter().any(|begin| head.starts_with(begin))
}

/// Returns true if a member of this name is a part of such an archive.
pub(super) fn is_part(name: &[u8]) -> bool {
    let first = name.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_digest = |text: &[u8]| text.len() == 64 && text.iter().all(u8::is_ascii_hexdigit);
    let stem = first.strip_suffix(b".json").unwrap_or(first);
    first == b"blobs" || first == MANIFEST || NAMES.contains(&first) || is_digest(stem)
}

/// Digests of a layer, in the format of a configuration.
struct Layer {
    came: String,
    written: String,
}

/// Files seen so far, by name.
#[derive(Default)]
struct Parts {
    names: BTreeSet<Vec<u8>>,
    layers: BTreeMap<Vec<u8>, Layer>,
    /// Short files by name.
    kept: BTreeMap<Vec<u8>, Vec<u8>>,
    kept_bytes: u64,
    /// Links to other layers, as older engines write them: `../LAYER/layer.tar`.
    links: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) fn pass(
    input: impl Read,
    mut output: impl Write,
    wanted: (&ImageReference, Option<&ImageId>),
) -> Result<(), BadTar> {
    let mut walk = Walk::new(input, End::Said);
    let mut parts = Parts::default();
    while let Some(member) = walk.next()? {
        parts.admit(&member)?;
        match (member.kind, member.link.as_deref().and_then(|link| link.strip_prefix(b"../"))) {
            (Kind::File, _) => parts.file(&mut walk, &member, &mut output)?,
            (Kind::Directory, _) => {}
            (Kind::Symlink, Some(target)) if is_plain(target) && has_two_parts(&member.name) => {
                parts.links.insert(member.name.clone(), target.to_vec());
            }
            _ => return Err(member.refused("is no part of an archive of `docker save`")),
        }
        walk.finish(&member)?;
    }
    walk.drain()?;
    parts.finish(&mut output, wanted)?;
    write::end(&mut output)
}

impl Parts {
    fn admit(&mut self, member: &Member) -> Result<(), BadTar> {
        if !is_plain(&member.name) {
            return Err(member.refused("is no part of an archive of `docker save`"));
        }
        if member.name.len().max(member.link.as_ref().map_or(0, Vec::len)) > MAX_NAME {
            return Err(member.refused("has a name that is too long for a part of an archive"));
        }
        if self.names.len() >= MAX_PARTS {
            return Err(member.refused("is one part too many"));
        }
        let name = member.name.strip_suffix(b"/").unwrap_or(&member.name);
        if !self.names.insert(name.to_vec()) && member.kind != Kind::Directory {
            return Err(BadTar::NoArchive("it has two parts of one name"));
        }
        Ok(())
    }

    /// Passes a layer on, keeps any other file if it is short, and skips the rest.
    fn file<R: Read>(
        &mut self,
        walk: &mut Walk<R>,
        member: &Member,
        output: &mut impl Write,
    ) -> Result<(), BadTar> {
        let mut content = walk.content();
        let mut head = Vec::with_capacity(BLOCK);
        (&mut content).take(BLOCK as u64).read_to_end(&mut head).map_err(|error| cut(error, member))?;
        if is_compressed(&head) {
            return Err(BadTar::Compressed(member.shown()));
        }
        let is_layer = head.is_empty() || is_header(&head);
        let mut content = head.as_slice().chain(content);
        if is_layer {
            let layer = layer(&mut content, member, output)?;
            self.layers.insert(member.name.clone(), layer);
            return Ok(());
        }
        let kept = self.kept_bytes.saturating_add(member.size);
        if member.size > MAX_KEPT || kept > MAX_KEPT_OF_ALL {
            io::copy(&mut content, &mut io::sink()).map_err(|error| cut(error, member))?;
            return Ok(());
        }
        let mut text = Vec::new();
        content.read_to_end(&mut text).map_err(|error| cut(error, member))?;
        self.kept_bytes = kept;
        self.kept.insert(member.name.clone(), text);
        Ok(())
    }

    /// Writes the configuration and the manifest.
    fn finish(
        &self,
        output: &mut impl Write,
        (reference, announced): (&ImageReference, Option<&ImageId>),
    ) -> Result<(), BadTar> {
        let manifest =
            self.kept.get(MANIFEST).ok_or(BadTar::NoArchive("it has no manifest.json of 1 MiB or less"))?;
        let parsed: Vec<Value> = serde_json::from_slice(manifest)
            .map_err(|_| BadTar::NoArchive("its manifest.json is not a list"))?;
        let [image] = parsed.as_slice() else {
            return Err(BadTar::NoArchive("it has none, or more than one: save the image by itself"));
        };
        let names_no =
            BadTar::NoArchive("its manifest.json does not name a configuration and layers of this archive");
        let config = image["Config"].as_str().and_then(|name| self.kept.get(name.as_bytes()));
        let layers: Option<Vec<_>> = image["Layers"]
            .as_array()
            .and_then(|layers| layers.iter().map(|name| self.layer(name.as_str()?.as_bytes())).collect());
        let (Some(config), Some(layers)) = (config, layers) else { return Err(names_no) };
        let names: Vec<_> = layers.iter().map(|(name, _)| String::from_utf8_lossy(name)).collect();
        let config = configuration(config, layers.iter().map(|(_, layer)| *layer))?;
        let digest = hex::encode(Sha256::digest(&config));
        // The configuration has the digest of each layer, so its own digest is that of the whole image.
        if let Some(wanted) = announced.filter(|wanted| wanted.as_str() != format!("sha256:{digest}")) {
            let found = format!("sha256:{digest}");
            return Err(BadTar::AnotherImage { found, wanted: wanted.to_string() });
        }
        let config_name = format!("{digest}.json");
        if self.layers.contains_key(config_name.as_bytes()) {
            return Err(BadTar::NoArchive("a layer has the name of its configuration"));
        }
        write::file(output, &config_name, &config)?;
        let manifest = json!([{ "Config": config_name, "RepoTags": [reference.tagged()], "Layers": names }]);
        let manifest = serde_json::to_vec(&manifest).map_err(|error| BadTar::Io(error.into()))?;
        write::file(output, "manifest.json", &manifest)
    }

    /// Returns the layer of this name, following links.
    fn layer<'p>(&'p self, name: &'p [u8]) -> Option<(&'p [u8], &'p Layer)> {
        let mut name = name;
        for _ in 0..MAX_STEPS {
            match self.links.get(name) {
                Some(target) => name = target,
                None => return self.layers.get(name).map(|layer| (name, layer)),
            }
        }
        None
    }
}

/// Writes a layer anew without changing its length.
fn layer(content: &mut impl Read, member: &Member, output: &mut impl Write) -> Result<Layer, BadTar> {
    if member.name == MANIFEST {
        return Err(BadTar::NoArchive("its manifest.json is not a list"));
    }
    write::file_header(output, &member.name, member.size)?;
    let mut came = Meter::new(content, member.size);
    let mut written = Written { output: &mut *output, left: member.size, hash: Sha256::new() };
    let mut walk = Walk::new(&mut came, End::Known);
    members(&mut walk, &mut written, Links::Anywhere).map_err(|error| within(error, member))?;
    let left = written.left;
    io::copy(&mut io::repeat(0).take(left), &mut written)?;
    let hash = written.hash.finalize();
    write::fill(output, member.size)?;
    Ok(Layer { came: format!("sha256:{}", came.sha256()), written: format!("sha256:{}", hex::encode(hash)) })
}

/// Returns the configuration with the digests of the layers as written.
fn configuration<'l>(
    text: &[u8],
    layers: impl ExactSizeIterator<Item = &'l Layer>,
) -> Result<Vec<u8>, BadTar> {
    let no_config = || BadTar::NoArchive("its configuration has no digest for each layer");
    let mut config: Value = serde_json::from_slice(text).map_err(|_| no_config())?;
    let digests =
        config.pointer_mut("/rootfs/diff_ids").and_then(Value::as_array_mut).ok_or_else(no_config)?;
    if digests.len() != layers.len() {
        return Err(no_config());
    }
    let mut is_same = true;
    for (digest, layer) in digests.iter_mut().zip(layers) {
        if digest.as_str() != Some(&layer.came) {
            return Err(BadTar::NoArchive("a layer has another digest than its configuration says"));
        }
        if layer.written != layer.came {
            *digest = Value::String(layer.written.clone());
            is_same = false;
        }
    }
    if is_same {
        return Ok(text.to_vec());
    }
    serde_json::to_vec(&config).map_err(|error| BadTar::Io(error.into()))
}

/// Writer of a known length that computes the digest of its output.
struct Written<W> {
    output: W,
    left: u64,
    hash: Sha256,
}

impl<W: Write> Write for Written<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let bytes = bytes.get(..left).unwrap_or(bytes);
        let count = self.output.write(bytes)?;
        self.hash.update(bytes.get(..count).unwrap_or(bytes));
        self.left -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

fn within(error: BadTar, member: &Member) -> BadTar {
    match error {
        BadTar::Member { name, why } => BadTar::Member { name: format!("{}: {name}", member.shown()), why },
        BadTar::Io(error) => cut(error, member),
        other => other,
    }
}

/// Returns true if all parts of the name are plain.
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

fn has_two_parts(name: &[u8]) -> bool {
    name.split(|byte| *byte == b'/').count() == 2
}
