//! What a run's policy says of the operations, as far as lists and descriptions tell it.

/// Whether calls of an operation wait for a person, as far as it can be said of them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// Not because of the policy's word on the operation. A single call may all the same.
    Free,
    /// They do.
    Asked,
    /// None is made.
    Refused,
}

/// Programs that never run, whoever consents.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Denied {
    /// Those of the built-in list.
    pub builtin: bool,
    /// Those of the profile.
    pub names: Vec<String>,
}

/// What a policy says. Each is asked for canonical names, such as `git.commit`.
#[derive(Clone, Copy)]
pub struct Policy<'a> {
    /// May it be called at all, with or without consent?
    pub permitted: &'a dyn Fn(&str) -> bool,
    /// Whether it waits for a person. Of `exec`: a command of which no rule of the profile speaks.
    pub consent: &'a dyn Fn(&str) -> Consent,
    /// What commands may not be.
    pub denied: &'a Denied,
}
