//! `coffer trash`: files that were deleted in a run.

mod list;
mod show;

crate::verbs::verbs! {
    List(list::List),
    Show(show::Show),
}
