//! `coffer init`.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::Args;
use policy::Policy;

use crate::config::{FILE, POLICY, User, engine, quoted, real};
use crate::failure::Failure;
use crate::project::Project;
use crate::say::{Say, data};

/// Directory of the configuration that `cofferd` reads by default.
const SYSTEM: &str = "/etc/cofferdam";
/// Directory of the state of an installed daemon.
const STATE: &str = "/var/lib/cofferdam";
const SOCKET: &str = "/run/cofferdam/cofferd.sock";
/// Files of the built-in policy that the one of `coffer init` has, too.
const BUILT_IN: [&str; 3] = ["roles.yaml", "review.yaml", "anomalies.yaml"];
const PROFILE: &str = "project.yaml";
/// File mode of what the daemon and its users may read.
const OPEN: u32 = 0o644;

/// Write a configuration, and a policy that fits a project.
///
/// Looks at the names of the project's files, such as Cargo.toml, package.json and pyproject.toml. Writes cofferd.yaml,
/// and policies with the profile `project` and the built-in profile `review`. Says what it chose, and prints the paths.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer init --project ~/src/hello")]
pub struct Init {
    /// Directory to write, outside of the project. Default: /etc/cofferdam for root, otherwise ~/.config/cofferdam.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Directory of the project, whose files runs can use.
    #[arg(long, value_name = "DIR", default_value = ".")]
    project: PathBuf,
    /// Image with the project's tools. Default: the default image, which has those of busybox.
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
}

impl Init {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let say = Say::new();
        let root = real(&self.project)?;
        let directory = self.directory.map_or_else(default_directory, Ok)?;
        let directory =
            std::path::absolute(&directory).map_err(|error| Failure::of_file(&directory, &error))?;
        apart(&root, &directory)?;
        make_directory(&directory)?;
        // The path may have led through a link.
        let directory = real(&directory)?;
        apart(&root, &directory)?;
        let project = Project::examine(&root)?;
        let user = User::caller();
        let files = files(&directory, &root, &project, self.image.as_deref(), user)?;
        if !self.force {
            untouched(&files)?;
        }
        make_directory(&directory.join(POLICY))?;
        for (path, text) in &files {
            replace(path, text)?;
            data(&path.display().to_string());
        }
        in_order(&directory.join(POLICY))?;
        say.line(&format!("The profile `project` is for {}:", root.display()));
        for line in project.reasons() {
            say.note(&line);
        }
        if let Some(user) = user {
            say.note(&format!("user {} makes runs and reads the log; root approves", user.uid));
        }
        say.title("Next");
        let config = directory.join(FILE);
        say.line(&format!("  sudo cofferd --config {} --check-config", config.display()));
        say.line(&format!("  sudo cofferd --config {}", config.display()));
        say.line("  RUN=$(coffer run create --profile project --managed)");
        Ok(())
    }
}

/// Writes the built-in policy and the profile of a project into a directory, in place of an earlier policy.
pub(crate) fn write_policy(directory: &Path, project: &Project, image: Option<&str>) -> Result<(), Failure> {
    make_directory(directory)?;
    for (name, text) in policy_files(project, image, |_| true)? {
        replace(&directory.join(name), &text)?;
    }
    in_order(directory)
}

/// Returns the files of a policy, which is one that a daemon accepts: the chosen built-in ones, and the project's.
fn policy_files(
    project: &Project,
    image: Option<&str>,
    is_chosen: impl Fn(&'static str) -> bool,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let built_in = Policy::builtin_files().filter(|&(name, _)| is_chosen(name));
    let built_in = built_in.map(|(name, text)| (name, text.to_owned()));
    let files: Vec<_> = built_in.chain([(PROFILE, project.profile(image))]).collect();
    match Policy::from_files(files.iter().map(|(name, text)| (*name, text.as_str()))) {
        Ok(_) => Ok(files),
        Err(problems) => Err(Failure::usage(problems.to_string(), "name another image")),
    }
}

/// Returns the files to write, with their paths.
fn files(
    directory: &Path,
    root: &Path,
    project: &Project,
    image: Option<&str>,
    user: Option<User>,
) -> Result<Vec<(PathBuf, String)>, Failure> {
    let policy = directory.join(POLICY);
    let mut files = vec![(directory.join(FILE), configuration(&policy, root, user)?)];
    let policies = policy_files(project, image, |name| BUILT_IN.contains(&name))?.into_iter();
    files.extend(policies.map(|(name, text)| (policy.join(name), text)));
    Ok(files)
}

fn configuration(policy: &Path, root: &Path, user: Option<User>) -> Result<String, Failure> {
    let group = user.map_or_else(String::new, |user| format!(", group: {}", user.gid));
    let mut text = format!(
        "# cofferd's configuration, as `coffer init` wrote it. For every key see the book, \"Configuration\".\n\
         # Members of the socket's group can connect, and `access` says what each user may do. Root may do everything.\n\
         listen:\n  unix: {{ path: {SOCKET}, mode: \"0660\"{group} }}\n\
         state_dir: {STATE}\n\
         workspace_roots: [{}]\n\
         policy_dir: {}\n\
         docker: {{ endpoint: {} }}\n",
        quoted(root)?,
        quoted(policy)?,
        serde_json::Value::from(engine()),
    );
    match user {
        Some(user) => {
            let _ = write!(
                text,
                "# Root approves the calls of this user. Give another user the role approver instead.\n\
                 access:\n  - {{ uid: {}, roles: [orchestrator, auditor] }}\n",
                user.uid
            );
        }
        None => text.push_str("# Only root can connect. List other users here, by uid.\naccess: []\n"),
    }
    Ok(text)
}

fn default_directory() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(SYSTEM.into());
    }
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let configuration = of("XDG_CONFIG_HOME").or_else(|| of("HOME").map(|home| home.join(".config")));
    configuration.map(|directory| directory.join("cofferdam")).ok_or_else(|| {
        Failure::usage(
            "the directory to write is unknown, because HOME is not set",
            "name one: `coffer init DIR`",
        )
    })
}

/// Checks that no run can change the policy, and that no run can reach the state of the daemon.
fn apart(root: &Path, directory: &Path) -> Result<(), Failure> {
    if directory.starts_with(root) {
        return Err(Failure::usage(
            format!(
                "{} is in the project {}, where a run could change the policy",
                directory.display(),
                root.display()
            ),
            "name a directory outside of the project: `coffer init DIR`",
        ));
    }
    if Path::new(STATE).starts_with(root) || root.starts_with(STATE) {
        return Err(Failure::usage(
            format!("{} and the daemon's state, {STATE}, overlap", root.display()),
            "name the directory of a project with --project",
        ));
    }
    Ok(())
}

fn untouched(files: &[(PathBuf, String)]) -> Result<(), Failure> {
    match files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
        Some((path, _)) => Err(Failure::usage(
            format!("{} is there already, and nothing was written", path.display()),
            "name another directory, or replace the files with --force",
        )),
        None => Ok(()),
    }
}

fn in_order(policy: &Path) -> Result<(), Failure> {
    match Policy::load_dir(policy) {
        Ok(_) => Ok(()),
        Err(problems) => Err(Failure::failed(
            format!("{} has other files that do not fit: {problems}", policy.display()),
            "remove them; `coffer policy check` shows what is left",
        )),
    }
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(path).map_err(|error| Failure::of_file(path, &error))
}

/// Replaces a file whole. A link at its path is replaced and not followed.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let fill = |file: &mut File| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(OPEN))
    };
    atomic_file::replace(path, fill).map_err(|error| Failure::of_file(path, &error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn init(directory: &Path, project: &Path, force: bool) -> Result<(), Failure> {
        let init =
            Init { directory: Some(directory.to_owned()), project: project.to_owned(), image: None, force };
        init.run()
    }

    #[test]
    fn written_files_are_replaced_only_by_force() {
        let (project, at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(project.path().join("Cargo.toml"), "").unwrap();
        init(at.path(), project.path(), false).unwrap();
        let config = at.path().join(FILE);
        let mut names: Vec<_> = fs::read_dir(at.path().join(POLICY))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["anomalies.yaml", "project.yaml", "review.yaml", "roles.yaml"]);
        fs::write(&config, "mine").unwrap();
        let failure = init(at.path(), project.path(), false).unwrap_err();
        assert!(failure.to_string().contains("nothing was written"), "{failure}");
        assert_eq!(fs::read_to_string(&config).unwrap(), "mine");
        init(at.path(), project.path(), true).unwrap();
        assert!(fs::read_to_string(&config).unwrap().contains("policy_dir: "));
    }

    #[test]
    fn a_daemon_for_tries_has_all_profiles() {
        let directory = tempfile::tempdir().unwrap();
        write_policy(directory.path(), &Project::default(), None).unwrap();
        let policy = Policy::load_dir(directory.path()).unwrap();
        let names: Vec<_> = policy.profile_names().collect();
        assert_eq!(names, ["build", "harness", "open", "project", "review", "strict"]);
    }

    #[test]
    fn policy_is_never_written_into_the_project() {
        let project = tempfile::tempdir().unwrap();
        let failure = init(&project.path().join("policy"), project.path(), false).unwrap_err();
        assert!(failure.to_string().contains("where a run could change the policy"), "{failure}");
        assert!(apart(Path::new("/var"), Path::new("/etc/cofferdam")).is_err());
        assert_eq!(apart(Path::new("/home/me/src"), Path::new("/etc/cofferdam")), Ok(()));
        assert_eq!(fs::read_dir(project.path()).unwrap().count(), 0);
    }

    #[test]
    fn image_has_to_be_one() {
        let files = |image| policy_files(&Project::default(), Some(image), |_| true);
        assert_eq!(files("tools:1").unwrap().len(), Policy::builtin_files().count() + 1);
        assert!(files("tools: 1\n#").unwrap_err().to_string().contains("project.yaml"));
    }

    #[test]
    fn configuration_names_the_user_the_project_and_the_policy() {
        let user = Some(User { uid: 1000, gid: 100 });
        let text =
            configuration(Path::new("/etc/cofferdam/policies"), Path::new("/home/me/src"), user).unwrap();
        let settings: Vec<_> =
            text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("docker:")).collect();
        assert_eq!(
            settings,
            [
                "listen:",
                "  unix: { path: /run/cofferdam/cofferd.sock, mode: \"0660\", group: 100 }",
                "state_dir: /var/lib/cofferdam",
                "workspace_roots: [\"/home/me/src\"]",
                "policy_dir: \"/etc/cofferdam/policies\"",
                "access:",
                "  - { uid: 1000, roles: [orchestrator, auditor] }",
            ]
        );
        let text = configuration(Path::new("/p"), Path::new("/w"), None).unwrap();
        assert!(text.ends_with("access: []\n") && !text.contains("group:"), "{text}");
    }
}
