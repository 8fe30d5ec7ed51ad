//! The bases that exist. A base is in the table from the time that it is in the store until it is deleted.

use std::collections::BTreeMap;

use identity::{BaseId, Principal};
use parking_lot::{Mutex, MutexGuard};
use refusal::{Refusal, chain};
use runs::no_such_base;
use store::{Store, StoreError};
use timestamp::Timestamp;

use crate::record::Base;

pub(crate) struct Table {
    bases: Mutex<BTreeMap<BaseId, Base>>,
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
        Ok(Self { bases: Mutex::new(bases), store })
    }

    /// Stores a new base, after which runs can begin on it.
    pub(crate) async fn insert(&self, base: Base) -> Result<(), Refusal> {
        let (id, text) = (base.id, serde_json::to_string(&base));
        let stored = self.store.with(move |store| store.insert_base(id, &text?)).await;
        stored.map_err(|error| Refusal::internal("keeping the base", &chain(&error)))?;
        self.lock().insert(id, base);
        Ok(())
    }

    /// Returns the newest base of `principal` that is this clone, and notes its use.
    pub(crate) fn clone_of(&self, principal: &Principal, identity: &str) -> Option<Base> {
        let mut bases = self.lock();
        let is_same =
            |base: &&mut Base| base.principal == principal.name && base.clone_of.as_deref() == Some(identity);
        let base = bases.values_mut().rev().find(is_same)?;
        self.note_use(base);
        Some(base.clone())
    }

    /// Makes the base younger. The caller need not wait for the store: a time that is lost only makes the base look older.
    fn note_use(&self, base: &mut Base) {
        base.used_at = Timestamp::now();
        let (store, id, text) = (self.store.clone(), base.id, serde_json::to_string(base));
        tokio::spawn(async move { store.with(move |store| store.update_base(id, &text?)).await });
    }

    /// Deletes the row of a base that is no longer in the table.
    pub(crate) async fn forget(&self, id: BaseId) -> Result<(), Refusal> {
        let deleted = self.store.with(move |store| store.delete_base(id)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the base", &chain(&error)))
    }

    /// Returns a base that `principal` may use. Others do not exist for it.
    pub(crate) fn of(&self, id: BaseId, principal: &Principal) -> Result<Base, Refusal> {
        let found = self.lock().get(&id).cloned();
        found.filter(|base| principal.may_use(&base.principal)).ok_or_else(no_such_base)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<BaseId, Base>> {
        self.bases.lock()
    }
}

impl runs::Bases for Table {
    fn begin(&self, id: BaseId, principal: &Principal) -> Result<(), Refusal> {
        let mut bases = self.lock();
        let base = bases.get_mut(&id).filter(|base| principal.may_use(&base.principal));
        self.note_use(base.ok_or_else(no_such_base)?);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use identity::Roles;
    use operations::Reason;
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
        assert!(table.clone_of(&own, "1:2:ab").is_none(), "it is no clone");
        let clone_of = Some("1:2:ab".to_owned());
        let clone = Base { clone_of, ..base("uid:1000", used_at, 1) };
        table.insert(clone.clone()).await.unwrap();
        let reused = table.clone_of(&own, "1:2:ab").unwrap();
        assert!(reused.id == clone.id && reused.used_at > clone.used_at);
        while Table::open(store.clone()).unwrap().of(clone.id, &own).unwrap() != reused {
            tokio::task::yield_now().await;
        }
        assert!(table.clone_of(&own, "1:2:cd").is_none() && table.clone_of(&other, "1:2:ab").is_none());
        for id in [id, clone.id] {
            table.lock().remove(&id);
            table.forget(id).await.unwrap();
        }
        assert!(Table::open(store).unwrap().lock().is_empty());
    }
}
