//! Variables of a whole run: each of its commands has them unless it sets them itself.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::Malformed;
use crate::operation::check_env;

/// Variables of a run, which may be secret: `Debug` shows only their names. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Arc<BTreeMap<String, String>>);

impl Environment {
    /// Checks the variables against the limits of a call's variables. `field` names them in the message.
    pub fn parse(field: &str, variables: BTreeMap<String, String>) -> Result<Self, Malformed> {
        check_env(field, &variables)?;
        Ok(Self(Arc::new(variables)))
    }

    /// Takes variables that the daemon has already validated, in a worker.
    pub fn from_daemon(variables: BTreeMap<String, String>) -> Self {
        Self(Arc::new(variables))
    }

    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Environment;

    fn parsed(variables: impl IntoIterator<Item = (String, String)>) -> Result<Environment, String> {
        Environment::parse("env", variables.into_iter().collect()).map_err(|malformed| malformed.to_string())
    }

    #[test]
    fn names_and_bounds_of_variables_are_checked() {
        let one = |name: &str, value: &str| parsed([(name.to_owned(), value.to_owned())]);
        assert_eq!(one("CI", "a=b\nc").unwrap().get("CI"), Some("a=b\nc"));
        for name in ["", "A=B", "A\0", "1A", "A B", "Ä", "BASH_FUNC_x%%"] {
            assert!(one(name, "x").is_err(), "{name:?}");
        }
        assert!(one("A", "a\0b").is_err());
        assert!(one("A", &"x".repeat(1 << 20)).is_err());
        assert!(parsed((0..10_000).map(|n| (format!("V{n}"), String::new()))).is_err());
        assert!(parsed((0..5).map(|n| (format!("V{n}"), "x".repeat(30 * 1024)))).is_err(), "too much in all");
    }

    #[test]
    fn no_value_is_shown() {
        let environment =
            Environment::from_daemon(BTreeMap::from([("TOKEN".to_owned(), "hunter2".to_owned())]));
        assert_eq!(format!("{environment:?}"), r#"{"TOKEN"}"#);
    }
}
