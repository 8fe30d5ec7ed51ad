//! The tables, built in steps: each version of the schema is the previous one and one step more.

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

/// Steps of the schema, counted by `PRAGMA user_version`. A released step never changes; new ones are appended.
const STEPS: &[&str] = &[
    RUNS_AND_CALLS,
    WORKSPACES,
    SEALED_OUTCOMES,
    TRANSCRIPTS,
    APPROVALS,
    ALERTS,
    PERMISSIONS,
    AUDIT_MARK,
    SETTLED_APPROVALS,
    POLICIES,
    OPEN_AT_MARK,
    AGE_OF_OUTCOMES,
    ONE_SCHEMA,
    API_TOKENS,
    RUN_SECRETS,
    SEALED_WITH_A_VERSION,
    BASES,
    CHECKPOINTS,
    PASSKEYS,
    PUSH_SUBSCRIPTIONS,
    RETIRED_IDS,
];

/// Returns the version of the tables.
pub fn schema_version() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

const RUNS_AND_CALLS: &str = "
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    request_id TEXT,
    request    BLOB,
    record     TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX runs_by_request ON runs (request_id) WHERE request_id IS NOT NULL;
CREATE TABLE calls (
    call_id    TEXT PRIMARY KEY,
    run_id     TEXT NOT NULL,
    principal  TEXT NOT NULL,
    request_id TEXT,
    request    BLOB NOT NULL,
    response   BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX calls_by_request ON calls (run_id, request_id) WHERE request_id IS NOT NULL;
";

const WORKSPACES: &str = "
CREATE TABLE workspaces (
    workspace_id TEXT PRIMARY KEY,
    record       TEXT NOT NULL
) STRICT;
";

/// Outcomes were not sealed before this step.
const SEALED_OUTCOMES: &str = "DELETE FROM calls;";

/// Turns of a transcript, at most ten for each session.
const TRANSCRIPTS: &str = "
CREATE TABLE transcript_sessions (
    run_id     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    max_turns  INTEGER NOT NULL,
    PRIMARY KEY (run_id, session_id)
) STRICT;
CREATE TABLE transcript_turns (
    run_id     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    turn       INTEGER NOT NULL,
    request_id TEXT,
    digest     BLOB NOT NULL,
    PRIMARY KEY (run_id, session_id, turn)
) STRICT;
";

const APPROVALS: &str = "
CREATE TABLE approvals (
    approval_id TEXT PRIMARY KEY,
    run_id      TEXT NOT NULL,
    after       INTEGER NOT NULL,
    spent       INTEGER NOT NULL,
    approval    BLOB NOT NULL,
    operation   BLOB NOT NULL
) STRICT;
CREATE TABLE consents (
    consent_id TEXT PRIMARY KEY,
    run_id     TEXT NOT NULL,
    consent    BLOB NOT NULL
) STRICT;
";

/// Alerts, and one row with the position up to which the log has been scanned.
const ALERTS: &str = "
CREATE TABLE alerts (
    alert_id TEXT PRIMARY KEY,
    record   TEXT NOT NULL
) STRICT;
CREATE TABLE alert_position (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL
) STRICT;
";

const PERMISSIONS: &str = "
CREATE TABLE permissions (
    permission_id TEXT PRIMARY KEY,
    ends_at       INTEGER,
    record        TEXT NOT NULL
) STRICT;
";

/// Position in the audit log before which no entry is open.
const AUDIT_MARK: &str = "
CREATE TABLE audit_mark (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL,
    hash     TEXT NOT NULL
) STRICT;
";

/// Approvals whose calls are over.
const SETTLED_APPROVALS: &str = "
CREATE TABLE settled_approvals (
    approval_id TEXT PRIMARY KEY,
    run_id      TEXT NOT NULL,
    settled_at  INTEGER NOT NULL,
    approval    BLOB NOT NULL
) STRICT;
";

/// Policies that have been in force. The last one has the highest place.
const POLICIES: &str = "
CREATE TABLE policies (
    place     INTEGER PRIMARY KEY AUTOINCREMENT,
    digest    TEXT NOT NULL UNIQUE,
    canonical TEXT NOT NULL
) STRICT;
";

/// Records that were open at the mark. They may be removed from the log before they are closed.
///
/// A mark from before this step is at the oldest of them.
const OPEN_AT_MARK: &str = "ALTER TABLE audit_mark ADD COLUMN open TEXT NOT NULL DEFAULT '[]';";

/// Time at which a call ended, and the part of its outcome that must be kept (see `bound.rs`).
///
/// The age of outcomes of earlier releases is unknown, so it counts from this step.
const AGE_OF_OUTCOMES: &str = "
ALTER TABLE calls ADD COLUMN settled_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN keeps INTEGER NOT NULL DEFAULT 0;
UPDATE calls SET settled_at = CAST(strftime('%s', 'now') AS INTEGER) * 1000, keeps = request_id IS NOT NULL;
CREATE INDEX calls_by_age ON calls (keeps, settled_at);
";

/// Results have a new format, and consents a new digest. Approvals state their format themselves.
const ONE_SCHEMA: &str = "DELETE FROM calls; DELETE FROM consents;";

const API_TOKENS: &str = "
CREATE TABLE api_tokens (
    token_id TEXT PRIMARY KEY,
    ends_at  INTEGER NOT NULL,
    record   TEXT NOT NULL
) STRICT;
";

/// Secret variables of runs that have not ended.
const RUN_SECRETS: &str = "
CREATE TABLE run_secrets (
    run_id TEXT PRIMARY KEY,
    sealed BLOB NOT NULL
) STRICT;
";

/// Drops values of the earlier form of sealing. Approvals, consents and secret variables that do not open are reported when they are read.
const SEALED_WITH_A_VERSION: &str = "DELETE FROM calls; DELETE FROM settled_approvals;";

const BASES: &str = "
CREATE TABLE bases (
    base_id TEXT PRIMARY KEY,
    record  TEXT NOT NULL
) STRICT;
";

const CHECKPOINTS: &str = "
CREATE TABLE checkpoints (
    checkpoint_id TEXT PRIMARY KEY,
    record        TEXT NOT NULL
) STRICT;
";

/// Passkeys of reviewers.
const PASSKEYS: &str = "
CREATE TABLE passkeys (
    credential_id TEXT PRIMARY KEY,
    record        TEXT NOT NULL
) STRICT;
";

/// Browsers that get notices of approvals. Their endpoints are secrets, so the records are sealed.
const PUSH_SUBSCRIPTIONS: &str = "
CREATE TABLE push_subscriptions (
    subscription_id TEXT PRIMARY KEY,
    sealed          BLOB NOT NULL
) STRICT;
";

/// Ids of deleted runs, in the order of their deletion.
const RETIRED_IDS: &str = "
CREATE TABLE retired_ids (
    place  INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    until  INTEGER NOT NULL
) STRICT;
";

/// Takes the steps that the database has not had yet, all or none.
pub(super) fn bring_up_to_date(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Exclusive)?;
    let taken: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let missing = STEPS.get(taken as usize..).ok_or(StoreError::Newer(taken))?;
    for (version, step) in (taken + 1..).zip(missing) {
        transaction.execute_batch(step)?;
        if taken > 0 && *step == SEALED_WITH_A_VERSION {
            tracing::warn!("outcomes and settled approvals that an older version sealed are deleted");
        }
        transaction.pragma_update(None, "user_version", version)?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::{STEPS, bring_up_to_date};
    use crate::database::StoreError;

    fn version(connection: &Connection) -> u32 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
    }

    fn last() -> u32 {
        STEPS.len().try_into().unwrap()
    }

    #[test]
    fn a_database_of_any_version_is_upgraded_and_keeps_its_data() {
        for had in 0..=last() {
            let mut connection = Connection::open_in_memory().unwrap();
            for step in &STEPS[..had as usize] {
                connection.execute_batch(step).unwrap();
            }
            connection.pragma_update(None, "user_version", had).unwrap();
            if had > 0 {
                connection.execute("INSERT INTO runs (run_id, record) VALUES ('r', '{}')", []).unwrap();
            }
            for _ in 0..2 {
                bring_up_to_date(&mut connection).unwrap();
                assert_eq!(version(&connection), last());
            }
            let runs: u32 = connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap();
            assert_eq!(runs, u32::from(had > 0));
        }
    }

    #[test]
    fn a_database_of_a_later_version_is_left_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", last() + 1).unwrap();
        assert!(matches!(bring_up_to_date(&mut connection), Err(StoreError::Newer(_))));
        assert_eq!(version(&connection), last() + 1);
    }
}
