//! The companions of a run, from the command line and from a Compose file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use presentation::failure::Failure;
use presentation::quantity;
use wire::v1::readiness::{Check, Command};
use wire::v1::{Companion, Readiness};

use crate::file;
use crate::variables::secret;

#[derive(Args, Debug)]
pub struct Companions {
    /// Start a container beside the run, which its programs reach by the name NAME, as in
    /// `name=db,image=postgres:15,tcp=5432`. `tcp`: wait until this port accepts connections. Also `port` and `after`,
    /// which can be repeated, `memory` in MiB or as in 512M, and at the end `command`, for the image's entrypoint; can be
    /// repeated.
    #[arg(long = "companion", value_name = "name=NAME,image=REF[,…]", value_parser = companion)]
    listed: Vec<Companion>,
    /// Set an environment variable of a companion; can be repeated.
    #[arg(long = "companion-env", value_name = "COMPANION:NAME=VALUE", value_parser = variable)]
    companion_env: Vec<(String, (String, String))>,
    /// The same with a secret value, which is taken from coffer's own variable NAME, or from a file as in
    /// COMPANION:NAME=@PATH, and is never shown; can be repeated.
    #[arg(long = "companion-secret-env", value_name = "COMPANION:NAME[=@PATH]")]
    companion_secret_env: Vec<String>,
    /// Narrow the connections of a companion: one JSON object in the form of a profile's `egress`, or `@FILE` with one.
    /// Without it, a companion reaches the hosts that the profile opens to its image; can be repeated.
    #[arg(long = "companion-egress", value_name = "COMPANION:RULES")]
    companion_egress: Vec<String>,
    /// Start the services of this Compose file as companions. A key that has no meaning here is an error.
    #[arg(long, value_name = "FILE")]
    compose: Option<PathBuf>,
    /// Service of the Compose file that is the run itself: the run has its image, variables and memory, unless other
    /// options give them. Its command is not started.
    #[arg(long, value_name = "NAME", requires = "compose")]
    service: Option<String>,
}

/// Containers of a request, and the service that is the run itself.
#[derive(Debug, Default)]
pub struct Requested {
    pub companions: Vec<Companion>,
    pub run: Option<compose::Program>,
}

impl Companions {
    /// Returns the companions, and reads the files that are named.
    pub fn read(self) -> Result<Requested, Failure> {
        let project =
            self.compose.as_deref().map(|path| project(path, self.service.as_deref())).transpose()?;
        let project = project.unwrap_or_default();
        let mut companions: Vec<Companion> = project.companions.into_iter().map(of_service).collect();
        companions.extend(self.listed);
        let mut names = BTreeMap::new();
        for (index, companion) in companions.iter().enumerate() {
            if names.insert(companion.name.clone(), index).is_some() {
                return Err(Failure::usage(format!("two companions are named `{}`", companion.name)));
            }
        }
        let place = |name: &str| {
            names.get(name).copied().ok_or_else(|| {
                Failure::usage(format!(
                    "an option is for the companion `{name}`, which the request does not have"
                ))
            })
        };
        for (name, (variable, value)) in self.companion_env {
            companions[place(&name)?].env.insert(variable, value);
        }
        for given in &self.companion_secret_env {
            let (name, given) = given.split_once(':').ok_or_else(|| {
                // The message does not contain the text, because it may be a secret.
                Failure::usage("--companion-secret-env: write COMPANION:NAME or COMPANION:NAME=@PATH")
            })?;
            let (variable, value) = secret("--companion-secret-env", given)?;
            companions[place(name)?].secret_env.insert(variable, value);
        }
        for given in &self.companion_egress {
            let (name, rules) = given.split_once(':').ok_or_else(|| {
                Failure::usage("--companion-egress: write COMPANION:RULES or COMPANION:@FILE")
            })?;
            let rules = match rules.strip_prefix('@') {
                Some(path) => std::fs::read_to_string(path)
                    .map_err(|error| Failure::usage(format!("--companion-egress: {path}: {error}")))?,
                None => rules.to_owned(),
            };
            companions[place(name)?].egress_json = rules;
        }
        Ok(Requested { companions, run: project.run })
    }
}

fn variable(text: &str) -> Result<(String, (String, String)), String> {
    let (name, pair) = text.split_once(':').ok_or_else(|| format!("`{text}` is not COMPANION:NAME=VALUE"))?;
    Ok((name.to_owned(), quantity::parse_pair(pair)?))
}

/// Parses one companion of the command line.
fn companion(text: &str) -> Result<Companion, String> {
    let (mut fields, command) = match text.split_once("command=") {
        Some((before, command)) if before.is_empty() || before.ends_with(',') => (before, Some(command)),
        _ => (text, None),
    };
    fields = fields.strip_suffix(',').unwrap_or(fields);
    let mut made = Companion::default();
    for field in fields.split(',') {
        let (key, value) = field.split_once('=').ok_or_else(|| format!("`{field}` is not KEY=VALUE"))?;
        let is_new = match key {
            "name" => std::mem::replace(&mut made.name, value.to_owned()).is_empty(),
            "image" => std::mem::replace(&mut made.image, value.to_owned()).is_empty(),
            "tcp" => {
                let check = Some(Check::Tcp(port(value)?));
                made.ready.replace(Readiness { check, ..Default::default() }).is_none()
            }
            "memory" => std::mem::replace(&mut made.memory_mib, memory(value)?) == 0,
            "port" => {
                made.ports.push(port(value)?);
                true
            }
            "after" => {
                made.depends_on.push(value.to_owned());
                true
            }
            _ => return Err(format!("unknown key `{key}`: name, image, tcp, port, after, memory, command")),
        };
        if !is_new {
            return Err(format!("`{key}` is given more than once"));
        }
    }
    if let Some(command) = command {
        made.command =
            compose::words(command).ok_or("the command has a quote that is not closed, or no word")?;
    }
    if made.name.is_empty() || made.image.is_empty() {
        return Err("name=NAME and image=REF are needed".to_owned());
    }
    Ok(made)
}

fn port(text: &str) -> Result<u32, String> {
    let port: Option<u16> = text.parse().ok().filter(|port| *port > 0);
    port.map(u32::from).ok_or_else(|| format!("`{text}` is not a port"))
}

/// Returns a size in MiB. A number alone is in MiB.
fn memory(text: &str) -> Result<u32, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let bytes =
        if is_number { quantity::parse_bytes(&format!("{text}M"))? } else { quantity::parse_bytes(text)? };
    u32::try_from(bytes.div_ceil(1 << 20)).map_err(|_| format!("`{text}` is more memory than a host has"))
}

/// Reads a Compose file. The message of a failure has every problem, with its line.
fn project(path: &Path, run: Option<&str>) -> Result<compose::Project, Failure> {
    let name = path.display().to_string();
    let text = file::text(path).map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
    compose::read(&name, &text, run).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let problems = problems.join("\n  ");
        Failure::usage(format!("these keys and values of the Compose file cannot be used:\n  {problems}"))
            .with_hint("see the book, \"Compose files\", for the keys that are read")
    })
}

fn of_service(service: compose::Companion) -> Companion {
    let ready = service.ready.map(|ready| Readiness {
        check: Some(Check::Command(Command { args: ready.command })),
        timeout_seconds: ready.timeout_seconds,
        interval_milliseconds: ready.interval_milliseconds.unwrap_or_default(),
    });
    Companion {
        name: service.name,
        image: service.image,
        command: service.command,
        env: service.env.into_iter().collect(),
        secret_env: [].into(),
        ready,
        memory_mib: service.memory_mib.unwrap_or_default(),
        ports: service.ports.into_iter().map(u32::from).collect(),
        depends_on: service.depends_on,
        egress_json: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        companions: Companions,
    }

    fn read(words: &[&str]) -> Result<Requested, String> {
        let line = Line::try_parse_from(["create"].iter().chain(words)).map_err(|error| error.to_string())?;
        line.companions.read().map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_companion_is_a_list_of_keys_and_values() {
        let spec = "name=db,image=postgres:15,tcp=5432,memory=512,port=5433,after=cache,command=postgres -c 'a=b, c'";
        let made = read(&["--companion", spec, "--companion-env", "db:POSTGRES_DB=a=b"]).unwrap();
        let expected = Companion {
            name: "db".into(),
            image: "postgres:15".into(),
            command: ["postgres", "-c", "a=b, c"].map(str::to_owned).into(),
            env: [("POSTGRES_DB".to_owned(), "a=b".to_owned())].into(),
            ready: Some(Readiness { check: Some(Check::Tcp(5432)), ..Default::default() }),
            memory_mib: 512,
            ports: vec![5433],
            depends_on: vec!["cache".into()],
            ..Default::default()
        };
        assert_eq!(made.companions, [expected]);
        assert_eq!(companion("name=a,image=b,memory=2G").unwrap().memory_mib, 2048);
        assert_eq!(companion("name=a,image=b/command=c:1").map(|made| made.command), Ok(Vec::new()));
        for (bad, told) in [
            ("name=db", "image=REF"),
            ("image=a", "name=NAME"),
            ("name=a,image=b,name=c", "more than once"),
            ("name=a,image=b,tcp=0", "not a port"),
            ("name=a,image=b,tcp=70000", "not a port"),
            ("name=a,image=b,memory=many", "not a size"),
            ("name=a,image=b,wait=5", "unknown key"),
            ("name=a,image=b,command='x", "quote"),
            ("name=a,image=b,command=", "no word"),
            ("db", "not KEY=VALUE"),
            ("", "not KEY=VALUE"),
        ] {
            let refused = read(&["--companion", bad]).unwrap_err();
            assert!(refused.contains(told), "{bad}: {refused}");
        }
    }

    #[test]
    fn secrets_of_companions_come_from_variables_and_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2\n").unwrap();
        let given = format!("db:PASSWORD=@{}", file.path().display());
        let db = ["--companion", "name=db,image=a"];
        let made = read(&[&db[..], &["--companion-secret-env", &given]].concat()).unwrap();
        assert_eq!(made.companions[0].secret_env["PASSWORD"], "hunter2");
        for (bad, told) in [
            ("db:PASSWORD=hunter2", "--companion-secret-env PASSWORD=@PATH"),
            ("PASSWORD=hunter2", "COMPANION:NAME=@PATH"),
            ("cache:PATH", "`cache`"),
        ] {
            let refused = read(&[&db[..], &["--companion-secret-env", bad]].concat()).unwrap_err();
            assert!(refused.contains(told) && !refused.contains("hunter2"), "{refused}");
        }
    }

    #[test]
    fn rules_of_companions_come_from_the_line_and_from_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"rules\": []}").unwrap();
        let of_file = format!("dc:@{}", file.path().display());
        let both = ["--companion", "name=db,image=a", "--companion", "name=dc,image=a"];
        let rules = ["--companion-egress", "db:{}", "--companion-egress", &of_file];
        let made = read(&[&both[..], &rules[..]].concat()).unwrap();
        let found: Vec<&str> =
            made.companions.iter().map(|companion| companion.egress_json.as_str()).collect();
        assert_eq!(found, ["{}", "{\"rules\": []}"]);
        for (bad, told) in
            [("{}", "COMPANION:RULES"), ("x:{}", "`x`"), ("db:@/nonexistent/file", "/nonexistent")]
        {
            let refused = read(&[&both[..], &["--companion-egress", bad]].concat()).unwrap_err();
            assert!(refused.contains(told), "{bad}: {refused}");
        }
    }

    #[test]
    fn services_of_a_compose_file_are_companions_and_problems_have_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        let text = "services:\n  app: { image: app:1, depends_on: [db], command: sleep 9, expose: [80] }\n  \
                    db: { image: db:1, expose: [5432], healthcheck: { test: [CMD, ready], interval: 1s } }\n";
        std::fs::write(file.path(), text).unwrap();
        let made = read(&["--compose", path, "--service", "app", "--companion", "name=b,image=c"]).unwrap();
        assert_eq!(made.run.unwrap().image, "app:1");
        let names: Vec<&str> = made.companions.iter().map(|companion| companion.name.as_str()).collect();
        assert_eq!(names, ["db", "b"]);
        let check = Some(Check::Command(Command { args: vec!["ready".into()] }));
        let ready = Readiness { check, timeout_seconds: 93, interval_milliseconds: 1_000 };
        assert_eq!((made.companions[0].ready.clone(), &made.companions[0].ports), (Some(ready), &vec![5432]));
        let twice = read(&["--compose", path, "--companion", "name=db,image=c"]).unwrap_err();
        assert!(twice.contains("two companions are named `db`"), "{twice}");
        assert!(read(&["--service", "app"]).unwrap_err().contains("--compose"));
        std::fs::write(file.path(), "services:\n  db:\n    image: a\n    volumes: [a:/b]\n").unwrap();
        let refused = read(&["--compose", path]).unwrap_err();
        assert!(refused.contains(&format!("{path}:4: services.db.volumes: ")), "{refused}");
        assert!(read(&["--compose", "/nonexistent/file"]).unwrap_err().contains("cannot be read"));
    }
}
