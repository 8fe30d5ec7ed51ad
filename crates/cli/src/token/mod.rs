//! `coffer token`: API tokens.

mod create;
mod list;
mod revoke;

crate::verbs::verbs! {
    Create(create::Create),
    List(list::List),
    Revoke(revoke::Revoke),
}
