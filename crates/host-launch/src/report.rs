//! The parts of the jail on this host, in one line from the jailed process to the daemon.

use std::fmt;

/// The way in which the namespaces were created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespaces {
    /// By root: the host worker can become any workspace's owner.
    Privileged,
    /// In a user namespace: the host worker keeps the daemon's identity.
    User,
    /// No namespaces: the weaker form, which the operator accepts.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    /// All restrictions that the host worker asks for.
    Full,
    Partial,
    /// The kernel has none.
    Absent,
}

/// The variable parts of the jail.
///
/// Every jail has no network, no capability that changes anything, and seccomp; with namespaces it also has a separate root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The way in which the namespaces were created.
    pub namespaces: Namespaces,
    pub landlock: Landlock,
}

impl Namespaces {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Privileged, "privileged"), (Self::User, "user"), (Self::None, "none")];
}

impl Landlock {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Full, "full"), (Self::Partial, "partial"), (Self::Absent, "absent")];
}

fn name_of<T: PartialEq + Copy>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find(|(each, _)| *each == value).map_or("", |(_, name)| name)
}

fn named<T: Copy>(table: &[(T, &'static str)], name: &str) -> Option<T> {
    table.iter().find(|(_, each)| *each == name).map(|(value, _)| *value)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces = name_of(&Namespaces::ALL, self.namespaces);
        write!(f, "namespaces={namespaces} landlock={}", name_of(&Landlock::ALL, self.landlock))
    }
}

impl Report {
    /// Parses the displayed form.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (namespaces, landlock) = line.trim_end().split_once(' ')?;
        Some(Self {
            namespaces: named(&Namespaces::ALL, namespaces.strip_prefix("namespaces=")?)?,
            landlock: named(&Landlock::ALL, landlock.strip_prefix("landlock=")?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_reports_parse_back() {
        for (namespaces, _) in Namespaces::ALL {
            for (landlock, _) in Landlock::ALL {
                let report = Report { namespaces, landlock };
                assert_eq!(Report::parse(&format!("{report}\n")), Some(report));
            }
        }
        assert_eq!(Report::parse("namespaces=some landlock=full"), None);
    }
}
