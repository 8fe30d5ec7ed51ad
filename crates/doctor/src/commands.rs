//! Commands that exist on this host, for remedies of findings.

use std::path::Path;

use crate::accounts;
use crate::remedy::Remedy;

/// Program that installs packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packages {
    Apt,
    Dnf,
}

/// Program that starts the engine at boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Services {
    #[default]
    Unknown,
    /// A script of `/etc/init.d`.
    Script,
    Systemd,
}

/// Progress of gVisor on its way to a runtime of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gvisor {
    #[default]
    Absent,
    Installed,
    /// The engine's configuration file names the runtime `runsc`.
    Registered,
}

/// Facts about the host that decide which commands exist on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) is_root: bool,
    /// Name of the user who runs this process, if the accounts have one.
    pub(crate) user: Option<String>,
    pub(crate) packages: Option<Packages>,
    pub(crate) dockerd: bool,
    pub(crate) services: Services,
    pub(crate) gvisor: Gvisor,
}

impl Host {
    pub(crate) fn detect() -> Self {
        let has = |program: &str| {
            ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
                .iter()
                .any(|directory| Path::new(directory).join(program).is_file())
        };
        let packages = match (has("apt-get"), has("dnf")) {
            (true, _) => Some(Packages::Apt),
            (false, true) => Some(Packages::Dnf),
            (false, false) => None,
        };
        let services = if Path::new("/run/systemd/system").is_dir() {
            Services::Systemd
        } else if Path::new("/etc/init.d/docker").is_file() {
            Services::Script
        } else {
            Services::Unknown
        };
        let gvisor = match (has("runsc"), registers_runsc("/etc/docker/daemon.json")) {
            (false, _) => Gvisor::Absent,
            (true, false) => Gvisor::Installed,
            (true, true) => Gvisor::Registered,
        };
        Self {
            is_root: rustix::process::geteuid().is_root(),
            user: accounts::user_name(rustix::process::getuid().as_raw()),
            packages,
            dockerd: has("dockerd"),
            services,
            gvisor,
        }
    }

    fn remedy(&self, why: impl Into<String>, words: &[&str]) -> Remedy {
        let sudo = (!self.is_root).then_some("sudo");
        let command = sudo.iter().chain(words).map(|word| (*word).to_owned()).collect();
        Remedy { why: why.into(), command }
    }

    /// Installs a package, if it has a known name where this host's packages come from.
    fn install(&self, why: &str, apt: &str, dnf: Option<&str>) -> Option<Remedy> {
        match (self.packages?, dnf) {
            (Packages::Apt, _) => Some(self.remedy(why, &["apt-get", "install", "-y", apt])),
            (Packages::Dnf, Some(dnf)) => Some(self.remedy(why, &["dnf", "install", "-y", dnf])),
            (Packages::Dnf, None) => None,
        }
    }

    /// Installs the engine, or starts it if it is installed.
    pub(crate) fn start_engine(&self) -> Option<Remedy> {
        if !self.dockerd {
            return self.install("install Docker", "docker.io", Some("moby-engine"));
        }
        let words: &[&str] = match self.services {
            Services::Systemd => &["systemctl", "enable", "--now", "docker"],
            Services::Script => &["/etc/init.d/docker", "start"],
            Services::Unknown => return None,
        };
        Some(self.remedy("start Docker", words))
    }

    /// Installs a static busybox as `/bin/busybox`.
    pub(crate) fn install_busybox(&self) -> Option<Remedy> {
        self.install("install a static busybox", "busybox-static", None)
    }

    /// Sets kernel parameters until the host restarts.
    pub(crate) fn set(&self, parameters: &[String]) -> Option<Remedy> {
        let words: Vec<&str> =
            ["sysctl", "-w"].into_iter().chain(parameters.iter().map(String::as_str)).collect();
        (!parameters.is_empty()).then(|| self.remedy("set this until the host restarts", &words))
    }

    /// Adds the user to a group, which holds from the next login on.
    pub(crate) fn join(&self, group: &str) -> Option<Remedy> {
        let user = self.user.as_deref().filter(|_| !self.is_root)?;
        let why = format!("be a member of group {group} from your next login on");
        Some(self.remedy(why, &["usermod", "--append", "--groups", group, user]))
    }

    /// Takes the next step to gVisor as a runtime of the engine: installs it, registers it, or reloads the engine.
    pub(crate) fn add_runsc(&self) -> Option<Remedy> {
        let register = ["runsc", "install", "--", "--platform=ptrace", "--network=none"];
        let reload = ["systemctl", "reload", "docker"];
        match (self.gvisor, self.services) {
            (Gvisor::Absent, _) => self.install("install gVisor", "runsc", None),
            (Gvisor::Installed, _) => Some(self.remedy("register gVisor with Docker", &register)),
            (Gvisor::Registered, Services::Systemd) => {
                Some(self.remedy("let Docker read its runtimes", &reload))
            }
            (Gvisor::Registered, _) => None,
        }
    }
}

fn registers_runsc(file: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    config.get("runtimes").is_some_and(|runtimes| runtimes.get("runsc").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(remedy: Option<Remedy>) -> Option<String> {
        remedy.map(|remedy| remedy.shown())
    }

    fn host(packages: Option<Packages>) -> Host {
        Host { packages, user: Some("alice".into()), ..Host::default() }
    }

    #[test]
    fn a_package_is_installed_only_where_its_name_is_known() {
        let of = |packages| {
            let host = host(packages);
            [host.start_engine(), host.install_busybox(), host.add_runsc()].map(shown)
        };
        let apt = ["docker.io", "busybox-static", "runsc"];
        assert_eq!(of(Some(Packages::Apt)), apt.map(|name| Some(format!("sudo apt-get install -y {name}"))));
        let dnf = of(Some(Packages::Dnf));
        assert_eq!(dnf, [Some("sudo dnf install -y moby-engine".to_owned()), None, None]);
        assert_eq!(of(None), [None, None, None]);
    }

    #[test]
    fn an_installed_engine_is_started_in_the_way_of_its_host() {
        let installed = Host { dockerd: true, ..host(Some(Packages::Apt)) };
        assert_eq!(shown(installed.start_engine()), None, "nothing on this host starts it");
        let script = Host { services: Services::Script, ..installed.clone() };
        assert_eq!(shown(script.start_engine()).unwrap(), "sudo /etc/init.d/docker start");
        let systemd = Host { services: Services::Systemd, is_root: true, ..script };
        assert_eq!(shown(systemd.start_engine()).unwrap(), "systemctl enable --now docker");
    }

    #[test]
    fn gvisor_is_registered_before_the_engine_reloads() {
        let installed =
            Host { gvisor: Gvisor::Installed, services: Services::Systemd, is_root: true, ..Host::default() };
        let register = "runsc install -- --platform=ptrace --network=none";
        assert_eq!(shown(installed.add_runsc()).unwrap(), register);
        let registered = Host { gvisor: Gvisor::Registered, ..installed };
        assert_eq!(shown(registered.add_runsc()).unwrap(), "systemctl reload docker");
        let other = Host { services: Services::Unknown, ..registered };
        assert_eq!(shown(other.add_runsc()), None);
    }

    #[test]
    fn only_a_named_user_other_than_root_joins_a_group() {
        let alice = host(None);
        assert_eq!(shown(alice.join("docker")).unwrap(), "sudo usermod --append --groups docker alice");
        assert_eq!(Host { is_root: true, ..alice.clone() }.join("docker"), None);
        assert_eq!(Host { user: None, ..alice }.join("docker"), None);
    }

    #[test]
    fn parameters_are_set_by_one_command() {
        let parameters = ["fs.a=1".to_owned(), "fs.b=1".to_owned()];
        assert_eq!(shown(Host::default().set(&parameters)).unwrap(), "sudo sysctl -w fs.a=1 fs.b=1");
        assert_eq!(Host::default().set(&[]), None);
    }

    #[test]
    fn the_configuration_of_the_engine_names_its_runtimes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("daemon.json");
        for (text, registers) in
            [(r#"{"runtimes": {"runsc": {}}}"#, true), (r#"{"runtimes": 3}"#, false), ("x", false)]
        {
            std::fs::write(&file, text).unwrap();
            assert_eq!(registers_runsc(file.to_str().unwrap()), registers, "{text}");
        }
        assert!(!registers_runsc("/nonexistent"));
    }
}
