//! Sessions of transcripts: the number of turns each has used, and the request that used each turn.

use identity::RunId;
use rusqlite::{OptionalExtension as _, Transaction, params};

use super::{Store, StoreError};

pub const MAX_SESSIONS: u32 = 256;

#[derive(Debug, Clone)]
pub struct Turn {
    pub run: RunId,
    pub session: String,
    /// Number of turns of a new session. A known session must have the same number, unless this is 0.
    pub max_turns: u32,
    /// Number of turns of a new session if the request asks for none.
    pub default_turns: u32,
    pub request_id: Option<String>,
    pub digest: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// The request has this turn, perhaps since it was first sent.
    Turn {
        turn: u32,
        of: u32,
    },
    /// The session has no turn left.
    Exhausted {
        of: u32,
    },
    /// Another text was sent under this request id.
    OtherText,
    /// The session has a different number of turns.
    OtherTurns {
        of: u32,
    },
    TooManySessions,
    /// The run has been deleted.
    NoRun,
}

impl Store {
    /// Takes a turn, or returns the one that the same request took before.
    pub fn take_turn(&self, wanted: &Turn) -> Result<Taken, StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let taken = take(&transaction, wanted)?;
        transaction.commit()?;
        Ok(taken)
    }

    /// Returns the turns that a session has used, and its total, or `None` if there is no such session.
    pub fn turns(&self, run: RunId, session: &str) -> Result<Option<(u32, u32)>, StoreError> {
        let row = self.lock().query_row(
            "SELECT (SELECT count(*) FROM transcript_turns t WHERE t.run_id = s.run_id AND t.session_id = s.session_id),
                    max_turns
             FROM transcript_sessions s WHERE run_id = ?1 AND session_id = ?2",
            params![run.to_string(), session],
            |row| Ok((row.get(0)?, row.get(1)?)),
        );
        Ok(row.optional()?)
    }
}

fn take(transaction: &Transaction<'_>, wanted: &Turn) -> Result<Taken, StoreError> {
    let (run, session) = (wanted.run.to_string(), wanted.session.as_str());
    let known = transaction
        .query_row(
            "SELECT max_turns FROM transcript_sessions WHERE run_id = ?1 AND session_id = ?2",
            params![run, session],
            |row| row.get::<_, u32>(0),
        )
        .optional()?;
    let of = match known {
        Some(of) if wanted.max_turns != 0 && wanted.max_turns != of => return Ok(Taken::OtherTurns { of }),
        Some(of) => of,
        None => {
            let sessions: u32 = transaction.query_row(
                "SELECT count(*) FROM transcript_sessions WHERE run_id = ?1",
                [&run],
                |row| row.get(0),
            )?;
            if sessions >= MAX_SESSIONS {
                return Ok(Taken::TooManySessions);
            }
            let of = if wanted.max_turns == 0 { wanted.default_turns } else { wanted.max_turns };
            let added = transaction.execute(
                "INSERT INTO transcript_sessions (run_id, session_id, max_turns)
                 SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = ?1)",
                params![run, session, of],
            )?;
            if added == 0 {
                return Ok(Taken::NoRun);
            }
            of
        }
    };
    if let Some(request_id) = &wanted.request_id {
        let before = transaction
            .query_row(
                "SELECT turn, digest FROM transcript_turns WHERE run_id = ?1 AND session_id = ?2 AND request_id = ?3",
                params![run, session, request_id],
                |row| Ok((row.get::<_, u32>(0)?, row.get::<_, Vec<u8>>(1)?)),
            )
            .optional()?;
        if let Some((turn, digest)) = before {
            return Ok(if digest == wanted.digest { Taken::Turn { turn, of } } else { Taken::OtherText });
        }
    }
    let used: u32 = transaction.query_row(
        "SELECT count(*) FROM transcript_turns WHERE run_id = ?1 AND session_id = ?2",
        params![run, session],
        |row| row.get(0),
    )?;
    if used >= of {
        return Ok(Taken::Exhausted { of });
    }
    let turn = used + 1;
    transaction.execute(
        "INSERT INTO transcript_turns (run_id, session_id, turn, request_id, digest) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![run, session, turn, wanted.request_id, wanted.digest],
    )?;
    Ok(Taken::Turn { turn, of })
}

/// Deletes a run's sessions.
pub(super) fn forget(transaction: &Transaction<'_>, run: RunId) -> Result<(), StoreError> {
    for table in ["transcript_turns", "transcript_sessions"] {
        transaction.execute(&format!("DELETE FROM {table} WHERE run_id = ?1"), [run.to_string()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use identity::RunId;

    use super::{MAX_SESSIONS, Taken, Turn};
    use crate::database::Store;
    use crate::database::tests::run;

    fn store() -> (tempfile::TempDir, Store, RunId) {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(&directory.path().join("store.db"), crate::database::OutcomeBounds::WIDE).unwrap();
        let run = run(&store);
        (directory, store, run)
    }

    fn wanted(run: RunId, session: &str, max_turns: u32, request: Option<&str>) -> Turn {
        Turn {
            run,
            session: session.to_owned(),
            max_turns,
            default_turns: 10,
            request_id: request.map(str::to_owned),
            digest: vec![1],
        }
    }

    #[test]
    fn turns_are_counted_up_to_their_number_and_survive_reopening() {
        let (directory, store, run) = store();
        for turn in 1..=2 {
            assert_eq!(store.take_turn(&wanted(run, "s", 3, None)).unwrap(), Taken::Turn { turn, of: 3 });
        }
        drop(store);
        let store =
            Store::open(&directory.path().join("store.db"), crate::database::OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.turns(run, "s").unwrap(), Some((2, 3)));
        assert_eq!(store.take_turn(&wanted(run, "s", 0, None)).unwrap(), Taken::Turn { turn: 3, of: 3 });
        assert_eq!(store.take_turn(&wanted(run, "s", 0, None)).unwrap(), Taken::Exhausted { of: 3 });
        assert_eq!(store.take_turn(&wanted(run, "s", 4, None)).unwrap(), Taken::OtherTurns { of: 3 });
        assert_eq!(store.take_turn(&wanted(run, "other", 0, None)).unwrap(), Taken::Turn { turn: 1, of: 10 });
    }

    #[test]
    fn a_repeated_request_has_its_turn_and_no_other() {
        let (_directory, store, run) = store();
        for _ in 0..3 {
            assert_eq!(
                store.take_turn(&wanted(run, "s", 1, Some("r"))).unwrap(),
                Taken::Turn { turn: 1, of: 1 }
            );
        }
        let other = Turn { digest: vec![2], ..wanted(run, "s", 1, Some("r")) };
        assert_eq!(store.take_turn(&other).unwrap(), Taken::OtherText);
        assert_eq!(store.take_turn(&wanted(run, "s", 1, Some("q"))).unwrap(), Taken::Exhausted { of: 1 });
    }

    #[test]
    fn turns_taken_at_the_same_time_are_different_ones() {
        let (_directory, store, run) = store();
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let store = store.clone();
                std::thread::spawn(move || store.take_turn(&wanted(run, "s", 10, None)).unwrap())
            })
            .collect();
        let mut turns: Vec<u32> = threads
            .into_iter()
            .filter_map(|thread| match thread.join().unwrap() {
                Taken::Turn { turn, .. } => Some(turn),
                Taken::Exhausted { .. } => None,
                other => panic!("{other:?}"),
            })
            .collect();
        turns.sort_unstable();
        assert_eq!(turns, (1..=10).collect::<Vec<_>>());
    }

    #[test]
    fn a_run_has_a_bounded_number_of_sessions_which_are_removed_with_it() {
        let (_directory, store, run) = store();
        for session in 0..MAX_SESSIONS {
            store.take_turn(&wanted(run, &session.to_string(), 0, None)).unwrap();
        }
        assert_eq!(store.take_turn(&wanted(run, "more", 0, None)).unwrap(), Taken::TooManySessions);
        store.delete_run(run).unwrap();
        assert_eq!(store.turns(run, "0").unwrap(), None);
        assert_eq!(store.take_turn(&wanted(run, "0", 0, None)).unwrap(), Taken::NoRun);
    }
}
