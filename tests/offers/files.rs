//! Devices, files of the kernel, and places to write to.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, io};

use crate::errors::word;
use crate::row;

/// Files of the kernel that programs read, in groups with one answer each.
const GROUPS: [(&str, &str); 5] = [
    (
        "/proc: of processes and machine",
        "/proc/self/status /proc/self/maps /proc/self/mountinfo /proc/self/limits /proc/self/cgroup /proc/self/fd /proc/cpuinfo \
         /proc/meminfo /proc/loadavg /proc/uptime /proc/stat /proc/version /proc/filesystems /proc/mounts /proc/devices",
    ),
    (
        "/proc: of the network",
        "/proc/net/dev /proc/net/tcp /proc/net/tcp6 /proc/net/udp /proc/net/unix /proc/net/route",
    ),
    (
        "/proc/sys",
        "/proc/sys/kernel/osrelease /proc/sys/kernel/pid_max /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id \
         /proc/sys/net/core/somaxconn /proc/sys/fs/inotify/max_user_watches /proc/sys/vm/overcommit_memory \
         /proc/sys/vm/max_map_count /proc/sys/fs/file-max",
    ),
    (
        "/proc: of the host",
        "/proc/cmdline /proc/modules /proc/interrupts /proc/diskstats /proc/partitions /proc/swaps /proc/vmstat /proc/zoneinfo \
         /proc/buddyinfo /proc/kallsyms /proc/config.gz /proc/locks /proc/pressure /proc/softirqs /proc/schedstat /proc/misc",
    ),
    (
        "/sys: of devices and the kernel",
        "/sys/class /sys/block /sys/bus /sys/dev /sys/module /sys/kernel /sys/power /sys/devices/virtual",
    ),
];

pub fn rows() {
    for name in ["null", "zero", "random", "urandom"] {
        let path = format!("/dev/{name}");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        row(&path, word(opened.and_then(|mut file| file.read(&mut [0; 8]))));
    }
    let full = OpenOptions::new().write(true).open("/dev/full").and_then(|mut file| file.write(b"x"));
    row(
        "/dev/full",
        if full.is_err_and(|error| error.raw_os_error() == Some(28)) { "full" } else { "other" },
    );
    row("/dev/tty", word(File::open("/dev/tty")));
    row("pseudo-terminal", word(terminal()));
    let links = ["fd", "stdin", "stdout", "stderr"]
        .map(|name| Path::new("/dev").join(name).symlink_metadata().is_ok());
    row("/dev/fd, /dev/stdin, /dev/stdout, /dev/stderr", if links == [true; 4] { "there" } else { "absent" });
    for path in ["/dev/core", "/dev/console", "/dev/kvm", "/dev/fuse"] {
        row(path, if Path::new(path).exists() { "there" } else { "absent" });
    }
    for (name, paths) in GROUPS {
        row(name, group(paths));
    }
    row("/sys: processors", group("/sys/devices/system/cpu/online /sys/devices/system/node"));
    row(
        "/sys: its own limits",
        group("/sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max"),
    );

    row("size of /dev/shm", size("/dev/shm"));
    let home = env::var("HOME").unwrap_or_default();
    for (name, path) in [
        ("/tmp", "/tmp"),
        ("/dev/shm", "/dev/shm"),
        ("/var/tmp", "/var/tmp"),
        ("/run", "/run"),
        ("/etc", "/etc"),
        ("/usr/local", "/usr/local"),
        ("$HOME", &home),
    ] {
        row(&format!("write in {name}"), word(write(Path::new(path))));
    }
    for path in ["/tmp", "/dev/shm"] {
        row(&format!("execute in {path}"), word(execute(Path::new(path))));
    }
    row("change /etc/hosts", word(OpenOptions::new().append(true).open("/etc/hosts")));
    let socket = Path::new("/tmp/offers-socket");
    let _ = fs::remove_file(socket);
    row("Unix socket in /tmp", word(UnixListener::bind(socket)));
    let _ = fs::remove_file(socket);
    row("symbolic link in /tmp", word(symlink("x", socket)));
    let _ = fs::remove_file(socket);
    row("set-user-id bit", word(set_id()));
}

/// Returns `read` if all of these that exist can be read, and `hidden` if none can.
fn group(paths: &str) -> &'static str {
    let is_read = |path: &str| {
        if Path::new(path).is_dir() {
            return fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        }
        let read = File::open(path).and_then(|mut file| file.read(&mut [0; 1]));
        read.is_ok_and(|count| count > 0)
    };
    let (read, other): (Vec<&str>, Vec<&str>) = paths.split_whitespace().partition(|path| is_read(path));
    let refused = other.iter().any(|path| Path::new(path).exists());
    match (read.is_empty(), refused) {
        (true, _) => "hidden",
        (false, false) => "read",
        (false, true) => "partly",
    }
}

unsafe extern "C" {
    fn ioctl(file: i32, request: u64, argument: *mut i32) -> i32;
    fn statvfs(path: *const std::ffi::c_char, found: *mut [u64; 32]) -> i32;
}

fn terminal() -> io::Result<File> {
    use std::os::fd::AsRawFd as _;
    const UNLOCK: u64 = 0x4004_5431;
    const NUMBER: u64 = 0x8004_5430;
    const NO_CONTROLLING_TERMINAL: i32 = 0o400;
    let open = |path: &str| {
        OpenOptions::new().read(true).write(true).custom_flags(NO_CONTROLLING_TERMINAL).open(path)
    };
    let main = open("/dev/ptmx")?;
    let mut number = 0;
    // SAFETY: each reads or writes the one number.
    unsafe {
        ioctl(main.as_raw_fd(), UNLOCK, &raw mut number);
        ioctl(main.as_raw_fd(), NUMBER, &raw mut number);
    }
    open(&format!("/dev/pts/{number}"))
}

/// Returns the size of a file system in MiB.
fn size(path: &str) -> String {
    let Ok(path) = std::ffi::CString::new(path) else { return String::new() };
    let mut found = [0; 32];
    // SAFETY: the structure is smaller than this, and of numbers.
    if unsafe { statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return word::<()>(Err(io::Error::last_os_error()));
    }
    format!("{} MiB", found[1] * found[2] >> 20)
}

fn write(place: &Path) -> io::Result<()> {
    let path = place.join("offers-file");
    fs::write(&path, "x")?;
    fs::remove_file(path)
}

fn execute(place: &Path) -> io::Result<()> {
    let path = place.join("offers-program");
    fs::copy("/proc/self/exe", &path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    let ran =
        Command::new(&path).stdout(Stdio::null()).stdin(Stdio::null()).env("OFFERS_IS_CHILD", "1").status();
    fs::remove_file(path)?;
    ran.map(drop)
}

fn set_id() -> io::Result<()> {
    let path = "/tmp/offers-set-id";
    fs::write(path, "x")?;
    let set = fs::set_permissions(path, fs::Permissions::from_mode(0o4755));
    fs::remove_file(path)?;
    set
}
