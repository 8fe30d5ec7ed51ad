//! `coffer run`: create, show and end runs.

mod changes;
mod create;
mod end;
mod last;
mod list;
mod pause;
mod select;
mod shell;
mod show;
mod token;
mod variables;
mod watch;

pub(crate) use self::select::{RunRef, one_or_all};

crate::verbs::verbs! {
    Create(Box<create::Create>),
    List(list::List),
    Show(show::Show),
    Shell(shell::Shell),
    Diff(changes::Diff),
    Accept(changes::Accept),
    Discard(changes::Discard),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Extend(last::Extend),
    KeepAlive(last::KeepAlive),
    Token(token::Token),
    Stop(end::Stop),
    Delete(end::Delete),
    Watch(watch::Watch),
}
