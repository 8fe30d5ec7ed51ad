//! Keys of a Compose file: those that are read, and the reasons for which others are refused.

use std::collections::BTreeMap;

use document::{At, nearest};

/// Key and the reason for which it is refused.
type Refused = (&'static str, &'static str);

const FILES: &str = "no directory of the host and no volume is mounted in a companion: it begins with the files of its image, and \
                     its changes end with the run; leave the key out";
const NETWORK: &str =
    "companions share no network: programs of the run reach each by its name; leave the key out";
const SECRETS: &str = "files with secrets are not read; use `--companion-secret-env NAME:VARIABLE=@PATH`";
const HOST: &str = "a companion has no more rights on the host than a run; leave the key out";
const IDENTITY: &str = "a companion runs as the user of its image; leave the key out";

/// Keys of a file that are refused.
pub(crate) const REFUSED_IN_FILE: [Refused; 6] = [
    ("volumes", FILES),
    ("networks", NETWORK),
    ("secrets", SECRETS),
    ("configs", SECRETS),
    ("include", "no other file is read; write its services here"),
    ("<<", MERGE),
];

const MERGE: &str = "merge keys are not read; write the keys here, or use an anchor for a whole value";

/// Keys of a service that are read.
pub(crate) const OF_SERVICE: [&str; 12] = [
    "image",
    "command",
    "environment",
    "healthcheck",
    "depends_on",
    "expose",
    "ports",
    "mem_limit",
    "deploy",
    "init",
    "restart",
    "network_mode",
];

/// Keys of a service that are refused.
pub(crate) const REFUSED_IN_SERVICE: [Refused; 35] = [
    ("build", "no image is built; build it by `coffer image build` and name it by `image`"),
    ("entrypoint", "the entrypoint of the image stays; give its arguments by `command`"),
    ("env_file", "no other file is read; write the variables under `environment`"),
    ("extends", "no other service is taken over; write its keys here"),
    ("<<", MERGE),
    ("volumes", FILES),
    ("volumes_from", FILES),
    ("tmpfs", FILES),
    ("networks", NETWORK),
    ("links", NETWORK),
    ("external_links", NETWORK),
    ("extra_hosts", NETWORK),
    ("dns", NETWORK),
    ("hostname", NETWORK),
    ("container_name", NETWORK),
    ("mac_address", NETWORK),
    ("secrets", SECRETS),
    ("configs", SECRETS),
    ("privileged", HOST),
    ("cap_add", HOST),
    ("cap_drop", HOST),
    ("security_opt", HOST),
    ("devices", HOST),
    ("gpus", HOST),
    ("pid", HOST),
    ("ipc", HOST),
    ("userns_mode", HOST),
    ("cgroup_parent", HOST),
    ("sysctls", HOST),
    ("ulimits", HOST),
    ("user", IDENTITY),
    ("group_add", IDENTITY),
    ("working_dir", "the working directory of the image stays; leave the key out"),
    ("cpus", "only the memory of a companion has a limit; leave the key out"),
    ("profiles", "each service of the file is started; remove those that are not needed"),
];

/// Returns the values of the keys that are known, without those that have no value. All others are problems, except for keys
/// that begin with `x-`.
pub(crate) fn section<'t>(at: &At<'t>, known: &[&str], refused: &[Refused]) -> BTreeMap<&'t str, At<'t>> {
    let mut values = BTreeMap::new();
    for (key, value) in at.entries() {
        if key.starts_with("x-") || value.is_absent() {
            continue;
        }
        if known.contains(&key) {
            values.insert(key, value);
        } else if let Some((_, reason)) = refused.iter().find(|(name, _)| *name == key) {
            value.problem(*reason);
        } else {
            value.problem_hint("is not read", Some(nearest(key, known)));
        }
    }
    values
}
