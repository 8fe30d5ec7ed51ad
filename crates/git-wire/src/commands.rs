//! Commands of a push.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::capabilities::Capabilities;
use crate::object_id::{ObjectFormat, ObjectId};
use crate::ref_name::{BadRefName, RefName};
use crate::repository::Repository;

/// Effect of a command on its ref.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// The ref does not exist before.
    Create,
    /// The ref has another object before.
    Update,
    /// The ref does not exist afterwards.
    Delete,
}

impl Change {
    /// Returns the verb.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// Change of one ref. The server makes it only if the ref has the old id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    old: ObjectId,
    new: ObjectId,
    name: RefName,
}

impl Command {
    /// Parses `OLD NEW REF`.
    pub(crate) fn parse(line: &[u8], format: ObjectFormat) -> Result<Self, BadCommand> {
        let digits = format.digits();
        let parts = line.split_at_checked(digits).and_then(|(old, rest)| {
            let (new, rest) = rest.strip_prefix(b" ")?.split_at_checked(digits)?;
            Some((old, new, rest.strip_prefix(b" ")?))
        });
        let (old, new, name) = parts.ok_or(BadCommand::Form)?;
        let old = ObjectId::parse(old, format).ok_or(BadCommand::Id)?;
        let new = ObjectId::parse(new, format).ok_or(BadCommand::Id)?;
        if old.is_zero() && new.is_zero() {
            return Err(BadCommand::NoObject);
        }
        Ok(Self { old, new, name: RefName::parse(name)? })
    }

    /// Returns the id that the ref has before.
    pub fn old(&self) -> &ObjectId {
        &self.old
    }

    /// Returns the id that the ref gets.
    pub fn new_id(&self) -> &ObjectId {
        &self.new
    }

    pub fn name(&self) -> &RefName {
        &self.name
    }

    pub fn change(&self) -> Change {
        if self.old.is_zero() {
            Change::Create
        } else if self.new.is_zero() {
            Change::Delete
        } else {
            Change::Update
        }
    }
}

/// Bytes that are no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    #[error("a command is not `OLD NEW REF`, with ids of the format that the capabilities name")]
    Form,
    #[error("an id is not of lower-case hexadecimal digits")]
    Id,
    #[error("a command has no object, neither an old nor a new one")]
    NoObject,
    #[error(transparent)]
    Name(#[from] BadRefName),
}

/// All commands of one push, with everything that comes before its pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandList {
    /// The commands. Each ref is there once.
    pub commands: Vec<Command>,
    /// Capabilities that the client asks for.
    pub capabilities: Capabilities,
    /// Commits whose parents the client lacks.
    pub shallow: Vec<ObjectId>,
    /// Options for the hooks of the server.
    pub options: Vec<String>,
}

impl CommandList {
    /// Returns true for the request without a command that clients send before a large pack, to see if they may push.
    ///
    /// It changes nothing.
    pub fn is_probe(&self) -> bool {
        self.commands.is_empty()
    }

    /// Returns true if a pack comes after the list. Otherwise nothing may come after it.
    pub fn has_pack(&self) -> bool {
        self.commands.iter().any(|command| command.change() != Change::Delete)
    }

    /// Returns everything that a consent is bound to, one fact a line.
    ///
    /// The new ids name the content. No two lists that differ in their effect have the same text.
    pub fn statement(&self, repository: &Repository) -> String {
        let mut text = format!("push to {repository}\n");
        if self.capabilities.is_atomic {
            text.push_str("atomic\n");
        }
        for Command { old, new, name } in &self.commands {
            let _ = writeln!(text, "{old} {new} {name}");
        }
        for option in &self.options {
            let _ = writeln!(text, "option {option}");
        }
        // The server takes them as the ends of its own history. There may be thousands, in any order.
        let shallow: BTreeSet<&str> = self.shallow.iter().map(ObjectId::as_str).collect();
        if !shallow.is_empty() {
            let ids: String = shallow.into_iter().flat_map(|id| [id, "\n"]).collect();
            let _ = writeln!(text, "shallow {}", hex::encode(Sha256::digest(ids)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ONE, TWO, ZERO, command, list};

    #[test]
    fn zeros_say_if_a_ref_is_created_or_deleted() {
        for (old, new, change) in [
            (ZERO, ONE, Change::Create),
            (ONE, TWO, Change::Update),
            (ONE, ONE, Change::Update),
            (ONE, ZERO, Change::Delete),
        ] {
            assert_eq!(command(old, new, "refs/heads/x").change(), change);
        }
    }

    #[test]
    fn a_line_of_another_form_is_no_command() {
        let parse = |line: &str| Command::parse(line.as_bytes(), ObjectFormat::Sha1);
        for (line, fault) in [
            (String::new(), BadCommand::Form),
            (ONE.to_owned(), BadCommand::Form),
            (format!("{ONE} {TWO}"), BadCommand::Form),
            (format!("{ONE}  {TWO} refs/heads/x"), BadCommand::Form),
            (format!("{ONE}\t{TWO} refs/heads/x"), BadCommand::Form),
            (format!("{ONE} {TWO}\trefs/heads/x"), BadCommand::Form),
            (format!(" {ONE} {TWO} refs/heads/x"), BadCommand::Form),
            (format!("shallow {ONE}"), BadCommand::Form),
            (format!("{ONE}{ONE} {TWO}{TWO} refs/heads/x"), BadCommand::Form),
            (format!("{} {TWO} refs/heads/x", ONE.to_uppercase()), BadCommand::Id),
            (format!("{ZERO} {ZERO} refs/heads/x"), BadCommand::NoObject),
            (format!("{ONE} {TWO} "), BadCommand::Name(BadRefName::EmptyPart)),
            (format!("{ONE} {TWO}  refs/heads/x"), BadCommand::Name(BadRefName::Character)),
            (format!("{ONE} {TWO} refs/heads/x "), BadCommand::Name(BadRefName::Character)),
            (format!("{ONE} {TWO} main"), BadCommand::Name(BadRefName::NotFull)),
        ] {
            assert_eq!(parse(&line), Err(fault), "{line}");
        }
    }

    #[test]
    fn a_pack_comes_unless_all_commands_delete() {
        let delete = command(ONE, ZERO, "refs/heads/x");
        assert!(!list(vec![]).has_pack() && list(vec![]).is_probe());
        assert!(!list(vec![delete.clone()]).has_pack());
        let both = list(vec![delete, command(ZERO, ONE, "refs/heads/y")]);
        assert!(both.has_pack() && !both.is_probe());
    }

    #[test]
    fn a_statement_has_every_fact() {
        let repository = Repository::parse("org/app.git").unwrap();
        let mut list = list(vec![command(ONE, TWO, "refs/heads/x"), command(ZERO, ONE, "refs/tags/v1")]);
        list.options = vec!["ci.skip".to_owned()];
        list.capabilities.is_atomic = true;
        assert_eq!(
            list.statement(&repository),
            format!(
                "push to org/app\natomic\n{ONE} {TWO} refs/heads/x\n{ZERO} {ONE} refs/tags/v1\noption ci.skip\n"
            )
        );
    }

    #[test]
    fn a_statement_is_for_these_ends_of_the_history_in_any_order() {
        let repository = Repository::parse("org/app.git").unwrap();
        let id = |text: &str| ObjectId::parse(text.as_bytes(), ObjectFormat::Sha1).unwrap();
        let with = |shallow: Vec<ObjectId>| {
            let list = list(vec![command(ZERO, ONE, "refs/heads/x")]);
            CommandList { shallow, ..list }.statement(&repository)
        };
        let (none, one, two) = (with(vec![]), with(vec![id(ONE)]), with(vec![id(TWO)]));
        let both = with(vec![id(ONE), id(TWO)]);
        assert_eq!(BTreeSet::from([&none, &one, &two, &both]).len(), 4);
        assert_eq!(both, with(vec![id(TWO), id(ONE), id(TWO)]));
        assert!(one.starts_with(&none) && one.lines().last().unwrap().starts_with("shallow "), "{one}");
    }
}
