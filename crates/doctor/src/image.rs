//! Checks the program of which the default image is made.

use std::path::Path;

use busybox::{Busybox, NoBusybox};

use crate::commands::Host;
use crate::finding::Finding;

/// Examines a static busybox at this path, of which a daemon would make its default image.
pub fn default_image(path: &Path) -> Finding {
    judge(path, &Host::detect())
}

fn judge(path: &Path, host: &Host) -> Finding {
    const TOPIC: &str = "default image";
    let shown = path.display();
    let found = match Busybox::read(path) {
        Ok(_) => return Finding::good(TOPIC, format!("can be made of {shown}")),
        Err(NoBusybox::Unreadable(source)) => format!("no busybox at {shown}: it cannot be read: {source}"),
        Err(error) => format!("no busybox at {shown}: {error}"),
    };
    let follows = "runs whose profile and request name no image are refused, unless `default_image.busybox` in the \
                   daemon's configuration names a static busybox";
    Finding::limited(TOPIC, found, follows).with_remedy(host.install_busybox())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Packages;
    use crate::finding::Verdict;

    #[test]
    fn only_a_static_busybox_makes_the_default_image() {
        let apt = Host { packages: Some(Packages::Apt), is_root: true, ..Host::default() };
        let good = judge(Path::new("/bin/busybox"), &apt);
        assert_eq!(good, Finding::good("default image", "can be made of /bin/busybox"));
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        for (path, why) in [
            (directory.path().join("none"), "there is no such file"),
            (script, "it is not a program for Linux"),
            (directory.path().to_owned(), "it is a directory"),
        ] {
            let finding = judge(&path, &apt);
            assert_eq!(finding.verdict, Verdict::Limited);
            let found = format!("no busybox at {}: {why}", path.display());
            assert!(finding.found.starts_with(&found), "{}", finding.found);
            assert!(finding.follows.unwrap().ends_with("run `apt-get install -y busybox-static`"));
            let without = judge(&path, &Host::default());
            assert!(without.remedy.is_none() && !without.follows.unwrap().contains("apt-get"));
        }
    }
}
