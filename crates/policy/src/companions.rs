//! Companions: containers beside a run, such as a database of its tests. A profile says which images they may have.

use std::collections::{BTreeMap, BTreeSet};

use egress_rules::{HostName, Narrowed, Rules};
use operations::Environment;
use serde::Serialize;

use crate::image_names::{closest, permits};

/// Most bytes of a name: a label of a host name.
const NAME: usize = 63;
/// Names in the hosts file of each run.
const TAKEN: [&str; 4] = ["localhost", "ip6-localhost", "ip6-loopback", "cofferdam"];
/// Most arguments of a command, and most bytes of all of them.
const ARGUMENTS: (usize, usize) = (256, 64 * 1024);
/// Most ports of a companion.
const PORTS: usize = 16;
/// Least memory of a companion, MiB.
const MEMORY: u64 = 16;

/// Companions that runs of a profile may have. The default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CompanionRules {
    /// Images. A name that ends in `*` matches every name with that beginning, and each name of an image counts as the others.
    pub images: Vec<String>,
    /// Most companions of one run.
    pub max: usize,
    /// Memory of all companions of one run, MiB.
    pub memory_mib: u64,
    /// Rules for connections of companions with these images, in the same form. Without any, a companion reaches nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub egress: BTreeMap<String, Rules>,
    /// Companions of every run, unless its request has others of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defaults: Vec<Companion>,
}

/// A container beside a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Companion {
    /// A label of a host name, under which programs of the run reach it.
    pub name: String,
    pub image: String,
    /// Arguments in place of the image's; empty for those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Check before the run is READY; `None`: it has been started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<Readiness>,
    /// Memory, MiB; 0 for a share of what the others leave.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_mib: u64,
    /// TCP ports that programs of the run may connect to, beside that of `ready`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub ports: BTreeSet<u16>,
    /// Names of companions that have to be ready before it starts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub depends_on: BTreeSet<String>,
    /// Rules that its connections have to pass beside those of the profile for its image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Rules>,
}

/// Check that a companion has to pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    #[serde(flatten)]
    pub check: Check,
    /// Time from the start until it must have passed.
    pub timeout_seconds: u64,
    /// Time between two checks.
    pub interval_milliseconds: u64,
}

/// Kind of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// A connection to this port is accepted.
    Tcp(u16),
    /// This command, executed in the companion, ends with 0.
    Command(Vec<String>),
}

/// Reason that a run does not get its companions. The messages are for the author of the request or of the profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCompanions {
    #[error("{0}")]
    Invalid(String),
    #[error("{name}: the profile does not allow the image {image}; see its companions.images")]
    Image { name: String, image: String },
}

fn invalid(why: impl Into<String>) -> NoCompanions {
    NoCompanions::Invalid(why.into())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Readiness {
    /// Longest time until a companion is ready, seconds, and the default.
    pub const TIMEOUT: (u64, u64) = (600, 60);
    /// Shortest, longest and usual time between two checks, milliseconds.
    pub const INTERVAL: (u64, u64, u64) = (50, 60_000, 200);
}

impl Companion {
    /// Returns the ports that programs of the run may connect to.
    pub fn open_ports(&self) -> BTreeSet<u16> {
        let ready = self.ready.as_ref().and_then(|ready| match ready.check {
            Check::Tcp(port) => Some(port),
            Check::Command(_) => None,
        });
        self.ports.iter().copied().chain(ready).collect()
    }

    /// Checks everything that concerns no other companion.
    pub fn check(&self) -> Result<(), NoCompanions> {
        let name = &self.name;
        if !is_label(name) {
            return Err(invalid(
                "a name must be 1 to 63 lower-case letters, digits and hyphens, begin with a letter and not end with a hyphen, and \
                 not be `localhost` or another name of the run itself",
            ));
        }
        let at = |why: String| Err(invalid(format!("{name}: {why}")));
        let ready = self.ready.as_ref();
        let check = ready.and_then(|ready| match &ready.check {
            Check::Command(args) => Some(args),
            Check::Tcp(_) => None,
        });
        if check.is_some_and(|args| args.first().is_none_or(String::is_empty)) {
            return at("ready.command has no program".to_owned());
        }
        for args in check.into_iter().chain([&self.command]) {
            let bytes: usize = args.iter().map(String::len).sum();
            if args.len() > ARGUMENTS.0 || bytes > ARGUMENTS.1 || args.iter().any(|arg| arg.contains('\0')) {
                return at(format!(
                    "a command has at most {} arguments and {} bytes, and no NUL",
                    ARGUMENTS.0, ARGUMENTS.1
                ));
            }
        }
        if let Err(malformed) = Environment::parse("env", self.env.clone()) {
            return at(malformed.to_string());
        }
        let ports = self.open_ports();
        if ports.len() > PORTS || ports.contains(&0) {
            return at(format!("has at most {PORTS} ports, from 1 to 65535"));
        }
        if let Some(ready) = ready
            && (!(1..=Readiness::TIMEOUT.0).contains(&ready.timeout_seconds)
                || !(Readiness::INTERVAL.0..=Readiness::INTERVAL.1).contains(&ready.interval_milliseconds))
        {
            return at(format!(
                "ready.timeout_seconds is 1 to {}, and ready.interval_milliseconds {} to {}",
                Readiness::TIMEOUT.0,
                Readiness::INTERVAL.0,
                Readiness::INTERVAL.1
            ));
        }
        Ok(())
    }
}

/// Returns true for a label of a host name that no program reads as something else.
fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= NAME
        && !TAKEN.contains(&name)
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(plain)
        && HostName::parse(name).is_ok_and(|canonical| canonical.as_str() == name)
}

impl CompanionRules {
    /// Most companions that a profile may allow.
    pub const MOST: usize = 16;

    /// Returns the rules for connections of companions with an image: those of the closest name. `None` if there are none.
    ///
    /// An id or a digest has the rules of a beginning of names only if no other rules can be meant for its image.
    pub fn rules_of(&self, image: &str) -> Option<&Rules> {
        self.egress.get(closest(self.egress.keys().map(String::as_str), image)?)
    }

    /// Returns the rules for connections of companions with an image; rules that allow nothing if there are none.
    pub fn narrowed(&self, image: &str) -> Narrowed {
        Narrowed::new(self.rules_of(image).cloned().unwrap_or_else(Rules::none))
    }

    /// Returns the companions of a run: those that were asked for, and those of the profile whose names they do not have.
    ///
    /// Each group can start when all before it are ready. Each companion has its memory. `egress` has the rules for connections, which name
    /// hosts that no companion may stand in for.
    pub fn of_run<'r>(
        &self,
        asked: Vec<Companion>,
        egress: impl IntoIterator<Item = &'r Rules>,
    ) -> Result<Vec<Vec<Companion>>, NoCompanions> {
        let names: BTreeSet<String> = asked.iter().map(|companion| companion.name.clone()).collect();
        if names.len() < asked.len() {
            return Err(invalid("two of them have the same name"));
        }
        let further = self.defaults.iter().filter(|companion| !names.contains(&companion.name)).cloned();
        let all: Vec<Companion> = asked.into_iter().chain(further).collect();
        if all.len() > self.max {
            return Err(invalid(match self.max {
                0 => "the profile allows none".to_owned(),
                most => format!("there are {}, and the profile allows {most}", all.len()),
            }));
        }
        let hosts: BTreeSet<String> = egress
            .into_iter()
            .flat_map(|rules| rules.settings().rules.iter().map(|rule| rule.host.to_string()))
            .collect();
        for companion in &all {
            companion.check()?;
            if !permits(&self.images, &companion.image) {
                let (name, image) = (companion.name.clone(), companion.image.clone());
                return Err(NoCompanions::Image { name, image });
            }
            if hosts.contains(&companion.name) {
                let why = "a rule of `egress` has a host of this name";
                return Err(invalid(format!("{}: {why}", companion.name)));
            }
            if companion.egress.as_ref().is_some_and(|own| !own.settings().budget.is_unbounded()) {
                let why = "egress: has a `budget`, and that of the run counts: leave it out";
                return Err(invalid(format!("{}: {why}", companion.name)));
            }
            if let Some(own) = &companion.egress
                && let Err(wider) = self.narrowed(&companion.image).narrow(own)
            {
                return Err(invalid(format!("{}: egress: {wider}", companion.name)));
            }
        }
        in_order(self.with_memory(all)?)
    }

    /// Returns what the rules do not allow about companions that run, each with its image and its memory in MiB. `None` if they may stay.
    pub fn forbids<'c>(&self, running: impl IntoIterator<Item = (&'c str, u64)>) -> Option<&'static str> {
        let (mut number, mut memory) = (0, 0u64);
        for (image, memory_mib) in running {
            if !permits(&self.images, image) {
                return Some("the image of a companion");
            }
            number += 1;
            memory = memory.saturating_add(memory_mib);
        }
        if number > self.max {
            return Some("so many companions");
        }
        (memory > self.memory_mib).then_some("so much memory of companions")
    }

    /// Gives each companion without an amount of memory an equal share of what the others leave.
    fn with_memory(&self, mut all: Vec<Companion>) -> Result<Vec<Companion>, NoCompanions> {
        let asked = all.iter().fold(0u64, |sum, companion| sum.saturating_add(companion.memory_mib));
        let sharing = all.iter().filter(|companion| companion.memory_mib == 0).count();
        let left = self.memory_mib.checked_sub(asked);
        let share = left.map(|left| left.checked_div(sharing as u64).unwrap_or(MEMORY));
        let share = share.filter(|share| *share >= MEMORY).ok_or_else(|| {
            let most = self.memory_mib;
            invalid(format!("they need more memory than the {most} MiB that the profile has for all of them"))
        })?;
        for companion in &mut all {
            if companion.memory_mib == 0 {
                companion.memory_mib = share;
            }
            if companion.memory_mib < MEMORY {
                return Err(invalid(format!("{}: memory_mib is at least {MEMORY}", companion.name)));
            }
        }
        Ok(all)
    }
}

/// Sorts companions into groups, each of which can start when all before it are ready.
fn in_order(mut all: Vec<Companion>) -> Result<Vec<Vec<Companion>>, NoCompanions> {
    let names: BTreeSet<&str> = all.iter().map(|companion| companion.name.as_str()).collect();
    for companion in &all {
        if let Some(other) = companion.depends_on.iter().find(|other| !names.contains(other.as_str())) {
            let shown: String = other.chars().filter(|c| !c.is_control()).take(NAME).collect();
            return Err(invalid(format!(
                "{}: depends_on names `{shown}`, which is no companion",
                companion.name
            )));
        }
    }
    let (mut groups, mut started) = (Vec::new(), BTreeSet::new());
    while !all.is_empty() {
        let (group, later): (Vec<Companion>, Vec<Companion>) = all
            .into_iter()
            .partition(|companion| companion.depends_on.iter().all(|other| started.contains(other)));
        if group.is_empty() {
            let names: Vec<&str> = later.iter().map(|companion| companion.name.as_str()).collect();
            return Err(invalid(format!("each of these waits for another of them: {}", names.join(", "))));
        }
        started.extend(group.iter().map(|companion| companion.name.clone()));
        groups.push(group);
        all = later;
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use egress_rules::Settings;

    use super::*;

    fn companion(name: &str, depends_on: &[&str]) -> Companion {
        Companion {
            name: name.to_owned(),
            image: "db:1".to_owned(),
            command: Vec::new(),
            env: BTreeMap::new(),
            ready: None,
            memory_mib: 0,
            ports: BTreeSet::new(),
            depends_on: depends_on.iter().map(ToString::to_string).collect(),
            egress: None,
        }
    }

    fn rules() -> CompanionRules {
        CompanionRules {
            images: vec!["db:*".to_owned()],
            max: 4,
            memory_mib: 1000,
            ..CompanionRules::default()
        }
    }

    fn to(host: &str) -> Rules {
        let rule = serde_json::json!({"host": host, "ports": [443], "decision": "allow"});
        Rules::from_json(&serde_json::json!({ "rules": [rule] }).to_string()).unwrap()
    }

    #[test]
    fn the_longest_name_of_an_image_has_its_rules_and_a_companion_may_narrow_them() {
        let egress = [("db:*", "*.example.org"), ("db:1*", "one.example.org"), ("db:1", "exact.example.org")];
        let egress = egress.map(|(image, host)| (image.to_owned(), to(host))).into();
        let rules = CompanionRules { egress, ..rules() };
        for (image, host) in [
            ("db:2", Some("*.example.org")),
            ("db:15", Some("one.example.org")),
            ("db:1", Some("exact.example.org")),
            ("other:1", None),
        ] {
            assert_eq!(rules.rules_of(image), host.map(to).as_ref(), "{image}");
            assert_eq!(rules.narrowed(image).is_nothing(), host.is_none());
        }
        let with = |image: &str, host: &str| {
            let own = Companion { image: image.to_owned(), egress: Some(to(host)), ..companion("db", &[]) };
            rules.of_run(vec![own], [])
        };
        assert!(with("db:2", "files.example.org").is_ok());
        let wider = with("db:1", "files.example.org").unwrap_err().to_string();
        assert!(wider.starts_with("db: egress: "), "{wider}");
        let none = CompanionRules { egress: BTreeMap::new(), ..rules.clone() };
        let own = Companion { egress: Some(to("files.example.org")), ..companion("db", &[]) };
        assert!(none.of_run(vec![own], []).is_err(), "no rules are none to narrow");
    }

    fn names(groups: &[Vec<Companion>]) -> Vec<Vec<&str>> {
        let names = |group: &Vec<Companion>| group.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        assert!(groups.iter().all(|group| !names(group).is_empty()));
        groups.iter().map(|group| group.iter().map(|one| one.name.as_str()).collect()).collect()
    }

    fn refused(rules: &CompanionRules, asked: Vec<Companion>) -> String {
        rules.of_run(asked, []).unwrap_err().to_string()
    }

    #[test]
    fn companions_start_after_those_that_they_depend_on() {
        let asked =
            vec![companion("app", &["db", "cache"]), companion("db", &[]), companion("cache", &["db"])];
        let groups = rules().of_run(asked, []).unwrap();
        assert_eq!(names(&groups), [vec!["db"], vec!["cache"], vec!["app"]]);
        let circle = vec![companion("a", &["b"]), companion("b", &["a"]), companion("c", &[])];
        assert_eq!(refused(&rules(), circle), "each of these waits for another of them: a, b");
        assert!(refused(&rules(), vec![companion("a", &["a"])]).contains("waits for another"));
        let unknown = refused(&rules(), vec![companion("a", &["x"])]);
        assert_eq!(unknown, "a: depends_on names `x`, which is no companion");
    }

    #[test]
    fn a_name_is_a_label_that_nothing_else_has() {
        for bad in [
            "",
            "Db",
            "d b",
            "-a",
            "a-",
            "a.b",
            "a_b",
            "1",
            "0x7f",
            "localhost",
            "cofferdam",
            "ä",
            "a\0",
            &"a".repeat(64),
        ] {
            assert!(refused(&rules(), vec![companion(bad, &[])]).starts_with("a name must"), "{bad}");
        }
        let twice = vec![companion("db", &[]), companion("db", &[])];
        assert_eq!(refused(&rules(), twice), "two of them have the same name");
        let host =
            serde_json::json!({"rules": [{"host": "db", "ports": [80], "decision": "allow"}]}).to_string();
        let egress = Rules::from_json(&host).unwrap();
        let taken = rules().of_run(vec![companion("db", &[])], [&egress]).unwrap_err();
        assert_eq!(taken.to_string(), "db: a rule of `egress` has a host of this name");
        assert!(rules().of_run(vec![companion("dc", &[])], [&egress]).is_ok());
        assert_eq!(Settings::default().rules, []);
    }

    #[test]
    fn a_profile_without_companions_allows_none() {
        let none = CompanionRules::default();
        assert_eq!(none.of_run(Vec::new(), []), Ok(Vec::new()));
        assert_eq!(refused(&none, vec![companion("db", &[])]), "the profile allows none");
        let many = (0..5).map(|number| companion(&format!("a{number}"), &[])).collect();
        assert_eq!(refused(&rules(), many), "there are 5, and the profile allows 4");
        let mut other = companion("db", &[]);
        other.image = "dbx:1".to_owned();
        let denied = rules().of_run(vec![other], []).unwrap_err();
        assert!(matches!(denied, NoCompanions::Image { .. }), "{denied}");
    }

    #[test]
    fn memory_is_shared_and_bounded() {
        let mut large = companion("large", &[]);
        large.memory_mib = 600;
        let memory = |asked| -> Vec<u64> {
            let groups = rules().of_run(asked, []).unwrap();
            groups.iter().flatten().map(|companion| companion.memory_mib).collect()
        };
        assert_eq!(memory(vec![large.clone(), companion("a", &[]), companion("b", &[])]), [600, 200, 200]);
        assert_eq!(memory(vec![companion("a", &[])]), [1000]);
        assert_eq!(memory(vec![large.clone()]), [600]);
        large.memory_mib = 1001;
        assert!(refused(&rules(), vec![large.clone()]).contains("1000 MiB"));
        large.memory_mib = 990;
        assert!(refused(&rules(), vec![large.clone(), companion("a", &[])]).contains("1000 MiB"));
        large.memory_mib = 15;
        assert_eq!(refused(&rules(), vec![large]), "large: memory_mib is at least 16");
    }

    #[test]
    fn companions_that_run_stay_while_the_rules_allow_them() {
        let two = [("db:1", 600), ("db:2", 400)];
        assert_eq!(rules().forbids([]), None);
        assert_eq!(CompanionRules::default().forbids([]), None);
        assert_eq!(rules().forbids(two), None);
        let with = |change: &dyn Fn(&mut CompanionRules)| {
            let mut changed = rules();
            change(&mut changed);
            changed.forbids(two)
        };
        assert_eq!(with(&|rules| rules.images = vec!["db:1".to_owned()]), Some("the image of a companion"));
        assert_eq!(with(&|rules| rules.max = 1), Some("so many companions"));
        assert_eq!(with(&|rules| rules.memory_mib = 999), Some("so much memory of companions"));
    }

    #[test]
    fn a_request_replaces_a_companion_of_the_profile() {
        let with =
            CompanionRules { defaults: vec![companion("db", &[]), companion("cache", &[])], ..rules() };
        let mut own = companion("db", &["cache"]);
        own.image = "db:2".to_owned();
        let groups = with.of_run(vec![own], []).unwrap();
        assert_eq!(names(&groups), [["cache"], ["db"]]);
        assert_eq!(groups[1][0].image, "db:2");
    }

    #[test]
    fn checks_ports_and_commands_are_bounded() {
        let with = |change: &dyn Fn(&mut Companion)| {
            let mut changed = companion("db", &[]);
            change(&mut changed);
            rules().of_run(vec![changed], []).map(drop).map_err(|error| error.to_string())
        };
        let ready = |check, timeout_seconds, interval_milliseconds| {
            move |companion: &mut Companion| {
                let check: Check = Clone::clone(&check);
                companion.ready = Some(Readiness { check, timeout_seconds, interval_milliseconds });
            }
        };
        assert_eq!(with(&ready(Check::Tcp(5432), 60, 200)), Ok(()));
        for (check, timeout, interval) in [
            (Check::Tcp(0), 60, 200),
            (Check::Tcp(1), 0, 200),
            (Check::Tcp(1), 601, 200),
            (Check::Tcp(1), 60, 49),
            (Check::Command(Vec::new()), 60, 200),
            (Check::Command(vec![String::new()]), 60, 200),
            (Check::Command(vec!["a\0".to_owned()]), 60, 200),
        ] {
            assert!(
                with(&ready(check.clone(), timeout, interval)).is_err(),
                "{check:?} {timeout} {interval}"
            );
        }
        assert!(with(&|one| one.ports = (1..=16).collect()).is_ok());
        assert!(with(&|one| one.ports = (1..=17).collect()).is_err());
        assert!(with(&|one| one.command = vec![String::new(); 257]).is_err());
        assert!(with(&|one| one.command = vec!["x".repeat(64 * 1024 + 1)]).is_err());
        assert!(with(&|one| one.env = BTreeMap::from([("A B".to_owned(), String::new())])).is_err());
        let mut one = companion("db", &[]);
        ready(Check::Tcp(7), 60, 200)(&mut one);
        one.ports = BTreeSet::from([7, 9]);
        assert_eq!(one.open_ports(), BTreeSet::from([7, 9]));
    }
}
