//! The command line of `coffer-host-worker`. [`crate::spawn`] writes it, and only the host worker reads it.
//!
//! It has no paths: the directories come as open handles, in the order of `--mounts`, in the first message of the channel.

use std::ffi::{OsStr, OsString};

use rustix::fs::{Gid, Uid};
use thiserror::Error;

use crate::ancestry;

/// A directory that is mounted in the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JailMount {
    /// The mount `@project`.
    Workspace,
    /// The mount `@state`.
    State,
    /// The mount `@pkg`.
    Pkg,
    /// The repository to clone from, or a directory that is only read.
    Source,
    Changes,
    /// The directory beneath an overlay whose files are put back.
    Beneath,
    /// A part of a checkpoint that names what the overlay has changed.
    Before,
    /// The repository whose linked work tree is the workspace. Only parts of it are writable.
    Repository,
    /// The host worker's private directory for a run. Processes in the container cannot see it.
    Private,
}

impl JailMount {
    const ALL: [Self; 9] = [
        Self::Workspace,
        Self::State,
        Self::Pkg,
        Self::Source,
        Self::Private,
        Self::Changes,
        Self::Beneath,
        Self::Before,
        Self::Repository,
    ];

    /// Returns the name of its directory in the jail's root.
    pub fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::State => "state",
            Self::Pkg => "pkg",
            Self::Source => "source",
            Self::Changes => "changes",
            Self::Beneath => "beneath",
            Self::Before => "before",
            Self::Repository => "repository",
            Self::Private => "private",
        }
    }

    /// Returns true if the directory is mounted writable.
    pub fn is_writable(self) -> bool {
        matches!(self, Self::Workspace | Self::State | Self::Private)
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|jail_mount| jail_mount.name() == name)
    }
}

/// The mounts for putting back the files of an overlay.
pub(crate) const RESTORED_LAYER: [JailMount; 4] =
    [JailMount::Source, JailMount::Workspace, JailMount::Beneath, JailMount::Before];

/// The task in the jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Serve calls until the channel ends.
    Serve {
        /// Name of the workspace as a linked work tree of the repository; empty if it is none.
        work_tree: String,
    },
    /// Clone the source into the workspace and check a revision out.
    Clone {
        /// Branch, tag or commit; empty is HEAD of the source, or of the linked work tree.
        revision: String,
        /// Name of a linked work tree whose repository is the source; empty if it is none.
        work_tree: String,
        /// Bounds of the clone: its repository and its files.
        most: TreeBounds,
    },
    /// Fetch a repository of a server into its mirror, the workspace. A further handle is the way out.
    Mirror {
        /// Address of the repository.
        url: String,
        /// Most bytes that the server may send.
        most: u64,
        /// Seconds after which it gives up.
        seconds: u32,
    },
    /// Clone a mirror, the source, into the workspace, and answer with the commit that is checked out.
    CloneMirror {
        /// Address of the repository, for the remote of the clone.
        url: String,
        /// Branch, tag or full id of a commit; empty is the server's HEAD.
        revision: String,
        /// Most commits down each line of the history; 0 is all of it.
        depth: u32,
        /// Bounds of the clone: its repository and its files.
        most: TreeBounds,
        /// Seconds after which it ends by itself.
        seconds: u32,
    },
    /// Answer with the content of this small file of the source.
    Read(String),
    /// Create the directory for reflogs in the workspace, a git directory, if it is missing.
    MakeLogs,
    /// Recover the leftovers of killed operations, and report them on standard error.
    Recover,
    /// Report the parts of the jail on standard error.
    Report,
    /// Answer with the differences between the changes and the source, in a diff of at most so many bytes.
    Diff(Since, u32),
    /// Apply the changes to the workspace; if true, also those with objections.
    Accept(Since, bool),
    /// Answer with the size of the source's files.
    Measure,
    /// Answer with a digest of all that determines a clone of the source.
    Identify {
        /// As for a clone.
        revision: String,
        /// As for a clone.
        work_tree: String,
    },
    /// Answer for each pair of commits, an old and a new one, if the first is an ancestor of the second.
    Ancestry(Vec<(String, String)>),
    /// Answer with the effects of the updates of a push, each from an old object to a new one.
    PreviewPush(Vec<(String, String)>),
    /// Copy the source into the workspace, and answer with the copy's digest.
    Copy(TreeBounds),
    /// Answer with the digest of the source.
    Digest(TreeBounds),
    /// Send the source over a further handle, and answer with its digest.
    Export(TreeBounds),
    /// Fill the workspace with a tree that comes over a further handle, and answer with its digest.
    Import(TreeBounds),
    /// Copy the source into `files` of the workspace, and answer with the copy's digest.
    Save(TreeBounds, Marks),
    /// Put a saved tree, the source, into the workspace, which no process uses.
    Fill,
    /// Make the workspace, which no process uses, what it was when the source was saved of it.
    Restore {
        /// True if the workspace is an overlay. Then the directory beneath and what is changed now are mounted, too.
        is_layer: bool,
    },
}

/// Treatment of an overlay's marks in a tree that is saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// The tree is no layer. A device is a special file, and an attribute has no meaning.
    Ignored,
    /// The tree is the layer of an overlay. Its marks are listed in the file `marks` of the workspace.
    Listed,
}

/// Most that a tree may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeBounds {
    /// Length of all files, bytes.
    pub bytes: u64,
    /// Files, directories and links.
    pub files: u64,
}

/// The time since which the directory beneath an overlay should be unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// Seconds since 1970, and nanoseconds, by the clock of the file system.
    pub time: (i64, u32),
    /// True if some of the changes may have been applied already.
    pub resumed: bool,
}

/// A weaker jail that an operator may accept if the kernel allows the daemon no full one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeakerForm {
    /// Landlock confines files, with the host's root and without namespaces; there is no git, no clone and no overlay.
    LandlockOnly,
}

impl WeakerForm {
    /// Returns its name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LandlockOnly => "landlock-only",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        (name == Self::LandlockOnly.name()).then_some(Self::LandlockOnly)
    }
}

/// The parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Args {
    /// Owner of the workspace, whose identity the host worker takes.
    pub uid: Uid,
    pub gid: Gid,
    /// The mounts, in the order in which their handles arrive; each at most once, the workspace always.
    pub jail_mounts: Vec<JailMount>,
    /// The weaker form that suffices if there can be no full jail.
    pub accepts: Option<WeakerForm>,
    pub task: Task,
}

/// The error of a command line that [`crate::spawn`] would not write.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("bad command line: {0}")]
pub struct BadArgs(&'static str);

impl Args {
    /// Returns the command line, without the program's name.
    pub fn to_command_line(&self) -> Vec<OsString> {
        let jail_mounts: Vec<&str> = self.jail_mounts.iter().map(|jail_mount| jail_mount.name()).collect();
        let mut line: Vec<OsString> = vec![
            "--uid".into(),
            self.uid.as_raw().to_string().into(),
            "--gid".into(),
            self.gid.as_raw().to_string().into(),
            "--mounts".into(),
            jail_mounts.join(",").into(),
            "--accept".into(),
            self.accepts.map_or("", WeakerForm::name).into(),
        ];
        match &self.task {
            Task::Serve { work_tree } => line.extend(["--serve".into(), work_tree.into()]),
            Task::MakeLogs => line.push("--make-logs".into()),
            Task::Recover => line.push("--recover".into()),
            Task::Report => line.push("--report".into()),
            Task::Diff(since, most) => {
                line.push("--diff".into());
                line.extend(since.to_command_line());
                line.push(most.to_string().into());
            }
            Task::Accept(since, force) => {
                line.push("--accept".into());
                line.extend(since.to_command_line());
                line.push(u8::from(*force).to_string().into());
            }
            Task::Measure => line.push("--measure".into()),
            Task::Identify { revision, work_tree } => {
                line.extend(["--identify".into(), revision.into(), work_tree.into()]);
            }
            Task::Ancestry(pairs) => {
                line.extend(["--ancestry".into(), ancestry::pairs_to_text(pairs).into()]);
            }
            Task::PreviewPush(updates) => {
                line.extend(["--preview-push".into(), ancestry::pairs_to_text(updates).into()]);
            }
            Task::Copy(most) => {
                line.push("--copy".into());
                line.extend(most.to_command_line());
            }
            Task::Digest(most) => {
                line.push("--digest".into());
                line.extend(most.to_command_line());
            }
            Task::Export(most) => {
                line.push("--export".into());
                line.extend(most.to_command_line());
            }
            Task::Import(most) => {
                line.push("--import".into());
                line.extend(most.to_command_line());
            }
            Task::Fill => line.push("--fill".into()),
            Task::Restore { .. } => line.push("--restore".into()),
            Task::Save(most, marks) => {
                line.push("--save".into());
                line.extend(most.to_command_line());
                line.push(u8::from(*marks == Marks::Listed).to_string().into());
            }
            Task::Clone { revision, work_tree, most } => {
                line.extend(["--clone".into(), revision.into(), work_tree.into()]);
                line.extend(most.to_command_line());
            }
            Task::Mirror { url, most, seconds } => {
                line.extend(["--mirror".into(), url.into(), most.to_string().into()]);
                line.push(seconds.to_string().into());
            }
            Task::CloneMirror { url, revision, depth, most, seconds } => {
                line.extend(["--clone-mirror".into(), url.into(), revision.into()]);
                line.push(depth.to_string().into());
                line.extend(most.to_command_line());
                line.push(seconds.to_string().into());
            }
            Task::Read(path) => line.extend(["--read".into(), path.into()]),
        }
        line
    }

    /// Parses the output of [`Self::to_command_line`], in that order, and nothing else.
    pub fn parse(line: impl IntoIterator<Item = OsString>) -> Result<Self, BadArgs> {
        let mut line = line.into_iter();
        let uid = number(&value(&mut line, "--uid")?)?;
        let gid = number(&value(&mut line, "--gid")?)?;
        let jail_mounts = jail_mounts(&value(&mut line, "--mounts")?)?;
        let accepts = match value(&mut line, "--accept")?.to_str() {
            Some("") => None,
            name => Some(name.and_then(WeakerForm::parse).ok_or(BadArgs("an unknown form of the jail"))?),
        };
        let task = match line.next().as_deref().and_then(OsStr::to_str) {
            Some("--serve") => Task::Serve { work_tree: work_tree(&jail_mounts, text(&mut line)?)? },
            Some("--make-logs") if jail_mounts == [JailMount::Workspace] => Task::MakeLogs,
            Some("--recover") if jail_mounts.contains(&JailMount::Private) => Task::Recover,
            Some("--report") => Task::Report,
            Some("--diff") if jail_mounts == [JailMount::Source, JailMount::Changes] => {
                Task::Diff(Since::parse(&mut line)?, word(&mut line)?)
            }
            Some("--accept") if jail_mounts == [JailMount::Workspace, JailMount::Changes] => {
                Task::Accept(Since::parse(&mut line)?, word::<u8>(&mut line)? == 1)
            }
            Some("--measure") if jail_mounts == [JailMount::Source] => Task::Measure,
            Some("--identify") if jail_mounts == [JailMount::Source] => {
                Task::Identify { revision: text(&mut line)?, work_tree: text(&mut line)? }
            }
            Some("--ancestry") if jail_mounts == [JailMount::Source] => {
                Task::Ancestry(ancestry::pairs(&text(&mut line)?).ok_or(BadArgs("no pairs of commits"))?)
            }
            Some("--preview-push") if jail_mounts == [JailMount::Source] => {
                Task::PreviewPush(ancestry::pairs(&text(&mut line)?).ok_or(BadArgs("no updates"))?)
            }
            Some("--copy") if jail_mounts == [JailMount::Source, JailMount::Workspace] => {
                Task::Copy(TreeBounds::parse(&mut line)?)
            }
            Some("--digest") if jail_mounts == [JailMount::Source] => {
                Task::Digest(TreeBounds::parse(&mut line)?)
            }
            Some("--export") if jail_mounts == [JailMount::Source] => {
                Task::Export(TreeBounds::parse(&mut line)?)
            }
            Some("--import") if jail_mounts == [JailMount::Workspace] => {
                Task::Import(TreeBounds::parse(&mut line)?)
            }
            Some("--fill") if jail_mounts == [JailMount::Source, JailMount::Workspace] => Task::Fill,
            Some("--restore") if jail_mounts == [JailMount::Source, JailMount::Workspace] => {
                Task::Restore { is_layer: false }
            }
            Some("--restore") if jail_mounts == RESTORED_LAYER => Task::Restore { is_layer: true },
            Some("--save") if jail_mounts == [JailMount::Source, JailMount::Workspace] => {
                let most = TreeBounds::parse(&mut line)?;
                let is_layer = word::<u8>(&mut line)? == 1;
                Task::Save(most, if is_layer { Marks::Listed } else { Marks::Ignored })
            }
            Some("--clone") if jail_mounts.contains(&JailMount::Source) => Task::Clone {
                revision: text(&mut line)?,
                work_tree: text(&mut line)?,
                most: TreeBounds::parse(&mut line)?,
            },
            Some("--mirror") if jail_mounts == [JailMount::Workspace] => {
                Task::Mirror { url: text(&mut line)?, most: word(&mut line)?, seconds: word(&mut line)? }
            }
            Some("--clone-mirror") if jail_mounts == [JailMount::Source, JailMount::Workspace] => {
                Task::CloneMirror {
                    url: text(&mut line)?,
                    revision: text(&mut line)?,
                    depth: word(&mut line)?,
                    most: TreeBounds::parse(&mut line)?,
                    seconds: word(&mut line)?,
                }
            }
            Some("--read") if jail_mounts == [JailMount::Source] => Task::Read(text(&mut line)?),
            _ => return Err(BadArgs("no task")),
        };
        if !jail_mounts.contains(&JailMount::Workspace)
            && !matches!(
                task,
                Task::Diff(..)
                    | Task::Measure
                    | Task::Digest(_)
                    | Task::Export(_)
                    | Task::Read(_)
                    | Task::Identify { .. }
                    | Task::Ancestry(_)
                    | Task::PreviewPush(_)
            )
        {
            return Err(BadArgs("no workspace"));
        }
        match line.next() {
            None => Ok(Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), jail_mounts, accepts, task }),
            Some(_) => Err(BadArgs("more than one task")),
        }
    }
}

impl Since {
    fn to_command_line(self) -> [OsString; 3] {
        let (seconds, nanos) = self.time;
        [seconds.to_string().into(), nanos.to_string().into(), u8::from(self.resumed).to_string().into()]
    }

    fn parse(line: &mut impl Iterator<Item = OsString>) -> Result<Self, BadArgs> {
        Ok(Self { time: (word(line)?, word(line)?), resumed: word::<u8>(line)? == 1 })
    }
}

impl Task {
    /// Returns true if one more handle comes after those of the mounts: over it, handles of later calls, streams to servers or a tree come.
    pub fn has_further_handle(&self) -> bool {
        matches!(self, Self::Serve { .. } | Self::Mirror { .. } | Self::Export(_) | Self::Import(_))
    }
}

impl TreeBounds {
    fn to_command_line(self) -> [OsString; 2] {
        [self.bytes.to_string().into(), self.files.to_string().into()]
    }

    fn parse(line: &mut impl Iterator<Item = OsString>) -> Result<Self, BadArgs> {
        Ok(Self { bytes: word(line)?, files: word(line)? })
    }
}

fn word<T: std::str::FromStr>(line: &mut impl Iterator<Item = OsString>) -> Result<T, BadArgs> {
    let word = line.next().and_then(|word| word.into_string().ok());
    word.and_then(|word| word.parse().ok()).ok_or(BadArgs("a number is missing"))
}

fn text(line: &mut impl Iterator<Item = OsString>) -> Result<String, BadArgs> {
    let word = line.next().ok_or(BadArgs("a word is missing"))?;
    word.into_string().map_err(|_| BadArgs("a word that is not UTF-8"))
}

/// Checks that there is a work tree's name with a repository, and none without.
fn work_tree(jail_mounts: &[JailMount], name: String) -> Result<String, BadArgs> {
    let is_name = !matches!(name.as_str(), "" | "." | "..") && !name.contains(['/', '\0']);
    let fits = if jail_mounts.contains(&JailMount::Repository) { is_name } else { name.is_empty() };
    if fits { Ok(name) } else { Err(BadArgs("a work tree without its repository, or the other way round")) }
}

fn value(line: &mut impl Iterator<Item = OsString>, name: &str) -> Result<OsString, BadArgs> {
    match line.next() {
        Some(given) if given == name => line.next().ok_or(BadArgs("an option without its value")),
        _ => Err(BadArgs("an option is missing or in the wrong order")),
    }
}

fn number(text: &OsStr) -> Result<u32, BadArgs> {
    let id = text.to_str().and_then(|text| text.parse().ok()).ok_or(BadArgs("an id is not a number"))?;
    // The kernel takes -1 for "leave it as it is": the host worker would stay root.
    if id == u32::MAX { Err(BadArgs("an id that means none")) } else { Ok(id) }
}

fn jail_mounts(text: &OsStr) -> Result<Vec<JailMount>, BadArgs> {
    let names = text.to_str().ok_or(BadArgs("mounts that are not UTF-8"))?;
    let mut jail_mounts = Vec::new();
    for name in names.split(',') {
        let jail_mount = JailMount::parse(name).ok_or(BadArgs("an unknown mount"))?;
        if jail_mounts.contains(&jail_mount) {
            return Err(BadArgs("a mount twice"));
        }
        jail_mounts.push(jail_mount);
    }
    Ok(jail_mounts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_of_a_mirror_have_their_mounts_and_no_others() {
        let url = "https://git.example.org/org/app".to_owned();
        let most = TreeBounds { bytes: 7, files: 8 };
        let mirror = Task::Mirror { url: url.clone(), most: u64::MAX, seconds: 300 };
        let revision = "--serve".to_owned();
        let clone = Task::CloneMirror { url, revision, depth: u32::MAX, most, seconds: 600 };
        assert!(mirror.has_further_handle() && !clone.has_further_handle());
        let both = vec![JailMount::Source, JailMount::Workspace];
        for (task, jail_mounts) in [(mirror, vec![JailMount::Workspace]), (clone, both)] {
            let args =
                Args { uid: Uid::from_raw(1), gid: Gid::from_raw(1), accepts: None, jail_mounts, task };
            assert_eq!(Args::parse(args.to_command_line()), Ok(args.clone()));
            let other = vec![JailMount::Workspace, JailMount::State];
            assert!(Args::parse(Args { jail_mounts: other, ..args }.to_command_line()).is_err());
        }
    }

    fn parse(line: &[&str]) -> Result<Args, BadArgs> {
        Args::parse(line.iter().map(OsString::from))
    }

    #[test]
    fn written_arguments_parse_back() {
        let most = TreeBounds { bytes: u64::MAX, files: 0 };
        for task in [
            Task::Serve { work_tree: "a tree".to_owned() },
            Task::Recover,
            Task::Report,
            Task::Clone { revision: String::new(), work_tree: String::new(), most },
            Task::Clone { revision: "--serve".to_owned(), work_tree: "x y".to_owned(), most },
        ] {
            let args = Args {
                uid: Uid::from_raw(1234),
                gid: Gid::ROOT,
                accepts: Some(WeakerForm::LandlockOnly),
                jail_mounts: vec![
                    JailMount::State,
                    JailMount::Workspace,
                    JailMount::Source,
                    JailMount::Private,
                    JailMount::Repository,
                ],
                task,
            };
            assert_eq!(Args::parse(args.to_command_line()), Ok(args));
        }
    }

    #[test]
    fn a_tree_is_copied_between_two_directories_and_digested_in_one() {
        let most = TreeBounds { bytes: u64::MAX, files: 7 };
        let args = |jail_mounts: &[JailMount], task| Args {
            uid: Uid::from_raw(1),
            gid: Gid::from_raw(1),
            accepts: None,
            jail_mounts: jail_mounts.to_vec(),
            task,
        };
        let both = [JailMount::Source, JailMount::Workspace];
        let identify = Task::Identify { revision: "--copy".to_owned(), work_tree: String::new() };
        for good in [
            args(&both, Task::Copy(most)),
            args(&both, Task::Save(most, Marks::Listed)),
            args(&both, Task::Save(most, Marks::Ignored)),
            args(&both, Task::Fill),
            args(&both, Task::Restore { is_layer: false }),
            args(&RESTORED_LAYER, Task::Restore { is_layer: true }),
            args(&both[..1], Task::Digest(most)),
            args(&both[..1], Task::Export(most)),
            args(&both[1..], Task::Import(most)),
            args(&both[..1], identify.clone()),
        ] {
            assert_eq!(Args::parse(good.to_command_line()), Ok(good));
        }
        let bad = [Task::Digest(most), Task::Export(most), Task::Import(most), identify]
            .map(|task| args(&both, task));
        let lacking = [
            Task::Copy(most),
            Task::Fill,
            Task::Import(most),
            Task::Restore { is_layer: false },
            Task::Save(most, Marks::Listed),
        ]
        .map(|task| args(&both[..1], task));
        for bad in bad.into_iter().chain(lacking) {
            assert!(Args::parse(bad.to_command_line()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let good = ["--uid", "1", "--gid", "1", "--mounts", "workspace", "--accept", "", "--serve", ""];
        assert!(parse(&good).is_ok());
        for (index, bad) in [
            (0, "--gid"),
            (1, "x"),
            (1, "-1"),
            (1, "4294967295"),
            (3, "4294967295"),
            (4, "--x"),
            (7, "nothing"),
            (8, "--recover"),
            (9, "a work tree of no repository"),
        ] {
            let mut line = good;
            line[index] = bad;
            assert!(parse(&line).is_err(), "{line:?}");
        }
        for mounts in ["", "state", "workspace,", "workspace,etc", "workspace,workspace", "workspace,../etc"]
        {
            assert!(
                parse(&["--uid", "1", "--gid", "1", "--mounts", mounts, "--accept", "", "--serve", ""])
                    .is_err(),
                "{mounts}"
            );
        }
        for name in ["", ".", "..", "a/b", "../x", "/"] {
            let mut line = good;
            (line[5], line[9]) = ("workspace,repository", name);
            assert!(parse(&line).is_err(), "{name}");
        }
        assert!(parse(&good[..8]).is_err());
        assert!(parse(&[&good[..], &["--serve"]].concat()).is_err());
        let clone = ["--clone", "main", "", "1", "2"];
        assert!(parse(&[&good[..8], &clone].concat()).is_err(), "a clone needs a source");
        let mut line = [&good[..8], &clone].concat();
        line[5] = "workspace,source";
        assert!(parse(&line).is_ok());
        line[12] = "-1";
        assert!(parse(&line).is_err() && parse(&line[..12]).is_err(), "a clone needs its bounds");
        assert!(parse(&[&good[..8], &["--recover"]].concat()).is_err(), "a recovery needs to know of what");
    }
}
