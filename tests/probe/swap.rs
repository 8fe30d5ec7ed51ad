//! The race: two names exchanged as fast as the kernel can.

use std::ffi::CString;
use std::path::Path;

use crate::sys;

/// Between looks whether to stop.
const ROUND: u64 = 512;

/// Exchanges `one` and `other`, says through the FIFO `ready` that it has begun, and goes on until `stop` exists.
pub fn swap(one: &str, other: &str, ready: &str, stop: &str) {
    let (one, other) = (CString::new(one).unwrap(), CString::new(other).unwrap());
    let mut exchanges = 0;
    while !Path::new(stop).exists() {
        for _ in 0..ROUND {
            let result = unsafe {
                sys::renameat2(
                    sys::AT_FDCWD,
                    one.as_ptr(),
                    sys::AT_FDCWD,
                    other.as_ptr(),
                    sys::RENAME_EXCHANGE,
                )
            };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        }
        if exchanges == 0 {
            std::fs::write(ready, "swapping").unwrap();
        }
        exchanges += ROUND;
    }
    println!("{exchanges}");
}
