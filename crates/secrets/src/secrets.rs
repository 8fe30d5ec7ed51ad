//! All secrets of a daemon.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress_rules::SecretName;
use futures_util::future::join_all;
use parking_lot::RwLock;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::command::Command;
use crate::error::{SecretError, Why};
use crate::file::{self, Access};
use crate::secret::Secret;
use crate::source::Source;

/// Time in which a file has to be read. The disk of it may not answer.
const READING: Duration = Duration::from_secs(5);
/// Variable with the directory of a service's credentials, systemd.exec(5).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The secrets that the daemon's configuration names.
pub struct Secrets(RwLock<BTreeMap<SecretName, (Source, Kept)>>);

/// A source, ready for use.
#[derive(Clone)]
enum Kept {
    File(Arc<FileSource>),
    /// Was read when the daemon started.
    Fixed(Result<Arc<Secret>, Why>),
    Command(Arc<Command>),
}

struct FileSource {
    path: PathBuf,
    access: Access,
    /// Held while the file is read, so that a disk that does not answer holds up one thread.
    turn: Arc<Mutex<()>>,
}

impl Secrets {
    /// Returns no secrets.
    pub fn none() -> Self {
        Self(RwLock::default())
    }

    /// Opens sources. Reads the variables of the environment, and nothing else.
    pub fn new(sources: BTreeMap<SecretName, Source>) -> Self {
        Self::with_environment(sources, |name| std::env::var_os(name))
    }

    /// Replaces the sources. One that is the same keeps its value.
    pub fn replace(&self, sources: BTreeMap<SecretName, Source>) {
        let mut next = Self::new(sources).0.into_inner();
        let mut current = self.0.write();
        for (name, (source, kept)) in &mut next {
            if let Some((_, before)) = current.get(name).filter(|(before, _)| before == source) {
                *kept = before.clone();
            }
        }
        *current = next;
    }

    fn with_environment(
        sources: BTreeMap<SecretName, Source>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let opened = sources.into_iter().map(|(name, source)| {
            let kept = match source.clone() {
                Source::File(path) => Kept::File(Arc::new(FileSource::new(path, Access::Operator))),
                Source::Env(key) => Kept::Fixed(fixed(variable(&key))),
                Source::Credential(credential) => match variable(CREDENTIALS) {
                    Some(directory) => {
                        let path = PathBuf::from(directory).join(credential);
                        Kept::File(Arc::new(FileSource::new(path, Access::Systemd)))
                    }
                    None => Kept::Fixed(Err(Why::NoCredentials)),
                },
                Source::Command { argv, timeout, refresh } => {
                    Kept::Command(Arc::new(Command::new(name.clone(), argv, timeout, refresh)))
                }
            };
            (name, (source, kept))
        });
        Self(RwLock::new(opened.collect()))
    }

    /// Returns true if the configuration has this secret. Its value may be missing.
    pub fn has(&self, name: &SecretName) -> bool {
        self.0.read().contains_key(name)
    }

    /// Returns the value of a secret. A file is read again each time, and a command is run again when its value is too old.
    ///
    /// The time is bounded: five seconds for a file, and the timeout of a command with another five.
    pub async fn get(&self, name: &SecretName) -> Result<Arc<Secret>, SecretError> {
        let kept = self.0.read().get(name).map(|(_, kept)| kept.clone());
        let read = match kept {
            None => Err(Why::Unknown),
            Some(Kept::Fixed(value)) => value,
            Some(Kept::File(file)) => file.read().await,
            Some(Kept::Command(command)) => command.get().await,
        };
        read.map_err(|why| SecretError { name: name.clone(), why })
    }

    /// Reads every secret, and returns the errors of those that have no value now.
    pub async fn unreadable(&self) -> Vec<SecretError> {
        let names: Vec<SecretName> = self.0.read().keys().cloned().collect();
        let read = join_all(names.iter().map(|name| self.get(name))).await;
        read.into_iter().filter_map(Result::err).collect()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secrets").field(&self.0.read().keys()).finish()
    }
}

impl FileSource {
    fn new(path: PathBuf, access: Access) -> Self {
        Self { path, access, turn: Arc::default() }
    }

    async fn read(&self) -> Result<Arc<Secret>, Why> {
        let read = async {
            let turn = Arc::clone(&self.turn).lock_owned().await;
            let (path, access) = (self.path.clone(), self.access);
            let read = spawn_blocking(move || {
                let _turn = turn;
                file::read(&path, access)
            });
            read.await.unwrap_or(Err(Why::Interrupted))
        };
        timeout(READING, read).await.unwrap_or(Err(Why::Timeout)).map(Arc::new)
    }
}

/// Reads the value of a variable.
fn fixed(value: Option<OsString>) -> Result<Arc<Secret>, Why> {
    let bytes = Zeroizing::new(value.ok_or(Why::NoVariable)?.into_vec());
    Secret::from_bytes(&bytes).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    fn name(text: &str) -> SecretName {
        SecretName::parse(text).unwrap()
    }

    fn write(path: &Path, content: &str) {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    async fn value(secrets: &Secrets, text: &str) -> Result<String, Why> {
        let read = secrets.get(&name(text)).await;
        read.map(|secret| secret.expose().to_owned()).map_err(|error| error.why)
    }

    #[tokio::test]
    async fn a_file_that_changes_is_read_again_also_if_its_size_and_time_stay() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        let secrets = Secrets::new([(name("model"), Source::File(path.clone()))].into());
        assert_eq!(value(&secrets, "model").await, Err(Why::File(std::io::ErrorKind::NotFound)));
        for content in ["one", "two"] {
            write(&path, content);
            assert_eq!(value(&secrets, "model").await.unwrap(), content);
        }
        let other = directory.path().join("other");
        write(&other, "three");
        fs::rename(&other, &path).unwrap();
        assert_eq!(value(&secrets, "model").await.unwrap(), "three");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(value(&secrets, "model").await, Err(Why::Mode));
    }

    #[tokio::test]
    async fn a_variable_is_read_once_and_a_credential_in_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        write(&directory.path().join("token"), "from-systemd\n");
        let sources = || {
            BTreeMap::from([
                (name("one"), Source::Env("ONE".to_owned())),
                (name("two"), Source::Env("TWO".to_owned())),
                (name("token"), Source::Credential("token".to_owned())),
            ])
        };
        let secrets = Secrets::with_environment(sources(), |key| match key {
            "ONE" => Some("first".into()),
            CREDENTIALS => Some(directory.path().into()),
            _ => None,
        });
        assert_eq!(value(&secrets, "one").await.unwrap(), "first");
        assert_eq!(value(&secrets, "two").await, Err(Why::NoVariable));
        assert_eq!(value(&secrets, "token").await.unwrap(), "from-systemd");
        let without = Secrets::with_environment(sources(), |_| None);
        assert_eq!(value(&without, "token").await, Err(Why::NoCredentials));
    }

    #[tokio::test]
    async fn an_unknown_secret_is_an_error_and_each_one_without_a_value_is_reported() {
        assert!(!Secrets::none().has(&name("model")));
        assert_eq!(value(&Secrets::none(), "model").await, Err(Why::Unknown));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        write(&path, "sk hunter2");
        let missing = Source::File("/no/such/file".into());
        let sources = [(name("model"), Source::File(path)), (name("none"), missing)];
        let secrets = Secrets::new(sources.into());
        assert!(secrets.has(&name("model")));
        let told: Vec<String> = secrets.unreadable().await.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "the secret model cannot be read: its value has a space, a second line or another character that \
                 is not visible ASCII",
                "the secret none cannot be read: its file cannot be read (entity not found)",
            ]
        );
    }

    #[tokio::test]
    async fn sources_are_replaced_and_one_that_is_the_same_keeps_its_value() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model");
        write(&path, "one");
        let kept = (name("kept"), Source::Env("KEPT".to_owned()));
        let first = BTreeMap::from([
            kept.clone(),
            (name("model"), Source::Env("MODEL".to_owned())),
            (name("gone"), Source::Env("GONE".to_owned())),
        ]);
        let secrets = Secrets::with_environment(first, |key| Some(key.into()));
        assert_eq!(value(&secrets, "model").await.unwrap(), "MODEL");
        secrets.replace([kept, (name("model"), Source::File(path))].into());
        // The test's own environment has no such variable.
        assert_eq!(value(&secrets, "kept").await.unwrap(), "KEPT");
        assert_eq!(value(&secrets, "model").await.unwrap(), "one");
        assert_eq!(value(&secrets, "gone").await, Err(Why::Unknown));
        assert!(!secrets.has(&name("gone")));
    }

    #[tokio::test]
    async fn names_alone_are_shown() {
        let secrets =
            Secrets::with_environment([(name("one"), Source::Env("ONE".to_owned()))].into(), |_| {
                Some("hunter2".into())
            });
        let shown = format!("{secrets:?} {:?}", secrets.get(&name("one")).await);
        assert!(shown.contains("one") && !shown.contains("hunter2"), "{shown}");
    }
}
