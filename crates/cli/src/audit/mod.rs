//! `coffer audit`: reads, searches, exports and verifies the audit log.

mod checkpoint;
mod consents;
mod export;
mod filter;
mod query;
mod reindex;
mod summary;
mod tail;
mod verify;

pub(crate) use query::Pages;
pub(crate) use tail::Tail;

crate::verbs::verbs! {
    Checkpoint(checkpoint::Take),
    Key(checkpoint::Key),
    RotateKey(checkpoint::Rotate),
    Tail(Tail),
    Query(query::Query),
    Export(export::Export),
    Reindex(reindex::Reindex),
    Verify(verify::Verify),
    Consents(consents::Consents),
}
