//! Names of hosts and users, interfaces and addresses.

use std::ffi::{CStr, c_char, c_void};
use std::net::{TcpListener, ToSocketAddrs as _, UdpSocket};
use std::{fs, ptr};

use crate::errors::word;
use crate::row;

#[repr(C)]
struct User {
    name: *const c_char,
    password: *const c_char,
    uid: u32,
    gid: u32,
    gecos: *const c_char,
    home: *const c_char,
    shell: *const c_char,
}

#[repr(C)]
struct Interface {
    next: *const Interface,
    name: *const c_char,
}

unsafe extern "C" {
    fn getuid() -> u32;
    fn getpwuid(uid: u32) -> *const User;
    fn getifaddrs(list: *mut *const Interface) -> i32;
    fn gethostname(name: *mut c_char, length: usize) -> i32;
}

pub fn rows() {
    let mut name = [0_u8; 256];
    // SAFETY: writes at most as many bytes, and leaves a zero.
    unsafe { gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let own = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
    row("host name", if own == "cofferdam" { "cofferdam" } else { "of the container" });
    for (what, name) in
        [("localhost", "localhost"), ("its own name", &own), ("another name", "www.example.org")]
    {
        row(&format!("address of {what}"), address(name));
    }
    for (what, at) in [("127.0.0.1", "127.0.0.1:0"), ("::1", "[::1]:0"), ("port 80", "127.0.0.1:80")] {
        row(&format!("listen on {what}"), word(TcpListener::bind(at)));
    }
    let sent = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect("192.0.2.1:9"));
    row("way to other hosts", word(sent));
    row("list of interfaces", interfaces());
    let (user, home) = user();
    row("name of the user", user);
    row("home of the user", home);
    for path in ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/passwd", "/etc/group", "/etc/mtab"]
    {
        row(path, if fs::read(path).is_ok() { "there" } else { "absent" });
    }
}

fn address(name: &str) -> String {
    match (name, 80).to_socket_addrs() {
        Ok(mut found) => found.next().map_or_else(|| "none".to_owned(), |first| first.ip().to_string()),
        Err(_) => "none".to_owned(),
    }
}

fn interfaces() -> String {
    let mut list = ptr::null();
    // SAFETY: makes a list, of which nothing is freed.
    if unsafe { getifaddrs(&raw mut list) } != 0 {
        return word::<()>(Err(std::io::Error::last_os_error()));
    }
    let mut names = Vec::new();
    while !list.is_null() {
        // SAFETY: the library's list, of texts that end with a zero.
        let (name, next) = unsafe { (CStr::from_ptr((*list).name), (*list).next) };
        names.push(name.to_string_lossy().into_owned());
        list = next;
    }
    names.dedup();
    names.join(" ")
}

fn user() -> (String, String) {
    // SAFETY: the library's one structure, read before it is used again.
    unsafe {
        let found = getpwuid(getuid());
        if found.is_null() {
            return ("none".to_owned(), "none".to_owned());
        }
        let text =
            |text: *const c_char| CStr::from_ptr(text.cast::<c_void>().cast()).to_string_lossy().into_owned();
        (text((*found).name), text((*found).home))
    }
}
