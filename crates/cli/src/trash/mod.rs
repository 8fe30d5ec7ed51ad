//! `coffer trash`: what was deleted in a run.

mod list;
mod show;

crate::verbs::verbs! {
    List(list::List),
    Show(show::Show),
}
