//! The names of errors.

use std::io;

/// Returns `ok`, or the name of the error.
pub fn word<T>(result: io::Result<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.raw_os_error().map_or_else(|| error.kind().to_string(), name),
    }
}

/// Returns the outcome of a call that answers -1 on failure.
pub fn check(result: i64) -> io::Result<i64> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn name(errno: i32) -> String {
    let known = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (3, "ESRCH"),
        (6, "ENXIO"),
        (12, "ENOMEM"),
        (13, "EACCES"),
        (14, "EFAULT"),
        (19, "ENODEV"),
        (22, "EINVAL"),
        (30, "EROFS"),
        (38, "ENOSYS"),
        (95, "EOPNOTSUPP"),
        (93, "EPROTONOSUPPORT"),
        (94, "ESOCKTNOSUPPORT"),
        (97, "EAFNOSUPPORT"),
        (99, "EADDRNOTAVAIL"),
        (101, "ENETUNREACH"),
    ];
    let found = known.into_iter().find(|(number, _)| *number == errno);
    found.map_or_else(|| format!("error {errno}"), |(_, name)| name.to_owned())
}
