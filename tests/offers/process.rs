//! The state in which a program starts.

use std::env;
use std::fs;
use std::io::Read as _;

use crate::row;

#[repr(C)]
struct Limit {
    soft: u64,
    hard: u64,
}

unsafe extern "C" {
    fn getrlimit(resource: i32, limit: *mut Limit) -> i32;
    fn umask(mask: u32) -> u32;
    fn getsid(pid: i32) -> i32;
}

pub fn rows() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = status.lines();
        lines
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let none =
        |mask: &str| if mask.chars().all(|digit| digit == '0') { "none".to_owned() } else { mask.to_owned() };
    row("user", if field("Uid").starts_with("0\t") { "root" } else { "agent" });
    row("capabilities", if none(&field("CapEff")) == "none" { "none" } else { "some" });
    row("new privileges", if field("NoNewPrivs") == "1" { "no" } else { "yes" });
    row("signals blocked", none(&field("SigBlk")));
    row("signals ignored", none(&field("SigIgn")));
    // SAFETY: sets a mask, and sets it back.
    let mask = unsafe { umask(0o22) };
    row("umask", format!("{mask:04o}"));
    let mut byte = [0];
    let input = std::io::stdin().read(&mut byte);
    row("standard input", if matches!(input, Ok(0)) { "at its end" } else { "open" });
    // SAFETY: asks for a number.
    row(
        "session",
        if unsafe { getsid(0) } == std::process::id().cast_signed() { "its own" } else { "another's" },
    );
    for name in ["PATH", "HOME", "LANG", "TERM", "HOSTNAME", "USER", "SHELL", "TZ", "TMPDIR"] {
        let value = match (name, env::var(name)) {
            (_, Err(_)) => "unset".to_owned(),
            ("HOSTNAME", Ok(_)) => "set".to_owned(),
            ("PATH", Ok(path)) => if path.contains("/usr/local/bin") { "usual" } else { "other" }.to_owned(),
            (_, Ok(value)) => value,
        };
        row(&format!("variable {name}"), value);
    }
    for (name, resource) in [
        ("core", 4),
        ("file size", 1),
        ("open files", 7),
        ("processes", 6),
        ("stack", 3),
        ("address space", 9),
        ("data", 2),
        ("processor time", 0),
    ] {
        let mut limit = Limit { soft: 0, hard: 0 };
        // SAFETY: writes to the one structure.
        unsafe { getrlimit(resource, &raw mut limit) };
        let value = match limit.soft {
            0 => "0",
            u64::MAX => "none",
            _ => "some",
        };
        row(&format!("limit of {name}"), value);
    }
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let outside = cgroups.lines().any(|line| {
        let path = line.rsplit(':').next().unwrap_or_default();
        path.contains("/docker") || path.contains("/system.slice")
    });
    row("cgroups", if outside { "the host's names" } else { "its own" });
}
