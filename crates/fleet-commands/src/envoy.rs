//! `coffer fleet envoy`.

use std::path::{Path, PathBuf};

use clap::Args;
use command_context::client::Context;
use fleet_config::Directory;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};

use crate::nodes::{Balancer, Nodes};
use crate::write::replace;

/// Write the configuration of Envoy that makes one address of the nodes.
///
/// Start it with `envoy -c DIRECTORY/envoy.json`. Write it again when nodes come or go: Envoy takes the new files, and
/// no stream ends. A change of --listen needs a new process.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer fleet envoy --nodes nodes.yaml --listen-tls /etc/envoy/tls --node-tls /etc/envoy/node-tls --out /etc/envoy/fleet"
)]
pub struct Envoy {
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    balancer: Balancer,
    /// Directory of the files, which is made if it is missing. Envoy watches it.
    #[arg(long, value_name = "DIRECTORY")]
    out: PathBuf,
}

impl Envoy {
    pub(crate) fn run(self, context: &Context) -> Ended {
        let fleet = self.nodes.read(None)?;
        let out =
            std::path::absolute(&self.out).map_err(|error| Failure::usage(format!("--out: {error}")))?;
        let at: Directory = out
            .to_str()
            .unwrap_or_default()
            .parse()
            .map_err(|wrong| Failure::usage(format!("--out: {}: {wrong}", out.display())))?;
        let files = fleet_config::envoy(&fleet, &self.balancer.front(), &at)
            .map_err(|error| Failure::usage(error.to_string()))?;
        put(&out, &files)?;
        context.ui.note(&format!(
            "wrote {} nodes; start Envoy with: envoy -c {}",
            fleet.nodes.len(),
            at.file("envoy.json")
        ));
        Ok(Exit::Ok)
    }
}

/// Writes the files in their order: clusters are there before the routes to them.
fn put(out: &Path, files: &[(&'static str, String)]) -> Result<(), Failure> {
    std::fs::create_dir_all(out).map_err(|error| Failure::failed(format!("{}: {error}", out.display())))?;
    for (name, text) in files {
        let path = out.join(name);
        // Envoy takes each file that is replaced, so one that stays the same stays.
        if std::fs::read(&path).is_ok_and(|before| before == text.as_bytes()) {
            continue;
        }
        replace(&path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn only_files_that_differ_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("a/b");
        let inode = |name: &str| std::fs::metadata(out.join(name)).unwrap().ino();
        put(&out, &[("one", "1".to_owned()), ("two", "2".to_owned())]).unwrap();
        let before = [inode("one"), inode("two")];
        put(&out, &[("one", "1".to_owned()), ("two", "3".to_owned())]).unwrap();
        assert_eq!(inode("one"), before[0]);
        assert_ne!(inode("two"), before[1]);
        assert_eq!(std::fs::read_to_string(out.join("two")).unwrap(), "3");
        assert_eq!(std::fs::metadata(out.join("two")).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(put(Path::new("/dev/null/x"), &[]).is_err());
    }
}
