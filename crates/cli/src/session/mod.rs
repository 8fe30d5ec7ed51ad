//! `coffer session`: shells that stay.

mod control;
mod list;
mod open;
mod result;
mod run;
mod select;
mod show;

crate::verbs::verbs! {
    Open(open::Open),
    Run(run::Run),
    List(list::List),
    Show(show::Show),
    Interrupt(control::Interrupt),
    Close(control::Close),
}
