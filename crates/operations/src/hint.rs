//! Hints to try after a failure, without names: each caller has its own names for arguments and tools, and some have none.

/// Next step for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Replace every occurrence instead of one.
    ReplaceAll,
    /// List the path: it is a directory.
    List,
    /// Read the path: it is a file.
    Read,
    /// Find the file: no file has this name.
    Find,
    /// Search the file: it is too long to read.
    Search,
    /// Read the beginning and the end of a file that is too long to read.
    Parts,
}

/// Argument or operation that a hint names.
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

    /// Returns the name in the worker's protocol.
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

    /// Returns the hint with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hint| hint.as_str() == name)
    }

    /// Returns the argument or operation that the hint names, as the API calls it.
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

    /// Returns the hint as a sentence. `name` is the caller's name for the argument or operation.
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

    /// Returns the hint as a sentence with the names of the API.
    pub fn canonical(self) -> String {
        let (Named::Argument(name) | Named::Operation(name)) = self.named();
        self.say(name)
    }
}
