//! `coffer run`: create, show and end runs.

mod changes;
mod connections;
mod create;
mod end;
mod forward;
mod last;
mod list;
mod logs;
mod pause;
mod restore;
mod shell;
mod show;
mod ssh;
mod start;
mod token;
mod watch;
mod widen;

pub(crate) use self::shell::Shell;
use crate::run_ref::RunRef;

crate::verbs::verbs! {
    Create(Box<create::Create>),
    List(list::List),
    Show(show::Show),
    Shell(Shell),
    Forward(forward::Forward),
    Ssh(ssh::Ssh),
    SshConfig(ssh::SshConfig),
    Connections(connections::Connections),
    Narrow(connections::Narrow),
    Widen(widen::Widen),
    Diff(changes::Diff),
    Accept(changes::Accept),
    Discard(changes::Discard),
    Fork(Box<run_families::Fork>),
    Compare(run_families::Compare),
    Tree(run_families::Tree),
    Prune(run_families::Prune),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Restore(restore::Restore),
    Extend(last::Extend),
    KeepAlive(last::KeepAlive),
    Token(token::Token),
    Stop(end::Stop),
    Delete(end::Delete),
    Watch(watch::Watch),
    Logs(logs::Logs),
}
