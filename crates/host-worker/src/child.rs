//! Runs one operation or one recovery in its process: restricts the process, does the work, writes the outcome, exits.

use std::hint::black_box;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use file_ops::{Go, Recovered};
use jail::{GitReads, Jail, Mount, Private, Protection, Root, Whose};
use operations::{Binder, Bounds, Operation, Outcome, Preview, Reason, ToolFailure};
use prost::Message;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{fcntl_dupfd_cloexec, retry_on_intr};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::stdio::{dup2_stdin, stdin};
use wire::v1::operation::Kind;
use wire::v1::{WriteRequest, git_request};
use wire::worker::v1::Start;
use worker_protocol::convert::{bounds_from_wire, carried, outcome_to_wire, preview_to_wire};

use crate::order::Order;
use crate::setup::{ChildFilter, forbid_tasks, limit_file_size, limit_memory, limit_time};
use crate::way_out::WayOut;
use crate::{git, location, sys};
use confinement::SetupError;
use host_launch::args::JailMount;

/// Time before the end of a call at which it gives its server up, so that it can say what may have been done.
const ANSWER: Duration = Duration::from_secs(2);

/// The restrictions that each process of the host worker gets.
#[derive(Debug)]
pub(crate) struct Terms {
    filter: ChildFilter,
}

impl Terms {
    pub(crate) fn new() -> Result<Self, SetupError> {
        Ok(Self { filter: ChildFilter::new()? })
    }
}

/// The task of a process of the host worker.
#[derive(Debug)]
pub(crate) enum Work {
    /// A call, and the socket over which it asks for streams to servers, if it may.
    Call(Box<Start>, Option<OwnedFd>),
    /// Recovers the leftovers of killed operations.
    Recover(Whose),
}

impl Work {
    /// Returns true if the call takes effect only after the daemon's word.
    pub(crate) fn awaits_go(&self) -> bool {
        matches!(self, Self::Call(start, _) if start.awaits_go)
    }

    fn way_out(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Call(_, way_out) => way_out.as_ref().map(AsFd::as_fd),
            Self::Recover(_) => None,
        }
    }

    /// Returns true if it may make a file that is larger than those of other operations.
    fn is_transfer(&self) -> bool {
        use git_request::Command::{Fetch, Pull};
        let Self::Call(start, _) = self else { return false };
        match start.operation.as_ref().and_then(|operation| operation.kind.as_ref()) {
            Some(Kind::Write(write)) => write.uploaded.is_some(),
            // The commits come as one pack.
            Some(Kind::Git(git)) => matches!(git.command, Some(Fetch(_) | Pull(_))),
            _ => false,
        }
    }
}

/// Does the work and ends the process.
///
/// `number` is the job's, and `result` takes the outcome. If the call waits for `Go`, that comes over
/// `orders`.
pub(crate) fn run(
    (work, orders): (Work, Option<OwnedFd>),
    number: u64,
    deadline: Instant,
    terms: &Terms,
    result: OwnedFd,
) -> ! {
    let done = orders
        .map_or(Ok(()), listen_to)
        .and_then(|()| restrict(terms, &result, work.way_out()))
        .and_then(|()| perform(work, number, deadline, result));
    sys::exit_now(i32::from(done.is_err()))
}

/// Waits for an operation, does it and ends the process.
pub(crate) fn wait(terms: &Terms, orders: OwnedFd, result: OwnedFd) -> ! {
    let done = take_order(terms, orders, result);
    sys::exit_now(i32::from(done.is_err()))
}

fn take_order(terms: &Terms, orders: OwnedFd, result: OwnedFd) -> io::Result<()> {
    listen_to(orders)?;
    restrict(terms, &result, None)?;
    rehearse();
    let Some(Order { number, deadline, start }) = Order::receive(stdin())? else { return Ok(()) };
    perform(Work::Call(Box::new(start), None), number, deadline, result)
}

/// Runs the code before and after the effect of each operation, without an effect.
///
/// A new process takes a fault for each page that it uses; here it takes them before a call waits for it. Its first hash asks the
/// processor for its features, which in a virtual machine takes longer than the hash.
fn rehearse() {
    let write = WriteRequest { path: "f".to_owned(), content: "-".repeat(4096), ..WriteRequest::default() };
    let operation = Some(wire::v1::Operation { kind: Some(Kind::Write(write)) });
    let order = Start { operation, ..Start::default() }.encode_to_vec();
    let parsed =
        Start::decode(order.as_slice()).ok().and_then(|start| Operation::parse(start.operation?).ok());
    let failure = parsed.map_or_else(no_operation, |operation| of_the_other_lane(&operation));
    let outcome = outcome_to_wire(Err(failure)).encode_to_vec();
    drop(black_box((jail(&Bounds::default(), 0), Binder::new("write").finish(), outcome)));
}

/// Makes standard input the source of orders, until [`answer_to`].
fn listen_to(orders: OwnedFd) -> io::Result<()> {
    fcntl_setfl(&orders, OFlags::empty())?;
    dup2_stdin(&orders)?;
    std::mem::forget(orders);
    Ok(())
}

fn perform(work: Work, number: u64, deadline: Instant, result: OwnedFd) -> io::Result<()> {
    let orders = work.awaits_go().then(|| fcntl_dupfd_cloexec(stdin(), 0)).transpose()?;
    answer_to(result)?;
    limit_time(deadline)?;
    if !work.is_transfer() {
        limit_file_size()?;
    }
    match work {
        Work::Call(start, way_out) => {
            let way = WayOut::new(way_out, gives_up_at(deadline));
            let execute = AssertUnwindSafe(|| execute(*start, number, orders.as_ref(), &way));
            let outcome = catch_unwind(execute).unwrap_or_else(|_| {
                outcome_to_wire(Err(ToolFailure::new(
                    Reason::Internal,
                    "the operation failed with an internal error",
                )))
            });
            answer(&carried(outcome).encode_to_vec())
        }
        Work::Recover(whose) => {
            let recovered = file_ops::recover(&jail(&Bounds::default(), number)?, whose)?;
            answer(recovered.remarks.join("; ").as_bytes())
        }
    }
}

/// Returns the time at which a call gives its server up. The call is killed at its deadline.
fn gives_up_at(deadline: Instant) -> Instant {
    let left = deadline.saturating_duration_since(Instant::now());
    deadline.checked_sub(ANSWER.min(left / 8)).unwrap_or(deadline)
}

/// Recovers the leftovers of all operations, as the one task of this process. Returns a remark, or `None` if there were none.
pub(crate) fn recover_everything() -> io::Result<Option<String>> {
    let found = file_ops::recover(&jail(&Bounds::default(), 0)?, Whose::Everyone)?;
    if found == Recovered::default() {
        return Ok(None);
    }
    let counts = format!("{} temporary files removed, {} things left", found.temporaries, found.left);
    Ok(Some([vec![counts], found.remarks].concat().join("; ")))
}

/// Closes every descriptor of the host worker (its channel, the other operations' pipes and pidfds) but `result` and the way out, and
/// gives up the rights that no operation needs.
fn restrict(terms: &Terms, result: &OwnedFd, way_out: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let kept: Vec<BorrowedFd<'_>> = way_out.into_iter().chain([result.as_fd()]).collect();
    sys::close_others(&kept)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    limit_memory()?;
    forbid_tasks()?;
    terms.filter.forbid_processes()
}

/// Makes standard input the way out for the outcome.
fn answer_to(result: OwnedFd) -> io::Result<()> {
    fcntl_setfl(&result, OFlags::empty())?;
    dup2_stdin(&result)?;
    drop(result);
    Ok(())
}

fn execute(start: Start, number: u64, orders: Option<&OwnedFd>, way: &WayOut) -> wire::worker::v1::Outcome {
    let bounds = bounds_from_wire(start.bounds);
    let operation = start.operation.ok_or_else(no_operation).and_then(|operation| {
        Operation::parse(operation).map_err(|bad| ToolFailure::new(bad.reason, bad.to_string()))
    });
    let admitted = operation.and_then(|operation| {
        let jail = jail(&bounds, number).map_err(|error| {
            ToolFailure::new(Reason::Internal, format!("cannot open the run's mounts: {error}"))
        })?;
        if matches!(operation, Operation::Git(_)) && location::is_on_the_host() {
            return Err(ToolFailure::new(
                Reason::PermissionDenied,
                "git is not available: this daemon has neither root nor user namespaces, and its operator accepts the \
                 weaker form of the jail, which is for files alone",
            ));
        }
        Ok((operation, jail))
    });
    match admitted {
        Ok((operation, jail)) if start.preview => preview_to_wire(foresee(&jail, &operation, (&bounds, way))),
        Ok((operation, jail)) => {
            let mut go = orders.map(|orders| move || await_go(orders));
            outcome_to_wire(effect(&jail, &operation, (&bounds, way), go.as_mut().map(|go| go as Go<'_>)))
        }
        Err(failure) => outcome_to_wire(Err(failure)),
    }
}

/// Waits for `Go`: the call may take effect.
fn await_go(orders: &OwnedFd) -> Result<(), ToolFailure> {
    match retry_on_intr(|| rustix::io::read(orders, &mut [0; 1])) {
        Ok(1) => Ok(()),
        _ => Err(ToolFailure::new(Reason::Cancelled, "the operation was ended before it could take effect")),
    }
}

fn effect(
    jail: &Jail,
    operation: &Operation,
    (bounds, way): (&Bounds, &WayOut),
    go: Option<Go<'_>>,
) -> Outcome {
    let go = match operation {
        Operation::Write(write) => return file_ops::write(jail, write, bounds, go),
        Operation::Edit(edit) => return file_ops::edit(jail, edit, bounds, go),
        _ => go,
    };
    if let Some(go) = go {
        go()?;
    }
    match operation {
        Operation::Patch(patch) => file_ops::patch(jail, patch, bounds),
        Operation::Delete(delete) => file_ops::delete(jail, delete, bounds),
        Operation::Git(command) => git::run(jail, command, (bounds, way)),
        other => Err(of_the_other_lane(other)),
    }
}

fn foresee(
    jail: &Jail,
    operation: &Operation,
    (bounds, way): (&Bounds, &WayOut),
) -> Result<Preview, ToolFailure> {
    match operation {
        Operation::Write(write) => file_ops::preview_write(jail, write, bounds),
        Operation::Edit(edit) => file_ops::preview_edit(jail, edit, bounds),
        Operation::Patch(patch) => file_ops::preview_patch(jail, patch, bounds),
        Operation::Delete(delete) => file_ops::preview_delete(jail, delete, bounds),
        Operation::Git(command) => git::preview(jail, command, (bounds, way)),
        other => Err(of_the_other_lane(other)),
    }
}

fn no_operation() -> ToolFailure {
    ToolFailure::new(Reason::InvalidArgument, "no operation")
}

fn of_the_other_lane(operation: &Operation) -> ToolFailure {
    ToolFailure::new(Reason::Internal, format!("{} is not of the host lane", operation.name()))
}

/// Opens the mounts that exist, and the private directory.
///
/// Each operation opens them anew: a handle is cheap, and a shared one would be a further thing to inherit.
fn jail(bounds: &Bounds, number: u64) -> io::Result<Jail> {
    let mut roots = Vec::new();
    for mount in Mount::ALL {
        let jail_mount = match mount {
            Mount::Project => JailMount::Workspace,
            Mount::State => JailMount::State,
            Mount::Pkg => JailMount::Pkg,
            // Not on the host.
            Mount::Container => continue,
        };
        let Some(path) = location::path(jail_mount) else { continue };
        match Root::open(mount, &path) {
            Ok(root) => roots.push(root),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let git_reads = if bounds.hide_git_config { GitReads::Guarded } else { GitReads::Open };
    let jail = Jail::new(roots, Protection { git_reads });
    let jail = bounds.path_rules.guard(jail);
    Ok(match private(number)? {
        Some(private) => jail.with_private(private),
        None => jail,
    })
}

/// Opens the run's private directory for the job of this number. A clone and a trial have none.
pub(crate) fn private(number: u64) -> io::Result<Option<Private>> {
    let Some(path) = location::path(JailMount::Private) else { return Ok(None) };
    match Private::open(&path, number) {
        Ok(private) => Ok(Some(private)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn answer(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(stdin(), bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
