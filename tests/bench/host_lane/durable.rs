//! A durable write of 4 KiB, against the bare sequence of system calls that makes one, in the same directory; and an `edit`
//! of as much against the write.
//!
//! The sequence is the one that the host worker makes, and nothing else: no note, no record, no process, nobody who asks. With a
//! record before it and one after it, each on the disk before anything follows, it is what no write that is on record can
//! do without.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use harness::calls;
use rustix::fs::{Mode, OFlags, fchmod, fsync, open, openat, renameat};

use crate::args::Args;
use crate::contest::{self, Act, Contender, Parts, hold};
use crate::report::{Goal, Report};
use crate::stage::{FILE_BYTES, Stage};

/// Times in each round.
const TURNS: usize = 5;
/// Of a record of a write, about.
const RECORD_BYTES: usize = 850;

pub(crate) async fn run(args: &Args, report: &mut Report) {
    let stage = Stage::set_with(|_| {}).await;
    let content = format!("{:63}\n", "a line of a file that an agent writes").repeat(FILE_BYTES / 64);
    let parts = Parts::default();
    let workspace = stage.workspace();
    let contenders = vec![
        Contender::new(
            "through the API",
            TURNS,
            contest::call(&stage, calls::write("through-the-api", &content), &parts, |_| {}).await,
        ),
        Contender::new("bare system calls", TURNS, bare(&workspace, content.as_bytes())),
        Contender::new("the same between two records", TURNS, recorded(&workspace, content.as_bytes())),
    ];
    let [api, _, recorded] =
        report.contest("durable write of 4 KiB", hold(contenders, args.rounds).await, &parts);
    report.goal(Goal::ratio_at_most(
        "durable write of 4 KiB, against bare system calls between two records",
        api,
        recorded,
        2.0,
    ));
    edit(&stage, &content, args, report).await;
}

/// Every second edit takes back the one before it, so that the file keeps its size.
async fn edit(stage: &Stage, content: &str, args: &Args, report: &mut Report) {
    let parts = Parts::default();
    let (before, after) = ("BEFORE", "BEHIND");
    let edited = [before, &content[before.len()..]].concat();
    let mut write = contest::call(stage, calls::write("edited", &edited), &Parts::default(), |_| {}).await;
    // Makes the file.
    write().await;
    let mut acts = [
        contest::call(stage, calls::replace("edited", before, after), &parts, |_| {}).await,
        contest::call(stage, calls::replace("edited", after, before), &parts, |_| {}).await,
    ];
    let mut turn = 0;
    let edit: Act<'_> = Box::new(move || {
        turn = 1 - turn;
        acts[1 - turn]()
    });
    let other = contest::call(stage, calls::write("written", content), &Parts::default(), |_| {}).await;
    let contenders = vec![Contender::new("edit", TURNS + 1, edit), Contender::new("write", TURNS + 1, other)];
    let [edit, write] = report.contest("edit of 4 KiB", hold(contenders, args.rounds).await, &parts);
    report.goal(Goal::ratio_at_most("edit of 4 KiB, against a durable write", edit, write, 1.2));
}

fn bare<'a>(directory: &'a Path, content: &'a [u8]) -> Act<'a> {
    Box::new(move || {
        Box::pin(async move {
            let began = Instant::now();
            write(directory, content).unwrap();
            began.elapsed()
        })
    })
}

fn recorded<'a>(directory: &'a Path, content: &'a [u8]) -> Act<'a> {
    // Beside the workspace, on the same disk, and open all the time as the log is.
    let log = directory.with_file_name("records");
    let mut log = File::options().append(true).create(true).open(log).unwrap();
    Box::new(move || {
        let began = Instant::now();
        record(&mut log).unwrap();
        write(directory, content).unwrap();
        record(&mut log).unwrap();
        let took = began.elapsed();
        Box::pin(async move { took })
    })
}

fn record(log: &mut File) -> std::io::Result<()> {
    log.write_all(&[b'x'; RECORD_BYTES])?;
    log.sync_data()
}

fn write(directory: &Path, content: &[u8]) -> std::io::Result<()> {
    let directory = open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&directory, "bare.tmp", flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(content)?;
    fchmod(&file, Mode::from_raw_mode(0o644))?;
    fsync(&file)?;
    renameat(&directory, "bare.tmp", &directory, "bare")?;
    Ok(fsync(&directory)?)
}
