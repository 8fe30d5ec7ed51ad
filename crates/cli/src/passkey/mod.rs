//! `coffer passkey`: the passkeys of reviewers.

mod list;
mod remove;

crate::verbs::verbs! {
    List(list::List),
    Remove(remove::Remove),
}
