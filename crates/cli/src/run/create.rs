//! `coffer run create`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use wire::v1::automatic_checkpoints::Every;
use wire::v1::workspace::Source;
use wire::v1::{
    AutomaticCheckpoints, BaseWorkspace, BindWorkspace, CheckpointWorkspace, CloneWorkspace,
    CreateRunRequest, Limits, ManagedWorkspace, OverlayWorkspace, Run, Workspace, run::StartKind,
};

use crate::client::Context;
use crate::companions::{Companions, Requested};
use crate::failure::{Ended, Failure};
use crate::host_path::{absolute, repository_or_url};
use crate::variables::Variables;
use crate::{base, checkpoint, quantity, time, workspace};

/// Launch a container for a run; prints the run's id when it is ready.
///
/// In a git repository, `coffer run create` alone gives a run on a clone of it with the profile `review`.
#[derive(Args, Debug)]
#[command(before_help = "Example: RUN=$(coffer run create --profile review --bind .)")]
pub(crate) struct Create {
    /// Policy profile, such as `review`.
    #[arg(long, value_name = "PROFILE", requires = "SourceArgs")]
    profile: Option<String>,
    #[command(flatten)]
    source: SourceArgs,
    /// Branch, tag or commit to check out of the clone.
    #[arg(long, value_name = "REVISION", conflicts_with_all = ["bind", "managed", "workspace", "overlay", "base", "checkpoint"])]
    revision: Option<String>,
    /// Most commits of the history in a clone of an https:// address. Default: all, with all branches and tags.
    #[arg(long, value_name = "N", requires = "clone", value_parser = clap::value_parser!(u32).range(1..))]
    depth: Option<u32>,
    /// Make a checkpoint before the first call of each task (turn), or after each call that wrote (write).
    #[arg(long, value_name = "MOMENT")]
    checkpoint_every: Option<Moment>,
    /// Number of these checkpoints that are kept, at most 100. Default: 10.
    #[arg(long, value_name = "N", requires = "checkpoint_every", value_parser = clap::value_parser!(u32).range(1..=100))]
    keep_checkpoints: Option<u32>,
    /// Name of the agent that the run is for.
    #[arg(long, value_name = "NAME", default_value = "cli")]
    agent: String,
    /// The agent's role in the policy. Default: the profile's `default_role`.
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Directory to mount read-only as /pkg.
    #[arg(long, value_name = "PATH")]
    pkg: Option<PathBuf>,
    /// Directory of the container, such as /logs, to create for the run's user; can be repeated.
    #[arg(long = "writable-path", value_name = "PATH")]
    writable_paths: Vec<String>,
    /// Image to run, if the profile allows it. Default: the profile's.
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// A label of your own; can be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = quantity::parse_pair)]
    labels: Vec<(String, String)>,
    /// Stop the run when it is this old, as in 10m.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    ttl: Option<Duration>,
    /// Stop the run after this time without a call, as in 5m.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    idle_timeout: Option<Duration>,
    /// Stop the run when `coffer run keep-alive` was not called for this time, as in 2m.
    #[arg(long, value_name = "DURATION", value_parser = time::parse)]
    lease: Option<Duration>,
    /// Allow fewer connections than the profile: one JSON object in the form of its `egress`, or with hosts of it alone,
    /// as `{"only":["files.example.org"]}`, or `@FILE` with one.
    #[arg(long, value_name = "RULES", value_parser = super::connections::rules)]
    egress: Option<String>,
    #[command(flatten)]
    variables: Variables,
    #[command(flatten)]
    companions: Companions,
    /// Less memory than the profile gives, as in 512M.
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_bytes)]
    memory: Option<u64>,
    /// Less CPU than the profile gives, in cores, as in 1.5.
    #[arg(long, value_name = "CORES", value_parser = quantity::parse_cpus)]
    cpus: Option<u32>,
    /// Fewer processes than the profile gives.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Option<u32>,
    /// Issue a token with which an agent can call this run's tools and nothing else. It is printed once,
    /// after the run's id.
    #[arg(long)]
    issue_token: bool,
    /// Makes the command repeatable: the same id with the same content gives the same run.
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
}

/// Source of /workspace.
#[derive(Args, Debug)]
#[group(multiple = false, requires = "profile")]
struct SourceArgs {
    /// Use this directory in place.
    #[arg(long, value_name = "PATH")]
    bind: Option<PathBuf>,
    /// Clone this git repository: a directory, or an https:// address that the profile's `egress` lets the run fetch.
    #[arg(long, value_name = "REPO")]
    clone: Option<PathBuf>,
    /// Start with an empty directory that the daemon keeps, see `coffer workspace`.
    #[arg(long)]
    managed: bool,
    /// Continue in a directory that the daemon keeps from an earlier run: its id, or a unique beginning or end of it.
    #[arg(long, value_name = "ID")]
    workspace: Option<String>,
    /// Work on this directory without changing it: see `coffer run diff` and `coffer run accept`.
    #[arg(long, value_name = "PATH")]
    overlay: Option<PathBuf>,
    /// Begin on this base without changing it: its id, or a unique beginning or end of it, see `coffer base`.
    #[arg(long, value_name = "ID")]
    base: Option<String>,
    /// Begin with the files of this checkpoint: its id, or a unique beginning or end of it, see `coffer checkpoint`.
    #[arg(long, value_name = "ID")]
    checkpoint: Option<String>,
}

/// Moment of an automatic checkpoint.
#[derive(ValueEnum, Debug, Clone, Copy)]
enum Moment {
    Turn,
    Write,
}

impl Moment {
    fn every(self) -> Every {
        match self {
            Self::Turn => Every::Turn,
            Self::Write => Every::Write,
        }
    }
}

impl Create {
    pub(crate) async fn run(mut self, context: &Context) -> Ended {
        let ui = context.ui;
        if self.profile.is_none() {
            let repository = repository().ok_or_else(|| {
                Failure::usage("no profile and no workspace are named, and this is no git repository")
                    .with_hint("name both, as in `coffer run create --profile review --bind .`")
            })?;
            let place = repository.display();
            ui.note(&format!("profile review, clone of {place}: choose others with --profile and --bind, --overlay, --clone or --managed"));
            (self.profile, self.source.clone) = (Some("review".into()), Some(repository));
        }
        let (mut request, has_command) = self.request()?;
        if has_command {
            ui.note("the command of this service is not started: run commands by `coffer exec`");
        }
        let client = context.connect().await?;
        match request.workspace.as_mut().and_then(|workspace| workspace.source.as_mut()) {
            Some(Source::Managed(managed)) if !managed.workspace_id.is_empty() => {
                managed.workspace_id = workspace::resolve(&client, &managed.workspace_id).await?;
            }
            Some(Source::Base(on)) => on.base_id = base::resolve(&client, &on.base_id).await?,
            Some(Source::Checkpoint(from)) => {
                from.checkpoint_id = checkpoint::resolve(&client, &from.checkpoint_id).await?;
            }
            _ => {}
        }
        let start = Instant::now();
        let response = ui.wait("creating the run…", client.runs().create_run(request)).await?;
        if !ui.is_structured() {
            ui.note(&ready(response.run.as_ref().unwrap_or(&Run::default()), start.elapsed()));
        }
        ui.answer(response, |response, page| {
            page.word(&response.run.unwrap_or_default().run_id).end_line();
            if !response.token.is_empty() {
                page.word(&response.token).end_line();
            }
        })
    }

    /// Returns the request, and true if the service that is the run has a command in its Compose file.
    fn request(self) -> Result<(CreateRunRequest, bool), Failure> {
        let Requested { companions, run } = self.companions.read()?;
        let run = run.unwrap_or_default();
        let revision = self.revision.unwrap_or_default();
        // Exactly one of these options or `--managed` was given, or chosen.
        let SourceArgs { bind, clone, overlay, base, checkpoint, workspace, managed: _ } = self.source;
        let source = if let Some(path) = bind {
            Source::Bind(BindWorkspace { path: absolute(&path)? })
        } else if let Some(named) = clone {
            let (repository, url) = repository_or_url(&named)?;
            Source::Clone(CloneWorkspace { repository, revision, url, depth: self.depth.unwrap_or_default() })
        } else if let Some(path) = overlay {
            Source::Overlay(OverlayWorkspace { path: absolute(&path)? })
        } else if let Some(base_id) = base {
            Source::Base(BaseWorkspace { base_id })
        } else if let Some(checkpoint_id) = checkpoint {
            Source::Checkpoint(CheckpointWorkspace { checkpoint_id })
        } else {
            Source::Managed(ManagedWorkspace { workspace_id: workspace.unwrap_or_default() })
        };
        let limits = Limits {
            memory_bytes: self.memory.or(run.memory_bytes()).unwrap_or_default(),
            cpu_millis: self.cpus.unwrap_or_default(),
            pids: self.pids.unwrap_or_default(),
            ..Default::default()
        };
        let (given, secret_env) = self.variables.read()?;
        let mut env = run.env;
        env.retain(|name, _| !secret_env.contains_key(name));
        env.extend(given);
        let checkpoints = self.checkpoint_every.map(|moment| AutomaticCheckpoints {
            every: moment.every().into(),
            keep: self.keep_checkpoints.unwrap_or_default(),
        });
        let request = CreateRunRequest {
            request_id: self.request_id.unwrap_or_default(),
            run_id: String::new(),
            profile: self.profile.unwrap_or_default(),
            image: self.image.unwrap_or(run.image),
            workspace: Some(Workspace { source: Some(source) }),
            pkg_path: self.pkg.as_deref().map(absolute).transpose()?.unwrap_or_default(),
            agent_id: self.agent,
            role: self.role.unwrap_or_default(),
            limits: (limits != Limits::default()).then_some(limits),
            ttl: self.ttl.map(wire::duration),
            idle_timeout: self.idle_timeout.map(wire::duration),
            labels: self.labels.into_iter().collect(),
            issue_token: self.issue_token,
            env,
            secret_env,
            lease: self.lease.map(wire::duration),
            writable_paths: self.writable_paths,
            egress_json: self.egress.unwrap_or_default(),
            checkpoints,
            companions,
        };
        Ok((request, run.has_command))
    }
}

/// Returns the root of the git repository that the working directory is in.
fn repository() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().find(|directory| directory.join(".git").exists()).map(Path::to_path_buf)
}

fn ready(run: &Run, waited: Duration) -> String {
    let start = match run.start_kind() {
        StartKind::Warm => "warm start",
        StartKind::Cold => "cold start",
        StartKind::Unspecified => "started",
    };
    let took = time::between(run.created_at.as_ref(), run.ready_at.as_ref()).unwrap_or(waited);
    format!("ready: {start}, {}", time::brief(took))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        create: Create,
    }

    fn request(line: &str) -> CreateRunRequest {
        Line::try_parse_from(line.split(' ')).unwrap().create.request().unwrap().0
    }

    fn refused(line: &str) -> ErrorKind {
        Line::try_parse_from(line.split(' ')).map(|_| ()).unwrap_err().kind()
    }

    #[test]
    fn create_options_reach_the_request() {
        let request = request(
            "create --profile review --clone /nonexistent/repo --revision v1 --agent alice --role manager \
             --pkg /nonexistent/pkg --image box:1 --label a=b --label c= --ttl 10m --idle-timeout 90s \
             --writable-path /logs --writable-path /tests --memory 512M --cpus 1.5 --pids 64 --request-id r1 \
             --env A=b=c --lease 2m --egress {}",
        );
        assert_eq!(
            request,
            CreateRunRequest {
                request_id: "r1".into(),
                run_id: String::new(),
                profile: "review".into(),
                image: "box:1".into(),
                workspace: Some(Workspace {
                    source: Some(Source::Clone(CloneWorkspace {
                        repository: "/nonexistent/repo".into(),
                        revision: "v1".into(),
                        ..CloneWorkspace::default()
                    }))
                }),
                pkg_path: "/nonexistent/pkg".into(),
                agent_id: "alice".into(),
                role: "manager".into(),
                limits: Some(Limits {
                    memory_bytes: 512 << 20,
                    cpu_millis: 1500,
                    pids: 64,
                    ..Default::default()
                }),
                ttl: Some(wire::duration(Duration::from_secs(600))),
                idle_timeout: Some(wire::duration(Duration::from_secs(90))),
                labels: [("a".into(), "b".into()), ("c".into(), String::new())].into(),
                issue_token: false,
                env: [("A".into(), "b=c".into())].into(),
                secret_env: [].into(),
                lease: Some(wire::duration(Duration::from_secs(120))),
                writable_paths: vec!["/logs".into(), "/tests".into()],
                egress_json: "{}".into(),
                checkpoints: None,
                companions: Vec::new(),
            }
        );
    }

    #[test]
    fn a_service_of_a_compose_file_is_the_run_unless_options_say_otherwise() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "services:\n  app: { image: app:1, environment: { A: file, B: file }, mem_limit: 1g }\n  db: { image: db:1, expose: [5432] }\n";
        std::fs::write(file.path(), text).unwrap();
        let asked = |more: &str| {
            let path = file.path().display();
            request(&format!("create --profile open --managed --compose {path} --service app{more}"))
        };
        let made = asked("");
        assert_eq!((made.image.as_str(), made.companions[0].name.as_str()), ("app:1", "db"));
        assert_eq!(
            made.env,
            [("A".to_owned(), "file".to_owned()), ("B".to_owned(), "file".to_owned())].into()
        );
        assert_eq!(made.limits.unwrap().memory_bytes, 1 << 30);
        let made = asked(" --image box:1 --env A=line --memory 512M");
        assert_eq!(
            (made.image.as_str(), made.env["A"].as_str(), made.env["B"].as_str()),
            ("box:1", "line", "file")
        );
        assert_eq!(made.limits.unwrap().memory_bytes, 512 << 20);
    }

    #[test]
    fn automatic_checkpoints_are_requested_with_their_moment_and_number() {
        let asked =
            |more: &str| request(&format!("create --profile open --managed {more}")).checkpoints.unwrap();
        let made = asked("--checkpoint-every turn");
        assert_eq!((made.every(), made.keep), (Every::Turn, 0));
        let made = asked("--checkpoint-every write --keep-checkpoints 3");
        assert_eq!((made.every(), made.keep), (Every::Write, 3));
        for (bad, kind) in [
            ("--keep-checkpoints 3", ErrorKind::MissingRequiredArgument),
            ("--checkpoint-every write --keep-checkpoints 0", ErrorKind::ValueValidation),
            ("--checkpoint-every write --keep-checkpoints 101", ErrorKind::ValueValidation),
            ("--checkpoint-every hour", ErrorKind::InvalidValue),
        ] {
            assert_eq!(refused(&format!("create --profile open --managed {bad}")), kind, "{bad}");
        }
    }

    #[test]
    fn little_is_enough() {
        let request = request("create --profile build --managed");
        assert_eq!(request.agent_id, "cli");
        assert_eq!(request.limits, None);
        assert_eq!(request.workspace.unwrap().source, Some(Source::Managed(ManagedWorkspace::default())));
        let url = "https://git.example.org/org/app";
        let request = self::request(&format!("create --profile p --clone {url} --revision v1 --depth 2"));
        let clone = CloneWorkspace { url: url.into(), revision: "v1".into(), depth: 2, ..Default::default() };
        assert_eq!(request.workspace.unwrap().source, Some(Source::Clone(clone)));
    }

    #[test]
    fn overlays_bases_and_retained_workspaces_are_requested() {
        let source = |line: &str| request(line).workspace.unwrap().source.unwrap();
        assert_eq!(
            source("create --profile build --overlay /nonexistent/w"),
            Source::Overlay(OverlayWorkspace { path: "/nonexistent/w".into() })
        );
        assert_eq!(
            source("create --profile build --workspace 1234"),
            Source::Managed(ManagedWorkspace { workspace_id: "1234".into() })
        );
        assert_eq!(
            source("create --profile build --base 1234"),
            Source::Base(BaseWorkspace { base_id: "1234".into() })
        );
        assert_eq!(
            source("create --profile build --checkpoint 1234"),
            Source::Checkpoint(CheckpointWorkspace { checkpoint_id: "1234".into() })
        );
    }

    #[test]
    fn profile_and_source_may_both_be_left_out() {
        let create = Line::try_parse_from(["create"]).unwrap().create;
        assert_eq!((create.profile, create.source.clone), (None, None));
    }

    #[test]
    fn relative_paths_become_absolute() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let Some(Source::Bind(bind)) = request("create --profile build --bind .").workspace.unwrap().source
        else {
            panic!("not a bind");
        };
        assert_eq!(bind.path, here.to_str().unwrap());
    }

    #[test]
    fn one_source_exactly() {
        use clap::error::ErrorKind::{ArgumentConflict, MissingRequiredArgument};
        assert_eq!(refused("create --profile p"), MissingRequiredArgument);
        assert_eq!(refused("create --profile p --managed --bind /a"), ArgumentConflict);
        assert_eq!(refused("create --profile p --managed --revision v1"), ArgumentConflict);
        assert_eq!(refused("create --profile p --overlay /a --workspace 1"), ArgumentConflict);
        assert_eq!(refused("create --profile p --overlay /a --revision v1"), ArgumentConflict);
        assert_eq!(refused("create --profile p --overlay /a --base 1"), ArgumentConflict);
        assert_eq!(refused("create --profile p --base 1 --checkpoint 1"), ArgumentConflict);
        assert_eq!(refused("create --profile p --checkpoint 1 --revision v1"), ArgumentConflict);
        assert_eq!(refused("create --profile p --base 1 --revision v1"), ArgumentConflict);
        assert_eq!(refused("create --managed"), MissingRequiredArgument);
    }

    #[test]
    fn the_kind_of_start_is_shown() {
        let at = |nanos| Some(wire::Timestamp { seconds: 1, nanos });
        let run = Run {
            start_kind: StartKind::Cold.into(),
            created_at: at(0),
            ready_at: at(312_000_000),
            ..Default::default()
        };
        assert_eq!(ready(&run, Duration::from_secs(9)), "ready: cold start, 312 ms");
        assert_eq!(ready(&Run::default(), Duration::from_secs(9)), "ready: started, 9.0 s");
    }
}
