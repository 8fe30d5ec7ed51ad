//! `coffer process`: processes that stay after their call.

mod control;
mod list;
mod logs;
mod select;
mod send;
pub(crate) mod show;
mod signals;
mod start;

crate::verbs::verbs! {
    Start(Box<start::Start>),
    List(list::List),
    Show(show::Show),
    Logs(logs::Logs),
    Send(send::Send),
    Signal(control::Signal),
    Wait(control::Wait),
    Resize(control::Resize),
}
