//! The subject matter of a permission, in a form that is cheap to compare.
//!
//! Most of an agent's permissions are about another operation than the call at hand, and most grants of commands are
//! about another program.

use std::hash::{BuildHasher as _, RandomState};

use operations::Operation;
use operations::deny::base_name;

use super::permission::{Effect, Permission};
use policy::EXEC_READ_ONLY;

/// For a permission, a superset of the calls that it can match. For a call, the call itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct About {
    /// A bit for each of [`Operation::NAMES`], and the highest bit for every other name.
    operations: u32,
    /// Hash of a program's base name. `None` in a permission that covers any program.
    program: Option<u64>,
}

const OTHERS: u32 = 1 << (u32::BITS - 1);

const _: () = assert!(Operation::NAMES.len() < u32::BITS as usize, "more operations than bits");

impl About {
    pub(super) fn call(operation: &Operation, hasher: &RandomState) -> Self {
        let program = operation.command().map(|exec| hasher.hash_one(base_name(&exec.command)));
        Self { operations: bit(operation.name()), program }
    }

    pub(super) fn permission(permission: &Permission, hasher: &RandomState) -> Self {
        let operations = permission.scope.operation.as_deref().map(|name| match name {
            EXEC_READ_ONLY => bit("exec"),
            name => bit(name),
        });
        // A key that is not the name of one operation may cover any.
        let operations = operations.filter(|bit| *bit != OTHERS).unwrap_or(u32::MAX);
        // A revocation also searches for its command inside wrappers.
        let first = permission.scope.command.first().filter(|_| permission.effect == Effect::Grant);
        let program = first.map(|word| base_name(word)).filter(|name| !name.is_empty());
        Self { operations, program: program.map(|name| hasher.hash_one(name)) }
    }

    /// Returns true if the permission may match the call.
    pub(super) fn meets(self, call: Self) -> bool {
        self.operations & call.operations != 0 && (self.program.is_none() || self.program == call.program)
    }
}

fn bit(operation: &str) -> u32 {
    Operation::NAMES.iter().position(|known| *known == operation).map_or(OTHERS, |index| 1 << index)
}

#[cfg(test)]
mod tests {
    use operations::{Mcp, McpTool};
    use timestamp::UnixMillis;

    use super::*;
    use crate::exec::Sight;
    use crate::grants::{Scope, Subject};
    use crate::testing::{delete, exec, shell, write};

    fn permission(effect: Effect, operation: Option<&str>, command: &str) -> Permission {
        let command = command.split_whitespace().map(str::to_owned).collect();
        Permission {
            id: "p".to_owned(),
            subject: Subject::Agent("alice".to_owned()),
            effect,
            scope: Scope { operation: operation.map(str::to_owned), path: None, command },
            preapproved: false,
            reason: "a test".to_owned(),
            by: "uid:0".to_owned(),
            at: UnixMillis(0),
            expires_at: None,
            ended: None,
        }
    }

    fn calls() -> Vec<Operation> {
        let commands: [&[&str]; 7] = [
            &["cargo", "test"],
            &["/usr/bin/cargo", "test"],
            &["./cargo", "test"],
            &["CARGO", "test"],
            &["env", "cargo", "test"],
            &["cat", "README.md"],
            &["/"],
        ];
        let tool =
            |name: &str| Mcp { tool: McpTool::parse(name).unwrap(), arguments: serde_json::Map::new() };
        let mut calls: Vec<Operation> = commands.map(|argv| Operation::Exec(exec(argv))).into();
        calls.push(Operation::Shell(shell("cargo test; cat README.md")));
        calls.push(Operation::Write(write("README.md")));
        calls.push(Operation::Delete(delete("README.md")));
        calls.extend(["mcp.db.get_all", "mcp.web.open"].map(|name| Operation::Mcp(tool(name))));
        calls
    }

    #[test]
    fn no_permission_that_speaks_of_a_call_is_passed_over() {
        let hasher = RandomState::new();
        let tools = ["mcp.*", "mcp.db.*", "mcp.db.get_*", "mcp.db.get_all", EXEC_READ_ONLY];
        let operations: Vec<Option<&str>> =
            Operation::NAMES.into_iter().chain(tools).map(Some).chain([None]).collect();
        let mut spoke = 0;
        for operation in operations {
            for effect in [Effect::Grant, Effect::Revocation] {
                for command in ["", "cargo", "cargo test", "/usr/bin/cargo", "/", "cat"] {
                    let permission = permission(effect, operation, command);
                    let about = About::permission(&permission, &hasher);
                    for call in calls() {
                        let sight = Sight::of(&call);
                        let speaks = [false, true].into_iter().any(|read_only| match effect {
                            Effect::Grant => permission.gives(&sight, read_only),
                            Effect::Revocation => permission.takes(&sight, read_only),
                        });
                        // Only a command can be one of the read-only rule.
                        let possible =
                            operation != Some(EXEC_READ_ONLY) || matches!(call, Operation::Exec(_));
                        let meets = about.meets(About::call(&call, &hasher));
                        assert!(meets || !(speaks && possible), "{permission:?} {call:?}");
                        spoke += usize::from(speaks && possible);
                    }
                }
            }
        }
        assert!(spoke > 100, "{spoke}");
    }

    #[test]
    fn unrelated_permissions_are_skipped() {
        let hasher = RandomState::new();
        let meets = |effect, operation, command, call: &Operation| {
            let permission = permission(effect, operation, command);
            About::permission(&permission, &hasher).meets(About::call(call, &hasher))
        };
        let npm = Operation::Exec(exec(&["npm", "test"]));
        assert!(!meets(Effect::Grant, Some("exec"), "cargo test", &npm));
        assert!(!meets(Effect::Grant, Some("write"), "", &npm));
        assert!(!meets(Effect::Revocation, Some("write"), "", &npm));
        assert!(meets(Effect::Revocation, Some("exec"), "cargo test", &npm), "npm may run cargo");
    }
}
