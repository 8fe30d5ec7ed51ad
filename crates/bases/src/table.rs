//! The bases that exist. A base is in the table from the time that it is in the store until it is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use identity::{BaseId, Principal};
use operations::Reason;
use parking_lot::{Mutex, MutexGuard};
use refusal::{Refusal, chain};
use runs::no_such_base;
use store::{Store, StoreError};
use timestamp::Timestamp;

use crate::asked::Asked;
use crate::record::Base;

pub(crate) struct Table {
    bases: Arc<Mutex<BTreeMap<BaseId, Base>>>,
    store: Store,
}

impl Table {
    /// Reads the bases of the store.
    pub(crate) fn open(store: Store) -> Result<Self, StoreError> {
        let read = |record: &String| -> Result<_, StoreError> {
            let base: Base = serde_json::from_str(record)?;
            Ok((base.id, base))
        };
        let bases = store.bases()?.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { bases: Arc::new(Mutex::new(bases)), store })
    }

    /// Stores a new base, after which runs can begin on it.
    pub(crate) async fn insert(&self, base: Base) -> Result<(), Refusal> {
        let (id, text) = (base.id, serde_json::to_string(&base));
        let stored = self.store.with(move |store| store.insert_base(id, &text?)).await;
        stored.map_err(|error| Refusal::internal("keeping the base", &chain(&error)))?;
        self.lock().insert(id, base);
        Ok(())
    }

    /// Returns the newest unchanged base of `principal` that is this clone. Notes its use, and the request that it answers.
    pub(crate) fn clone_of(
        &self,
        principal: &Principal,
        identity: &str,
        asked: Option<&Asked>,
    ) -> Option<Base> {
        let mut bases = self.lock();
        let is_same = |base: &&mut Base| {
            base.principal == principal.name && base.clone_of.as_deref() == Some(identity) && !base.changed
        };
        let base = bases.values_mut().rev().find(is_same)?;
        base.remember(asked.cloned());
        self.note_use(base);
        Some(base.clone())
    }

    /// Returns the newest unchanged base of `principal` that has this digest. Notes its use.
    pub(crate) fn of_digest(&self, principal: &Principal, digest: &str) -> Option<Base> {
        let mut bases = self.lock();
        let is_same =
            |base: &&mut Base| base.principal == principal.name && base.digest == digest && !base.changed;
        let base = bases.values_mut().rev().find(is_same)?;
        self.note_use(base);
        Some(base.clone())
    }

    /// Returns the base of `principal` that answered the same request before.
    pub(crate) fn made_before(
        &self,
        principal: &Principal,
        asked: Option<&Asked>,
    ) -> Result<Option<Base>, Refusal> {
        let Some(asked) = asked else { return Ok(None) };
        let bases = self.lock();
        for base in bases.values().filter(|base| base.principal == principal.name) {
            for before in &base.requests {
                if asked.repeats(before)? {
                    return Ok(Some(base.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Notes whether the host has changed the files of a base, durably.
    pub(crate) async fn set_changed(&self, id: BaseId, changed: bool) -> Result<(), Refusal> {
        let is_new = self.lock().get_mut(&id).is_some_and(|base| {
            let before = std::mem::replace(&mut base.changed, changed);
            before != changed
        });
        if !is_new {
            return Ok(());
        }
        let stored = write(self.store.clone(), self.bases.clone(), id).await;
        stored.map_err(|error| Refusal::internal("keeping the state of a base", &chain(&error)))
    }

    /// Makes the base younger. The caller need not wait for the store: a time that is lost only makes the base look older.
    fn note_use(&self, base: &mut Base) {
        base.used_at = Timestamp::now();
        tokio::spawn(write(self.store.clone(), self.bases.clone(), base.id));
    }

    /// Deletes the row of a base that is no longer in the table.
    pub(crate) async fn forget(&self, id: BaseId) -> Result<(), Refusal> {
        let deleted = self.store.with(move |store| store.delete_base(id)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the base", &chain(&error)))
    }

    /// Returns a base that `principal` may use. Others do not exist for it.
    pub(crate) fn of(&self, id: BaseId, principal: &Principal) -> Result<Base, Refusal> {
        let found = self.lock().get(&id).cloned();
        found.filter(|base| principal.may_use(&base.principal)).ok_or_else(|| no_such_base(id))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<BaseId, Base>> {
        self.bases.lock()
    }
}

impl runs::Bases for Table {
    fn begin(&self, id: BaseId, principal: &Principal) -> Result<(), Refusal> {
        let mut bases = self.lock();
        let base = bases.get_mut(&id).filter(|base| principal.may_use(&base.principal));
        let base = base.ok_or_else(|| no_such_base(id))?;
        if base.changed {
            return Err(was_changed(id));
        }
        self.note_use(base);
        Ok(())
    }
}

/// Stores a base as it is in the table when its turn comes, unless it was deleted. So no earlier state is stored after a later one.
async fn write(
    store: Store,
    bases: Arc<Mutex<BTreeMap<BaseId, Base>>>,
    id: BaseId,
) -> Result<(), StoreError> {
    let job = move |store: &Store| {
        let record = bases.lock().get(&id).map(serde_json::to_string).transpose()?;
        record.map_or(Ok(()), |record| store.update_base(id, &record))
    };
    store.with(job).await
}

pub(crate) fn was_changed(id: BaseId) -> Refusal {
    let message = "the host has changed the files of this base, as VerifyBase found: make a new base and delete this one, or \
                   restore its files and verify it again";
    Refusal::new(Reason::PreconditionFailed, message).with("base_id", id.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use identity::Roles;
    use runs::Bases as _;
    use store::OutcomeBounds;

    use super::*;
    use crate::record::Source;

    pub(crate) fn base(principal: &str, used_at: Timestamp, bytes: u64) -> Base {
        Base {
            id: BaseId::new(),
            principal: principal.to_owned(),
            created_at: used_at,
            used_at,
            source: Source::Directory { path: "/srv/a".into() },
            clone_of: None,
            digest: "ab".repeat(32),
            bytes,
            files: 1,
            left_out: 0,
            changed: false,
            requests: Vec::new(),
        }
    }

    fn principal(name: &str) -> Principal {
        let roles = Roles::none().with(identity::Role::Orchestrator);
        Principal { name: name.to_owned(), uid: 1000, gid: 1000, roles, ..Principal::anonymous() }
    }

    #[tokio::test]
    async fn a_base_exists_for_its_principal_alone_and_each_run_makes_it_younger() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store.clone()).unwrap();
        let made = base("uid:1000", Timestamp::now(), 1);
        let id = made.id;
        table.insert(made.clone()).await.unwrap();
        let (own, other) = (principal("uid:1000"), principal("uid:1001"));
        assert_eq!(table.of(id, &own).unwrap(), made);
        assert_eq!(table.of(id, &other).unwrap_err().reason, Reason::NotFound);
        assert_eq!(table.begin(id, &other).unwrap_err().reason, Reason::NotFound);
        assert_eq!(table.of(id, &own).unwrap().used_at, made.used_at);
        table.begin(id, &own).unwrap();
        let used_at = table.of(id, &own).unwrap().used_at;
        assert!(used_at > made.used_at);

        // The store's jobs are done in order.
        while Table::open(store.clone()).unwrap().of(id, &own).unwrap().used_at != used_at {
            tokio::task::yield_now().await;
        }
        assert!(table.clone_of(&own, "1:2:ab", None).is_none(), "it is no clone");
        let clone_of = Some("1:2:ab".to_owned());
        let clone = Base { clone_of, ..base("uid:1000", used_at, 1) };
        table.insert(clone.clone()).await.unwrap();
        let reused = table.clone_of(&own, "1:2:ab", None).unwrap();
        assert!(reused.id == clone.id && reused.used_at > clone.used_at);
        while Table::open(store.clone()).unwrap().of(clone.id, &own).unwrap() != reused {
            tokio::task::yield_now().await;
        }
        assert!(table.clone_of(&own, "1:2:cd", None).is_none());
        assert!(table.clone_of(&other, "1:2:ab", None).is_none());
        for id in [id, clone.id] {
            table.lock().remove(&id);
            table.forget(id).await.unwrap();
        }
        assert!(Table::open(store).unwrap().lock().is_empty());
    }

    #[tokio::test]
    async fn no_run_begins_on_a_changed_base_and_no_clone_is_taken_from_it() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store.clone()).unwrap();
        let clone_of = Some("1:2:ab".to_owned());
        let made = Base { clone_of, ..base("uid:1000", Timestamp::now(), 1) };
        let (id, own) = (made.id, principal("uid:1000"));
        table.insert(made).await.unwrap();
        table.begin(id, &own).unwrap();
        table.set_changed(id, true).await.unwrap();
        let refused = table.begin(id, &own).unwrap_err();
        assert_eq!(refused.reason, Reason::PreconditionFailed);
        assert!(refused.message.contains("verify it again"), "{}", refused.message);
        assert!(table.clone_of(&own, "1:2:ab", None).is_none());
        let kept = Table::open(store.clone()).unwrap();
        assert!(kept.of(id, &own).unwrap().changed, "also by the next daemon");
        table.set_changed(id, false).await.unwrap();
        table.begin(id, &own).unwrap();
        assert!(!Table::open(store).unwrap().of(id, &own).unwrap().changed);
        assert!(table.clone_of(&own, "1:2:ab", None).is_some());
        table.set_changed(BaseId::new(), true).await.unwrap();
    }

    #[tokio::test]
    async fn a_base_is_found_by_its_digest_for_its_principal_while_it_is_unchanged() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store).unwrap();
        let made = base("uid:1000", Timestamp::now(), 1);
        let own = principal("uid:1000");
        table.insert(made.clone()).await.unwrap();
        let found = table.of_digest(&own, &made.digest).unwrap();
        assert!(found.id == made.id && found.used_at > made.used_at);
        assert!(table.of_digest(&own, &"cd".repeat(32)).is_none());
        assert!(table.of_digest(&principal("uid:1001"), &made.digest).is_none());
        table.set_changed(made.id, true).await.unwrap();
        assert!(table.of_digest(&own, &made.digest).is_none());
    }

    #[tokio::test]
    async fn a_repeated_request_finds_its_base_and_another_one_of_the_same_id_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store.clone()).unwrap();
        let asked = |id: &str, path: &str| {
            Asked::of(id.to_owned(), &Source::Directory { path: path.into() }).unwrap()
        };
        let (first, own) = (asked("1", "/srv/a"), principal("uid:1000"));
        let mut made = base("uid:1000", Timestamp::now(), 1);
        made.remember(first.clone());
        table.insert(made.clone()).await.unwrap();
        let table = Table::open(store).unwrap();
        let before = |principal: &Principal, asked: Option<&Asked>| table.made_before(principal, asked);
        assert_eq!(before(&own, first.as_ref()).unwrap(), Some(made));
        assert_eq!(before(&own, None).unwrap(), None);
        assert_eq!(before(&own, asked("2", "/srv/a").as_ref()).unwrap(), None);
        assert_eq!(before(&principal("uid:1001"), first.as_ref()).unwrap(), None, "ids of each principal");
        let refused = before(&own, asked("1", "/srv/b").as_ref()).unwrap_err();
        assert_eq!(refused.reason, Reason::AlreadyExists);
    }
}
