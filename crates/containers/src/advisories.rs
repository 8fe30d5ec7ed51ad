//! Known escapes in the versions that an engine reports.
//!
//! A pure function over a table. It compares version numbers only. Distributions backport fixes without changing the number, so a finding
//! is a hint to check the package, and [`ADVISORY_CAVEAT`] is shown with every list. An empty list proves nothing either.

use crate::engine::EngineFacts;

/// Caveat to show with any list of [`Advisory`].
pub const ADVISORY_CAVEAT: &str = "judged by version numbers only: distributions backport fixes under old numbers (see the package's changelog), and newer vulnerabilities are not listed";

/// One known weakness that the reported version does not exclude.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advisory {
    pub ids: &'static str,
    /// One sentence for an operator.
    pub sentence: String,
}

/// Program that a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Engine,
    Containerd,
    Runc,
}

struct Row {
    program: Program,
    ids: &'static str,
    what: &'static str,
    /// First fixed version of each release line that received a fix.
    ///
    /// Release lines below the lowest one never received it. Lines above the highest one have had it from their first release.
    fixed: &'static [&'static str],
}

const TABLE: &[Row] = &[
    Row {
        program: Program::Runc,
        ids: "CVE-2024-21626",
        what: "a leaked descriptor lets a container reach the host's files through its working directory",
        fixed: &["1.1.12"],
    },
    Row {
        program: Program::Runc,
        ids: "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
        what: "races while paths are masked and the console is mounted let a container write to the host's /proc",
        fixed: &["1.2.8", "1.3.3", "1.4.0-rc.3"],
    },
    Row {
        program: Program::Containerd,
        ids: "CVE-2024-25621",
        what: "directories of containerd are open to local users of the host",
        fixed: &["1.7.29", "2.0.7", "2.1.5", "2.2.0"],
    },
    Row {
        program: Program::Engine,
        ids: "CVE-2024-41110",
        what: "requests without a body pass authorization plugins (matters only where such plugins are used)",
        fixed: &["23.0.15", "25.0.6", "26.1.5", "27.1.1"],
    },
    Row {
        program: Program::Engine,
        ids: "CVE-2026-34040",
        what: "oversized requests pass authorization plugins (matters only where such plugins are used)",
        fixed: &["29.3.1"],
    },
    Row {
        program: Program::Engine,
        ids: "CVE-2026-41567, CVE-2026-41568, CVE-2026-42306",
        what: "`docker cp` with a hostile container can change the host (Cofferdam never uses it; do not use it on runs)",
        fixed: &["29.5.1"],
    },
];

/// Returns the known vulnerabilities of the versions in `facts`. A version that cannot be parsed is a finding as well.
pub fn advisories(facts: &EngineFacts) -> Vec<Advisory> {
    let reported = |program| match program {
        Program::Engine => Some(facts.engine_version.as_str()),
        Program::Containerd => facts.containerd_version.as_deref(),
        Program::Runc => facts.runc_version.as_deref(),
    };
    TABLE
        .iter()
        .filter_map(|row| {
            let version = reported(row.program)?;
            let fixed = row.fixed.join(" or ");
            let name = name(row.program);
            match Version::parse(version) {
                Some(parsed) if is_fixed(&parsed, row.fixed) => None,
                Some(_) => Some(format!("{name} {version} has {}: {}; fixed in {fixed}.", row.ids, row.what)),
                None => Some(format!(
                    "{name} reports the version `{}`, which cannot be judged for {}; it is fixed in {fixed}.",
                    version.chars().take(64).collect::<String>(),
                    row.ids
                )),
            }
            .map(|sentence| Advisory { ids: row.ids, sentence })
        })
        .collect()
}

fn name(program: Program) -> &'static str {
    match program {
        Program::Engine => "Docker Engine",
        Program::Containerd => "containerd",
        Program::Runc => "runc",
    }
}

/// Version of a program, ordered as releases are: a pre-release comes before its release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
    patch: u32,
    /// Number of the release candidate, or `u32::MAX` for a release.
    candidate: u32,
}

impl Version {
    /// Reads `1.1.5+ds1-1`, `v2.0.7`, `1.4.0-rc.3`, `20.10.24+dfsg1`, `1.6.20~ds1`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, suffix) = text.split_at(end);
        let mut numbers = numbers.trim_end_matches('.').split('.').map(str::parse::<u32>);
        let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let patch = numbers.next().unwrap_or(Ok(0)).ok()?;
        let candidate = ["-rc.", "-rc", "~rc.", "~rc"].iter().find_map(|mark| suffix.strip_prefix(mark));
        let candidate = candidate.map_or(u32::MAX, |rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or(0)
        });
        Some(Self { major, minor, patch, candidate })
    }

    fn line(&self) -> (u32, u32) {
        (self.major, self.minor)
    }
}

fn is_fixed(version: &Version, fixed: &[&str]) -> bool {
    let fixed: Vec<Version> = fixed.iter().filter_map(|text| Version::parse(text)).collect();
    let newest = fixed.iter().map(Version::line).max();
    match fixed.iter().find(|fix| fix.line() == version.line()) {
        Some(fix) => version >= fix,
        None => newest.is_some_and(|newest| version.line() > newest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(engine: &str, containerd: &str, runc: &str) -> EngineFacts {
        EngineFacts {
            engine_version: engine.into(),
            api_version: "1.41".into(),
            runc_version: Some(runc.into()),
            containerd_version: Some(containerd.into()),
            cgroup_version: 2,
            storage_driver: String::new(),
            runtimes: Vec::new(),
            default_runtime: String::new(),
            security_options: vec!["name=seccomp,profile=default".into()],
            cpus: 1,
            kernel: String::new(),
            architecture: String::new(),
            warnings: Vec::new(),
            user_map: None,
        }
    }

    #[test]
    fn an_engine_with_known_escapes_is_reported_plainly() {
        let found = advisories(&facts("20.10.24+dfsg1", "1.6.20~ds1", "1.1.5+ds1"));
        assert_eq!(found.len(), TABLE.len());
        assert_eq!(
            found[0].sentence,
            "runc 1.1.5+ds1 has CVE-2024-21626: a leaked descriptor lets a container reach the host's files through \
             its working directory; fixed in 1.1.12."
        );
    }

    #[test]
    fn current_versions_have_no_advisory() {
        assert_eq!(advisories(&facts("29.5.1", "2.2.0", "1.4.3")), []);
        assert_eq!(advisories(&facts("30.0.0", "v2.3.1", "1.5.0-rc.1")), []);
    }

    #[test]
    fn each_release_line_is_judged_by_its_own_fix() {
        let fixed = |version: &str| is_fixed(&Version::parse(version).unwrap(), TABLE[1].fixed);
        for good in ["1.2.8", "1.2.9", "1.3.3", "1.4.0-rc.3", "1.4.0", "1.5.0-rc.1", "2.0.0"] {
            assert!(fixed(good), "{good}");
        }
        for bad in ["1.1.99", "1.2.7", "1.3.2", "1.4.0-rc.2", "0.1.0"] {
            assert!(!fixed(bad), "{bad}");
        }
    }

    #[test]
    fn a_line_between_fixed_ones_that_got_no_fix_is_not_fixed() {
        assert!(!is_fixed(&Version::parse("24.0.9").unwrap(), TABLE[3].fixed));
        assert!(!is_fixed(&Version::parse("27.0.3").unwrap(), TABLE[3].fixed));
        assert!(is_fixed(&Version::parse("28.0.0").unwrap(), TABLE[3].fixed));
    }

    #[test]
    fn an_unreadable_version_is_a_finding() {
        let found = advisories(&facts("dev", "2.2.0", "1.4.3"));
        assert_eq!(found.len(), 3, "one for each row about the engine");
        assert!(found[0].sentence.contains("cannot be judged"));
    }
}
