//! Writes headers anew from the parsed members.
//!
//! A member keeps its format, so its headers never become longer. A layer within an archive keeps the length that its own header has stated
//! before.

use std::io::Write;

use super::BadTar;
use super::header::{BLOCK, Fields, MAX_LONG, MAX_SHORT};
use super::member::{Form, Kind, Member};
use super::pax;

/// Largest size of a name in bytes, and of the prefix before it.
const NAME: usize = 100;
const PREFIX: usize = 155;
/// Name of GNU's members that contain a long name or link.
const LONG: &[u8] = b"././@LongLink";

/// Writes the headers of a member.
pub(super) fn write(output: &mut impl Write, member: &Member) -> Result<(), BadTar> {
    let blocks = headers(member).ok_or_else(|| member.refused("has values that a header cannot hold"))?;
    Ok(output.write_all(&blocks)?)
}

/// Pads the last block of a content.
pub(super) fn fill(output: &mut impl Write, size: u64) -> Result<(), BadTar> {
    let missing = size.wrapping_neg() % BLOCK as u64;
    Ok(output.write_all(&[0; BLOCK][..usize::try_from(missing).unwrap_or(0)])?)
}

/// Writes the end of a tar.
pub(super) fn end(output: &mut impl Write) -> Result<(), BadTar> {
    output.write_all(&[0; 2 * BLOCK])?;
    Ok(output.flush()?)
}

/// Writes a file made by the daemon.
pub(super) fn file(output: &mut impl Write, name: &str, content: &[u8]) -> Result<(), BadTar> {
    file_header(output, name.as_bytes(), content.len() as u64)?;
    output.write_all(content)?;
    fill(output, content.len() as u64)
}

/// Writes the header of a file of this length.
pub(super) fn file_header(output: &mut impl Write, name: &[u8], size: u64) -> Result<(), BadTar> {
    write(
        output,
        &Member {
            // GNU's format, because it holds any length.
            form: Form::Gnu,
            name: name.to_vec(),
            link: None,
            kind: Kind::File,
            size,
            mode: 0o644,
            uid: 0,
            gid: 0,
            modified: 0,
            user: Vec::new(),
            group: Vec::new(),
            device: None,
            records: pax::Records::default(),
        },
    )
}

fn headers(member: &Member) -> Option<Vec<u8>> {
    match member.form {
        Form::Ustar => {
            let (prefix, name) = split(&member.name)?;
            Some(fields(member, name, prefix, member.link.as_deref()).write()?.to_vec())
        }
        Form::Gnu => gnu(member),
        Form::Pax => pax(member),
    }
}

fn gnu(member: &Member) -> Option<Vec<u8>> {
    let mut blocks = Vec::new();
    let link = member.link.as_deref().unwrap_or_default();
    for (flag, text) in [(b'K', link), (b'L', &member.name)] {
        if text.len() > NAME {
            extension(&mut blocks, flag, LONG, &[text, b"\0"].concat())?;
        }
    }
    let (name, link) = (cut(&member.name), cut(link));
    let fields = Fields { is_gnu: true, ..fields(member, name, b"", Some(link)) };
    blocks.extend(fields.write()?);
    Some(blocks)
}

fn pax(member: &Member) -> Option<Vec<u8>> {
    let said = &member.records;
    let mut records = Vec::new();
    for (key, value) in &said.attributes {
        records.push((key.as_slice(), value.clone()));
    }
    let numbers = [
        (&b"gid"[..], said.gid, member.gid, MAX_SHORT),
        (b"uid", said.uid, member.uid, MAX_SHORT),
        (b"size", said.size, member.size, MAX_LONG),
    ];
    for (key, said, value, most) in numbers {
        match said {
            Some(said) if said > most => records.push((key, said.to_string().into_bytes())),
            None if value > most => return None,
            _ => {}
        }
    }
    let by_record = |text: &&Vec<u8>| text.len() > NAME || !text.is_ascii();
    if let Some(link) = said.link.as_ref().filter(|link| member.kind.is_link() && by_record(link)) {
        records.push((b"linkpath", link.clone()));
    }
    if let Some(time) =
        said.modified.as_ref().filter(|time| time.contains(&b'.') || member.modified > MAX_LONG)
    {
        records.push((b"mtime", time.clone()));
    }
    let name = said.name.as_ref().filter(by_record);
    if let Some(name) = name {
        records.push((b"path", name.clone()));
    }
    records.sort();
    let content: Vec<u8> = records.iter().flat_map(|(key, value)| pax::render(key, value)).collect();
    let mut blocks = Vec::new();
    if !content.is_empty() {
        extension(&mut blocks, b'x', &extension_name(&member.name), &content)?;
    }
    let short = ascii(&member.name);
    let (prefix, name) = if name.is_some() { (&b""[..], cut(&short)) } else { split(&member.name)? };
    let link = member.link.as_ref().map(|link| if by_record(&link) { ascii(link) } else { link.clone() });
    let mut fields = fields(member, name, prefix, link.as_deref().map(cut));
    for (value, most) in
        [(&mut fields.uid, MAX_SHORT), (&mut fields.gid, MAX_SHORT), (&mut fields.size, MAX_LONG)]
    {
        if *value > most {
            *value = 0;
        }
    }
    fields.modified = if fields.modified > MAX_LONG { 0 } else { fields.modified };
    blocks.extend(fields.write()?);
    Some(blocks)
}

fn fields(member: &Member, name: &[u8], prefix: &[u8], link: Option<&[u8]>) -> Fields {
    Fields {
        is_gnu: false,
        flag: member.kind.flag(),
        name: name.to_vec(),
        prefix: prefix.to_vec(),
        link: link.unwrap_or_default().to_vec(),
        mode: member.mode,
        uid: member.uid,
        gid: member.gid,
        size: member.size,
        modified: member.modified,
        user: member.user.clone(),
        group: member.group.clone(),
        device: member.device,
    }
}

/// Appends an extension of the next member.
fn extension(blocks: &mut Vec<u8>, flag: u8, name: &[u8], content: &[u8]) -> Option<()> {
    let is_gnu = flag != b'x';
    let (mode, device) = if is_gnu { (0o644, None) } else { (0, Some((0, 0))) };
    let size = content.len() as u64;
    let fields = Fields { is_gnu, flag, name: name.to_vec(), mode, size, device, ..Fields::default() };
    blocks.extend(fields.write()?);
    blocks.extend(content);
    blocks.resize(blocks.len().next_multiple_of(BLOCK), 0);
    Some(())
}

/// Returns the usual name of an extended header, for readers that do not know such headers.
fn extension_name(name: &[u8]) -> Vec<u8> {
    let name = ascii(name);
    let path = name.strip_suffix(b"/").unwrap_or(&name);
    let slash = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(slash);
    let mut whole = [directory, b"PaxHeaders.0/", name].concat();
    whole.truncate(NAME);
    whole
}

/// Splits a name into a prefix and the rest after a slash. `None` if no slash is at a suitable position.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= NAME {
        return Some((b"", name));
    }
    let is_place = |at: usize| at <= PREFIX && at > 0 && (1..=NAME).contains(&(name.len() - at - 1));
    let at = (0..name.len()).rev().find(|at| name.get(*at) == Some(&b'/') && is_place(*at))?;
    Some((name.get(..at)?, name.get(at + 1..)?))
}

fn cut(text: &[u8]) -> &[u8] {
    text.get(..NAME).unwrap_or(text)
}

fn ascii(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(u8::is_ascii).collect()
}
