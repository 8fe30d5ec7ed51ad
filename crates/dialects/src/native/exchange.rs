//! Arguments of `git fetch`, `git pull` and `git push`.

use wire::v1::{self, git_pull::Mode, git_request::Command};

use crate::failure::ParseFailure;

/// A reference with the id that it must have, as `--force-with-lease` takes it.
struct Lease {
    reference: String,
    id: String,
}

/// Parses `fetch`: a remote and references.
pub(super) fn fetch(args: Vec<String>) -> Result<Command, ParseFailure> {
    let mut fetch = v1::GitFetch::default();
    let mut names = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-t" | "--tags" => fetch.tags = true,
            "--depth" => fetch.depth = Some(number(args.next().as_deref())?),
            _ if arg.starts_with("--depth=") => fetch.depth = Some(number(arg.strip_prefix("--depth="))?),
            _ if arg.starts_with('-') => {
                return Err(wrong(
                    "fetch takes a remote, references, --tags and --depth N, and no other flags",
                ));
            }
            _ => names.push(arg),
        }
    }
    let mut names = names.into_iter();
    fetch.remote = names.next().unwrap_or_default();
    fetch.refs = names.collect();
    Ok(Command::Fetch(fetch))
}

/// Parses `pull`: a remote and a branch. As in git, `--no-rebase` stands for a merge.
pub(super) fn pull(args: Vec<String>) -> Result<Command, ParseFailure> {
    let mut pull = v1::GitPull::default();
    let mut names = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--ff-only" => pull.set_mode(Mode::FfOnly),
            "--no-rebase" => pull.set_mode(Mode::Merge),
            _ if arg.starts_with('-') => {
                let message =
                    "pull takes a remote, a branch, and --ff-only or --no-rebase, and no other flags";
                return Err(wrong(message));
            }
            _ => names.push(arg),
        }
    }
    let mut names = names.into_iter();
    pull.remote = names.next().unwrap_or_default();
    pull.branch = names.next().unwrap_or_default();
    match names.next() {
        None => Ok(Command::Pull(pull)),
        Some(_) => Err(wrong("pull takes one remote and one branch")),
    }
}

/// Parses `push`: a remote, then references as `LOCAL`, `LOCAL:REMOTE` or `:REMOTE`. Without references it is HEAD.
pub(super) fn push(args: Vec<String>) -> Result<Command, ParseFailure> {
    let (mut names, mut leases, mut deletes) = (Vec::new(), Vec::new(), false);
    for arg in args {
        match arg.as_str() {
            // No configuration is written; the branch keeps its name at the remote anyway.
            "-u" | "--set-upstream" => {}
            "-d" | "--delete" => deletes = true,
            _ if arg.starts_with("--force-with-lease=") => leases.push(lease(&arg)?),
            "-f" | "--force" | "--force-with-lease" => return Err(unleased()),
            _ if arg.starts_with('-') => {
                let message = "push takes a remote, references, --delete and --force-with-lease=BRANCH:ID, and no other flags";
                return Err(wrong(message));
            }
            _ => names.push(arg),
        }
    }
    let mut names = names.into_iter();
    let remote = names.next().unwrap_or_default();
    let mut refs = names.map(|name| reference(&name, deletes)).collect::<Result<Vec<_>, _>>()?;
    if refs.is_empty() && !deletes {
        refs.push(v1::GitPushRef::default());
    }
    let force = !leases.is_empty();
    for lease in leases {
        expect(&mut refs, lease)?;
    }
    Ok(Command::Push(v1::GitPush { remote, refs, force }))
}

fn reference(name: &str, deletes: bool) -> Result<v1::GitPushRef, ParseFailure> {
    if name.starts_with('+') {
        return Err(unleased());
    }
    let (local, remote_ref) = match name.split_once(':') {
        _ if deletes => ("", name),
        Some((local, remote)) => (local, remote),
        None => (name, ""),
    };
    Ok(v1::GitPushRef {
        local: local.to_owned(),
        remote_ref: remote_ref.to_owned(),
        expected: String::new(),
        delete: local.is_empty(),
    })
}

fn lease(arg: &str) -> Result<Lease, ParseFailure> {
    let (_, lease) = arg.split_once('=').unwrap_or_default();
    match lease.rsplit_once(':') {
        Some((reference, id)) if !reference.is_empty() && !id.is_empty() => {
            Ok(Lease { reference: reference.to_owned(), id: id.to_owned() })
        }
        _ => Err(unleased()),
    }
}

/// Sets the id of the reference that the lease names. HEAD without a name gets that name.
fn expect(refs: &mut [v1::GitPushRef], Lease { reference, id }: Lease) -> Result<(), ParseFailure> {
    let is_named = |to: &v1::GitPushRef| match to.remote_ref.as_str() {
        "" => to.local == reference,
        remote_ref => remote_ref == reference,
    };
    let is_head = |to: &v1::GitPushRef| to.remote_ref.is_empty() && matches!(to.local.as_str(), "" | "HEAD");
    let place = refs.iter().position(is_named).or_else(|| refs.iter().position(is_head));
    let Some(to) = place.and_then(|place| refs.get_mut(place)).filter(|to| !to.delete || is_named(to)) else {
        return Err(wrong("--force-with-lease names a reference that is not pushed"));
    };
    if to.remote_ref.is_empty() {
        to.remote_ref = reference;
    }
    to.expected = id;
    Ok(())
}

fn number(text: Option<&str>) -> Result<u32, ParseFailure> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| wrong("--depth needs a number of commits, as in [\"--depth\", \"1\"]"))
}

fn unleased() -> ParseFailure {
    wrong("to force a push, say which id the branch has now: --force-with-lease=BRANCH:ID, for each branch")
}

fn wrong(message: &str) -> ParseFailure {
    ParseFailure::argument("args", message)
}
