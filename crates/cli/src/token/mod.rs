//! `coffer token`: API tokens.

mod create;
mod list;
mod revoke;
mod show;

crate::verbs::verbs! {
    Create(create::Create),
    List(list::List),
    Show(show::Show),
    Revoke(revoke::Revoke),
}
