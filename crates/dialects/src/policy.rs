//! The parts of a run's policy that lists and descriptions of tools need.

/// Need of an operation's calls for consent, as far as it is the same for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// The policy asks for no consent to the operation. A single call may still need one.
    Free,
    /// Every call waits for a reviewer.
    Asked,
    /// Every call is refused.
    Refused,
}

/// Programs that never run, even with consent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// True if the built-in list applies.
    pub builtin: bool,
    /// Names in the profile.
    pub names: Vec<String>,
}

/// Policy of a run. Its functions take canonical names, such as `git.commit`.
#[derive(Clone, Copy)]
pub struct Policy<'a> {
    /// Returns true if an operation may be called, with or without consent.
    pub permitted: &'a dyn Fn(&str) -> bool,
    /// Returns the need for consent. For `exec` it is that of a command which no rule of the profile covers.
    pub consent: &'a dyn Fn(&str) -> Consent,
    /// Programs that commands may not run.
    pub denied: &'a Denied,
    /// Hosts that commands can reach, in words; `None` if there is no network.
    pub network: Option<&'a str>,
}
