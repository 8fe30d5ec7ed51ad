//! What to try after a failure, in nobody's names: every caller has its own for arguments and tools, and some have none.

/// What a caller may try next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Replace every occurrence instead of one.
    ReplaceAll,
    /// It is a directory.
    List,
    /// It is a file.
    Read,
    /// Nothing has this name.
    Find,
    /// It is too long to be read.
    Search,
    /// Beginning and end of what is too long to be read.
    Parts,
}

/// What a hint names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// An argument of the operation that failed.
    Argument(&'static str),
    /// Another operation.
    Operation(&'static str),
}

impl Hint {
    /// Every hint.
    pub const ALL: [Self; 6] =
        [Self::ReplaceAll, Self::List, Self::Read, Self::Find, Self::Search, Self::Parts];

    /// For the worker's protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReplaceAll => "replace_all",
            Self::List => "list",
            Self::Read => "read",
            Self::Find => "find",
            Self::Search => "search",
            Self::Parts => "parts",
        }
    }

    /// The one of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hint| hint.as_str() == name)
    }

    /// What it names, as the API calls it.
    pub const fn named(self) -> Named {
        match self {
            Self::ReplaceAll => Named::Argument("replace_all"),
            Self::List => Named::Operation("list"),
            Self::Read => Named::Operation("read"),
            Self::Find => Named::Operation("glob"),
            Self::Search => Named::Operation("grep"),
            Self::Parts => Named::Operation("exec"),
        }
    }

    /// The hint for a caller who knows what it names by `name`.
    pub fn say(self, name: &str) -> String {
        match self {
            Self::ReplaceAll => format!("set {name} to replace all of them"),
            Self::List => format!("list it with {name}"),
            Self::Read => format!("read it with {name}"),
            Self::Find => format!("look for its name with {name}"),
            Self::Search => format!("search it with {name}"),
            Self::Parts => format!("look at parts of it with head and tail through {name}"),
        }
    }

    /// The hint in the names of the API.
    pub fn canonical(self) -> String {
        let (Named::Argument(name) | Named::Operation(name)) = self.named();
        self.say(name)
    }
}
