//! The daemon's side before a hand-over: answers requests for an upgrade, and waits for a successor.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::channel::{Channel, ChannelError, Message, is_readable};
use crate::listeners::names;
use crate::program::{is_of_service, start};
use crate::socket::{self, Peer};
use crate::{Formats, Heir, Listeners, hindrance};

/// Time that a process has for its request after it connected.
const REQUEST: Duration = Duration::from_secs(5);
/// Time that a started program has until it asks to be the successor: it checks its configuration, its policy and the engine.
const BEGIN: Duration = Duration::from_secs(60);
/// Time between two looks at a started program.
const LOOK: Duration = Duration::from_millis(50);
/// Rest after a connection that could not be accepted.
const AGAIN: Duration = Duration::from_secs(1);

/// The parts of the daemon that answers need.
pub struct Terms {
    pub version: &'static str,
    pub formats: Formats,
    /// Configuration file of the daemon, with which a successor starts.
    pub config: PathBuf,
    pub listeners: Listeners,
    /// Returns a sentence for each thing that ends with this daemon now.
    pub ends: Box<dyn Fn() -> Vec<String> + Send>,
}

/// The socket of the state directory.
pub struct Door(OwnedFd);

/// A program that was started as the successor, for the one who asked.
struct Started {
    child: Child,
    requester: Channel,
    until: Instant,
}

impl Door {
    /// Listens. The caller has the lock of the state directory.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        socket::serve(state_dir).map(Self)
    }

    /// Answers requests in a separate thread until there is a successor, or until the process ends.
    pub fn attend(self, terms: Terms) -> io::Result<oneshot::Receiver<Heir>> {
        let (found, heir) = oneshot::channel();
        thread::Builder::new().name("take-over".to_owned()).spawn(move || self.run(&terms, found))?;
        Ok(heir)
    }

    fn run(self, terms: &Terms, mut found: oneshot::Sender<Heir>) {
        let mut started: Option<Started> = None;
        loop {
            if let Some(waits) = started.take_if(Started::is_over) {
                waits.fail();
            }
            // Without a started program the thread sleeps until somebody connects.
            if started.is_some() && !is_readable(self.0.as_fd(), LOOK).unwrap_or(false) {
                continue;
            }
            let (channel, peer) = match socket::accept(&self.0) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => continue,
                Err(_) => {
                    thread::sleep(AGAIN);
                    continue;
                }
            };
            let Ok((message, _)) = channel.receive(REQUEST) else { continue };
            match message {
                Message::Check { formats } => {
                    let _ = channel.send(&terms.report(&formats), &[]);
                }
                Message::Upgrade { program, formats } => {
                    match terms.begin(&program, &formats, started.is_some()) {
                        Ok(child) => {
                            started =
                                Some(Started { child, requester: channel, until: Instant::now() + BEGIN });
                        }
                        Err(answer) => {
                            let _ = channel.send(&answer, &[]);
                        }
                    }
                }
                Message::Take { formats } => {
                    if let Some(why) = terms.refusal(&formats, started.as_ref(), &peer) {
                        let _ = channel.send(&Message::Refused { why }, &[]);
                        continue;
                    }
                    if terms.hand_listeners(&channel).is_err() {
                        continue;
                    }
                    let requester = started.take().map(|started| started.requester);
                    match found.send(Heir::new(channel, peer, requester)) {
                        Ok(()) => return,
                        Err(heir) => heir.refuse("the daemon stops"),
                    }
                    // The daemon ends, so the next ones are refused, too.
                    found = oneshot::channel().0;
                }
                _ => {}
            }
        }
    }
}

impl Terms {
    fn report(&self, formats: &Formats) -> Message {
        let cannot = hindrance().map(str::to_owned);
        Message::Report {
            version: self.version.to_owned(),
            hindrances: cannot.into_iter().chain(self.formats.differences(formats)).collect(),
            ends: (self.ends)(),
        }
    }

    /// Starts the program of an upgrade, or returns the answer if it may not.
    fn begin(&self, program: &Path, formats: &Formats, is_busy: bool) -> Result<Child, Message> {
        if is_busy {
            return Err(Message::Failed { why: "another upgrade is under way".to_owned() });
        }
        if let Some(why) = self.cannot(formats) {
            return Err(Message::Refused { why });
        }
        if !program.is_absolute() {
            return Err(Message::Failed { why: "the program's path is not absolute".to_owned() });
        }
        let failed = |error| format!("{} cannot be started: {error}", program.display());
        start(program, &self.config).map_err(|error| Message::Failed { why: failed(error) })
    }

    fn cannot(&self, formats: &Formats) -> Option<String> {
        hindrance().map(str::to_owned).or_else(|| {
            let differences = self.formats.differences(formats);
            (!differences.is_empty()).then(|| differences.join("; "))
        })
    }

    /// Returns the reason that this process may not be the successor. A program that was started for an upgrade goes first.
    fn refusal(&self, formats: &Formats, started: Option<&Started>, peer: &Peer) -> Option<String> {
        let pid = peer.pid.as_raw_nonzero().get();
        let is_another = started.is_some_and(|waits| i32::try_from(waits.child.id()) != Ok(pid));
        if is_another {
            return Some("another upgrade is under way".to_owned());
        }
        if !is_of_service(peer.pid) {
            return Some("the process is not in the cgroup of the service: use `coffer upgrade`".to_owned());
        }
        self.cannot(formats)
    }

    fn hand_listeners(&self, to: &Channel) -> Result<(), ChannelError> {
        let copies = self.listeners.copies()?;
        let sockets: Vec<_> = copies.iter().map(|named| named.socket.as_fd()).collect();
        to.send(&Message::Listeners { of: names(&copies) }, &sockets)
    }
}

impl Started {
    /// Returns true if the program ended before it asked, if it is late, or if its requester has left.
    fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
            || Instant::now() >= self.until
            || !self.requester.is_open()
    }

    fn fail(mut self) {
        let why = match self.child.try_wait() {
            Ok(Some(status)) => {
                format!("the program ended ({status}) before it could take over; the log says why")
            }
            _ => "the program did not ask to take over in time".to_owned(),
        };
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.requester.send(&Message::Failed { why }, &[]);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Predecessor, Released, RequestError, check, take_over, upgrade};

    use super::*;

    fn formats(store: u32) -> Formats {
        Formats::new([("store", store)])
    }

    struct Scene {
        directory: tempfile::TempDir,
        heir: oneshot::Receiver<Heir>,
    }

    impl Scene {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let terms = Terms {
                version: "1.2.3",
                formats: formats(1),
                config: "/etc/cofferd.yaml".into(),
                listeners: Listeners::default(),
                ends: Box::new(|| vec!["calls: 2".to_owned()]),
            };
            let heir = Door::open(directory.path()).unwrap().attend(terms).unwrap();
            Self { directory, heir }
        }

        fn takes(&self) -> Predecessor {
            take_over(self.directory.path(), formats(1)).unwrap().0
        }
    }

    #[test]
    fn a_check_names_all_that_ends_and_all_that_differs_and_changes_nothing() {
        let mut scene = Scene::new();
        let path = scene.directory.path();
        let report = check(path, formats(1)).unwrap();
        assert_eq!((report.version.as_str(), report.ends), ("1.2.3", vec!["calls: 2".to_owned()]));
        assert_eq!(report.hindrances, Vec::<String>::new());
        let report = check(path, formats(2)).unwrap();
        assert_eq!(report.hindrances, ["store: the daemon has version 1, the new program 2"]);
        assert!(scene.heir.try_recv().is_err());
        assert!(matches!(check(&path.join("none"), formats(1)), Err(RequestError::NoDaemon(_))));
    }

    #[test]
    fn a_program_with_other_formats_is_refused_and_the_next_one_is_not() {
        let mut scene = Scene::new();
        let refused = take_over(scene.directory.path(), formats(2)).err().unwrap();
        assert!(refused.needs_restart() && refused.to_string().contains("version 1"), "{refused}");
        assert!(scene.heir.try_recv().is_err());
        let predecessor = scene.takes();
        let heir = scene.heir.blocking_recv().unwrap();
        assert!(predecessor.watches());
        heir.refuse("the daemon was told to stop");
        let refused = predecessor.released().unwrap_err();
        assert!(refused.to_string().contains("told to stop"), "{refused}");
    }

    #[test]
    fn a_successor_goes_on_alone_when_its_predecessor_dies() {
        let scene = Scene::new();
        let predecessor = scene.takes();
        drop(scene.heir.blocking_recv().unwrap());
        assert!(!predecessor.watches());
        assert_eq!(predecessor.released().unwrap(), Released::Died);
        // It waits for no answer.
        predecessor.is_relieved();
    }

    #[test]
    fn a_daemon_that_stops_refuses_every_successor() {
        let scene = Scene::new();
        drop(scene.heir);
        for _ in 0..2 {
            let (predecessor, _) = take_over(scene.directory.path(), formats(1)).unwrap();
            let refused = predecessor.released().unwrap_err();
            assert!(refused.to_string().contains("stops"), "{refused}");
        }
    }

    #[test]
    fn a_program_that_never_asks_is_a_failed_upgrade() {
        let scene = Scene::new();
        let path = scene.directory.path();
        for (program, says) in [
            ("/bin/false", "ended (exit status: 1)"),
            ("/bin/true", "ended (exit status: 0)"),
            ("/nonexistent", "cannot be started"),
            ("cofferd", "not absolute"),
        ] {
            let failed = upgrade(path, program.into(), formats(1)).unwrap_err();
            assert!(!failed.needs_restart() && failed.to_string().contains(says), "{failed}");
        }
        assert!(upgrade(path, "/bin/true".into(), formats(2)).unwrap_err().needs_restart());
    }
}
