//! Implements `git show`: a commit with its changes, a tag, or a file or directory as a commit has it.

use std::path::Path;

use git2::{Blob, ErrorCode, Object, ObjectType, Repository, Tag, Tree};
use jail::SandboxPath;
use operations::{GitLogFlag, GitRevision};

use super::error::{GitError, shown};
use super::history::{self, Style};
use super::output::Output;
use super::paths;
use super::quote::quoted;
use super::withheld::Withheld;

/// Largest file that is read, bytes.
const LARGEST: u64 = 64 * 1024 * 1024;
/// Most tags of tags that are followed.
const DEEPEST: usize = 16;

/// Writes the object that `revision` names, or `file` in it.
pub(super) fn write(
    repository: &Repository,
    withheld: &Withheld<'_>,
    (flags, revision): (&[GitLogFlag], &GitRevision),
    file: Option<&SandboxPath>,
    limit_to: &[SandboxPath],
    output: &mut Output,
) -> Result<(), GitError> {
    let style = Style::of(flags, true)?;
    let limit_to: Vec<&str> = limit_to.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    let mut object = history::find(repository, revision)?;
    let name = shown(revision.as_str());
    if let Some(file) = file {
        return beneath(repository, withheld, (&object, &name), paths::in_work_tree(file)?, output);
    }
    for _ in 0..DEEPEST {
        match object.into_tag() {
            Ok(tag) => {
                describe(&tag, output);
                object = tag.target()?;
            }
            Err(other) => {
                object = other;
                break;
            }
        }
    }
    if object.kind() != Some(ObjectType::Commit) {
        withheld.demand_path()?;
        return content(&object, withheld, (&name, ""), output);
    }
    let commit = object.peel_to_commit()?;
    style.head(&commit, output)?;
    let Some(formats) = &style.formats else { return Ok(()) };
    if commit.parent_count() > 1 && formats.are_patches() {
        output.push_str("\n(changes since the first parent)\n");
    }
    let diff = history::diff(repository, &commit, formats.options(), &limit_to)?;
    style.changes(diff, withheld, output)
}

fn describe(tag: &Tag<'_>, output: &mut Output) {
    output.push_str(&format!("tag {}\n", shown(&String::from_utf8_lossy(tag.name_bytes()))));
    if let Some(tagger) = tag.tagger() {
        history::by("Tagger: ", &tagger, output);
    }
    history::said(tag.message_bytes().unwrap_or_default(), "", output);
    output.push_str("\n");
}

/// Writes the entry at `path` of the object's tree.
fn beneath(
    repository: &Repository,
    withheld: &Withheld<'_>,
    (object, revision): (&Object<'_>, &str),
    path: &str,
    output: &mut Output,
) -> Result<(), GitError> {
    let missing = || GitError::NotInRevision { path: shown(path), revision: revision.to_owned() };
    let tree = object.peel_to_tree().map_err(|_| missing())?;
    let name = format!("{revision}:{}", shown(path));
    if path.is_empty() {
        return content(tree.as_object(), withheld, (&name, path), output);
    }
    let entry = tree.get_path(Path::new(path)).map_err(|error| match error.code() {
        ErrorCode::NotFound => missing(),
        _ => error.into(),
    })?;
    if entry.kind() == Some(ObjectType::Commit) {
        // A repository has only the commit's id of a submodule.
        output.push_str(&format!("Subproject commit {}\n", entry.id()));
        return Ok(());
    }
    // Checks the size before it reads the file.
    let (size, kind) = repository.odb()?.read_header(entry.id())?;
    if kind == ObjectType::Blob {
        check(size as u64, &name)?;
    }
    content(&entry.to_object(repository)?, withheld, (&name, path), output)
}

/// Writes the content of a file, or the names in a directory.
fn content(
    object: &Object<'_>,
    withheld: &Withheld<'_>,
    (name, path): (&str, &str),
    output: &mut Output,
) -> Result<(), GitError> {
    if let Some(blob) = object.as_blob() {
        return file(blob, name, output);
    }
    output.push_str(&format!("tree {name}\n\n"));
    names(&object.peel_to_tree()?, withheld, path, output);
    Ok(())
}

fn file(blob: &Blob<'_>, name: &str, output: &mut Output) -> Result<(), GitError> {
    check(blob.size() as u64, name)?;
    if blob.is_binary() {
        output.push_str(&format!("({name} is binary, {} bytes)\n", blob.size()));
    } else {
        output.push(blob.content());
    }
    Ok(())
}

fn names(tree: &Tree<'_>, withheld: &Withheld<'_>, path: &str, output: &mut Output) {
    let is_shown = |name: &[u8]| withheld.shows_path(&[path.as_bytes(), b"/", name].concat());
    for entry in tree.iter().filter(|entry| is_shown(entry.name_bytes())) {
        let slash = if entry.kind() == Some(ObjectType::Tree) { "/" } else { "" };
        output.push_str(&format!("{}{slash}\n", quoted(entry.name_bytes())));
    }
}

fn check(bytes: u64, name: &str) -> Result<(), GitError> {
    if bytes > LARGEST {
        return Err(GitError::TooLargeToShow { path: name.to_owned(), bytes, most: LARGEST });
    }
    Ok(())
}
