//! Which operations a permission can be about, in a form that costs one comparison: most of an agent's permissions are
//! about something else than the call at hand.

use ops::Operation;

use super::permission::Scope;
use crate::policy::EXEC_READ_ONLY;

/// A bit for each of [`Operation::NAMES`], and the highest for everything beside these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct About(u32);

const OTHERS: About = About(1 << (u32::BITS - 1));

impl About {
    pub(super) fn operation(name: &str) -> Self {
        Operation::NAMES.iter().position(|known| *known == name).map_or(OTHERS, |index| Self(1 << index))
    }

    /// What is not the name of one operation may be about any.
    pub(super) fn scope(scope: &Scope) -> Self {
        let named = scope.operation.as_deref().map(|name| match name {
            EXEC_READ_ONLY => Self::operation("exec"),
            name => Self::operation(name),
        });
        named.filter(|about| *about != OTHERS).unwrap_or(Self(u32::MAX))
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

const _: () = assert!(Operation::NAMES.len() < u32::BITS as usize, "more operations than bits");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::names::covers;

    #[test]
    fn nothing_that_a_permission_covers_is_passed_over() {
        let tools = ["mcp.*", "mcp.db.*", "mcp.db.get_*", "mcp.db.get_all"];
        let scope =
            |operation: Option<&str>| Scope { operation: operation.map(str::to_owned), ..Scope::default() };
        for name in Operation::NAMES.into_iter().chain(["mcp.db.get_all", "mcp.web.open"]) {
            let about = About::operation(name);
            assert!(About::scope(&scope(None)).meets(about), "{name}");
            for wanted in Operation::NAMES.into_iter().chain(tools) {
                let meets = About::scope(&scope(Some(wanted))).meets(about);
                assert!(meets || !covers(wanted, name), "{wanted} covers {name}");
                assert!(!meets || wanted == name || tools.contains(&wanted), "{wanted} is not about {name}");
            }
            assert_eq!(About::scope(&scope(Some(EXEC_READ_ONLY))).meets(about), name == "exec");
        }
    }
}
